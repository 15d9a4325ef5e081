//! `pin`: keep a checkpoint under a name.

use std::process::ExitCode;

use everstep::Pinned;
use everstep::format::intent::ParentRef;
use serde_json::{Value, json};

use crate::cli::PinArgs;
use crate::commands::Context;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::place::Place;

pub(crate) fn run(context: &Context, args: &PinArgs) -> Result<ExitCode, Failure> {
    let (url, [reference, name]) = Place::with_two(&args.place, "REF and NAME")?;
    let repository = context.open(&url)?;
    let checkpoint = context.resolve(&repository, &reference)?;
    let pinned = repository.pin(&name, &checkpoint)?;
    if context.json {
        let mut told = document(&pinned);
        told["schema"] = "everstep.pin/1".into();
        output::json(&told);
    } else {
        let step = pinned.checkpoint.manifest.step;
        say!("pinned {} (step {step}) as pin:{}", place(&pinned.of), pinned.name);
    }
    Ok(ExitCode::SUCCESS)
}

/// `gpt@ordinal=4`
pub(crate) fn place(of: &ParentRef) -> String {
    format!("{}@ordinal={}", of.run, of.ordinal)
}

/// What every verb says of a pin.
pub(crate) fn document(pinned: &Pinned) -> Value {
    let manifest = &pinned.checkpoint.manifest;
    json!({
        "name": pinned.name.as_str(),
        "of": { "run": pinned.of.run.as_str(), "ordinal": pinned.of.ordinal.0, "attempt": pinned.of.attempt.to_string() },
        "pin": {
            "run": manifest.run.as_str(), "ordinal": manifest.ordinal.0, "attempt": manifest.attempt.to_string(),
        },
        "step": manifest.step.0,
        "raw_bytes": manifest.totals.raw_bytes,
        "created": manifest.created,
        "metadata": manifest.metadata,
    })
}
