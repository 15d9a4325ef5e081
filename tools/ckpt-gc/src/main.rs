//! `ckpt-gc`: retention and garbage collection of an Everstep repository.

mod cli;
mod commands;
mod failure;
mod metrics;
mod output;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::cli::{Cli, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    exit_when_interrupted();
    everstep::format::panics::silence_caught();
    let json = cli.json;
    match run(cli) {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let Cli { json, store, command } = cli;
    let context = commands::Context { json, store };
    match command {
        Command::Plan(args) => commands::plan::run(&context, &args),
        Command::Run(args) => commands::run::run(&context, &args),
        Command::Status(args) => commands::status::run(&context, &args),
    }
}

/// Help and version as clap prints them; mistakes as every other error.
fn usage(error: &clap::Error) -> ExitCode {
    let wants_json = std::env::args_os().any(|arg| arg == "--json");
    if wants_json && !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Failure::usage(error.render().to_string().trim_end()).report(true);
    }
    error.exit()
}

/// Ctrl-C ends the process with 130. Nothing needs tidying: a collection may stop anywhere, and the next one goes on.
fn exit_when_interrupted() {
    let listen = || -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(tokio::signal::ctrl_c())?;
        eprintln!("interrupted; the next run goes on where this one stopped");
        std::process::exit(130)
    };
    // Without the listener Ctrl-C still ends the process, only with the shell's own status.
    let _ = std::thread::Builder::new().name("ckpt-gc-ctrl-c".to_owned()).spawn(listen);
}
