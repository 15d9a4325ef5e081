//! Writing: the whole body into a file without a name, flushed when it must be, then its name in one step.

use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;

use everstep_format::key::Key;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, statat};
use rustix::io::Errno;

use super::Disk;
use super::failure::Failure;
use super::staging::Staged;
use super::tree::split;
use crate::{Class, Payload};

/// A directory may be removed by a delete between its making and its use; so often it is made again.
const TRIES: u32 = 16;

/// What a create did.
pub(super) enum Created {
    /// Stored, and on disk.
    New,
    /// An object was there; the entries that lead to it are on disk.
    Exists,
    /// An object is there, ours or another's, but whether it would survive a power cut is not known.
    NotDurable(Failure),
}

impl Disk {
    pub(super) fn put(&self, key: &Key, body: &Payload, class: Class) -> Result<(), Failure> {
        let deferred = class == Class::Bulk && self.ledger.has_room();
        let file = while_directories_vanish(|| self.replace(key.as_str(), body, !deferred))?;
        match class {
            Class::Bulk => self.ledger.wrote(key.as_str(), deferred.then_some(file)),
            Class::Control => {
                self.ledger.flush_entries(&self.tree, split(key.as_str()).0)?;
                self.ledger.forget(key.as_str());
            }
        }
        Ok(())
    }

    pub(super) fn create(&self, key: &Key, body: &Payload) -> Result<Created, Failure> {
        let created = while_directories_vanish(|| self.link(key.as_str(), body))?;
        // Also when the object was there: whoever acts on it must not be ahead of the disk.
        match self.ledger.flush_entries(&self.tree, split(key.as_str()).0) {
            Err(failure) => Ok(Created::NotDurable(failure)),
            Ok(()) if created => {
                self.ledger.forget(key.as_str());
                Ok(Created::New)
            }
            Ok(()) => Ok(Created::Exists),
        }
    }

    /// The file that now has the name; flushed if `flush`.
    fn replace(&self, name: &str, body: &Payload, flush: bool) -> Result<Arc<File>, Failure> {
        let (directory, file) = split(name);
        let parent = self.tree.make_directory(directory)?;
        let mut staged = self.staged(&parent, name, body)?;
        if flush {
            self.ledger.flush_file(&self.tree.path(name), &staged.file)?;
        }
        staged.replace(&parent, file).map_err(|e| Failure::new(e, "name", self.tree.path(name)))?;
        Ok(staged.file.clone())
    }

    /// Whether the name was free and is the new file's now.
    fn link(&self, name: &str, body: &Payload) -> Result<bool, Failure> {
        let (directory, file) = split(name);
        let parent = self.tree.make_directory(directory)?;
        // Saves writing and flushing a body that cannot win; the link below decides.
        if statat(&parent, file, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(false);
        }
        let mut staged = self.staged(&parent, name, body)?;
        self.ledger.flush_file(&self.tree.path(name), &staged.file)?;
        match staged.link(&parent, file) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(Failure::new(errno, "name", self.tree.path(name))),
        }
    }

    fn staged(&self, parent: &OwnedFd, name: &str, body: &Payload) -> Result<Staged<'_>, Failure> {
        let staged = self.staging.begin(&self.tree, parent)?;
        for segment in &body.0 {
            let written = (&*staged.file).write_all(segment);
            written.map_err(|e| Failure::io(&e, "write", self.tree.path(name)))?;
        }
        Ok(staged)
    }
}

fn while_directories_vanish<T>(mut work: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    for _ in 1..TRIES {
        match work() {
            Err(failure) if failure.errno == Errno::NOENT => {}
            other => return other,
        }
    }
    work()
}
