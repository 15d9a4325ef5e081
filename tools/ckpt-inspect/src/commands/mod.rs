//! One file per command. A command opens what it needs, asks the library, and prints.

pub(crate) mod cat;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod ls;
pub(crate) mod pin;
pub(crate) mod pins;
pub(crate) mod resolve;
pub(crate) mod show;
pub(crate) mod tensors;
pub(crate) mod unpin;
pub(crate) mod unreadable;
pub(crate) mod verify;

use everstep::{Checkpoint, CheckpointRef, Options, Ordinal, Pattern, Repository, Selection};

use crate::cli::{SelectionArgs, StoreArgs};
use crate::failure::Failure;

/// What every command is given.
pub(crate) struct Context {
    pub(crate) json: bool,
    pub(crate) store: StoreArgs,
}

impl Context {
    pub(crate) fn options(&self) -> Options {
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

    pub(crate) fn open(&self, url: &str) -> Result<Repository, Failure> {
        Ok(Repository::open(url, &self.options())?)
    }

    /// The checkpoint that `reference` means. Others that fit it are told on stderr.
    pub(crate) fn resolve(&self, repository: &Repository, reference: &str) -> Result<Checkpoint, Failure> {
        let reference: CheckpointRef = reference.parse().map_err(everstep::Error::from)?;
        let (checkpoint, also) = repository.resolve(&reference)?;
        if !also.is_empty() && !self.json {
            let ordinals: Vec<String> = also.iter().map(Ordinal::to_string).collect();
            let chosen = checkpoint.manifest().ordinal;
            eprintln!(
                "note: {reference} also fits ordinal {}; the newest, {chosen}, is meant",
                ordinals.join(", ")
            );
        }
        Ok(checkpoint)
    }
}

/// The globs of a command line.
pub(crate) fn selection(args: &SelectionArgs) -> Result<Selection, Failure> {
    Ok(Selection { select: patterns(&args.select)?, exclude: patterns(&args.exclude)?, names: None })
}

pub(crate) fn patterns(globs: &[String]) -> Result<Vec<Pattern>, Failure> {
    globs.iter().map(|glob| Pattern::new(glob).map_err(|e| everstep::Error::from(e).into())).collect()
}
