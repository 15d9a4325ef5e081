//! `file://`: a directory of this machine.
//!
//! Own code on the system calls, since the promises made here need it: nothing half-written ever has a name (a file
//! is written unnamed, then linked, and a create is the link itself); control objects and the directory entries that
//! lead to them are on disk before a call returns, bulk objects once [`Store::sync`] has, large ones by and by before; a
//! symbolic link is never followed; foreign names never stop a listing. `object_store`'s `LocalFileSystem` does none of these, which
//! `local/peer.rs` shows.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use everstep_format::key::{Key, Prefix};

use crate::{Class, Create, Deleted, Object, Page, Payload, Span, Store, StoreError, StoreErrorKind};

mod buffers;
mod early;
mod failure;
mod ledger;
mod list;
mod read;
mod remove;
mod space;
mod staging;
mod tree;
mod write;

use buffers::Buffers;
use failure::Failure;
use ledger::Ledger;
use staging::Staging;
use tree::Tree;

/// How a directory is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LocalOptions {
    /// Accept NFS, SMB and other network file systems, whose rename, link and flush may not keep what they promise.
    pub allow_network_fs: bool,
}

/// Objects as files below one directory.
#[derive(Debug, Clone)]
pub struct LocalStore {
    disk: Arc<Disk>,
}

/// What the blocking calls share.
#[derive(Debug)]
struct Disk {
    tree: Tree,
    staging: Staging,
    ledger: Ledger,
    early: early::Queue,
    buffers: Buffers,
}

impl LocalStore {
    /// Opens the directory `root`, which need not exist yet: the first write makes it.
    ///
    /// # Errors
    /// [`StoreErrorKind::Denied`] when it cannot be looked at, [`StoreErrorKind::Invalid`] when it is no directory or
    /// lies on a network file system without the option.
    pub fn open(root: &Path, options: LocalOptions) -> Result<Self, StoreError> {
        let failed = |failure: Failure| failure.into_error("open", root.display(), 0);
        let root = tree::absolute(root).map_err(failed)?;
        if !options.allow_network_fs {
            space::refuse_network(&root)?;
        }
        Ok(Self::on(Tree::new(root), Staging::default(), Ledger::default()))
    }

    fn on(tree: Tree, staging: Staging, ledger: Ledger) -> Self {
        let (early, buffers) = (early::Queue::default(), Buffers::default());
        Self { disk: Arc::new(Disk { tree, staging, ledger, early, buffers }) }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        self.disk.tree.root()
    }

    /// The kind of network file system that it lies on.
    pub fn network_file_system(&self) -> Option<&'static str> {
        space::network(self.root()).ok().flatten()
    }

    /// Runs `work` where it may block; `Err` when the runtime is shutting down.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Disk) -> T + Send + 'static,
    ) -> Result<T, tokio::task::JoinError> {
        let disk = self.disk.clone();
        match tokio::task::spawn_blocking(move || work(&disk)).await {
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            other => other,
        }
    }
}

fn stopped(operation: &'static str, key: impl std::fmt::Display) -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, operation, key, "the runtime is shutting down")
}

#[async_trait]
impl Store for LocalStore {
    fn describe(&self) -> String {
        format!("file://{}", self.root().display())
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        let wanted = key.clone();
        let read = self.blocking(move |disk| disk.read(&wanted, span)).await;
        read.map_err(|_| stopped("get", key))?.map(|bytes| Object { bytes })
    }

    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError> {
        let (target, needed) = (key.clone(), body.len());
        let put = self.blocking(move |disk| disk.put(&target, &body, class)).await;
        put.map_err(|_| stopped("put", key))?.map_err(|failure| failure.into_error("put", key, needed))?;
        if class == Class::Bulk {
            early::flush(&self.disk, key.as_str(), needed);
        }
        Ok(())
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        let (target, needed) = (key.clone(), body.len());
        match self.blocking(move |disk| disk.create(&target, &body)).await {
            Ok(Ok(write::Created::New)) => Ok(Create::Created),
            Ok(Ok(write::Created::Exists)) => Ok(Create::Exists),
            Ok(Ok(write::Created::NotDurable(failure))) => {
                Ok(Create::Unknown(failure.into_error("create", key, needed)))
            }
            Ok(Err(failure)) => Err(failure.into_error("create", key, needed)),
            // The work may have been done, or still be under way.
            Err(_) => Ok(Create::Unknown(stopped("create", key))),
        }
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        let below = prefix.clone();
        let listed = self.blocking(move |disk| list::page(&disk.tree, &below, token.as_deref())).await;
        listed.map_err(|_| stopped("list", prefix))?.map_err(|failure| failure.into_error("list", prefix, 0))
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        let keys = keys.to_vec();
        let deleted = self.blocking(move |disk| keys.into_iter().map(|key| disk.delete(key)).collect()).await;
        deleted.map_err(|_| stopped("delete", self.describe()))
    }

    async fn sync(&self) -> Result<(), StoreError> {
        ledger::sync(&self.disk).await
    }

    async fn free_space(&self) -> Result<Option<u64>, StoreError> {
        let free = self.blocking(|disk| space::free(disk.tree.root())).await;
        let free = free.map_err(|_| stopped("open", self.describe()))?;
        free.map(Some).map_err(|failure| failure.into_error("open", self.describe(), 0))
    }
}

#[cfg(test)]
mod peer;
#[cfg(test)]
mod tests;
