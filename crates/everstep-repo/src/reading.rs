//! Reading the protocol's objects: features before shape, decisions cached (they never change), markers
//! never.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use everstep_format::FormatError;
use everstep_format::decision::{self, Abort, Decision, Manifest, Verdict};
use everstep_format::feature::{Operation, Requires};
use everstep_format::id::{AttemptId, ContentHash};
use everstep_format::intent::{self, Intent};
use everstep_format::key::Key;
use everstep_format::name::{Ordinal, RunName};
use everstep_format::{limits, sealed};
use everstep_store::{Span, Store, StoreError, StoreErrorKind};
use serde::Deserialize;

use crate::{Checkpoint, RepoError, Repository};

/// Decisions kept in memory per repository handle.
const CACHED_DECISIONS: usize = 4096;

/// What became of an attempt, as its decision says.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    /// A checkpoint.
    Commit(Arc<Manifest>),
    /// None.
    Abort(Abort),
}

/// A decision that was read: its hash held and this version understands what it requires.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// The attempt that is decided.
    pub attempt: AttemptId,
    /// Features per operation.
    pub requires: Requires,
    /// COMMIT or ABORT.
    pub fate: Fate,
}

impl From<Decision> for Decided {
    fn from(decision: Decision) -> Self {
        let fate = match decision.verdict {
            Verdict::Commit(manifest) => Fate::Commit(Arc::from(manifest)),
            Verdict::Abort(abort) => Fate::Abort(abort),
        };
        Self { attempt: decision.attempt, requires: decision.requires, fate }
    }
}

impl Decided {
    /// The checkpoint, when it is a COMMIT. Whether it is expired is another question.
    pub fn committed(&self) -> Option<Checkpoint> {
        match &self.fate {
            Fate::Commit(manifest) => Some(Checkpoint { manifest: manifest.clone() }),
            Fate::Abort(_) => None,
        }
    }
}

/// Decisions by run and ordinal. They are write-once, so an entry never goes stale.
#[derive(Debug, Default)]
pub(crate) struct DecisionCache(Mutex<HashMap<(RunName, Ordinal), Arc<Decided>>>);

impl DecisionCache {
    fn get(&self, run: &RunName, ordinal: Ordinal) -> Option<Arc<Decided>> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(&(run.clone(), ordinal)).cloned()
    }

    fn keep(&self, run: &RunName, ordinal: Ordinal, decided: &Arc<Decided>) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= CACHED_DECISIONS {
            entries.clear();
        }
        entries.insert((run.clone(), ordinal), decided.clone());
    }
}

/// The one field that must be understood before the others are looked at.
#[derive(Deserialize)]
struct Features {
    #[serde(default)]
    requires: Requires,
}

