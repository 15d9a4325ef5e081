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

/// A delete may remove a directory between its making and its use, some microseconds later; so often it is made again.
const TRIES: u32 = 1000;

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
        let file = self.replace(key.as_str(), body, !deferred)?;
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
        let created = self.link(key.as_str(), body)?;
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
        let mut staged = self.staged(name, body, flush)?;
        self.place(name, |parent, file| staged.replace(parent, file))?;
        Ok(staged.file.clone())
    }

    /// Whether the name was free and is the new file's now.
    fn link(&self, name: &str, body: &Payload) -> Result<bool, Failure> {
        // Saves writing and flushing a body that cannot win; the link below decides.
        if self.exists(name) {
            return Ok(false);
        }
        let mut staged = self.staged(name, body, true)?;
        match self.place(name, |parent, file| staged.link(parent, file)) {
            Ok(()) => Ok(true),
            Err(failure) if failure.errno == Errno::EXIST => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn exists(&self, name: &str) -> bool {
        let (directory, file) = split(name);
        let parent = self.tree.directory(directory);
        parent.is_ok_and(|parent| statat(&parent, file, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    /// A whole body that has no name yet.
    fn staged(&self, name: &str, body: &Payload, flush: bool) -> Result<Staged<'_>, Failure> {
        let staged = self.staging.begin(&self.tree)?;
        for segment in &body.0 {
            let written = (&*staged.file).write_all(segment);
            written.map_err(|e| Failure::io(&e, "write", self.tree.path(name)))?;
        }
        if flush {
            self.ledger.flush_file(&self.tree.path(name), &staged.file)?;
        }
        Ok(staged)
    }

    /// Makes the directory of `name` and calls `link` with it and the last segment.
    fn place(
        &self,
        name: &str,
        mut link: impl FnMut(&OwnedFd, &str) -> Result<(), Errno>,
    ) -> Result<(), Failure> {
        let (directory, file) = split(name);
        let mut tries = 1;
        loop {
            let parent = self.tree.make_directory(directory);
            let failed = |errno| Failure::new(errno, "name", self.tree.path(name));
            match parent.and_then(|parent| link(&parent, file).map_err(failed)) {
                Err(failure) if failure.errno == Errno::NOENT && tries < TRIES => tries += 1,
                other => return other,
            }
        }
    }
}
