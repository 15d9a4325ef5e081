//! `plan`: what would go and why. Nothing is changed.

use std::path::Path;
use std::process::ExitCode;

use everstep::format::key::Key;
use everstep::gc::{Plan, Planned, Progress, Verdict};
use serde_json::json;

use crate::cli::PlanArgs;
use crate::commands::{Context, held_document, policy, settings, tell_held};
use crate::failure::Failure;
use crate::output::{self, count, printable, say, size, table};

/// Prints each object that would go.
struct List;

impl Progress for List {
    fn doomed(&self, key: &Key, _: u64) {
        say!("{key}");
    }
}

pub(crate) fn run(context: &Context, args: &PlanArgs) -> Result<ExitCode, Failure> {
    let policy = policy(&args.policy)?;
    let repository = context.open(&args.url)?;
    let progress: &dyn Progress = if args.list { &List } else { &() };
    let plan = repository.plan_retention(&policy, settings(&args.pass)?, progress)?;
    if let Some(path) = &args.output {
        write(path, &plan)?;
    }
    if args.list {
        return Ok(ExitCode::SUCCESS);
    }
    let held = context.held_back(&args.url);
    if context.json {
        let mut document = json!(plan);
        document["held_back"] = held_document(&held).into();
        output::json(&document);
    } else {
        print(&plan);
        tell_held(&held);
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, plan: &Plan) -> Result<(), Failure> {
    std::fs::write(path, format!("{:#}\n", json!(plan))).map_err(|error| Failure::file(path, "write", &error))
}

fn print(plan: &Plan) {
    if plan.checkpoints.is_empty() {
        say!("no checkpoints");
    } else {
        let rows: Vec<Vec<String>> = plan.checkpoints.iter().map(row).collect();
        table(&["RUN", ">ORDINAL", ">STEP", "VERDICT", ">FREES", "WHY"], &rows);
        say!("");
    }
    for abandoned in &plan.abort {
        let silent = abandoned.silent_seconds / 3600;
        say!("abort {}@ordinal={}: nothing was heard of it for {silent} h", abandoned.run, abandoned.ordinal);
    }
    if !plan.end_leases.is_empty() {
        say!("end {}: nothing was heard of their readers", count(plan.end_leases.len() as u64, "lease"));
    }
    let expired = plan.expired().count() as u64;
    say!("expire {} of {}", count(expired, "checkpoint"), plan.checkpoints.len());
    say!(
        "free {} in {}, of which {} were garbage before",
        size(plan.frees.bytes),
        count(plan.frees.objects, "object"),
        size(plan.garbage.bytes)
    );
    if plan.records.objects > 0 {
        say!("forget {} of sessions long gone", count(plan.records.objects, "record"));
    }
    if plan.shared.objects > 0 {
        say!("keep {} of dead attempts, because something uses them", size(plan.shared.bytes));
    }
}

fn row(planned: &Planned) -> Vec<String> {
    let why: Vec<&str> = planned.reasons.iter().map(|reason| reason.why.as_str()).collect();
    let goes = planned.verdict == Verdict::Expire;
    let superseded = match planned.superseded_by {
        Some(by) if !goes => format!(" (left behind by the rollback {by})"),
        _ => String::new(),
    };
    vec![
        planned.run.to_string(),
        planned.ordinal.to_string(),
        planned.step.to_string(),
        if goes { "EXPIRE" } else { "keep" }.to_owned(),
        if goes { size(planned.frees.bytes) } else { "-".to_owned() },
        printable(&format!("{}{superseded}", why.join("; "))),
    ]
}
