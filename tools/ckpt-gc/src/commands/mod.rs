//! One file per command. A command opens what it needs, asks the library, and prints.

pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod status;

use std::io::Read;
use std::path::Path;

use everstep::doctor::{Check, Health, diagnose_deletion};
use everstep::gc::policy::{HumanTime, POLICY_BYTES};
use everstep::gc::{Policy, Settings};
use everstep::{Options, Repository};
use serde_json::{Value, json};

use crate::cli::{PassArgs, StoreArgs};
use crate::failure::Failure;

/// What every command is given.
pub(crate) struct Context {
    pub(crate) json: bool,
    pub(crate) store: StoreArgs,
}

impl Context {
    fn options(&self) -> Options {
        let mut options = Options::default();
        options.store.s3.profile = self.store.profile.clone();
        options.store.s3.region = self.store.region.clone();
        options.store.s3.endpoint_url = self.store.endpoint_url.clone();
        options.store.s3.allow_http = self.store.allow_http;
        options.store.cloud.account = self.store.account.clone();
        options.store.cloud.endpoint_url = self.store.endpoint_url.clone();
        options.store.cloud.allow_http = self.store.allow_http;
        options.store.allow_network_fs = self.store.allow_network_fs;
        options
    }

    fn open(&self, url: &str) -> Result<Repository, Failure> {
        Ok(Repository::open(url, &self.options())?)
    }

    /// Why deleting would not free space here: what the bucket says of itself. Not being told is no failure.
    fn held_back(&self, url: &str) -> Vec<Check> {
        let checks = diagnose_deletion(url, &self.options()).unwrap_or_default();
        checks.into_iter().filter(|check| check.health == Health::Warning).collect()
    }
}

/// The settings of a pass.
fn settings(args: &PassArgs) -> Result<Settings, Failure> {
    let idle: HumanTime = args
        .idle_after
        .clone()
        .try_into()
        .map_err(|why: String| Failure::usage(&format!("--idle-after: {why}")))?;
    let shard = args.shard.parse().map_err(|why| Failure::usage(&format!("--shard: {why}")))?;
    Ok(Settings { idle: idle.0, shard, thorough: args.thorough, ..Settings::default() })
}

/// The policy in a file.
fn policy(path: &Path) -> Result<Policy, Failure> {
    let bytes = read(path, POLICY_BYTES as u64)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::usage(&format!("{}: no UTF-8 text", path.display())))?;
    Policy::from_toml(&text).map_err(|why| Failure::usage(&format!("{}: {why}", path.display())))
}

/// A local file of at most `most` bytes.
fn read(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    read.map_err(|error| Failure::file(path, "read", &error))?;
    if bytes.len() as u64 > most {
        return Err(Failure::usage(&format!("{} has more than {most} bytes", path.display())));
    }
    Ok(bytes)
}

fn held_document(checks: &[Check]) -> Vec<Value> {
    let of = |check: &Check| json!({ "name": check.name, "found": check.found, "advice": check.advice });
    checks.iter().map(of).collect()
}

fn tell_held(checks: &[Check]) {
    for check in checks {
        crate::output::say!("note: {}: {}", check.found, check.advice);
    }
}