/// `Ok` when this version may go on to parse `bytes`, an object of that name and magic, for `operation`. It looks at nothing
/// but magic, version and features, so that an object of a later shape is refused as unsupported, never called damaged.
pub(crate) fn check_preface(
    (what, magic): (&'static str, &str),
    bytes: &[u8],
    operation: Operation,
) -> Result<(), FormatError> {
    let features: Features = sealed::open_as(what, magic, bytes)?;
    features.requires.check(operation)
}

/// A whole control object, or `None` when there is none. One beyond [`limits::JSON_BYTES`] is not read.
pub(crate) async fn fetch(store: &dyn Store, key: &Key) -> Result<Option<Bytes>, StoreError> {
    fetch_at_most(store, key, limits::JSON_BYTES).await
}

/// Whether there is an object, whatever it contains.
pub(crate) async fn exists(store: &dyn Store, key: &Key) -> Result<bool, StoreError> {
    match fetch(store, key).await {
        Err(error) if error.kind == StoreErrorKind::TooLarge => Ok(true),
        other => Ok(other?.is_some()),
    }
}

/// A whole object of at most `most` bytes, or `None` when there is none.
pub(crate) async fn fetch_at_most(
    store: &dyn Store,
    key: &Key,
    most: u64,
) -> Result<Option<Bytes>, StoreError> {
    match store.get(key, Span::AtMost(most)).await {
        Ok(object) => Ok(Some(object.bytes)),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Parses an intent that was read for `operation`.
pub(crate) fn parse_intent(
    bytes: &[u8],
    (run, ordinal): (&RunName, Ordinal),
    operation: Operation,
) -> Result<Intent, RepoError> {
    check_preface(("intent", intent::MAGIC), bytes, operation)
        .and_then(|()| Intent::from_bytes(bytes, run, ordinal))
        .map_err(RepoError::object(Key::intent(run, ordinal)))
}

/// Parses a decision that was read for `operation`.
pub(crate) fn parse_decision(
    bytes: &[u8],
    (run, ordinal): (&RunName, Ordinal),
    operation: Operation,
) -> Result<Decided, RepoError> {
    check_preface(("decision", decision::MAGIC), bytes, operation)
        .and_then(|()| Decision::from_bytes(bytes, run, ordinal))
        .map(Decided::from)
        .map_err(RepoError::object(Key::decision(run, ordinal)))
}

/// `Ok` when `bytes` have the hash that whoever refers to them says.
pub(crate) fn check_hash(bytes: &Bytes, expected: ContentHash) -> Result<(), FormatError> {
    let found = ContentHash::of(bytes);
    if found == expected {
        return Ok(());
    }
    let (expected, found) = (format!("content with BLAKE3 {expected}"), format!("BLAKE3 {found}"));
    Err(FormatError::corrupt("object", 0, expected, found))
}

impl Repository {
    /// The intent of one ordinal, if there is one.
    ///
    /// # Errors
    /// [`RepoError::Store`], [`RepoError::Object`] for damage or for a feature that `operation` needs.
    pub async fn intent(
        &self,
        run: &RunName,
        ordinal: Ordinal,
        operation: Operation,
    ) -> Result<Option<Intent>, RepoError> {
        let bytes = fetch(self.store().as_ref(), &Key::intent(run, ordinal)).await?;
        bytes.map(|bytes| parse_intent(&bytes, (run, ordinal), operation)).transpose()
    }

    /// The decision of one ordinal, if there is one.
    ///
    /// # Errors
    /// As [`Repository::intent`].
    pub async fn decision(
        &self,
        run: &RunName,
        ordinal: Ordinal,
        operation: Operation,
    ) -> Result<Option<Arc<Decided>>, RepoError> {
        if let Some(decided) = self.cache().get(run, ordinal) {
            let key = Key::decision(run, ordinal);
            decided.requires.check(operation).map_err(RepoError::object(key))?;
            return Ok(Some(decided));
        }
        let Some(bytes) = fetch(self.store().as_ref(), &Key::decision(run, ordinal)).await? else {
            return Ok(None);
        };
        let decided = Arc::new(parse_decision(&bytes, (run, ordinal), operation)?);
        self.cache().keep(run, ordinal, &decided);
        Ok(Some(decided))
    }

    /// Remembers a decision that this process wrote or met on its way.
    pub(crate) fn remember(&self, run: &RunName, ordinal: Ordinal, decided: Decided) {
        self.cache().keep(run, ordinal, &Arc::new(decided));
    }

    /// Whether the expired marker is there, asked of the store now. Its presence alone decides, whatever it
    /// contains, and even if it is a link that nobody follows.
    ///
    /// # Errors
    /// [`RepoError::Store`].
    pub async fn is_expired(&self, run: &RunName, ordinal: Ordinal) -> Result<bool, RepoError> {
        match exists(self.store().as_ref(), &Key::expired(run, ordinal)).await {
            Err(error) if error.kind == StoreErrorKind::Untrusted => {
                let there = self.listing(run).await?.expired.contains(&ordinal);
                if there { Ok(true) } else { Err(error.into()) }
            }
            other => Ok(other?),
        }
    }
}
