//! `ls`: checkpoints of every run, and attempts that were never finished. Neither damage, which exits with 1, nor what a
//! newer version wrote, which exits with 5, hides anything else.

use std::process::ExitCode;

use everstep::{AttemptState, Manifest, Ordinal, Repository, RunName};
use serde_json::{Value, json};

use crate::cli::LsArgs;
use crate::commands::unreadable::{NEWER, Unreadable};
use crate::commands::{Context, patterns};
use crate::failure::Failure;
use crate::output::{self, say, size, table, time};

pub(crate) fn run(context: &Context, args: &LsArgs) -> Result<ExitCode, Failure> {
    let repository = context.open(&args.url)?;
    let entries = entries(&repository, args)?;
    if context.json {
        output::json(&document(&repository, &entries, args.all));
    } else {
        print(&repository, &entries, args.all);
    }
    let unreadable = Unreadable::of(entries.iter().filter_map(Listed::unreadable));
    if !context.json {
        unreadable.tell();
    }
    Ok(unreadable.exit())
}

/// One attempt of one run.
struct Listed {
    run: RunName,
    ordinal: Ordinal,
    state: AttemptState,
}

fn entries(repository: &Repository, args: &LsArgs) -> Result<Vec<Listed>, Failure> {
    let wanted = patterns(&args.run)?;
    let mut entries = Vec::new();
    for run in repository.runs()? {
        if !wanted.is_empty() && !wanted.iter().any(|pattern| pattern.matches(run.as_str())) {
            continue;
        }
        let attempts = repository.run(run.as_str())?.attempts()?;
        entries.extend(attempts.into_iter().map(|(ordinal, state)| Listed {
            run: run.clone(),
            ordinal,
            state,
        }));
    }
    Ok(entries)
}

impl Listed {
    fn manifest(&self) -> Option<&Manifest> {
        match &self.state {
            AttemptState::Committed(checkpoint) | AttemptState::Expired(checkpoint) => {
                Some(&checkpoint.manifest)
            }
            _ => None,
        }
    }

    fn word(&self) -> &'static str {
        match &self.state {
            AttemptState::Undecided(_) => "unfinished",
            AttemptState::Fence(_) => "fence",
            AttemptState::Aborted(..) => "aborted",
            AttemptState::Committed(_) => "checkpoint",
            AttemptState::Expired(_) => "expired",
            AttemptState::Damaged(_) => "DAMAGED",
            AttemptState::Newer(_) => NEWER,
        }
    }

    /// Whether a newer version wrote it, and what is wrong.
    fn unreadable(&self) -> Option<(bool, String)> {
        match &self.state {
            AttemptState::Damaged(error) => Some((false, error.to_string())),
            AttemptState::Newer(error) => Some((true, error.to_string())),
            _ => None,
        }
    }

    /// What a plain listing shows.
    fn counts(&self) -> bool {
        matches!(self.state, AttemptState::Committed(_) | AttemptState::Damaged(_) | AttemptState::Newer(_))
    }

    fn step(&self) -> Option<u64> {
        let of_intent = match &self.state {
            AttemptState::Undecided(intent) | AttemptState::Aborted(intent, _) => intent.step,
            _ => None,
        };
        self.manifest().map(|manifest| manifest.step).or(of_intent).map(|step| step.0)
    }
}

fn document(repository: &Repository, entries: &[Listed], all: bool) -> Value {
    let of = |word: &str| entries.iter().filter(|e| e.word() == word).map(entry).collect::<Vec<_>>();
    let mut document = json!({
        "schema": "everstep.ls/1",
        "repository": repository.address(),
        "checkpoints": of("checkpoint"),
        "unfinished": of("unfinished"),
        "damaged": of("DAMAGED"),
        "newer": of(NEWER),
    });
    if all {
        document["expired"] = of("expired").into();
        document["aborted"] = of("aborted").into();
        document["fences"] = of("fence").into();
    }
    document
}

fn entry(entry: &Listed) -> Value {
    let mut value = json!({ "run": entry.run.as_str(), "ordinal": entry.ordinal.0, "step": entry.step() });
    if let Some(manifest) = entry.manifest() {
        value["attempt"] = manifest.attempt.to_string().into();
        value["created"] = manifest.created.as_str().into();
        value["world_size"] = manifest.world_size.into();
        value["tensors"] = manifest.totals.tensors.into();
        value["objects"] = manifest.totals.objects.into();
        value["raw_bytes"] = manifest.totals.raw_bytes.into();
        value["new_stored_bytes"] = manifest.totals.new_stored_bytes.into();
        value["metadata"] = Value::Object(manifest.metadata.clone());
    }
    if let AttemptState::Aborted(_, abort) = &entry.state {
        value["reason"] = abort.reason.as_str().into();
    }
    match &entry.state {
        AttemptState::Damaged(error) => value["damage"] = error.to_string().into(),
        AttemptState::Newer(error) => value["unsupported"] = error.to_string().into(),
        _ => {}
    }
    value
}

fn print(repository: &Repository, entries: &[Listed], all: bool) {
    let shown: Vec<&Listed> = entries.iter().filter(|e| all || e.counts()).collect();
    if shown.is_empty() {
        say!("no checkpoints in {}", output::printable(&repository.address()));
    } else {
        table(
            &["RUN", ">ORDINAL", ">STEP", "STATE", ">TENSORS", ">SIZE", ">STORED NEW", "CREATED"],
            &rows(&shown),
        );
    }
    let unfinished: Vec<String> = entries
        .iter()
        .filter(|e| e.word() == "unfinished")
        .map(|e| format!("{}@ordinal={} (step {})", e.run, e.ordinal, e.step().unwrap_or_default()))
        .collect();
    if !unfinished.is_empty() && !all {
        say!("\nunfinished (being saved, or left by a crash): {}", unfinished.join(", "));
    }
}

fn rows(shown: &[&Listed]) -> Vec<Vec<String>> {
    let row = |listed: &&Listed| {
        let totals = listed.manifest().map(|manifest| &manifest.totals);
        let of = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            listed.run.to_string(),
            listed.ordinal.to_string(),
            of(listed.step().map(|step| step.to_string())),
            listed.word().to_owned(),
            of(totals.map(|t| t.tensors.to_string())),
            of(totals.map(|t| size(t.raw_bytes))),
            of(totals.map(|t| size(t.new_stored_bytes))),
            of(listed.manifest().map(|manifest| time(&manifest.created))),
        ]
    };
    shown.iter().map(row).collect()
}
