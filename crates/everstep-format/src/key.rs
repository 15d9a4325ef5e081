//! The only place that spells object keys. Keys are relative to the repository's root and use `[a-z0-9._/-]` alone, so
//! that every store and file system agrees on them.

use std::fmt;

use crate::id::{AttemptId, ContentHash, PackId, SessionId};
use crate::name::{Ordinal, Rank, RunName};

/// The key of one object, relative to the repository's root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

/// A prefix of keys that ends with `/`, so that `runs/run1/` never matches `runs/run10/`; or everything.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(String);

/// Where a pack lies: its key is a function of these three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackAddress {
    /// The attempt that wrote it.
    pub attempt: AttemptId,
    /// The writer within that attempt.
    pub rank: Rank,
    /// Its id.
    pub pack: PackId,
}

/// What a key stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredKind {
    /// `everstep.json`
    Repository,
    /// `runs/<run>/intents/<ordinal>`
    Intent(RunName, Ordinal),
    /// `runs/<run>/decisions/<ordinal>`
    Decision(RunName, Ordinal),
    /// `runs/<run>/expired/<ordinal>`
    Expired(RunName, Ordinal),
    /// `index/<attempt>/<hash>.parquet`
    Index(AttemptId, ContentHash),
    /// `index/<attempt>/<hash>.refs`
    Refs(AttemptId, ContentHash),
    /// `index/<attempt>/part-<rank>-<hash>.parquet`
    Part(AttemptId, Rank, ContentHash),
    /// `index/<attempt>/failed-<rank>.json`
    Failed(AttemptId, Rank),
    /// `packs/<xx>/<attempt>/<rank>-<pack>`
    Pack(PackAddress),
    /// `sessions/<id>`
    Session(SessionId),
    /// `alive/<attempt>`
    Alive(AttemptId),
    /// `cards/<session>/<save>.card`
    Card(SessionId, u64),
    /// `cards/<session>/<save>.outcome`
    Outcome(SessionId, u64),
    /// `leases/<id>`
    Lease(AttemptId),
    /// `leases/<id>.end`
    LeaseEnd(AttemptId),
    /// `swept/<run>/<ordinal>`
    Swept(RunName, Ordinal),
}

const INDEX_SUFFIX: &str = ".parquet";
const REFS_SUFFIX: &str = ".refs";
const FAILED_SUFFIX: &str = ".json";
const CARD_SUFFIX: &str = ".card";
const OUTCOME_SUFFIX: &str = ".outcome";
const END_SUFFIX: &str = ".end";

impl Key {
    /// `everstep.json`
    pub fn repository() -> Self {
        Self("everstep.json".to_owned())
    }

    /// `runs/<run>/intents/<ordinal>`
    pub fn intent(run: &RunName, ordinal: Ordinal) -> Self {
        Self(format!("runs/{run}/intents/{:020}", ordinal.0))
    }

    /// `runs/<run>/decisions/<ordinal>`
    pub fn decision(run: &RunName, ordinal: Ordinal) -> Self {
        Self(format!("runs/{run}/decisions/{:020}", ordinal.0))
    }

    /// `runs/<run>/expired/<ordinal>`
    pub fn expired(run: &RunName, ordinal: Ordinal) -> Self {
        Self(format!("runs/{run}/expired/{:020}", ordinal.0))
    }

    /// `index/<attempt>/<hash>.parquet`
    pub fn index(attempt: AttemptId, hash: ContentHash) -> Self {
        Self(format!("index/{attempt}/{hash}{INDEX_SUFFIX}"))
    }

    /// `index/<attempt>/<hash>.refs`
    pub fn refs(attempt: AttemptId, hash: ContentHash) -> Self {
        Self(format!("index/{attempt}/{hash}{REFS_SUFFIX}"))
    }

    /// `index/<attempt>/part-<rank>-<hash>.parquet`
    pub fn part(attempt: AttemptId, rank: Rank, hash: ContentHash) -> Self {
        Self(format!("index/{attempt}/part-{rank}-{hash}{INDEX_SUFFIX}"))
    }

    /// `index/<attempt>/failed-<rank>.json`
    pub fn failed(attempt: AttemptId, rank: Rank) -> Self {
        Self(format!("index/{attempt}/failed-{rank}{FAILED_SUFFIX}"))
    }

    /// `packs/<xx>/<attempt>/<rank>-<pack>`
    pub fn pack(address: &PackAddress) -> Self {
        let PackAddress { attempt, rank, pack } = address;
        Self(format!("packs/{:02x}/{attempt}/{rank}-{pack}", shard(*attempt, *rank)))
    }

