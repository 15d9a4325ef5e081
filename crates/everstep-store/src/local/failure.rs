//! Failed system calls, told by what a caller can do about them.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use super::space;
use crate::{StoreError, StoreErrorKind};

/// A failed system call.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) errno: Errno,
    /// What was being done, as in "cannot {doing} {path}".
    pub(super) doing: &'static str,
    pub(super) path: PathBuf,
}

impl Failure {
    pub(super) fn new(errno: Errno, doing: &'static str, path: impl Into<PathBuf>) -> Self {
        Self { errno, doing, path: path.into() }
    }

    pub(super) fn io(error: &io::Error, doing: &'static str, path: impl Into<PathBuf>) -> Self {
        Self::new(Errno::from_io_error(error).unwrap_or(Errno::IO), doing, path)
    }

    /// As an error of `operation` on `key` that wanted to store `needed` bytes.
    pub(super) fn into_error(self, operation: &'static str, key: impl Display, needed: u64) -> StoreError {
        let kind = kind(self.errno);
        let mut detail =
            format!("cannot {} {}: {}", self.doing, self.path.display(), io::Error::from(self.errno));
        if kind == StoreErrorKind::Full {
            detail.push_str(&self.room(needed));
        }
        if kind == StoreErrorKind::Untrusted {
            detail.push_str("; a repository holds plain files and directories only");
        }
        StoreError::new(kind, operation, key, detail)
    }

    fn room(&self, needed: u64) -> String {
        match (self.errno, space::free(&self.path)) {
            (Errno::FBIG, _) => {
                format!("; {needed} bytes needed, more than one file may have here (ulimit -f)")
            }
            (_, Ok(free)) => format!("; {needed} bytes needed, {free} free"),
            (_, Err(_)) => format!("; {needed} bytes needed"),
        }
    }
}

fn kind(errno: Errno) -> StoreErrorKind {
    match errno {
        Errno::NOENT => StoreErrorKind::NotFound,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => StoreErrorKind::Denied,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => StoreErrorKind::Full,
        Errno::LOOP | Errno::XDEV => StoreErrorKind::Untrusted,
        // Too many open files, interrupted, flaky disk: another try may help.
        Errno::IO
        | Errno::INTR
        | Errno::MFILE
        | Errno::NFILE
        | Errno::NOMEM
        | Errno::AGAIN
        | Errno::STALE => StoreErrorKind::Server,
        _ => StoreErrorKind::Invalid,
    }
}
