//! How the writers of one attempt find each other: a leader that calls, ranks that hand in, an outcome. Everything is a
//! look that returns at once: there is no barrier that one dead rank could hold up.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use everstep_format::FormatError;
use everstep_format::card::{Card, SaveId};
use everstep_format::failed::Failed;
use everstep_format::id::{AttemptId, SessionId};
use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_format::name::{Rank, RunName};
use everstep_format::outcome::Outcome;
use everstep_format::part::PartRef;
use everstep_store::store::list_all;
use everstep_store::{Class, Listed, Store};

use crate::RepoError;
use crate::reading::fetch;

/// Saves that a rendezvous in memory remembers: a rank that sat out so many finds no call any more.
const SAVES_KEPT: u64 = 64;

/// Time that a rank spent on its share; for people.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Reading what parents have, gathering, hashing, looking up.
    pub hash: Duration,
    /// Encoding and packing.
    pub encode: Duration,
    /// Waiting for uploads.
    pub upload: Duration,
}

/// What became of one rank's share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Its packs are durable and its part is stored; and what it took, where that is told.
    Done(PartRef, Option<Spent>),
    /// It gave up, and why.
    Failed(String),
}

/// Carries cards, reports and outcomes between the writers of attempts. Each is written once by one writer; looking
/// never waits. Nothing here decides what is committed: that is the store's decision object alone.
#[async_trait]
pub trait Rendezvous: fmt::Debug + Send + Sync {
    /// Leader: shows the card of a save.
    async fn call(&self, card: &Card) -> Result<(), RepoError>;

    /// The card of `save`, if it is there yet.
    async fn card(&self, save: SaveId) -> Result<Option<Card>, RepoError>;

    /// A rank says what became of its share of `attempt`. Its part is stored by then.
    async fn report(&self, attempt: AttemptId, rank: Rank, report: &Report) -> Result<(), RepoError>;

    /// Leader: the reports of those of `ranks` that have made one.
    async fn reports(
        &self,
        attempt: AttemptId,
        ranks: Range<u32>,
    ) -> Result<BTreeMap<Rank, Report>, RepoError>;

    /// Leader: shows what became of the attempt.
    async fn conclude(&self, outcome: &Outcome) -> Result<(), RepoError>;

    /// The outcome of `save`, if it is there yet.
    async fn outcome(&self, save: SaveId) -> Result<Option<Outcome>, RepoError>;

    /// How long to wait before the next look, after `looks` of them were in vain (at least one).
    fn pause(&self, looks: u32) -> Duration;
}

/// `shortest`, doubled with every look up to `longest`.
fn doubled(looks: u32, (shortest, longest): (Duration, Duration)) -> Duration {
    shortest.saturating_mul(1 << looks.saturating_sub(1).min(16)).min(longest)
}

/// The default: over the store itself. A rank that is done costs no object of its own, since the key of its part says
/// everything; one LIST shows all of them.
#[derive(Debug, Clone)]
pub struct StoreRendezvous {
    store: Arc<dyn Store>,
    pauses: (Duration, Duration),
}

