//! `resolve`: what became of an attempt, and settling one that nobody decides.

use std::process::ExitCode;

use everstep::format::intent::Intent;
use everstep::format::reference::Which;
use everstep::{AttemptState, CheckpointRef, ErrorKind, Ordinal, Repository, RunName};
use serde_json::{Value, json};

use crate::cli::ResolveArgs;
use crate::commands::Context;
use crate::commands::unreadable::NEWER;
use crate::consent;
use crate::failure::{Failure, exit_status};
use crate::output::{self, printable, say};
use crate::place::Place;

/// Exit status while nobody has decided.
const UNKNOWN: u8 = 6;
/// Why the ABORT is put, for people.
const DETAIL: &str = "settled with ckpt-inspect resolve --abort";

/// An attempt.
struct Attempt {
    run: RunName,
    ordinal: Ordinal,
}

pub(crate) fn run(context: &Context, args: &ResolveArgs) -> Result<ExitCode, Failure> {
    let (url, attempt) = Place::with_second(&args.place, "RUN@ordinal=K")?;
    let attempt = attempt_of(&attempt)?;
    let repository = context.open(&url)?;
    let mut state = repository.attempt(&attempt.run, attempt.ordinal)?;
    let mut settled = false;
    if args.abort && matches!(state, AttemptState::Undecided(_)) {
        state = settle(context, args, (&repository, &attempt, state))?;
        settled = true;
    }
    if context.json {
        output::json(&document(&attempt, &state, settled));
    } else {
        lines(&attempt, &state).iter().for_each(|line| say!("{line}"));
    }
    Ok(exit(&state))
}

fn attempt_of(text: &str) -> Result<Attempt, Failure> {
    match text.parse().map_err(everstep::Error::from)? {
        CheckpointRef::Of(run, Which::Ordinal(ordinal)) => Ok(Attempt { run, ordinal }),
        other => Err(Failure::usage(&format!("{other} names no attempt: give RUN@ordinal=K"))),
    }
}

fn settle(
    context: &Context,
    args: &ResolveArgs,
    (repository, attempt, state): (&Repository, &Attempt, AttemptState),
) -> Result<AttemptState, Failure> {
    if !context.json {
        lines(attempt, &state).iter().for_each(|line| say!("{line}"));
        say!(
            "an ABORT settles it: it will never be a checkpoint; a save that still runs for it fails with a conflict"
        );
    }
    consent::ask(context, args.yes, "Abort it?")?;
    Ok(repository.abort_undecided(&attempt.run, attempt.ordinal, DETAIL)?)
}

fn exit(state: &AttemptState) -> ExitCode {
    match state {
        AttemptState::Undecided(_) => ExitCode::from(UNKNOWN),
        AttemptState::Damaged(_) => ExitCode::FAILURE,
        AttemptState::Newer(_) => ExitCode::from(exit_status(ErrorKind::UnsupportedVersion)),
        _ => ExitCode::SUCCESS,
    }
}

fn document(attempt: &Attempt, state: &AttemptState, settled: bool) -> Value {
    let mut told = json!({
        "schema": "everstep.resolve/1",
        "run": attempt.run.as_str(),
        "ordinal": attempt.ordinal.0,
        "outcome": outcome(state),
        "expired": matches!(state, AttemptState::Expired(_)),
        "settled_now": settled,
    });
    match state {
        AttemptState::Committed(checkpoint) | AttemptState::Expired(checkpoint) => {
            let manifest = &checkpoint.manifest;
            told["attempt"] = manifest.attempt.to_string().into();
            told["session"] = manifest.session.to_string().into();
            told["step"] = manifest.step.0.into();
        }
        AttemptState::Undecided(intent) | AttemptState::Fence(intent) | AttemptState::Aborted(intent, _) => {
            told["attempt"] = intent.attempt.to_string().into();
            told["session"] = intent.session.to_string().into();
            told["step"] = intent.step.map(|step| step.0).into();
            told["job"] = intent.job.clone().into();
        }
        AttemptState::Damaged(error) => told["damage"] = error.to_string().into(),
        AttemptState::Newer(error) => told["unsupported"] = error.to_string().into(),
    }
    if let AttemptState::Aborted(_, abort) = state {
        told["reason"] = abort.reason.as_str().into();
        told["detail"] = abort.detail.as_str().into();
    }
    told
}

/// A stable word for scripts.
fn outcome(state: &AttemptState) -> &'static str {
    match state {
        AttemptState::Committed(_) | AttemptState::Expired(_) => "commit",
        AttemptState::Aborted(..) | AttemptState::Fence(_) => "abort",
        AttemptState::Undecided(_) => "undecided",
        AttemptState::Damaged(_) => "damaged",
        AttemptState::Newer(_) => NEWER,
    }
}

fn lines(attempt: &Attempt, state: &AttemptState) -> Vec<String> {
    let Attempt { run, ordinal } = attempt;
    let (outcome, then) = match state {
        AttemptState::Committed(checkpoint) => {
            (format!("COMMIT (step {})", checkpoint.manifest.step), "it is a checkpoint".to_owned())
        }
        AttemptState::Expired(checkpoint) => (
            format!("COMMIT (step {}), expired since", checkpoint.manifest.step),
            "it was a checkpoint, and no longer counts".to_owned(),
        ),
        AttemptState::Aborted(intent, abort) => {
            let by = abort.by.map(|by| format!(" by session {by}")).unwrap_or_default();
            let detail = if abort.detail.is_empty() { String::new() } else { format!(": {}", abort.detail) };
            let why = printable(&format!("{}{detail}", abort.reason));
            (format!("ABORT{by} ({why}){}", step(intent)), "it is no checkpoint and never will be".to_owned())
        }
        AttemptState::Fence(intent) => (
            format!("the fence of session {}{}", intent.session, job(intent)),
            "it opened the run for writing; it is no save".to_owned(),
        ),
        AttemptState::Undecided(intent) => (
            format!("undecided{}, of session {}{}", step(intent), intent.session, job(intent)),
            "it is being saved, or its writer stopped before the commit, or the commit has not arrived yet"
                .to_owned(),
        ),
        AttemptState::Damaged(error) => {
            (format!("DAMAGED: {}", printable(&error.to_string())), "run `ckpt-inspect verify`".to_owned())
        }
        AttemptState::Newer(error) => {
            (format!("{NEWER}: {}", printable(&error.to_string())), "upgrade Everstep".to_owned())
        }
    };
    vec![format!("{run}@ordinal={ordinal}: {outcome}"), format!("  {then}")]
}

fn step(intent: &Intent) -> String {
    intent.step.map(|step| format!(" (step {step})")).unwrap_or_default()
}

fn job(intent: &Intent) -> String {
    intent.job.as_ref().map(|job| format!(" (job {})", printable(job))).unwrap_or_default()
}
