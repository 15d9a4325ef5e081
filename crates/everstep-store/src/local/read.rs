//! Reading: exact bytes, straight into one buffer.

use std::ops::Range;

use bytes::Bytes;
use everstep_format::key::{Key, StoredKind};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::{Errno, pread};

use super::Disk;
use super::buffers::{Buffers, Lent};
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
        // Bytes of packs are decoded and let go, while an index may be held for long.
        let buffers = matches!(key.kind(), Some(StoredKind::Pack(_))).then_some(&self.buffers);
        let read = read_exactly(&file, range.clone(), buffers);
        let bytes = read.map_err(|e| failed(Failure::new(e, "read", &path)))?;
        if (bytes.len() as u64) < range.end - range.start {
            let why = format!("{} became shorter than {} bytes while it was read", path.display(), range.end);
            return Err(refuse(StoreErrorKind::Truncated, why));
        }
        Ok(bytes)
    }
}

/// Fewer bytes than asked for only when the file ends there.
fn read_exactly(file: &OwnedFd, range: Range<u64>, buffers: Option<&Buffers>) -> Result<Bytes, Errno> {
    let len = usize::try_from(range.end - range.start).map_err(|_| Errno::NOMEM)?;
    let taken = buffers.map_or_else(|| Ok(Lent::new(len)), |buffers| buffers.take(len));
    let mut buffer = taken.map_err(|_| Errno::NOMEM)?;
    let mut filled = 0;
    while filled < len {
        match pread(file, &mut buffer.bytes_mut()[filled..], range.start + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(buffer.into_bytes(filled))
}
