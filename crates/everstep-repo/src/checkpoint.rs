//! A committed checkpoint and its index, read along the chain of trust: decision, footer, row group.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use everstep_format::FormatError;
use everstep_format::decision::Manifest;
use everstep_format::feature::Operation;
use everstep_format::index::{self, Footer};
use everstep_format::intent::ParentRef;
use everstep_format::key::Key;
use everstep_format::limits;
use everstep_format::refs::Refs;
use everstep_format::row::Row;
use everstep_store::{Span, Store, StoreErrorKind};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::OnceCell;

use crate::reading::{fetch, parse_decision};
use crate::{RepoError, Repository};

/// Row groups in flight.
const GROUPS_IN_FLIGHT: usize = 8;

/// A checkpoint that was read as COMMIT and not expired.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// What it says of itself.
    pub manifest: Arc<Manifest>,
}

impl Checkpoint {
    /// How an intent names it.
    pub fn as_parent(&self) -> ParentRef {
        let Manifest { run, ordinal, attempt, .. } = self.manifest.as_ref();
        ParentRef { run: run.clone(), ordinal: *ordinal, attempt: *attempt }
    }

    /// The key of its index.
    pub fn index_key(&self) -> Key {
        Key::index(self.manifest.attempt, self.manifest.index.blake3)
    }

    /// The key of its refs.
    pub fn refs_key(&self) -> Key {
        Key::refs(self.manifest.attempt, self.manifest.refs.blake3)
    }
}

/// Why an object that `checkpoint` refers to is gone: asks the store for decision and marker once more.
pub async fn explain_missing(store: &dyn Store, checkpoint: &Checkpoint, key: Key) -> RepoError {
    let Manifest { run, ordinal, .. } = checkpoint.manifest.as_ref();
    let (run, ordinal) = (run.clone(), *ordinal);
    match fetch(store, &Key::expired(&run, ordinal)).await {
        Err(error) => return error.into(),
        Ok(Some(_)) => return RepoError::Expired { run, ordinal },
        Ok(None) => {}
    }
    let decision = Key::decision(&run, ordinal);
    let bytes = match fetch(store, &decision).await {
        Err(error) => return error.into(),
        Ok(None) => {
            let because = "it was read before and decisions are never deleted".to_owned();
            return RepoError::Missing { key: decision, because };
        }
        Ok(Some(bytes)) => bytes,
    };
    match parse_decision(&bytes, (&run, ordinal), Operation::Read) {
        Err(error) => error,
        Ok(_) => {
            let because = format!("checkpoint {ordinal} of run {run} is committed and refers to it");
            RepoError::Missing { key, because }
        }
    }
}

impl Repository {
    /// Why an object that `checkpoint` refers to is gone: [`RepoError::Expired`] when the checkpoint has been expired
    /// meanwhile, [`RepoError::Missing`] naming `key` when it is committed, else what the store said.
    pub async fn explain_missing(&self, checkpoint: &Checkpoint, key: &Key) -> RepoError {
        explain_missing(self.store().as_ref(), checkpoint, key.clone()).await
    }
}

/// Reads rows of one checkpoint's index. Clones share what was read.
#[derive(Debug, Clone)]
pub struct IndexReader {
    store: Arc<dyn Store>,
    checkpoint: Checkpoint,
    footer: Arc<OnceCell<Footer>>,
    /// The rows of a small index, once it was read.
    small: Arc<OnceCell<Vec<Row>>>,
}

impl IndexReader {
    /// A reader of `checkpoint`'s index.
    pub fn new(store: Arc<dyn Store>, checkpoint: Checkpoint) -> Self {
        Self { store, checkpoint, footer: Arc::default(), small: Arc::default() }
    }

    /// All rows, sorted.
    ///
    /// # Errors
    /// [`RepoError::Object`] naming the index when a hash is wrong; [`RepoError::Missing`]; [`RepoError::Expired`].
    pub async fn all(&self) -> Result<Vec<Row>, RepoError> {
        if self.is_small() {
            return Ok(self.small_rows().await?.clone());
        }
        self.groups(0..self.footer().await?.groups().len()).await
    }