impl StoreRendezvous {
    /// Over `store`, looking after 1 s, then less and less often, at last every 10 s.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::with_pauses(store, Duration::from_secs(1)..Duration::from_secs(10))
    }

    /// Over `store`, looking after the first of `pauses`, then less and less often, at last after the second.
    pub fn with_pauses(store: Arc<dyn Store>, pauses: Range<Duration>) -> Self {
        Self { store, pauses: (pauses.start, pauses.end) }
    }

    async fn put(&self, key: Key, body: Result<Vec<u8>, FormatError>) -> Result<(), RepoError> {
        let body = Bytes::from(body.map_err(RepoError::object(key.clone()))?);
        Ok(self.store.put(&key, body.into(), Class::Control).await?)
    }

    async fn look<T>(
        &self,
        key: Key,
        read: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<Option<T>, RepoError> {
        let bytes = fetch(self.store.as_ref(), &key).await?;
        bytes.map(|bytes| read(&bytes)).transpose().map_err(RepoError::object(key))
    }

    /// Why `rank` gave up. A reason that cannot be read is one as well: the object is there.
    async fn why(&self, attempt: AttemptId, rank: Rank) -> Result<String, RepoError> {
        let read = |bytes: &[u8]| Failed::from_bytes(bytes, attempt, rank).map(|failed| failed.why);
        match self.look(Key::failed(attempt, rank), read).await {
            Ok(why) => Ok(why.unwrap_or_else(|| "it took its reason back".to_owned())),
            Err(RepoError::Object { source, .. }) => Ok(format!("its reason cannot be read: {source}")),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Rendezvous for StoreRendezvous {
    async fn call(&self, card: &Card) -> Result<(), RepoError> {
        self.put(Key::card(card.session, card.save), card.to_bytes()).await
    }

    async fn card(&self, save: SaveId) -> Result<Option<Card>, RepoError> {
        self.look(Key::card(save.session, save.save), |bytes| Card::from_bytes(bytes, save)).await
    }

    async fn report(&self, attempt: AttemptId, rank: Rank, report: &Report) -> Result<(), RepoError> {
        match report {
            Report::Done(..) => Ok(()),
            Report::Failed(why) => {
                self.put(Key::failed(attempt, rank), Failed::new(attempt, rank, why).to_bytes()).await
            }
        }
    }

    async fn reports(
        &self,
        attempt: AttemptId,
        ranks: Range<u32>,
    ) -> Result<BTreeMap<Rank, Report>, RepoError> {
        let mut reports = BTreeMap::new();
        let mut failed = Vec::new();
        for Listed { key, size, .. } in list_all(self.store.as_ref(), &Prefix::index_of(attempt)).await? {
            match key.kind() {
                Some(StoredKind::Part(_, rank, blake3)) if ranks.contains(&rank.0) => {
                    let done = Report::Done(PartRef { blake3, len: size }, None);
                    if reports.insert(rank, done).is_some() {
                        let twice = "it handed in two parts: do two processes believe to be this rank?";
                        reports.insert(rank, Report::Failed(twice.to_owned()));
                    }
                }
                Some(StoredKind::Failed(_, rank)) if ranks.contains(&rank.0) => failed.push(rank),
                _ => {}
            }
        }
        // It beats a part: whoever got no clear answer when handing one in says that it failed.
        for rank in failed {
            reports.insert(rank, Report::Failed(self.why(attempt, rank).await?));
        }
        Ok(reports)
    }

    async fn conclude(&self, outcome: &Outcome) -> Result<(), RepoError> {
        self.put(Key::outcome(outcome.session, outcome.save), outcome.to_bytes()).await
    }

    async fn outcome(&self, save: SaveId) -> Result<Option<Outcome>, RepoError> {
        self.look(Key::outcome(save.session, save.save), |bytes| Outcome::from_bytes(bytes, save)).await
    }

    fn pause(&self, looks: u32) -> Duration {
        doubled(looks, self.pauses)
    }
}

/// For ranks that share a process. Clones are one rendezvous.
#[derive(Debug, Clone, Default)]
pub struct MemoryRendezvous(Arc<Mutex<Board>>);

#[derive(Debug, Default)]
struct Board {
    cards: HashMap<SaveId, Card>,
    reports: HashMap<AttemptId, BTreeMap<Rank, Report>>,
    outcomes: HashMap<SaveId, Outcome>,
}

impl MemoryRendezvous {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Rendezvous for MemoryRendezvous {
    async fn call(&self, card: &Card) -> Result<(), RepoError> {
        let mut board = self.board();
        let stays = |save: &SaveId| save.session != card.session || save.save + SAVES_KEPT >= card.save;
        board.cards.retain(|save, _| stays(save));
        board.outcomes.retain(|save, _| stays(save));
        board.cards.insert(card.id(), card.clone());
        Ok(())
    }

    async fn card(&self, save: SaveId) -> Result<Option<Card>, RepoError> {
        Ok(self.board().cards.get(&save).cloned())
    }

    async fn report(&self, attempt: AttemptId, rank: Rank, report: &Report) -> Result<(), RepoError> {
        self.board().reports.entry(attempt).or_default().insert(rank, report.clone());
        Ok(())
    }

    async fn reports(
        &self,
        attempt: AttemptId,
        ranks: Range<u32>,
    ) -> Result<BTreeMap<Rank, Report>, RepoError> {
        let board = self.board();
        let made = board.reports.get(&attempt).into_iter().flat_map(|made| made.range(Rank(ranks.start)..));
        Ok(made
            .take_while(|(rank, _)| rank.0 < ranks.end)
            .map(|(rank, report)| (*rank, report.clone()))
            .collect())
    }

    async fn conclude(&self, outcome: &Outcome) -> Result<(), RepoError> {
        let mut board = self.board();
        board.reports.remove(&outcome.attempt);
        board.outcomes.insert(outcome.id(), outcome.clone());
        Ok(())
    }

    async fn outcome(&self, save: SaveId) -> Result<Option<Outcome>, RepoError> {
        Ok(self.board().outcomes.get(&save).cloned())
    }

    fn pause(&self, looks: u32) -> Duration {
        doubled(looks, (Duration::from_millis(1), Duration::from_millis(100)))
    }
}

/// What another process needs to take part in the saves of a session: `RUN:SESSION:SAVE` as text. One that sat saves out,
/// or came late, catches up from it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The run.
    pub run: RunName,
    /// The session of the leader, and its next save.
    pub next: SaveId,
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.run, self.next.session, self.next.save)
    }
}

impl FromStr for Ticket {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let rule = "RUN:SESSION:SAVE, as the leader's session gives it";
        let bad = || FormatError::invalid("ticket", text.chars().take(200).collect::<String>(), rule);
        let mut parts = text.split(':');
        let (Some(run), Some(session), Some(save), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad());
        };
        let session: SessionId = session.parse()?;
        Ok(Self { run: run.parse()?, next: SaveId { session, save: save.parse().map_err(|_| bad())? } })
    }
}

#[cfg(test)]
mod tests;
