//! `verify`: judge every invariant. Damage is the answer, not an error: it exits with 1; with 5 if something is of a newer
//! version and could not be judged.

use std::process::ExitCode;

use everstep::{ErrorKind, Finding, Report, Severity, Verdict};
use serde_json::{Value, json};

use crate::cli::VerifyArgs;
use crate::commands::Context;
use crate::failure::{Failure, exit_status};
use crate::output::{self, count, printable, say, size};
use crate::place::Place;
use crate::progress::Bar;

/// Tensors named per finding in text; JSON names all.
const TENSORS_SHOWN: usize = 5;

pub(crate) fn run(context: &Context, args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let place = Place::optional(&args.place)?;
    let repository = context.open(&place.url)?;
    let only = place.rest.map(|reference| context.resolve(&repository, &reference)).transpose()?;
    let bar = Bar::new("verifying", context.json);
    let report = repository.check(args.deep, only.as_ref(), &bar)?;
    drop(bar);
    if context.json {
        output::json(&document(&report, args.deep));
    } else {
        print(&report, args.deep);
    }
    Ok(match report.verdict() {
        Verdict::Sound => ExitCode::SUCCESS,
        Verdict::Damaged => ExitCode::FAILURE,
        Verdict::Unsupported => ExitCode::from(exit_status(ErrorKind::UnsupportedVersion)),
    })
}

fn findings_of(report: &Report, severity: Severity) -> String {
    count(report.findings.iter().filter(|finding| finding.severity == severity).count() as u64, "finding")
}

fn document(report: &Report, deep: bool) -> Value {
    let counts = &report.counts;
    json!({
        "schema": "everstep.verify/1",
        "deep": deep,
        "sound": report.is_sound(),
        "verdict": report.verdict().name(),
        "counts": {
            "objects": counts.objects,
            "attempts": counts.attempts,
            "checkpoints": counts.checkpoints,
            "packs": counts.packs,
            "chunks": counts.chunks,
            "pack_bytes": counts.pack_bytes,
            "bytes_read": counts.bytes_read,
        },
        "findings": report.findings.iter().map(finding_document).collect::<Vec<_>>(),
    })
}

fn finding_document(finding: &Finding) -> Value {
    let hurts = finding.hurts.iter().map(|hurt| {
        json!({ "run": hurt.run.as_str(), "ordinal": hurt.ordinal.0, "step": hurt.step.map(|step| step.0) })
    });
    json!({
        "severity": finding.severity.name(),
        "object": finding.object,
        "what": finding.what,
        "expected": finding.expected,
        "found": finding.found,
        "advice": finding.advice,
        "tensors": finding.tensors,
        "checkpoints": hurts.collect::<Vec<_>>(),
    })
}

fn print(report: &Report, deep: bool) {
    for finding in &report.findings {
        print_finding(finding);
    }
    let counts = &report.counts;
    say!(
        "checked {}, {}, {}, {} of packs{}",
        count(counts.checkpoints, "checkpoint"),
        count(counts.packs, "pack"),
        count(counts.chunks, "chunk"),
        size(counts.pack_bytes),
        if deep { ", every chunk re-hashed" } else { " (their tables; --deep re-hashes every chunk)" },
    );
    match report.verdict() {
        Verdict::Sound => say!("sound"),
        Verdict::Unsupported => {
            say!("UNSUPPORTED: {}; no damage was found", findings_of(report, Severity::Unsupported));
        }
        Verdict::Damaged => say!("DAMAGED: {}", findings_of(report, Severity::Damage)),
    }
}

fn print_finding(finding: &Finding) {
    say!("{}: {}", finding.severity, printable(&finding.object));
    say!("  {}", printable(&finding.what));
    if !finding.expected.is_empty() {
        say!("  expected {}", printable(&finding.expected));
        say!("  found    {}", printable(&finding.found));
    }
    if !finding.tensors.is_empty() {
        let shown: Vec<String> =
            finding.tensors.iter().take(TENSORS_SHOWN).map(|name| printable(name)).collect();
        let more = finding.tensors.len().saturating_sub(TENSORS_SHOWN);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        say!("  holds    {}{more}", shown.join(", "));
    }
    if !finding.hurts.is_empty() {
        let hurts: Vec<String> = finding.hurts.iter().map(ToString::to_string).collect();
        say!("  hurts    {}", hurts.join(", "));
    }
    if !finding.advice.is_empty() {
        say!("  {}", finding.advice);
    }
}
