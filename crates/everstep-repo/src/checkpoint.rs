//! A committed checkpoint and its index, read along the chain of trust: decision, footer, row group.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use everstep_format::FormatError;
use everstep_format::card::ParentIndex;
use everstep_format::decision::{IndexRef, Manifest};
use everstep_format::feature::Operation;
use everstep_format::id::ContentHash;
use everstep_format::index::Footer;
use everstep_format::intent::ParentRef;
use everstep_format::invariant::rows_are_sorted;
use everstep_format::key::Key;
use everstep_format::limits;
use everstep_format::name::{Ordinal, RunName};
use everstep_format::refs::Refs;
use everstep_format::row::Row;
use everstep_store::{Span, Store, StoreErrorKind};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::OnceCell;

use crate::reading::{check_hash, exists, fetch, fetch_at_most, parse_decision};
use crate::{RepoError, Repository};

/// Row groups, or parts of the file, in flight.
const READS_IN_FLIGHT: usize = 8;
/// What every parquet file starts with.
const PARQUET_MAGIC: &[u8] = b"PAR1";

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

    /// Its name and where its index is.
    pub fn as_parent_index(&self) -> ParentIndex {
        ParentIndex { parent: self.as_parent(), index: self.manifest.index.clone() }
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
    explain_missing_of(store, (&checkpoint.manifest.run, checkpoint.manifest.ordinal), key).await
}