    /// The rows of one name, by at most two ranged reads (footer, row group; one if the index is small).
    ///
    /// # Errors
    /// As [`IndexReader::all`]. An unknown name gives no rows.
    pub async fn named(&self, name: &str) -> Result<Vec<Row>, RepoError> {
        if self.is_small() {
            let rows = self.small_rows().await?;
            let start = rows.partition_point(|row| &*row.name < name);
            return Ok(rows[start..].iter().take_while(|row| &*row.name == name).cloned().collect());
        }
        let groups = self.footer().await?.groups_of(name);
        let mut rows = self.groups(groups).await?;
        rows.retain(|row| &*row.name == name);
        Ok(rows)
    }

    /// The packs that the index uses, checked against the manifest.
    ///
    /// # Errors
    /// As [`IndexReader::all`].
    pub async fn refs(&self) -> Result<Refs, RepoError> {
        let key = self.checkpoint.refs_key();
        let bytes = self.read(&key, Span::Whole).await?;
        Refs::from_bytes(&bytes, &self.checkpoint.manifest.refs).map_err(RepoError::object(key))
    }

    fn is_small(&self) -> bool {
        self.checkpoint.manifest.index.len <= limits::INDEX_SMALL_BYTES
    }

    async fn small_rows(&self) -> Result<&Vec<Row>, RepoError> {
        let read = || async {
            let key = self.checkpoint.index_key();
            let bytes = self.read(&key, Span::Whole).await?;
            index::read_all(&bytes, &self.checkpoint.manifest.index).map_err(RepoError::object(key))
        };
        self.small.get_or_try_init(read).await
    }

    async fn footer(&self) -> Result<&Footer, RepoError> {
        let read = || async {
            let key = self.checkpoint.index_key();
            let reference = &self.checkpoint.manifest.index;
            let len = reference.len.saturating_sub(reference.footer_offset);
            let tail = self.read(&key, Span::Range { start: reference.footer_offset, len }).await?;
            Footer::parse(&tail, reference).map_err(RepoError::object(key))
        };
        self.footer.get_or_try_init(read).await
    }

    /// Rows of neighbouring row groups, read side by side, in order.
    async fn groups(&self, groups: Range<usize>) -> Result<Vec<Row>, RepoError> {
        let footer = self.footer().await?;
        let fetched = stream::iter(groups).map(|group| self.group(footer, group)).buffered(GROUPS_IN_FLIGHT);
        fetched.try_concat().await
    }

    async fn group(&self, footer: &Footer, group: usize) -> Result<Vec<Row>, RepoError> {
        let key = self.checkpoint.index_key();
        let Range { start, end } = footer.groups()[group].range.clone();
        let bytes = self.read(&key, Span::Range { start, len: end.saturating_sub(start) }).await?;
        footer.read_group(group, &bytes).map_err(RepoError::object(key))
    }

    async fn read(&self, key: &Key, span: Span) -> Result<Bytes, RepoError> {
        match self.store.get(key, span).await {
            Ok(object) => Ok(object.bytes),
            Err(error) if error.kind == StoreErrorKind::NotFound => {
                Err(explain_missing(self.store.as_ref(), &self.checkpoint, key.clone()).await)
            }
            Err(error) if error.kind == StoreErrorKind::Truncated => {
                let expected = match span {
                    Span::Whole => "a whole object".to_owned(),
                    Span::Range { start, len } => format!("{len} bytes from {start}"),
                };
                let offset = if let Span::Range { start, .. } = span { start } else { 0 };
                Err(RepoError::object(key.clone())(FormatError::corrupt(
                    "object",
                    offset,
                    expected,
                    error.detail,
                )))
            }
            Err(error) => Err(error.into()),
        }
    }
}
