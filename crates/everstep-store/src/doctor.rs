//! A diagnosis of a store, as a list of checks: what was found, and what to do. Nothing is changed but keys below `probe/`.

mod bucket;
mod hosts;
mod keys;

use std::sync::Arc;
use std::time::Duration;

use everstep_format::key::Prefix;

pub use self::hosts::{Seen, Side, meet};
use crate::address::Address;
use crate::cloud::CloudStore;
use crate::local::{LocalOptions, LocalStore};
use crate::memory::MemoryStore;
use crate::retry::RetryPolicy;
use crate::s3::{S3Location, S3Store};
use crate::{Store, StoreError, StoreErrorKind, StoreOptions, World, decorate};

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// As it should be.
    Sound,
    /// It could not be looked at.
    Unknown,
    /// It works, but somebody should know.
    Warning,
    /// The store cannot be reached, or does not allow what is needed.
    Failed,
    /// The store must not be used as it is.
    Refused,
}

impl Health {
    /// `ok`, `unknown`, `warning`, `failed` or `refused`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sound => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What.
    pub name: &'static str,
    /// How it came out.
    pub health: Health,
    /// What was found, for people.
    pub found: String,
    /// What to do; empty when nothing is to be done.
    pub advice: String,
}

impl Check {
    /// A check that came out as `health`.
    pub fn new(name: &'static str, health: Health, found: impl Into<String>) -> Self {
        Self { name, health, found: found.into(), advice: String::new() }
    }

    /// With what to do about it.
    #[must_use]
    pub fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..self }
    }

    /// A check that ended with an error of the store.
    fn failed(name: &'static str, error: &StoreError) -> Self {
        let advice = match error.kind {
            StoreErrorKind::NotFound => "make the bucket or container, or correct the address",
            StoreErrorKind::Denied => "see the policies in docs/permissions.md",
            StoreErrorKind::CredentialsExpired => "renew the credentials",
            StoreErrorKind::Unreachable => "check the endpoint, the network and the proxy",
            StoreErrorKind::Full => "make room",
            StoreErrorKind::Invalid => "correct the setting",
            _ => "try again later",
        };
        Self::new(name, Health::Failed, error.to_string()).advise(advice)
    }
}

/// What came of looking at a store.
#[derive(Debug)]
pub struct Examination {
    /// The checks, in order.
    pub checks: Vec<Check>,
    /// The store, when it answers.
    pub store: Option<Arc<dyn Store>>,
}

/// Nobody waits for minutes to hear that a store is not there.
const PATIENCE: RetryPolicy = RetryPolicy {
    attempts: 3,
    budget: Duration::from_secs(10),
    first_wait: Duration::from_millis(100),
    longest_wait: Duration::from_secs(2),
};

/// Looks at the store of `address`.
///
/// # Errors
/// Invalid for an address or setting that cannot work at all.
pub async fn examine(
    address: &str,
    options: &StoreOptions,
    world: Arc<dyn World>,
) -> Result<Examination, StoreError> {
    let mut checks = Vec::new();
    let opened = match open(address, options, &world, &mut checks).await {
        Ok(store) => store,
        Err(error) if error.kind == StoreErrorKind::Invalid => return Err(error),
        Err(error) => {
            checks.push(Check::failed("open", &error));
            return Ok(Examination { checks, store: None });
        }
    };
    let store = match reach(opened.as_ref(), world.as_ref(), &mut checks).await {
        true => Some(opened),
        false => None,
    };
    if let Some(store) = &store {
        keys::examine(store.as_ref(), world.as_ref(), &mut checks).await;
    }
    Ok(Examination { checks, store })
}

/// What stands between deleting objects at `address` and freeing space: versions that are kept, locks. Only S3 has an
/// answer; of others there is none, or that it is not known.
///
/// # Errors
/// Those of opening the store.
pub async fn examine_deletion(
    address: &str,
    options: &StoreOptions,
    world: Arc<dyn World>,
) -> Result<Vec<Check>, StoreError> {
    let mut checks = Vec::new();
    match Address::parse(address)? {
        Address::Local(_) | Address::Memory(_) => {}
        Address::S3 { bucket, root } => {
            let location = S3Location { bucket, root };
            let store = S3Store::open(location, options.s3.clone(), world).await?;
            bucket::examine_deletion(&store, &mut checks).await;
        }
        Address::Cloud(_) => {
            let found = "not looked at: versions, soft deletion and holds of Google and Azure";
            checks.push(Check::new("versions", Health::Unknown, found));
        }
    }
    Ok(checks)
}

/// Opens the store, telling what only its own kind knows.
async fn open(
    address: &str,
    options: &StoreOptions,
    world: &Arc<dyn World>,
    checks: &mut Vec<Check>,
) -> Result<Arc<dyn Store>, StoreError> {
    let options = &StoreOptions { retry: PATIENCE, ..options.clone() };
    match Address::parse(address)? {
        Address::Local(root) => {
            let local = LocalOptions { allow_network_fs: options.allow_network_fs };
            let store = LocalStore::open(&root, local);
            checks.push(file_system(&store, local));
            Ok(decorate(store?, options, world.clone()))
        }
        Address::Memory(name) => Ok(decorate(MemoryStore::named(&name), options, world.clone())),
        Address::S3 { bucket, root } => {
            let location = S3Location { bucket, root };
            let store = S3Store::open(location, options.s3.clone(), world.clone()).await?;
            bucket::examine(&store, checks).await;
            Ok(decorate(store, options, world.clone()))
        }
        Address::Cloud(location) => {
            let store = CloudStore::open(location, options.cloud.clone(), world.clone()).await?;
            let (credentials, endpoint) = store.connection();
            checks.push(Check::new("credentials", Health::Sound, format!("from {credentials}")));
            checks.push(Check::new("endpoint", Health::Sound, endpoint));
            let found = "not looked at: lifecycle rules, versions and holds of Google and Azure";
            checks
                .push(Check::new("bucket", Health::Unknown, found).advise(
                    "see to it that no lifecycle rule deletes objects below the repository's prefix",
                ));
            Ok(decorate(store, options, world.clone()))
        }
    }
}

fn file_system(store: &Result<LocalStore, StoreError>, options: LocalOptions) -> Check {
    match store {
        Err(error) if error.detail.contains("network file system") => {
            Check::new("file-system", Health::Refused, error.to_string())
        }
        Err(error) => Check::failed("file-system", error),
        Ok(store) => match (store.network_file_system(), options.allow_network_fs) {
            (None, _) => Check::new("file-system", Health::Sound, "on this machine"),
            (Some(name), _) => {
                Check::new("file-system", Health::Warning, format!("on a network file system ({name})"))
                    .advise("run `ckpt-inspect doctor` with --listen and --echo on two hosts that share it")
            }
        },
    }
}

/// Whether the store answers at all, and how quickly.
async fn reach(store: &dyn Store, world: &dyn World, checks: &mut Vec<Check>) -> bool {
    let started = world.elapsed();
    let answer = store.list(&Prefix::probes(), None).await;
    let took = world.elapsed().saturating_sub(started).as_secs_f64() * 1000.0;
    let found = format!("{} answered in {took:.0} ms", store.describe());
    match answer {
        Ok(_) => {
            checks.push(Check::new("reachable", Health::Sound, found));
            checks.push(Check::new("list", Health::Sound, "allowed"));
        }
        Err(error) if error.kind == StoreErrorKind::Denied => {
            checks.push(Check::new("reachable", Health::Sound, found));
            checks.push(Check::failed("list", &error));
        }
        Err(error) => {
            checks.push(Check::failed("reachable", &error));
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests;
