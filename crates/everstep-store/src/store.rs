//! The one narrow trait that every backend and decorator implements.

use std::fmt;
use std::ops::Range;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use everstep_format::key::{Key, Prefix};
use everstep_format::limits;

use crate::{StoreError, StoreErrorKind};

/// Which bytes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// All, of whatever stored kind: at most as large as the largest of them, an index.
    Whole,
    /// All of an object that has at most so many bytes (and no more than [`Span::Whole`] allows); a larger one is an
    /// error, and not read.
    AtMost(u64),
    /// `len` bytes (at least one) from `start`; an object that is shorter is an error, not a short read.
    Range {
        /// First byte.
        start: u64,
        /// Bytes.
        len: u64,
    },
}

impl Span {
    /// The bytes meant of an object of `size` bytes; checked before anything is allocated for them.
    ///
    /// # Errors
    /// [`StoreErrorKind::Truncated`] when the object is shorter, [`StoreErrorKind::Invalid`] for an empty or overflowing
    /// range, [`StoreErrorKind::TooLarge`] beyond the limit of a whole read; with the reason in words.
    pub fn within(self, size: u64) -> Result<Range<u64>, (StoreErrorKind, String)> {
        match self {
            Self::Whole | Self::AtMost(_) => {
                let limit = self.limit();
                let refusal = || (StoreErrorKind::TooLarge, too_large(size, limit));
                (size <= limit).then_some(0..size).ok_or_else(refusal)
            }
            Self::Range { start, len } => match start.checked_add(len) {
                None => Err((StoreErrorKind::Invalid, format!("{len} bytes from {start} overflow"))),
                _ if len == 0 => Err((StoreErrorKind::Invalid, "a range needs at least one byte".to_owned())),
                Some(end) if end > size => Err((
                    StoreErrorKind::Truncated,
                    format!("has {size} bytes, asked for {len} from byte {start}"),
                )),
                Some(end) => Ok(start..end),
            },
        }
    }

    /// The most bytes that a read of it can give.
    pub fn limit(self) -> u64 {
        match self {
            Self::Whole => limits::INDEX_BYTES,
            Self::AtMost(bytes) => bytes.min(limits::INDEX_BYTES),
            Self::Range { len, .. } => len,
        }
    }
}

/// What is wrong with an object of `size` bytes that may have `limit`.
pub(crate) fn too_large(size: u64, limit: u64) -> String {
    format!("has {size} bytes, at most {limit} are read of an object of its kind")
}

/// Bytes that were read.
#[derive(Debug, Clone)]
pub struct Object {
    /// The bytes asked for, exactly.
    pub bytes: Bytes,
}

/// A body: segments that follow each other, so that header and payload need no copy into one buffer.
#[derive(Debug, Clone, Default)]
pub struct Payload(pub Vec<Bytes>);

impl Payload {
    /// Bytes in all segments.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|segment| segment.len() as u64).sum()
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self(vec![Bytes::from(bytes)])
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self(vec![bytes])
    }
}

/// What kind of object a PUT writes; it decides signing and when the bytes must be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Bulk, hashed end to end: may go unsigned over TLS; durable once [`Store::sync`] has returned.
    Bulk,
    /// Protocol: signed; durable when the call returns.
    Control,
}

/// Outcome of a put-if-absent.
#[derive(Debug)]
pub enum Create {
    /// This call stored the object.
    Created,
    /// An object was there, perhaps our own after a lost reply: read it to know.
    Exists,
    /// No answer can be trusted: the object may be there now, or later, or never.
    Unknown(StoreError),
}

/// One object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: Key,
    /// Its bytes.
    pub size: u64,
    /// When it was last written, by the store's clock.
    pub modified: SystemTime,
}

/// A page of a listing, in key order.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Objects whose keys could be ours.
    pub objects: Vec<Listed>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<String>,
    /// Entries whose names no key of ours can have, as the store spells them.
    pub strays: Vec<String>,
}

/// What became of one key of a batch delete. A key that was not there counts as deleted.
#[derive(Debug)]
pub struct Deleted {
    /// The key.
    pub key: Key,
    /// Its own result.
    pub result: Result<(), StoreError>,
}

/// Keys to bytes. Strongly consistent; every error names the key.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The address for people, without secrets.
    fn describe(&self) -> String;

    /// Reads bytes of an object.
    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError>;

    /// Writes an object. Used only for keys that have one writer, so a retry writes the same bytes.
    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError>;

    /// Writes an object unless one is there; durable when it returns `Created`. A decorator may have tried several times,
    /// so `Exists` may mean our own object after a lost reply: the caller resolves [`Create::Exists`] and
    /// [`Create::Unknown`] by reading back. `Err` only when the store surely did nothing.
    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError>;

    /// One page of the objects below `prefix`, in key order, starting after `token` (a `next` of an earlier page).
    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError>;

    /// Deletes objects, any number; the results are in the order of `keys`.
    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError>;

    /// Returns once everything put before through this store is durable. After a failure it fails for the same objects
    /// again, until they are put again or deleted: what could not be made durable once is never taken for durable.
    async fn sync(&self) -> Result<(), StoreError>;

    /// Bytes that can still be written; `None` where the store has no such number. To be asked before a large save.
    async fn free_space(&self) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }
}

/// Every object below `prefix`, in key order.
///
/// # Errors
/// Those of [`Store::list`].
pub async fn list_all(store: &dyn Store, prefix: &Prefix) -> Result<Vec<Listed>, StoreError> {
    let mut objects = Vec::new();
    let mut token = None;
    loop {
        let page = store.list(prefix, token).await?;
        objects.extend(page.objects);
        match page.next {
            None => return Ok(objects),
            next => token = next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c25_a_span_is_checked_against_the_object_before_anything_is_allocated() {
        let within = |span: Span, size: u64| span.within(size).map_err(|(kind, _)| kind);
        let range = |start, len| Span::Range { start, len };
        assert_eq!(within(Span::Whole, 0), Ok(0..0));
        assert_eq!(within(Span::Whole, limits::INDEX_BYTES), Ok(0..limits::INDEX_BYTES));
        assert_eq!(within(Span::Whole, limits::INDEX_BYTES + 1), Err(StoreErrorKind::TooLarge));
        assert_eq!(within(Span::AtMost(5), 5), Ok(0..5));
        assert_eq!(within(Span::AtMost(5), 0), Ok(0..0));
        assert_eq!(within(Span::AtMost(5), 6), Err(StoreErrorKind::TooLarge));
        assert_eq!(within(range(2, 3), 5), Ok(2..5));
        assert_eq!(within(range(2, 4), 5), Err(StoreErrorKind::Truncated));
        assert_eq!(within(range(0, u64::MAX), 5), Err(StoreErrorKind::Truncated));
        assert_eq!(within(range(1, u64::MAX), u64::MAX), Err(StoreErrorKind::Invalid));
        assert_eq!(within(range(1, 0), 5), Err(StoreErrorKind::Invalid));
    }
}
