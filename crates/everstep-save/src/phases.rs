//! Where the time of a save goes, for people.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use everstep_format::name::Rank;
use everstep_repo::Spent;
use everstep_store::World;
use serde_json::{Value, json};

/// Ranks that a report names: the last ones show what all the others waited for.
const SLOWEST: usize = 4;

/// Wall-clock time of the saving task, by what it did or waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Phases {
    /// Reading what parents have, gathering, hashing, looking up.
    pub hash: Duration,
    /// Encoding and packing.
    pub encode: Duration,
    /// Waiting for uploads.
    pub upload: Duration,
    /// Waiting for other ranks.
    pub ranks: Duration,
    /// The rest: the protocol, checks, the index, the decision.
    pub commit: Duration,
}

impl Phases {
    /// All of them.
    pub fn total(&self) -> Duration {
        self.hash + self.encode + self.upload + self.ranks + self.commit
    }

    pub(crate) fn of_share(spent: Spent, ranks: Duration) -> Self {
        let Spent { hash, encode, upload } = spent;
        Self { hash, encode, upload, ranks, commit: Duration::ZERO }
    }

    /// The same, of `total` time.
    pub(crate) fn out_of(self, total: Duration) -> Self {
        let commit = Duration::ZERO;
        Self { commit: total.saturating_sub(Self { commit, ..self }.total()), ..self }
    }
}

/// A rank that was among the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateRank {
    /// The rank.
    pub rank: Rank,
    /// How long after the first rank its share was seen to be there.
    pub late: Duration,
    /// What it spent the time on, where it told.
    pub spent: Option<Spent>,
}

/// When the shares came, by the leader's clock.
pub(crate) type Arrivals = BTreeMap<Rank, (Duration, Option<Spent>)>;

/// The last few of `arrivals`, the last one first.
pub(crate) fn slowest(arrivals: &Arrivals) -> Vec<LateRank> {
    let first = arrivals.values().map(|(at, _)| *at).min().unwrap_or_default();
    let late = |(rank, (at, spent)): (&Rank, &(Duration, Option<Spent>))| LateRank {
        rank: *rank,
        late: at.saturating_sub(first),
        spent: *spent,
    };
    let mut ranks: Vec<LateRank> = arrivals.iter().map(late).collect();
    ranks.sort_by(|a, b| b.late.cmp(&a.late).then(a.rank.cmp(&b.rank)));
    ranks.truncate(SLOWEST);
    ranks
}

/// A clock that tells how long ago it was asked last.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    world: Arc<dyn World>,
    since: Duration,
}

impl Stopwatch {
    pub(crate) fn start(world: &Arc<dyn World>) -> Self {
        Self { world: world.clone(), since: world.elapsed() }
    }

    /// Time since the start or the last lap, which goes on.
    pub(crate) fn so_far(&self) -> Duration {
        self.world.elapsed().saturating_sub(self.since)
    }

    /// Time since the start or the last lap.
    pub(crate) fn lap(&mut self) -> Duration {
        let now = self.world.elapsed();
        now.saturating_sub(std::mem::replace(&mut self.since, now))
    }
}

/// What a manifest says of it.
pub(crate) fn stats(phases: &Phases, slowest: &[LateRank], requests: Option<u64>) -> Value {
    let Phases { hash, encode, upload, ranks, commit } = phases;
    let mut seconds = in_seconds(&Spent { hash: *hash, encode: *encode, upload: *upload });
    seconds["ranks"] = rounded(*ranks);
    seconds["commit"] = rounded(*commit);
    let late = |of: &LateRank| match &of.spent {
        None => json!({"rank": of.rank, "late": rounded(of.late)}),
        Some(spent) => json!({"rank": of.rank, "late": rounded(of.late), "seconds": in_seconds(spent)}),
    };
    let mut stats = json!({"seconds": seconds, "ranks": slowest.iter().map(late).collect::<Vec<_>>()});
    if let Some(requests) = requests {
        stats["requests"] = requests.into();
    }
    stats
}

fn in_seconds(spent: &Spent) -> Value {
    let Spent { hash, encode, upload } = spent;
    json!({"hash": rounded(*hash), "encode": rounded(*encode), "upload": rounded(*upload)})
}

/// Seconds, to the millisecond.
fn rounded(time: Duration) -> Value {
    ((time.as_secs_f64() * 1000.0).round() / 1000.0).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_last_ranks_are_named_the_last_one_first() {
        let arrivals: Arrivals = [(0, 9), (1, 4), (2, 30), (3, 5), (4, 5), (5, 7)]
            .map(|(rank, at)| (Rank(rank), (seconds(at), None)))
            .into();
        let late: Vec<(u32, Duration)> =
            slowest(&arrivals).iter().map(|late| (late.rank.0, late.late)).collect();
        assert_eq!(late, [(2, seconds(26)), (0, seconds(5)), (5, seconds(3)), (3, seconds(1))]);
    }

    #[test]
    fn the_commit_is_what_no_other_phase_took() {
        let spent = Spent { hash: seconds(1), encode: seconds(2), upload: seconds(3) };
        let phases = Phases::of_share(spent, seconds(4)).out_of(seconds(15));
        assert_eq!((phases.commit, phases.total()), (seconds(5), seconds(15)));
        assert_eq!(phases.out_of(seconds(2)).commit, Duration::ZERO);
    }
}
