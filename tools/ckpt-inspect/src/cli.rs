//! The command line, as people and scripts see it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

const AFTER_HELP: &str = "\
URL names a repository: s3://bucket/prefix, file:///path or a plain path.
With EVERSTEP_REPOSITORY set, URL may be left out.

REF names a checkpoint: RUN (its latest), RUN@latest, RUN@step=N, RUN@ordinal=K,
RUN@min=METRIC or RUN@max=METRIC.

Exit status: 0 fine, 1 damage found, 2 usage, 3 store unreachable or access denied,
4 not found, 5 refused (conflict, takeover, unsupported version), 6 outcome unknown,
130 interrupted.

Credentials for s3:// come from the usual places: environment, profile (static keys,
SSO, assumed roles, credential_process), web identity, container, instance metadata.";

/// Look into an Everstep repository of training checkpoints: list, show, verify, import, export.
#[derive(Debug, Parser)]
#[command(name = "ckpt-inspect", version, after_help = AFTER_HELP, max_term_width = 110)]
pub(crate) struct Cli {
    /// Print one JSON document with a `schema` field instead of text (errors as well, on stderr)
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How the store is reached.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// Profile of the AWS configuration files
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Region of the bucket
    #[arg(long, global = true, value_name = "REGION")]
    pub(crate) region: Option<String>,
    /// Address of an S3-compatible store (also AWS_ENDPOINT_URL_S3)
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) endpoint_url: Option<String>,
    /// Allow an endpoint without TLS: whoever is on the path can read, and change what is not hashed
    #[arg(long, global = true)]
    pub(crate) allow_http: bool,
    /// Allow a local repository on a network file system, whose create and rename may not be atomic between hosts
    #[arg(long, global = true)]
    pub(crate) allow_network_fs: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a repository (the store is probed first: can it create an object exactly once?)
    Init(InitArgs),
    /// Save a safetensors model as a checkpoint of a run
    Import(ImportArgs),
    /// List the checkpoints of every run, and attempts that were never finished
    Ls(LsArgs),
    /// Show what a checkpoint says of itself
    Show(RefArgs),
    /// List the tensors and objects of a checkpoint
    Tensors(TensorsArgs),
    /// Judge every invariant of a repository, or of one checkpoint; damage exits with 1
    Verify(VerifyArgs),
    /// Write a checkpoint's tensors to a safetensors file
    Export(ExportArgs),
}

/// `init`
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Where: s3://bucket/prefix, file:///path or a plain path
    #[arg(value_name = "URL", env = "EVERSTEP_REPOSITORY")]
    pub(crate) url: String,
    /// Accept a store that cannot create an object exactly once: then only one process may use the repository at a
    /// time, for anything
    #[arg(long)]
    pub(crate) single_writer: bool,
    /// Elements of a chunk at most, a power of two pays [default: 2097152]
    #[arg(long, value_name = "N")]
    pub(crate) block_elements: Option<u64>,
}

/// `import`
#[derive(Debug, Args)]
#[command(override_usage = "ckpt-inspect import [OPTIONS] --run <NAME> --step <N> [URL] <FILE>")]
pub(crate) struct ImportArgs {
    /// Repository, then the file: FILE.safetensors, or the index of a sharded model (*.safetensors.index.json)
    #[arg(value_names = ["URL", "FILE"], num_args = 1..=2, required = true)]
    pub(crate) place: Vec<String>,
    /// Run to save into; made if it does not exist
    #[arg(long, value_name = "NAME")]
    pub(crate) run: String,
    /// Training step of the checkpoint
    #[arg(long, value_name = "N")]
    pub(crate) step: u64,
    /// A checkpoint of another run whose chunks need not be stored again, repeatable (the run's own latest always counts)
    #[arg(long, value_name = "REF")]
    pub(crate) parent: Vec<String>,
    /// Metadata of the checkpoint, repeatable; numbers and true/false are stored as such
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) metadata: Vec<String>,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// Label of this job: a session with the same label is taken over silently
    #[arg(long, value_name = "LABEL", env = "EVERSTEP_JOB")]
    pub(crate) job: Option<String>,
    /// When another job's session on the run is alive: `fail`, `now` (take the run over) or `wait` (up to 10 minutes)
    #[arg(long, value_name = "HOW", default_value = "fail", value_parser = ["fail", "now", "wait"])]
    pub(crate) takeover: String,
}

/// `ls`
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Repository
    #[arg(value_name = "URL", env = "EVERSTEP_REPOSITORY")]
    pub(crate) url: String,
    /// Only runs whose name matches this glob, repeatable
    #[arg(long, value_name = "GLOB")]
    pub(crate) run: Vec<String>,
    /// Expired checkpoints, aborted attempts and fences as well
    #[arg(long)]
    pub(crate) all: bool,
}

/// A repository and a checkpoint.
#[derive(Debug, Args)]
#[command(override_usage = "ckpt-inspect show [OPTIONS] [URL] <REF>")]
pub(crate) struct RefArgs {
    /// Repository, then the checkpoint
    #[arg(value_names = ["URL", "REF"], num_args = 1..=2, required = true)]
    pub(crate) place: Vec<String>,
}

/// Which tensors and objects.
#[derive(Debug, Args)]
pub(crate) struct SelectionArgs {
    /// Only names that match this glob, repeatable
    #[arg(long, value_name = "GLOB")]
    pub(crate) select: Vec<String>,
    /// Not the names that match this glob, repeatable; wins over --select
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
}

/// `tensors`
#[derive(Debug, Args)]
#[command(override_usage = "ckpt-inspect tensors [OPTIONS] [URL] <REF>")]
pub(crate) struct TensorsArgs {
    #[command(flatten)]
    pub(crate) at: RefArgs,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

/// `verify`
#[derive(Debug, Args)]
#[command(override_usage = "ckpt-inspect verify [OPTIONS] [URL] [REF]")]
pub(crate) struct VerifyArgs {
    /// Repository, and optionally one checkpoint
    #[arg(value_names = ["URL", "REF"], num_args = 0..=2)]
    pub(crate) place: Vec<String>,
    /// Read, decode and re-hash every chunk (reads every stored byte)
    #[arg(long)]
    pub(crate) deep: bool,
}

/// `export`
#[derive(Debug, Args)]
#[command(override_usage = "ckpt-inspect export [OPTIONS] -o <FILE> [URL] <REF>")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) at: RefArgs,
    /// File to write; it appears whole or not at all
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace FILE if it exists
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}
