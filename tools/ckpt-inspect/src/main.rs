//! `ckpt-inspect`: look into an Everstep repository.

mod cli;
mod commands;
mod consent;
mod failure;
mod output;
mod place;
mod progress;
mod safetensors_file;
mod safetensors_header;
mod tensor;
mod value;

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
        Command::Init(args) => commands::init::run(&context, &args),
        Command::Import(args) => commands::import::run(&context, &args),
        Command::Ls(args) => commands::ls::run(&context, &args),
        Command::Show(args) => commands::show::run(&context, &args),
        Command::Tensors(args) => commands::tensors::run(&context, &args),
        Command::Verify(args) => commands::verify::run(&context, &args),
        Command::Export(args) => commands::export::run(&context, &args),
        Command::Cat(args) => commands::cat::run(&context, &args),
        Command::Pin(args) => commands::pin::run(&context, &args),
        Command::Unpin(args) => commands::unpin::run(&context, &args),
        Command::Pins(args) => commands::pins::run(&context, &args),
        Command::Resolve(args) => commands::resolve::run(&context, &args),
        Command::Doctor(args) => commands::doctor::run(&context, &args),
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

/// Ctrl-C ends the process with 130. Nothing needs tidying: what was not committed does not exist for readers, and the
/// next session of the run settles the unfinished attempt.
fn exit_when_interrupted() {
    let listen = || -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(tokio::signal::ctrl_c())?;
        eprintln!("interrupted; what had not been committed is not visible to anybody");
        std::process::exit(130)
    };
    // Without the listener Ctrl-C still ends the process, only with the shell's own status.
    let _ = std::thread::Builder::new().name("ckpt-inspect-ctrl-c".to_owned()).spawn(listen);
}
