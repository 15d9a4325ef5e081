//! `status`: how much there is, and how much waits to be collected.

use std::process::ExitCode;

use serde_json::json;

use crate::cli::StatusArgs;
use crate::commands::{Context, held_document, settings, tell_held};
use crate::failure::Failure;
use crate::output::{self, say};

pub(crate) fn run(context: &Context, args: &StatusArgs) -> Result<ExitCode, Failure> {
    let repository = context.open(&args.url)?;
    let status = repository.collection_status(settings(&args.pass)?)?;
    let held = context.held_back(&args.url);
    let mut document = json!(status);
    if context.json {
        document["schema"] = "everstep.gc-status/1".into();
        document["repository"] = repository.address().into();
        document["held_back"] = held_document(&held).into();
        output::json(&document);
        return Ok(ExitCode::SUCCESS);
    }
    for (name, what) in LINES {
        say!("{:>10}  {what}", document[*name].to_string());
    }
    tell_held(&held);
    Ok(ExitCode::SUCCESS)
}

const LINES: &[(&str, &str)] = &[
    ("runs", "runs"),
    ("checkpoints", "checkpoints"),
    ("pins", "pins"),
    ("leases", "leases"),
    ("undecided", "saves running, or left by a crash"),
    ("idle", "of these without a sign of life: the next run aborts them"),
    ("expired", "checkpoints expired"),
    ("aborted", "attempts aborted, fences included"),
    ("waiting", "dead attempts that the next run looks at"),
    ("swept", "dead attempts of which nothing is left"),
];