    /// `sessions/<id>`
    pub fn session(session: SessionId) -> Self {
        Self(format!("sessions/{session}"))
    }

    /// `alive/<attempt>`
    pub fn alive(attempt: AttemptId) -> Self {
        Self(format!("alive/{attempt}"))
    }

    /// `cards/<session>/<save>.card`, where `save` counts the saves of the session.
    pub fn card(session: SessionId, save: u64) -> Self {
        Self(format!("cards/{session}/{save}{CARD_SUFFIX}"))
    }

    /// `cards/<session>/<save>.outcome`
    pub fn outcome(session: SessionId, save: u64) -> Self {
        Self(format!("cards/{session}/{save}{OUTCOME_SUFFIX}"))
    }

    /// `leases/<id>`
    pub fn lease(id: AttemptId) -> Self {
        Self(format!("leases/{id}"))
    }

    /// `leases/<id>.end`
    pub fn lease_end(id: AttemptId) -> Self {
        Self(format!("leases/{id}{END_SUFFIX}"))
    }

    /// `swept/<run>/<ordinal>`
    pub fn swept(run: &RunName, ordinal: Ordinal) -> Self {
        Self(format!("swept/{run}/{:020}", ordinal.0))
    }

    /// `probe/<name>`: keys of the store probe, removed by it.
    pub fn probe(session: SessionId, number: u32) -> Self {
        Self(format!("probe/{session}-{number}"))
    }

