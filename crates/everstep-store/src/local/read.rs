//! Reading: exact bytes, straight into one allocation that is not zeroed first.

use bytes::Bytes;
use everstep_format::key::Key;
use rustix::buffer::spare_capacity;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::{Errno, pread};

use super::Disk;
use super::failure::Failure;
use crate::{Span, StoreError, StoreErrorKind};

impl Disk {
    pub(super) fn read(&self, key: &Key, span: Span) -> Result<Bytes, StoreError> {
        let refuse = |kind, why: String| StoreError::new(kind, "get", key, why);
        let failed = |failure: Failure| failure.into_error("get", key, 0);
        let path = self.tree.path(key.as_str());
        // Without O_NONBLOCK, opening a pipe that somebody put there would wait for ever.
        let file = self.tree.open(key.as_str(), OFlags::RDONLY | OFlags::NONBLOCK).map_err(failed)?;
        let stat = fstat(&file).map_err(|e| failed(Failure::new(e, "look at", &path)))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refuse(StoreErrorKind::Untrusted, format!("{} is not a plain file", path.display())));
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let range =
            span.within(size).map_err(|(kind, why)| refuse(kind, format!("{} {why}", path.display())))?;
        let bytes = read_exactly(&file, range.clone()).map_err(|e| failed(Failure::new(e, "read", &path)))?;
        if (bytes.len() as u64) < range.end - range.start {
            let why = format!("{} became shorter than {} bytes while it was read", path.display(), range.end);
            return Err(refuse(StoreErrorKind::Truncated, why));
        }
        Ok(bytes)
    }
}

/// Fewer bytes than asked for only when the file ends there.
fn read_exactly(file: &OwnedFd, range: std::ops::Range<u64>) -> Result<Bytes, Errno> {
    let len = usize::try_from(range.end - range.start).map_err(|_| Errno::NOMEM)?;
    let mut buffer = Vec::with_capacity(len);
    while buffer.len() < len {
        let at = range.start + buffer.len() as u64;
        match pread(file, spare_capacity(&mut buffer), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    // A vector may have room for more than was asked for.
    buffer.truncate(len);
    Ok(Bytes::from(buffer))
}