async fn explain_missing_of(store: &dyn Store, (run, ordinal): (&RunName, Ordinal), key: Key) -> RepoError {
    let run = run.clone();
    match exists(store, &Key::expired(&run, ordinal)).await {
        Err(error) => return error.into(),
        Ok(true) => return RepoError::Expired { run, ordinal },
        Ok(false) => {}
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
    /// Why an object that `checkpoint` refers to is gone: [`RepoError::Expired`] when the checkpoint has been
    /// expired meanwhile, [`RepoError::Missing`] naming `key` when it is committed, else what the store said.
    pub async fn explain_missing(&self, checkpoint: &Checkpoint, key: &Key) -> RepoError {
        explain_missing(self.store().as_ref(), checkpoint, key.clone()).await
    }

    /// The packs that the index of `checkpoint` uses, checked against the manifest.
    ///
    /// # Errors
    /// As [`IndexReader::all`].
    pub async fn refs(&self, checkpoint: &Checkpoint) -> Result<Refs, RepoError> {
        let key = checkpoint.refs_key();
        let len = checkpoint.manifest.refs.len;
        let Some(bytes) = fetch_at_most(self.store().as_ref(), &key, len).await? else {
            return Err(self.explain_missing(checkpoint, &key).await);
        };
        Refs::from_bytes(&bytes, &checkpoint.manifest.refs).map_err(RepoError::object(key))
    }
}

/// Reads rows of one checkpoint's index. Clones share what was read.
#[derive(Debug, Clone)]
pub struct IndexReader {
    store: Arc<dyn Store>,
    place: ParentIndex,
    opened: Arc<OnceCell<Opened>>,
}

/// An index whose footer is at hand.
#[derive(Debug)]
struct Opened {
    footer: Footer,
    /// The whole file: when it is small, when somebody asked for it, or when it was handed on.
    whole: OnceCell<Bytes>,
}

impl Opened {
    /// `file` has the length and hash of `reference`.
    fn of(file: Bytes, reference: &IndexRef) -> Result<Self, FormatError> {
        check_magic(&slice(&file, 0..file.len().min(PARQUET_MAGIC.len()) as u64)?)?;
        let footer = Footer::parse(&slice(&file, reference.footer_offset..reference.len)?, reference)?;
        Ok(Self { footer, whole: OnceCell::from(file) })
    }
}

impl IndexReader {
    /// A reader of `checkpoint`'s index.
    pub fn new(store: Arc<dyn Store>, checkpoint: Checkpoint) -> Self {
        Self::at(store, checkpoint.as_parent_index())
    }

    /// A reader of the index at `place`.
    pub fn at(store: Arc<dyn Store>, place: ParentIndex) -> Self {
        Self { store, place, opened: Arc::default() }
    }

    /// Where the index is.
    pub fn place(&self) -> &ParentIndex {
        &self.place
    }

    fn key(&self) -> Key {
        Key::index(self.place.parent.attempt, self.place.index.blake3)
    }

    /// All rows, sorted.
    ///
    /// # Errors
    /// [`RepoError::Object`] naming the index when a hash is wrong; [`RepoError::Missing`];
    /// [`RepoError::Expired`].
    pub async fn all(&self) -> Result<Vec<Row>, RepoError> {
        let opened = self.opened().await?;
        let read = |group| async move {
            let bytes = self.group(opened, group).await?;
            opened.footer.read_group(group, &bytes).map_err(RepoError::object(self.key()))
        };
        let groups = stream::iter(0..opened.footer.groups().len()).map(read).buffered(READS_IN_FLIGHT);
        let rows: Vec<Row> = groups.try_concat().await?;
        rows_are_sorted(&rows)
            .map_err(|error| FormatError::corrupt("index", 0, "sorted rows", error.to_string()))
            .map_err(RepoError::object(self.key()))?;
        Ok(rows)
    }

    /// The rows of one name, by at most two ranged reads (footer, row group; one if the index is small).
    /// Later calls need no footer, and of a small index no read at all.
    ///
    /// # Errors
    /// As [`IndexReader::all`]. An unknown name gives no rows.
    pub async fn named(&self, name: &str) -> Result<Vec<Row>, RepoError> {
        let opened = self.opened().await?;
        let mut rows = Vec::new();
        for group in opened.footer.groups_of(name) {
            let bytes = self.group(opened, group).await?;
            let found = opened.footer.read_named(group, &bytes, name);
            rows.append(&mut found.map_err(RepoError::object(self.key()))?);
        }
        Ok(rows)
    }

    /// The file as it is stored, checked against its hash: for other readers of the same index, which then make no
    /// request for it ([`IndexReader::with_file`]). It is read at most once, and kept.
    ///
    /// # Errors
    /// As [`IndexReader::all`].
    pub async fn file(&self) -> Result<Bytes, RepoError> {
        let opened = self.opened.get_or_try_init(|| self.open_whole()).await?;
        opened.whole.get_or_try_init(|| self.read_file()).await.cloned()
    }

    /// A reader of the same index that has its file already, perhaps from another process ([`IndexReader::file`]).
    ///
    /// # Errors
    /// [`RepoError::Invalid`], naming what was expected and found, for any other file.
    pub fn with_file(&self, file: Bytes) -> Result<Self, RepoError> {
        let Self { store, place, .. } = self;
        let found = (file.len() as u64, ContentHash::of(&file));
        if found != (place.index.len, place.index.blake3) {
            return Err(another_file(place, found).into());
        }
        let opened = Opened::of(file, &place.index).map_err(RepoError::object(self.key()))?;
        let opened = Arc::new(OnceCell::from(opened));
        Ok(Self { store: store.clone(), place: place.clone(), opened })
    }

    async fn opened(&self) -> Result<&Opened, RepoError> {
        let small = self.place.index.len <= limits::INDEX_SMALL_BYTES;
        let open = || async { if small { self.open_whole().await } else { self.open_footer().await } };
        self.opened.get_or_try_init(open).await
    }

    async fn open_whole(&self) -> Result<Opened, RepoError> {
        let file = self.read_file().await?;
        Opened::of(file, &self.place.index).map_err(RepoError::object(self.key()))
    }

    /// The file, verified.
    async fn read_file(&self) -> Result<Bytes, RepoError> {
        let (key, reference) = (self.key(), &self.place.index);
        let bytes = match reference.len <= limits::INDEX_SMALL_BYTES {
            true => self.read(&key, Span::AtMost(reference.len)).await?,
            false => self.read_in_parts(&key).await?,
        };
        check_hash(&bytes, reference.blake3).map_err(RepoError::object(key))?;
        Ok(bytes)
    }

    /// In parts of the size of a small index, so that a request that fails costs no more.
    async fn read_in_parts(&self, key: &Key) -> Result<Bytes, RepoError> {
        let len = self.place.index.len;
        FormatError::within("index", len, limits::INDEX_BYTES).map_err(RepoError::object(key.clone()))?;
        let part = |start| {
            let span = Span::Range { start, len: limits::INDEX_SMALL_BYTES.min(len - start) };
            self.read(key, span)
        };
        let starts = (0..len.div_ceil(limits::INDEX_SMALL_BYTES)).map(|n| n * limits::INDEX_SMALL_BYTES);
        let mut parts = stream::iter(starts).map(part).buffered(READS_IN_FLIGHT);
        let mut file = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
        while let Some(part) = parts.try_next().await? {
            file.extend_from_slice(&part);
        }
        Ok(file.into())
    }

    async fn open_footer(&self) -> Result<Opened, RepoError> {
        let key = self.key();
        let reference = &self.place.index;
        let len = reference.len.saturating_sub(reference.footer_offset);
        let tail = self.read(&key, Span::Range { start: reference.footer_offset, len }).await?;
        let footer = Footer::parse(&tail, reference).map_err(RepoError::object(key))?;
        Ok(Opened { footer, whole: OnceCell::new() })
    }

    /// The bytes of one row group; the footer checks their hash.
    async fn group(&self, opened: &Opened, group: usize) -> Result<Bytes, RepoError> {
        let key = self.key();
        let range = opened.footer.groups()[group].range.clone();
        if let Some(bytes) = opened.whole.get() {
            return slice(bytes, range).map_err(RepoError::object(key));
        }
        // The first row group is read from the start of the file: the magic before it is in no other hash.
        let start = if group == 0 { 0 } else { range.start };
        let bytes = self.read(&key, Span::Range { start, len: range.end.saturating_sub(start) }).await?;
        let (before, group) =
            (slice(&bytes, 0..range.start - start), slice(&bytes, range.start - start..bytes.len() as u64));
        before.and_then(|before| check_magic(&before)).and(group).map_err(RepoError::object(key))
    }

    async fn read(&self, key: &Key, span: Span) -> Result<Bytes, RepoError> {
        match self.store.get(key, span).await {
            Ok(object) => Ok(object.bytes),
            Err(error) if error.kind == StoreErrorKind::NotFound => {
                let parent = &self.place.parent;
                let place = (&parent.run, parent.ordinal);
                Err(explain_missing_of(self.store.as_ref(), place, key.clone()).await)
            }
            Err(error) if error.kind == StoreErrorKind::Truncated => {
                Err(RepoError::object(key.clone())(too_short(span, error.detail)))
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn another_file(place: &ParentIndex, (len, hash): (u64, ContentHash)) -> FormatError {
    let ParentIndex { parent: ParentRef { run, ordinal, .. }, index } = place;
    let expected = format!(
        "the index of checkpoint {ordinal} of run {run} has {} bytes and BLAKE3 {}; hand on the file of the same \
         checkpoint, unchanged",
        index.len, index.blake3
    );
    FormatError::invalid("index file", format!("{len} bytes, BLAKE3 {hash}"), expected)
}

fn too_short(span: Span, found: String) -> FormatError {
    match span {
        Span::Whole | Span::AtMost(_) => FormatError::corrupt("object", 0, "a whole object", found),
        Span::Range { start, len } => FormatError::corrupt("object", start, format!("{len} bytes"), found),
    }
}

/// `before` is what precedes a row group in what was read: nothing, or the start of the file.
fn check_magic(before: &[u8]) -> Result<(), FormatError> {
    if before.is_empty() || before == PARQUET_MAGIC {
        return Ok(());
    }
    Err(FormatError::corrupt("index", 0, "PAR1", format!("{} other bytes", before.len())))
}

/// A part of `bytes`, which must have it.
fn slice(bytes: &Bytes, range: Range<u64>) -> Result<Bytes, FormatError> {
    let inside = || Some(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?);
    let part = inside().filter(|range| range.start <= range.end && range.end <= bytes.len());
    let found = || {
        FormatError::corrupt(
            "index",
            range.start,
            format!("bytes to {}", range.end),
            format!("{}", bytes.len()),
        )
    };
    part.map(|range| bytes.slice(range)).ok_or_else(found)
}
