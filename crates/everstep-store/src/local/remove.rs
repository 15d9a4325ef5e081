//! Deleting files, and the directories that they leave empty.

use everstep_format::key::Key;
use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use super::Disk;
use super::failure::Failure;
use super::tree::split;
use crate::Deleted;

impl Disk {
    pub(super) fn delete(&self, key: Key) -> Deleted {
        let result = self.unlink(key.as_str()).map_err(|failure| failure.into_error("delete", &key, 0));
        if result.is_ok() {
            self.ledger.forget(key.as_str());
            self.remove_empty(split(key.as_str()).0);
        }
        Deleted { key, result }
    }

    fn unlink(&self, name: &str) -> Result<(), Failure> {
        let (directory, file) = split(name);
        let gone = |errno| matches!(errno, Errno::NOENT | Errno::NOTDIR);
        let at = match self.tree.directory(directory) {
            Err(failure) if gone(failure.errno) => return Ok(()),
            other => other?,
        };
        match unlinkat(&at, file, AtFlags::empty()) {
            Err(errno) if errno != Errno::NOENT => Err(Failure::new(errno, "delete", self.tree.path(name))),
            _ => Ok(()),
        }
    }

    /// Best effort: a directory that another process fills or removes meanwhile stays or is gone, both are fine.
    fn remove_empty(&self, directory: &str) {
        let mut name = directory;
        while !name.is_empty() {
            let (above, last) = split(name);
            let removed = self.tree.directory(above).map(|at| unlinkat(&at, last, AtFlags::REMOVEDIR));
            if !matches!(removed, Ok(Ok(()))) {
                return;
            }
            name = above;
        }
    }
}