    /// A key met in a listing, whatever it is; `None` when it uses a character that no key of ours has.
    pub fn listed(text: &str) -> Option<Self> {
        let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"._/-".contains(&c);
        let segments_ok = text.split('/').all(|s| !s.is_empty() && s != "." && s != "..");
        (segments_ok && text.bytes().all(allowed)).then(|| Self(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the run that this stray is of, when that is one that only a later version knows: it starts with `_`.
    pub fn unknown_reserved_run(&self) -> Option<&str> {
        let mut parts = self.0.split('/');
        let run = (parts.next() == Some("runs")).then(|| parts.next()).flatten()?;
        (run.starts_with('_') && RunName::stored(run).is_err()).then_some(run)
    }

    /// What the key stands for, or `None` for a stray.
    pub fn kind(&self) -> Option<StoredKind> {
        let parts: Vec<&str> = self.0.split('/').collect();
        let kind = match parts.as_slice() {
            ["everstep.json"] => StoredKind::Repository,
            ["runs", run, "intents", n] => StoredKind::Intent(RunName::stored(run).ok()?, ordinal(n)?),
            ["runs", run, "decisions", n] => StoredKind::Decision(RunName::stored(run).ok()?, ordinal(n)?),
            ["runs", run, "expired", n] => StoredKind::Expired(RunName::stored(run).ok()?, ordinal(n)?),
            ["index", attempt, name] => index_kind(attempt.parse().ok()?, name)?,
            ["packs", _, attempt, name] => pack_kind(attempt, name)?,
            ["sessions", id] => StoredKind::Session(id.parse().ok()?),
            ["alive", id] => StoredKind::Alive(id.parse().ok()?),
            ["cards", session, name] => card_kind(session.parse().ok()?, name)?,
            ["leases", name] => lease_kind(name)?,
            ["swept", run, n] => StoredKind::Swept(RunName::stored(run).ok()?, ordinal(n)?),
            _ => return None,
        };
        // One spelling per object: "007" or a wrong shard is a stray.
        (kind.key() == *self).then_some(kind)
    }
}

impl StoredKind {
    /// The one key of this object.
    pub fn key(&self) -> Key {
        match self {
            Self::Repository => Key::repository(),
            Self::Intent(run, n) => Key::intent(run, *n),
            Self::Decision(run, n) => Key::decision(run, *n),
            Self::Expired(run, n) => Key::expired(run, *n),
            Self::Index(attempt, hash) => Key::index(*attempt, *hash),
            Self::Refs(attempt, hash) => Key::refs(*attempt, *hash),
            Self::Part(attempt, rank, hash) => Key::part(*attempt, *rank, *hash),
            Self::Failed(attempt, rank) => Key::failed(*attempt, *rank),
            Self::Pack(address) => Key::pack(address),
            Self::Session(id) => Key::session(*id),
            Self::Alive(id) => Key::alive(*id),
            Self::Card(session, save) => Key::card(*session, *save),
            Self::Outcome(session, save) => Key::outcome(*session, *save),
            Self::Lease(id) => Key::lease(*id),
            Self::LeaseEnd(id) => Key::lease_end(*id),
            Self::Swept(run, n) => Key::swept(run, *n),
        }
    }
}

impl Prefix {
    /// Every key of the repository.
    pub fn everything() -> Self {
        Self(String::new())
    }

    /// `runs/`
    pub fn runs() -> Self {
        Self("runs/".to_owned())
    }

    /// `runs/<run>/`
    pub fn run(run: &RunName) -> Self {
        Self(format!("runs/{run}/"))
    }

    /// `runs/<run>/intents/`
    pub fn intents(run: &RunName) -> Self {
        Self(format!("runs/{run}/intents/"))
    }

    /// `runs/<run>/decisions/`
    pub fn decisions(run: &RunName) -> Self {
        Self(format!("runs/{run}/decisions/"))
    }

    /// `runs/<run>/expired/`
    pub fn expired(run: &RunName) -> Self {
        Self(format!("runs/{run}/expired/"))
    }

    /// `sessions/`
    pub fn sessions() -> Self {
        Self("sessions/".to_owned())
    }

    /// `cards/`
    pub fn cards() -> Self {
        Self("cards/".to_owned())
    }

    /// `cards/<session>/`
    pub fn cards_of(session: SessionId) -> Self {
        Self(format!("cards/{session}/"))
    }

    /// `alive/`
    pub fn alive() -> Self {
        Self("alive/".to_owned())
    }

    /// `leases/`
    pub fn leases() -> Self {
        Self("leases/".to_owned())
    }

    /// `swept/`
    pub fn swept() -> Self {
        Self("swept/".to_owned())
    }

    /// `probe/`
    pub fn probes() -> Self {
        Self("probe/".to_owned())
    }

    /// `packs/`
    pub fn packs() -> Self {
        Self("packs/".to_owned())
    }

    /// `packs/<xx>/<attempt>/`, the prefix of the packs of `rank` (and of every rank equal to it modulo 16).
    pub fn packs_of(attempt: AttemptId, rank: Rank) -> Self {
        Self(format!("packs/{:02x}/{attempt}/", shard(attempt, rank)))
    }

    /// `index/<attempt>/`
    pub fn index_of(attempt: AttemptId) -> Self {
        Self(format!("index/{attempt}/"))
    }

    /// The text, empty or ending with `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The first byte of BLAKE3(attempt id || rank mod 16 as one byte): an attempt's packs lie under at most 16 prefixes,
/// spread over 256.
fn shard(attempt: AttemptId, rank: Rank) -> u8 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&attempt.0);
    hasher.update(&[rank.0.to_le_bytes()[0] % 16]);
    hasher.finalize().as_bytes()[0]
}

fn ordinal(text: &str) -> Option<Ordinal> {
    text.parse().ok().map(Ordinal).filter(|n| (Ordinal::FIRST..=Ordinal::LAST).contains(n))
}

fn index_kind(attempt: AttemptId, name: &str) -> Option<StoredKind> {
    if let Some(hash) = name.strip_suffix(REFS_SUFFIX) {
        return Some(StoredKind::Refs(attempt, hash.parse().ok()?));
    }
    if let Some(rank) = name.strip_prefix("failed-") {
        return Some(StoredKind::Failed(attempt, Rank(rank.strip_suffix(FAILED_SUFFIX)?.parse().ok()?)));
    }
    let stem = name.strip_suffix(INDEX_SUFFIX)?;
    match stem.strip_prefix("part-") {
        Some(part) => {
            let (rank, hash) = part.split_once('-')?;
            Some(StoredKind::Part(attempt, Rank(rank.parse().ok()?), hash.parse().ok()?))
        }
        None => Some(StoredKind::Index(attempt, stem.parse().ok()?)),
    }
}

fn card_kind(session: SessionId, name: &str) -> Option<StoredKind> {
    let number = |text: &str| text.parse().ok();
    match name.strip_suffix(CARD_SUFFIX) {
        Some(save) => Some(StoredKind::Card(session, number(save)?)),
        None => Some(StoredKind::Outcome(session, number(name.strip_suffix(OUTCOME_SUFFIX)?)?)),
    }
}

fn lease_kind(name: &str) -> Option<StoredKind> {
    match name.strip_suffix(END_SUFFIX) {
        Some(id) => Some(StoredKind::LeaseEnd(id.parse().ok()?)),
        None => Some(StoredKind::Lease(name.parse().ok()?)),
    }
}

fn pack_kind(attempt: &str, name: &str) -> Option<StoredKind> {
    let (rank, pack) = name.split_once('-')?;
    Some(StoredKind::Pack(PackAddress {
        attempt: attempt.parse().ok()?,
        rank: Rank(rank.parse().ok()?),
        pack: pack.parse().ok()?,
    }))
}

#[cfg(test)]
mod tests;
