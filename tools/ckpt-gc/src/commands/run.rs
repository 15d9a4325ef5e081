//! `run`: expire by a policy or a plan, and collect.

use std::process::ExitCode;

use everstep::Ordinal;
use everstep::doctor::Check;
use everstep::gc::plan::PLAN_BYTES;
use everstep::gc::{Collected, Orders, Plan, Policy, Settings, Tally};
use everstep::{Repository, RunName};
use serde_json::{Value, json};

use crate::cli::RunArgs;
use crate::commands::{Context, held_document, policy, read, settings, tell_held};
use crate::failure::Failure;
use crate::metrics;
use crate::output::{self, count, printable, say, size};

/// Exit status when some objects could not be deleted.
const PARTLY: u8 = 7;

/// What is to be done.
enum Work {
    Policy(Policy),
    Plan(Box<Plan>),
    Sweep,
}

impl Work {
    fn of(args: &RunArgs) -> Result<Self, Failure> {
        if let Some(path) = &args.policy {
            return Ok(Self::Policy(policy(path)?));
        }
        let Some(path) = &args.plan else { return Ok(Self::Sweep) };
        let plan = Plan::from_json(&read(path, PLAN_BYTES)?)
            .map_err(|why| Failure::usage(&format!("{}: {why}", path.display())))?;
        Ok(Self::Plan(Box::new(plan)))
    }

    fn orders(&self) -> Orders<'_> {
        match self {
            Self::Policy(policy) => Orders::Policy(policy),
            Self::Plan(plan) => Orders::Plan(plan),
            Self::Sweep => Orders::Sweep,
        }
    }
}

pub(crate) fn run(context: &Context, args: &RunArgs) -> Result<ExitCode, Failure> {
    let settings = Settings { deletes_per_second: args.deletes_per_second, ..settings(&args.pass)? };
    let work = Work::of(args)?;
    let repository = match context.open(&args.url) {
        Ok(repository) => repository,
        Err(failure) => {
            tell_metrics(args, &args.url, None)?;
            return Err(failure);
        }
    };
    let done = match repository.collect(work.orders(), settings, &()) {
        Ok(done) => done,
        Err(error) => {
            tell_metrics(args, &repository.address(), None)?;
            return Err(error.into());
        }
    };
    tell_metrics(args, &repository.address(), Some(&done))?;
    let held = context.held_back(&args.url);
    if context.json {
        output::json(&document(&repository, &done, &held));
    } else {
        print(&done);
        tell_held(&held);
    }
    Ok(if done.failed.tally.objects > 0 { ExitCode::from(PARTLY) } else { ExitCode::SUCCESS })
}

fn tell_metrics(args: &RunArgs, repository: &str, done: Option<&Collected>) -> Result<(), Failure> {
    args.metrics.as_ref().map_or(Ok(()), |path| metrics::write(path, repository, done))
}

fn document(repository: &Repository, done: &Collected, held: &[Check]) -> Value {
    let place = |(run, ordinal): &(RunName, Ordinal)| json!({ "run": run.as_str(), "ordinal": ordinal.0 });
    let tally = |tally: Tally| json!({ "objects": tally.objects, "bytes": tally.bytes });
    let failed: Vec<Value> =
        done.failed.named.iter().map(|(key, why)| json!({ "key": key.as_str(), "error": why })).collect();
    let skipped = done.skipped.iter().map(
        |skipped| json!({ "run": skipped.run.as_str(), "ordinal": skipped.ordinal.0, "why": skipped.why }),
    );
    json!({
        "schema": "everstep.gc-run/1",
        "repository": repository.address(),
        "kept": done.kept,
        "expired": done.expired.iter().map(place).collect::<Vec<_>>(),
        "skipped": skipped.collect::<Vec<_>>(),
        "aborted": done.aborted.iter().map(place).collect::<Vec<_>>(),
        "leases_ended": done.leases_ended,
        "leases_removed": done.leases_removed,
        "attempts": done.attempts,
        "attempts_skipped": done.attempts_skipped,
        "freed": tally(done.freed()),
        "packs": tally(done.packs),
        "tables": tally(done.tables),
        "shared": tally(done.shared),
        "records": tally(done.records),
        "failed": tally(done.failed.tally),
        "failed_keys": failed,
        "marked_swept": done.marked_swept,
        "restarts": done.restarts,
        "requests": repository.traffic().requests(),
        "held_back": held_document(held),
    })
}

fn print(done: &Collected) {
    for (run, ordinal) in &done.expired {
        say!("expired {run}@ordinal={ordinal}");
    }
    for (run, ordinal) in &done.aborted {
        say!("aborted {run}@ordinal={ordinal}: nothing was heard of it");
    }
    for skipped in &done.skipped {
        say!("skipped {}@ordinal={}: {}", skipped.run, skipped.ordinal, printable(&skipped.why));
    }
    for (key, why) in &done.failed.named {
        say!("NOT DELETED {key}: {}", printable(why));
    }
    let freed = done.freed();
    say!(
        "kept {}, expired {}, freed {} in {}",
        count(done.kept, "checkpoint"),
        done.expired.len(),
        size(freed.bytes),
        count(freed.objects, "object"),
    );
    if done.records.objects > 0 {
        say!("forgot {} of sessions long gone", count(done.records.objects, "record"));
    }
    if done.failed.tally.objects > 0 {
        let failed = done.failed.tally;
        say!("{} of {} could not be deleted", count(failed.objects, "object"), size(failed.bytes));
    }
}
