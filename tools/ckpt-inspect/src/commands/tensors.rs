//! `tensors`: what is in a checkpoint, without reading any of its data.

use std::process::ExitCode;

use everstep::Entry;
use everstep::format::row::Kind;
use serde_json::{Value, json};

use crate::cli::TensorsArgs;
use crate::commands::{Context, selection};
use crate::failure::Failure;
use crate::output::{self, count, element, printable, say, shape, size, table};
use crate::place::Place;

pub(crate) fn run(context: &Context, args: &TensorsArgs) -> Result<ExitCode, Failure> {
    let (url, reference) = Place::with_second(&args.at.place, "REF")?;
    let selection = selection(&args.selection)?;
    let repository = context.open(&url)?;
    let checkpoint = context.resolve(&repository, &reference)?;
    let entries = checkpoint.entries(&selection)?;
    if context.json {
        let manifest = checkpoint.manifest();
        output::json(&json!({
            "schema": "everstep.tensors/1",
            "run": manifest.run.as_str(),
            "ordinal": manifest.ordinal.0,
            "step": manifest.step.0,
            "tensors": of_kind(&entries, Kind::Tensor),
            "objects": of_kind(&entries, Kind::Object),
        }));
    } else {
        print(&entries);
    }
    Ok(ExitCode::SUCCESS)
}

fn of_kind(entries: &[Entry], kind: Kind) -> Vec<Value> {
    entries.iter().filter(|entry| entry.kind == kind).map(document).collect()
}

fn document(entry: &Entry) -> Value {
    json!({
        "name": &*entry.name,
        "dtype": entry.element.name(),
        "shape": entry.shape,
        "raw_bytes": entry.raw_bytes,
        "stored_bytes": entry.stored_bytes,
        "pieces": entry.pieces,
        "alias_of": entry.alias_of.as_deref(),
        "ranks": entry.ranks,
    })
}

fn print(entries: &[Entry]) {
    let row = |entry: &Entry| {
        let mut name = printable(&entry.name);
        if let Some(other) = &entry.alias_of {
            name = format!("{name} (tied to {})", printable(other));
        }
        if !entry.ranks.is_empty() {
            name = format!("{name} ({})", count(entry.ranks.len() as u64, "rank"));
        }
        let shape = match entry.kind {
            Kind::Tensor => shape(&entry.shape),
            Kind::Object => "-".to_owned(),
        };
        vec![name, element(&entry.element), shape, size(entry.raw_bytes), size(entry.stored_bytes)]
    };
    let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
    table(&["NAME", "DTYPE", "SHAPE", ">SIZE", ">STORED"], &rows);
    let bytes = entries.iter().map(|entry| entry.raw_bytes).sum();
    let of = |kind| entries.iter().filter(|entry| entry.kind == kind).count() as u64;
    say!("{}, {}, {}", count(of(Kind::Tensor), "tensor"), count(of(Kind::Object), "object"), size(bytes));
}
