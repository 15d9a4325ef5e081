//! `ckpt-bench`: what a save and a restore cost on this machine.
//!
//! Machines are noisy, so every time is told as a ratio to a reference measured in the same round: writing the same bytes
//! to one file with fsync, reading cached bytes into fresh memory, BLAKE3 on all cores. Rounds are interleaved; medians
//! are printed with the extremes.

mod clock;
mod figures;
mod lookup;
mod many;
mod reference;
mod small;
mod state;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Measure Everstep on this machine, as ratios to references taken in the same run.
#[derive(Debug, Parser)]
#[command(name = "ckpt-bench", version)]
struct Cli {
    /// Folder on the disk to measure; the run's own files below it are removed at the end
    #[arg(value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// Megabytes of the state of 150 tensors
    #[arg(long, default_value_t = 1500, value_name = "MB")]
    megabytes: u64,
    /// Interleaved rounds
    #[arg(long, default_value_t = 4, value_name = "N")]
    rounds: usize,
    /// Tensors of the index in which one is looked up
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    names: u64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::Builder::new().prefix("ckpt-bench-").tempdir_in(&cli.folder)?;
    println!("load at the start: {}", clock::load());
    small::run(folder.path(), cli.megabytes, cli.rounds)?;
    many::run(folder.path(), cli.rounds)?;
    lookup::run(folder.path(), cli.names)?;
    println!("load at the end: {}", clock::load());
    Ok(())
}
