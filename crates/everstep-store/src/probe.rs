//! Finds out whether a store keeps the promises that commits rest on: of many put-if-absents on one key exactly one
//! wins and its bytes stay, and what was written is read and listed at once. "S3-compatible" on a label proves nothing.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use everstep_format::id::SessionId;
use everstep_format::key::{Key, Prefix};
use futures::future::join_all;

use crate::store::list_all;
use crate::{Create, Deleted, Span, Store, StoreError, StoreErrorKind, World};

/// How hard to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeSettings {
    /// Rounds that must end with a clear result.
    pub rounds: u32,
    /// Creates at once per round.
    pub contenders: usize,
    /// Bytes of each body; large enough that a store which checks early and stores late shows it.
    pub body_bytes: usize,
}

impl Default for ProbeSettings {
    fn default() -> Self {
        Self { rounds: 4, contenders: 40, body_bytes: 100 << 10 }
    }
}

/// What one round of contended creates gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// Contenders that were told `Created`.
    pub winners: usize,
    /// Contenders that were told `Exists`.
    pub losers: usize,
    /// Contenders without an answer that can be trusted.
    pub unknown: usize,
    /// Why the round shows a broken promise.
    pub broken: Option<String>,
}

/// The result of the probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every clear round had one winner whose bytes stayed.
    Atomic,
    /// A promise was broken: several writers would lose checkpoints.
    NotAtomic {
        /// Which one, for people.
        why: String,
    },
    /// Too many answers were lost to say.
    Unproven {
        /// What was lost.
        why: String,
    },
}

/// What the probe saw.
#[derive(Debug, Clone)]
pub struct ProbeReport {
    /// The rounds in their order.
    pub rounds: Vec<Round>,
    /// The result.
    pub verdict: Verdict,
    /// Keys that stay because deleting is not allowed; anybody who may can delete them.
    pub left: Vec<Key>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Atomic => f.write_str("put-if-absent is atomic"),
            Self::NotAtomic { why } => write!(f, "put-if-absent cannot be trusted: {why}"),
            Self::Unproven { why } => write!(f, "put-if-absent could not be tested: {why}"),
        }
    }
}

/// Races creates on fresh keys below `probe/`, reads and lists them back, and removes them, if that is allowed.
///
/// # Errors
/// When the store refuses a write, read or listing outright. Lost answers are no error: see [`Verdict`].
pub async fn probe(
    store: &dyn Store,
    world: &dyn World,
    settings: ProbeSettings,
) -> Result<ProbeReport, StoreError> {
    let id = SessionId(world.random_id());
    let probe = Probe { store, world, settings, id, begun: AtomicU32::new(0) };
    let raced = probe.race().await;
    let cleaned = probe.clean_up().await;
    let report = raced?;
    Ok(ProbeReport { left: cleaned?, ..report })
}

struct Probe<'a> {
    store: &'a dyn Store,
    world: &'a dyn World,
    settings: ProbeSettings,
    id: SessionId,
    /// Rounds, each with its key.
    begun: AtomicU32,
}

