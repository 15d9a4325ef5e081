//! `import`: save a safetensors model as a checkpoint. Opens the run as a trainer would, and closes it at the end.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use everstep::{Run, SaveReport, Saved, Step, Takeover, WriterOptions};
use serde_json::{Map, Value, json};

use crate::cli::ImportArgs;
use crate::commands::{Context, selection};
use crate::failure::Failure;
use crate::output::{self, count, say, size};
use crate::place::Place;
use crate::progress::Bar;
use crate::safetensors_file::Model;

/// How long `--takeover wait` waits.
const WAIT: Duration = Duration::from_secs(600);

pub(crate) fn run(context: &Context, args: &ImportArgs) -> Result<ExitCode, Failure> {
    let (url, file) = Place::with_second(&args.place, "FILE")?;
    let metadata = metadata(&args.metadata)?;
    // The file is judged before the run is touched.
    let model = Model::open(Path::new(&file))?;
    let state = model.state(&selection(&args.selection)?)?;

    let repository = context.open(&url)?;
    let parents = args.parent.iter().map(|reference| context.resolve(&repository, reference));
    let also = parents.collect::<Result<_, _>>()?;
    let run = repository.run(&args.run)?;
    let mut writer = run.writer(writer_options(args))?;
    let bar = Bar::new("saving", context.json);
    let saved = Saved { metadata, also };
    let result = writer.save_with(Step(args.step), &state, saved, &bar);
    drop(bar);
    // A failed save must not leave the run to fall silent either; its own error is the one to tell.
    let closed = writer.close();
    let report = result?;
    if let Err(error) = closed {
        eprintln!("warning: the checkpoint is committed, but the session could not be closed: {error}");
    }
    print(context, &run, &report);
    Ok(ExitCode::SUCCESS)
}

fn writer_options(args: &ImportArgs) -> WriterOptions {
    let takeover = match args.takeover.as_str() {
        "now" => Takeover::Now,
        "wait" => Takeover::Wait(WAIT),
        _ => Takeover::Fail,
    };
    WriterOptions { job: args.job.clone(), takeover: Some(takeover), takeover_after: None }
}

fn metadata(pairs: &[String]) -> Result<Map<String, Value>, Failure> {
    let parse = |pair: &String| {
        let (key, text) = pair
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| Failure::usage(&format!("--metadata {pair:?}: expected KEY=VALUE")))?;
        let value = match serde_json::from_str(text) {
            Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
            _ => Value::String(text.to_owned()),
        };
        Ok((key.to_owned(), value))
    };
    pairs.iter().map(parse).collect()
}

fn print(context: &Context, run: &Run, report: &SaveReport) {
    let manifest = &report.checkpoint.manifest;
    if context.json {
        output::json(&json!({
            "schema": "everstep.import/1",
            "run": run.name().as_str(),
            "ordinal": manifest.ordinal.0,
            "step": manifest.step.0,
            "attempt": manifest.attempt.to_string(),
            "tensors": report.tensors,
            "objects": report.objects,
            "raw_bytes": report.raw_bytes,
            "chunks_uploaded": report.chunks_uploaded,
            "chunks_reused": report.chunks_reused,
            "bytes_uploaded": report.bytes_uploaded,
            "packs": report.packs,
            "index_bytes": report.index_bytes,
        }));
        return;
    }
    say!("committed {}@ordinal={} (step {})", run.name(), manifest.ordinal, manifest.step);
    let objects = match report.objects {
        0 => String::new(),
        n => format!(" and {}", count(n, "object")),
    };
    say!("  state     {}{objects}, {}", count(report.tensors, "tensor"), size(report.raw_bytes));
    say!(
        "  uploaded  {} of {} as {} in {}",
        count(report.chunks_uploaded, "chunk"),
        size(report.new_raw_bytes),
        size(report.bytes_uploaded),
        count(report.packs, "pack"),
    );
    say!("  reused    {} of {}", count(report.chunks_reused, "chunk"), size(report.reused_raw_bytes));
}
