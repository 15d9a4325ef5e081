//! `show`: what a checkpoint says of itself.

use std::process::ExitCode;

use everstep::Manifest;
use everstep::format::intent::ParentRef;
use serde_json::json;

use crate::cli::RefArgs;
use crate::commands::Context;
use crate::failure::Failure;
use crate::output::{self, binary_size, count, fields, printable, say, size, time};
use crate::place::Place;

pub(crate) fn run(context: &Context, args: &RefArgs) -> Result<ExitCode, Failure> {
    let (url, reference) = Place::with_second(&args.place, "REF")?;
    let repository = context.open(&url)?;
    let checkpoint = context.resolve(&repository, &reference)?;
    let manifest = checkpoint.manifest();
    if context.json {
        output::json(
            &json!({ "schema": "everstep.show/1", "repository": repository.address(), "manifest": manifest }),
        );
    } else {
        print(manifest);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(manifest: &Manifest) {
    let totals = &manifest.totals;
    let saved = 100.0 - percent(totals.new_stored_bytes, totals.raw_bytes);
    if let Some(pin) = &manifest.pin {
        say!("pin:{}, which keeps {}", pin.name, parent(&pin.of));
    }
    fields(&[
        ("checkpoint", format!("{}@ordinal={}", manifest.run, manifest.ordinal)),
        ("step", manifest.step.to_string()),
        ("created", time(&manifest.created)),
        (
            "written by",
            format!("{}, {}", printable(&manifest.tool), count(u64::from(manifest.world_size), "writer")),
        ),
        ("parents", parents(&manifest.parents)),
        ("rollback to", manifest.rollback_to.as_ref().map_or("-".to_owned(), parent)),
        ("state", format!("{}, {}", count(totals.tensors, "tensor"), count(totals.objects, "object"))),
        ("size", size(totals.raw_bytes)),
        ("chunks", format!("{} ({} new)", totals.chunks, totals.chunks_new)),
        ("stored new", format!("{} for {} raw", size(totals.new_stored_bytes), size(totals.new_raw_bytes))),
        ("reused", format!("{} raw", size(totals.reused_raw_bytes))),
        ("saved", format!("{saved:.1} % of the size did not have to be stored")),
        ("index", format!("{}, {}", count(manifest.index.rows, "row"), binary_size(manifest.index.len))),
        ("packs", format!("{} of {}", manifest.refs.packs, count(manifest.owners.len() as u64, "attempt"))),
        ("attempt", manifest.attempt.to_string()),
        ("session", manifest.session.to_string()),
    ]);
    if !manifest.metadata.is_empty() {
        say!("metadata");
        for (key, value) in &manifest.metadata {
            say!("  {} = {}", printable(key), printable(&value.to_string()));
        }
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

fn parents(parents: &[ParentRef]) -> String {
    if parents.is_empty() {
        "-".to_owned()
    } else {
        parents.iter().map(parent).collect::<Vec<_>>().join(", ")
    }
}

fn parent(parent: &ParentRef) -> String {
    format!("{}@ordinal={}", parent.run, parent.ordinal)
}
