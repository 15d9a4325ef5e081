//! The command line, as people and schedulers see it.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

const AFTER_HELP: &str = "\
URL names a repository: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///path or a plain path.
With EVERSTEP_REPOSITORY set, URL may be left out.

A policy file says what to keep (docs/retention.md has every rule):
  [[policy]]
  runs = \"*\"
  keep_last = 2

Any number of collections may run at once, beside any number of jobs that save and restore,
and each may be killed at any time: the next one goes on.

Exit status: 0 done, 1 something stored is damaged, so nothing was deleted, 2 usage or policy,
3 store unreachable or access denied, 4 not found, 5 refused (something is of a newer version,
the plan is for another repository, others collect all the time), 7 done, but some objects could
not be deleted, 130 interrupted. 3, 5 and 7 may pass by themselves: run again later.";

/// Retention and garbage collection of an Everstep repository of training checkpoints.
#[derive(Debug, Parser)]
#[command(name = "ckpt-gc", version, after_help = AFTER_HELP, max_term_width = 110)]
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
    /// Show what would go and why, and what that frees; nothing is changed
    Plan(PlanArgs),
    /// Expire checkpoints by a policy or a plan, and delete what nothing uses any more
    Run(RunArgs),
    /// Count checkpoints, and what waits to be collected; nothing is changed
    Status(StatusArgs),
}

/// How a pass goes about it.
#[derive(Debug, Args)]
pub(crate) struct PassArgs {
    /// Abort a save of which nothing was heard for so long; a running one shows life every 6 hours
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub(crate) idle_after: String,
    /// Only this share of the attempts, from 0/N to N-1/N
    #[arg(long, value_name = "I/N", default_value = "0/1")]
    pub(crate) shard: String,
    /// Also look at attempts of which earlier passes found nothing left
    #[arg(long)]
    pub(crate) thorough: bool,
}

/// `plan`
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Repository
    #[arg(value_name = "URL", env = "EVERSTEP_REPOSITORY")]
    pub(crate) url: String,
    /// What to keep
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// Write the plan to this file, for `run --plan`
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print the key of every object that would be deleted, one a line, and nothing else
    #[arg(long, conflicts_with = "json")]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) pass: PassArgs,
}

/// `run`
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("orders").required(true).args(["policy", "plan", "sweep_only"])))]
pub(crate) struct RunArgs {
    /// Repository
    #[arg(value_name = "URL", env = "EVERSTEP_REPOSITORY")]
    pub(crate) url: String,
    /// What to keep
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Expire what this plan of `ckpt-gc plan` expires, as far as its policy still does
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// Expire nothing: only delete what is garbage already
    #[arg(long)]
    pub(crate) sweep_only: bool,
    /// Delete at most so many objects per second
    #[arg(long, value_name = "N")]
    pub(crate) deletes_per_second: Option<NonZeroU32>,
    /// Write figures to this file, in the text format of Prometheus
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pass: PassArgs,
}

/// `status`
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Repository
    #[arg(value_name = "URL", env = "EVERSTEP_REPOSITORY")]
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) pass: PassArgs,
}
