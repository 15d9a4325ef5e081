//! How a pass goes about it.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use everstep_format::id::{AttemptId, SessionId};
use everstep_format::key::Key;

use crate::GcError;

/// Settings of a pass.
#[derive(Debug, Clone)]
pub struct Settings {
    /// An undecided attempt without a sign of life for so long is aborted, by the store's clock. Leases have their own time.
    pub idle: Duration,
    /// A dead attempt of which nothing is left so long after its death is skipped by later passes.
    pub swept_after: Duration,
    /// Signs of life of sessions, and the cards of their saves, are removed so long after they were written.
    pub forget_after: Duration,
    /// Looks at every dead attempt, swept or not, under all 16 prefixes.
    pub thorough: bool,
    /// Objects deleted per second at most; `None`: as many as the store takes.
    pub deletes_per_second: Option<NonZeroU32>,
    /// The share of this process.
    pub shard: Shard,
    /// Requests in flight.
    pub in_flight: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(24 * 3600),
            swept_after: Duration::from_secs(7 * 24 * 3600),
            forget_after: Duration::from_secs(7 * 24 * 3600),
            thorough: false,
            deletes_per_second: None,
            shard: Shard::WHOLE,
            in_flight: 16,
        }
    }
}

/// Shard `index` of `count`: which attempts and leases this process expires, ends and sweeps. It marks for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    count: NonZeroU32,
}

impl Shard {
    /// Everything.
    pub const WHOLE: Self = Self { index: 0, count: NonZeroU32::MIN };

    /// Shard `index` (from 0) of `count`.
    ///
    /// # Errors
    /// [`GcError::Policy`] unless index < count.
    pub fn new(index: u32, count: u32) -> Result<Self, GcError> {
        let bad = || {
            GcError::Policy(format!("there is no shard {index}/{count}: shards are 0/{count} to n-1/{count}"))
        };
        let count = NonZeroU32::new(count).filter(|count| index < count.get()).ok_or_else(bad)?;
        Ok(Self { index, count })
    }

    /// Whether `id` is of this shard.
    pub(crate) fn has(self, id: AttemptId) -> bool {
        self.has_bytes(id.0)
    }

    /// Whether this shard forgets what `session` left.
    pub(crate) fn has_session(self, session: SessionId) -> bool {
        self.has_bytes(session.0)
    }

    fn has_bytes(self, id: [u8; 16]) -> bool {
        let [a, b, c, d, ..] = id;
        u32::from_le_bytes([a, b, c, d]) % self.count == self.index
    }
}

impl FromStr for Shard {
    type Err = GcError;

    /// `i/n`, with i from 0 to n-1.
    fn from_str(text: &str) -> Result<Self, GcError> {
        let bad = || GcError::Policy(format!("{text:?} is no shard: write it as 0/4"));
        let (index, count) = text.split_once('/').ok_or_else(bad)?;
        Self::new(index.parse().map_err(|_| bad())?, count.parse().map_err(|_| bad())?)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// Is told what goes on; called from the collecting task.
pub trait Progress: Send + Sync {
    /// So many dead attempts are to be looked at.
    fn planned(&self, attempts: u64) {
        let _ = attempts;
    }

    /// One more was.
    fn swept(&self) {}

    /// This object of so many bytes goes, or would go.
    fn doomed(&self, key: &Key, bytes: u64) {
        let _ = (key, bytes);
    }
}

impl Progress for () {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attempt_is_of_exactly_one_shard() {
        for count in [1, 2, 7] {
            for seed in 0..100_u8 {
                let id = AttemptId([seed; 16]);
                let of = (0..count).filter(|index| Shard::new(*index, count).unwrap().has(id));
                assert_eq!(of.count(), 1, "{seed} of {count}");
            }
        }
    }

    #[test]
    fn a_shard_is_written_as_a_fraction_of_those_that_exist() {
        assert_eq!("3/4".parse::<Shard>().unwrap().to_string(), "3/4");
        for bad in ["4/4", "0/0", "1", "-1/2", "a/b", ""] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }
}
