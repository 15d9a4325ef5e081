//! The command line, as people and scripts see it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

const AFTER_HELP: &str = "\
URL names a repository: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///path or a plain path.
With EVERSTEP_REPOSITORY set, URL may be left out.

REF names a checkpoint: RUN (its latest), RUN@latest, RUN@step=N, RUN@ordinal=K,
RUN@min=METRIC, RUN@max=METRIC or pin:NAME.

Exit status: 0 fine, 1 damage found, 2 usage, 3 store unreachable or access denied,
4 not found, 5 refused (conflict, takeover, unsupported version), 6 outcome unknown,
130 interrupted.

Credentials for s3:// come from the usual places: environment, profile (static keys,
SSO, assumed roles, credential_process), web identity, container, instance metadata;
for gs:// from GOOGLE_SERVICE_ACCOUNT, GOOGLE_APPLICATION_CREDENTIALS, gcloud, instance
metadata; for az:// from AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, client secret,
workload identity, managed identity.";

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
    /// Address of an S3-compatible store (also AWS_ENDPOINT_URL_S3), or of another endpoint of Google or Azure
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) endpoint_url: Option<String>,
    /// Azure storage account (also AZURE_STORAGE_ACCOUNT_NAME)
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) account: Option<String>,
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
    /// Print a tensor, or a box of it, with statistics; or an object
    Cat(CatArgs),
    /// Keep a checkpoint under a name, whatever becomes of it in its run
    Pin(PinArgs),
    /// Give a pin up
    Unpin(UnpinArgs),
    /// List the pins
    Pins(PinsArgs),
    /// Find out what became of an attempt whose outcome was unknown, and settle it if nobody else does
    Resolve(ResolveArgs),
    /// Look at a store: credentials, permissions, clock, atomic creates, rules that would delete checkpoints
    Doctor(DoctorArgs),
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

/// `doctor`
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Where a repository is, or is to be
    #[arg(value_name = "URL", env = "EVERSTEP_REPOSITORY")]
    pub(crate) url: String,
    /// Test whether two hosts see each other's objects at once: start this on one host, then --echo on the other
    #[arg(long, value_name = "NAME", conflicts_with = "echo")]
    pub(crate) listen: Option<String>,
    /// The other half of --listen, under the same name
    #[arg(long, value_name = "NAME")]
    pub(crate) echo: Option<String>,
    /// Seconds to wait for the other host's next object
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) patience: u64,
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

const CAT_HELP: &str = "\
A slice is written as in Python: A:B, A:, :B, : or a single index for each dimension,
negative ones from the end, `...` for the dimensions in between; what is left out at the end
is taken whole. Steps are not supported.
  ckpt-inspect cat runs/ gpt layers.0.weight --slice 0:8,:
  ckpt-inspect cat runs/ gpt@step=1000 embed.weight --slice ...,-1
Only the chunks that the slice touches are read, and every one is verified. Two 4-bit
elements share a byte: a slice that would cut a pair is refused.

Values are exact: floats are shown by the shortest digits that give the same value back, NaN
and -0.0 as they are. Up to 1,000 elements are shown whole, of more the edges. Minimum,
maximum, mean and standard deviation are of the finite elements; NaN and infinities are
counted apart.

An object is shown like JSON, with what JSON lacks: (tuples), b\"bytes\", nan, keys that are
no text.";

/// `cat`
#[derive(Debug, Args)]
#[command(override_usage = "ckpt-inspect cat [OPTIONS] [URL] <REF> <TENSOR>", after_help = CAT_HELP)]
pub(crate) struct CatArgs {
    /// Repository, the checkpoint, and the name of a tensor or object in it
    #[arg(value_names = ["URL", "REF", "TENSOR"], num_args = 2..=3, required = true)]
    pub(crate) place: Vec<String>,
    /// Only this part of the tensor, e.g. `0:8,:`
    #[arg(long, value_name = "SLICE", allow_hyphen_values = true)]
    pub(crate) slice: Option<String>,
    /// The object of this rank, when each rank has its own
    #[arg(long, value_name = "RANK")]
    pub(crate) rank: Option<u32>,
    /// Write the bytes themselves to stdout, row-major and little-endian, and nothing else; not to a terminal
    #[arg(long)]
    pub(crate) raw: bool,
}

const PIN_HELP: &str = "\
A pin is a checkpoint of its own that shares every chunk: nothing but an index is stored. It
is called pin:NAME wherever a checkpoint is named, can be exported, and be a parent of another
run (`import --parent pin:NAME`). It stays when the checkpoint expires in its run, until
`unpin` gives it up. A name that is taken is refused; pinning the same checkpoint by the same
name again changes nothing.";

/// `pin`
#[derive(Debug, Args)]
#[command(override_usage = "ckpt-inspect pin [OPTIONS] [URL] <REF> <NAME>", after_help = PIN_HELP)]
pub(crate) struct PinArgs {
    /// Repository, the checkpoint, and a name by the rule of run names: a-z 0-9 . _ -
    #[arg(value_names = ["URL", "REF", "NAME"], num_args = 2..=3, required = true)]
    pub(crate) place: Vec<String>,
}

const UNPIN_HELP: &str = "\
Shows what the pin keeps, asks, and expires it. This cannot be undone: the next garbage
collection deletes what nothing else keeps. A checkpoint that is still there in its own run
stays there, and can be pinned again.";

/// `unpin`
#[derive(Debug, Args)]
#[command(override_usage = "ckpt-inspect unpin [OPTIONS] [URL] <NAME>", after_help = UNPIN_HELP)]
pub(crate) struct UnpinArgs {
    /// Repository, then the name of the pin
    #[arg(value_names = ["URL", "NAME"], num_args = 1..=2, required = true)]
    pub(crate) place: Vec<String>,
    /// Do not ask (needed without a terminal, and with --json)
    #[arg(long)]
    pub(crate) yes: bool,
}

/// `pins`
#[derive(Debug, Args)]
pub(crate) struct PinsArgs {
    /// Repository
    #[arg(value_name = "URL", env = "EVERSTEP_REPOSITORY")]
    pub(crate) url: String,
}

const RESOLVE_HELP: &str = "\
A save whose commit got no answer that can be trusted exits with 6 and names its attempt;
this tells what became of it:
  COMMIT     it is a checkpoint (exit 0; also when it has expired since)
  ABORT      it is not, and never will be (exit 0)
  undecided  nobody has decided it: its commit may still arrive (exit 6)
While the store does not let the answer be read, the exit status stays 6. Nothing is changed.

With --abort an undecided attempt is settled: an ABORT is put where no decision is. If its
COMMIT arrives first, that stands; if it arrives later, it is refused, and a save that still
runs fails with a conflict. Opening the run for writing (`import`) settles what earlier
sessions left as well.";

/// `resolve`
#[derive(Debug, Args)]
#[command(override_usage = "ckpt-inspect resolve [OPTIONS] [URL] <RUN@ordinal=K>", after_help = RESOLVE_HELP)]
pub(crate) struct ResolveArgs {
    /// Repository, then the attempt
    #[arg(value_names = ["URL", "RUN@ordinal=K"], num_args = 1..=2, required = true)]
    pub(crate) place: Vec<String>,
    /// Settle an undecided attempt as ABORT
    #[arg(long)]
    pub(crate) abort: bool,
    /// With --abort: do not ask (needed without a terminal, and with --json)
    #[arg(long, requires = "abort")]
    pub(crate) yes: bool,
}
