//! `pins`: every pin, and whether what it names is still there in its run. Neither damage
//! (exit status 1) nor what a newer version wrote (5) hides anything else.

use std::process::ExitCode;

use everstep::{AttemptState, Pinned, Repository};
use serde_json::{Value, json};

use crate::cli::PinsArgs;
use crate::commands::Context;
use crate::commands::pin::{document, place};
use crate::commands::unreadable::Unreadable;
use crate::failure::Failure;
use crate::output::{self, printable, say, size, table, time};

/// A pin, and what became of the checkpoint that it names.
struct Listed {
    pinned: Pinned,
    origin: Origin,
}

/// What became of a pinned checkpoint in its own run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It is still a checkpoint there.
    There,
    /// It has expired: the pin alone keeps it.
    Expired,
    /// It cannot be read.
    Unreadable,
}

impl Origin {
    /// Asks the store.
    pub(crate) fn of(repository: &Repository, pinned: &Pinned) -> Self {
        match repository.attempt(&pinned.of.run, pinned.of.ordinal) {
            Ok(AttemptState::Committed(_)) => Self::There,
            Ok(AttemptState::Expired(_)) => Self::Expired,
            _ => Self::Unreadable,
        }
    }

    /// A stable word for scripts.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::There => "checkpoint",
            Self::Expired => "expired",
            Self::Unreadable => "unreadable",
        }
    }
}

pub(crate) fn run(context: &Context, args: &PinsArgs) -> Result<ExitCode, Failure> {
    let repository = context.open(&args.url)?;
    let pins = repository.pins()?;
    let listed: Vec<Listed> = pins
        .pins
        .into_iter()
        .map(|pinned| Listed { origin: Origin::of(&repository, &pinned), pinned })
        .collect();
    let unreadable =
        Unreadable::of(pins.unreadable.iter().map(|error| (error.is_unsupported(), error.to_string())));
    if context.json {
        output::json(&json!({
            "schema": "everstep.pins/1",
            "repository": repository.address(),
            "pins": listed.iter().map(entry).collect::<Vec<_>>(),
            "damaged": unreadable.damaged,
            "newer": unreadable.newer,
        }));
    } else {
        print(&repository, &listed);
        unreadable.tell();
    }
    Ok(unreadable.exit())
}

fn entry(listed: &Listed) -> Value {
    let mut entry = document(&listed.pinned);
    entry["origin"] = listed.origin.word().into();
    entry
}

fn print(repository: &Repository, listed: &[Listed]) {
    if listed.is_empty() {
        say!("no pins in {}", printable(&repository.address()));
        return;
    }
    let row = |listed: &Listed| {
        let manifest = &listed.pinned.checkpoint.manifest;
        vec![
            listed.pinned.name.to_string(),
            place(&listed.pinned.of),
            manifest.step.to_string(),
            listed.origin.word().to_owned(),
            size(manifest.totals.raw_bytes),
            time(&manifest.created),
        ]
    };
    let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
    table(&["PIN", "OF", ">STEP", "IN ITS RUN", ">SIZE", "PINNED"], &rows);
}