impl Probe<'_> {
    /// Rounds until enough were clear; as many unclear ones are forgiven.
    async fn race(&self) -> Result<ProbeReport, StoreError> {
        let mut rounds = Vec::new();
        for number in 0..self.most_rounds() {
            rounds.push(self.round(number).await?);
            let clear = rounds.iter().filter(|round| round.is_clear()).count();
            if rounds.iter().any(|round| round.broken.is_some()) || clear >= self.settings.rounds as usize {
                break;
            }
        }
        let verdict = self.judge(&rounds);
        Ok(ProbeReport { rounds, verdict, left: Vec::new() })
    }

    fn most_rounds(&self) -> u32 {
        self.settings.rounds.saturating_mul(2)
    }

    fn judge(&self, rounds: &[Round]) -> Verdict {
        if let Some(why) = rounds.iter().find_map(|round| round.broken.clone()) {
            return Verdict::NotAtomic { why };
        }
        let clear = rounds.iter().filter(|round| round.is_clear()).count();
        if clear >= self.settings.rounds as usize {
            return Verdict::Atomic;
        }
        let why =
            format!("only {clear} of {} rounds had a winner; the other answers were lost", rounds.len());
        Verdict::Unproven { why }
    }

    async fn round(&self, number: u32) -> Result<Round, StoreError> {
        let key = Key::probe(self.id, number);
        self.begun.store(number + 1, Ordering::Relaxed);
        let bodies: Vec<Vec<u8>> = (0..self.settings.contenders).map(|who| self.body(who)).collect();
        let outcomes = join_all(bodies.iter().map(|body| self.store.create(&key, body.clone().into()))).await;
        let mut round = Round { winners: 0, losers: 0, unknown: 0, broken: None };
        let mut winner = None;
        for (who, outcome) in outcomes.into_iter().enumerate() {
            match outcome? {
                Create::Created => {
                    winner = Some(who);
                    round.winners += 1;
                }
                Create::Exists => round.losers += 1,
                Create::Unknown(_) => round.unknown += 1,
            }
        }
        round.broken = match round.winners {
            // The winner's answer may be lost, or be an `Exists` after a retry: no proof of anything.
            0 => None,
            1 => self.check_winner(&key, &bodies[winner.expect("one was counted")]).await?,
            several => {
                Some(format!("{several} of {} writers of one key were told that they won", bodies.len()))
            }
        };
        Ok(round)
    }

    /// The winner's bytes are there, are listed, and survive a late loser.
    async fn check_winner(&self, key: &Key, body: &[u8]) -> Result<Option<String>, StoreError> {
        if let Some(why) = self.check_body(key, body, "right after the race").await? {
            return Ok(Some(why));
        }
        if !list_all(self.store, &Prefix::probes()).await?.iter().any(|listed| listed.key == *key) {
            return Ok(Some(format!("{key} was written and read, but a listing does not have it")));
        }
        if let Create::Created = self.store.create(key, self.body(usize::MAX).into()).await? {
            return Ok(Some(format!("{key} was created a second time although it is there")));
        }
        self.check_body(key, body, "after another create was refused").await
    }

    async fn check_body(&self, key: &Key, body: &[u8], when: &str) -> Result<Option<String>, StoreError> {
        match self.store.get(key, Span::Whole).await {
            Ok(object) if object.bytes == body => Ok(None),
            Ok(_) => Ok(Some(format!("{key} does not hold the winner's bytes {when}"))),
            Err(error) if error.kind == StoreErrorKind::NotFound => {
                Ok(Some(format!("{key} cannot be read {when}")))
            }
            Err(error) => Err(error),
        }
    }

    /// A body that no other contender of any probe has.
    fn body(&self, who: usize) -> Vec<u8> {
        let mut body = vec![0; self.settings.body_bytes.max(32)];
        body[..8].copy_from_slice(&(who as u64).to_le_bytes());
        self.world.fill_random(&mut body[8..32]);
        let (stamp, rest) = body.split_at_mut(32);
        rest.chunks_mut(32).for_each(|chunk| chunk.copy_from_slice(&stamp[..chunk.len()]));
        body
    }

    /// Removes what it wrote. Those who train need no permission to delete: what they may not delete is told.
    async fn clean_up(&self) -> Result<Vec<Key>, StoreError> {
        let begun = self.begun.load(Ordering::Relaxed);
        let keys: Vec<Key> = (0..begun).map(|number| Key::probe(self.id, number)).collect();
        let denied = |error: &StoreError| error.kind == StoreErrorKind::Denied;
        let results = match self.store.delete(&keys).await {
            Err(error) if denied(&error) => return Ok(keys),
            results => results?,
        };
        let mut left = Vec::new();
        for Deleted { key, result } in results {
            match result {
                Err(error) if denied(&error) => left.push(key),
                result => result?,
            }
        }
        Ok(left)
    }
}

impl Round {
    fn is_clear(&self) -> bool {
        self.winners == 1 && self.broken.is_none()
    }
}

#[cfg(test)]
mod tests;
