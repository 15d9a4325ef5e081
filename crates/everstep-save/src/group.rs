//! The ranks that make one save together, and which of those that hold the same box stores it.

use std::sync::Arc;
use std::time::Duration;

use everstep_format::FormatError;
use everstep_format::bounds::Bounds;
use everstep_format::grid::Grid;
use everstep_format::id::ChunkId;
use everstep_format::name::Rank;
use everstep_repo::{Rendezvous, Repository, StoreRendezvous};

use crate::SaveError;

/// How long a rank waits for others, unless it is told otherwise.
const DEADLINE: Duration = Duration::from_secs(600);

/// The leader: it opens the run, begins, merges and commits.
pub(crate) const LEADER: Rank = Rank(0);

/// The ranks of one save. Another save may have more or fewer.
#[derive(Debug, Clone)]
pub struct Group {
    /// Which of them this process is; the leader is rank 0.
    pub rank: Rank,
    /// How many they are.
    pub world_size: u32,
    /// How long the leader, once it has called the ranks, waits for their shares, and how long a rank waits for the
    /// call. For the outcome a rank waits twice as long.
    pub deadline: Duration,
    /// How they find each other; `None`: over the store.
    pub rendezvous: Option<Arc<dyn Rendezvous>>,
}

impl Group {
    /// `rank` of `world_size` ranks that find each other over the store, with a deadline of 10 minutes.
    pub fn new(rank: Rank, world_size: u32) -> Self {
        Self { rank, world_size, deadline: DEADLINE, rendezvous: None }
    }

    /// A process that saves everything by itself.
    pub fn alone() -> Self {
        Self::new(LEADER, 1)
    }

    /// The same group with another deadline.
    #[must_use]
    pub fn within(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// The same group with another way to find each other.
    #[must_use]
    pub fn meeting(self, rendezvous: Arc<dyn Rendezvous>) -> Self {
        Self { rendezvous: Some(rendezvous), ..self }
    }

    pub(crate) fn rendezvous_in(&self, repository: &Repository) -> Arc<dyn Rendezvous> {
        let default = || Arc::new(StoreRendezvous::new(repository.store().clone())) as Arc<dyn Rendezvous>;
        self.rendezvous.clone().unwrap_or_else(default)
    }

    /// `Ok` when there is such a rank, and it is the leader or is not, as the call demands.
    pub(crate) fn check(&self, leads: bool) -> Result<Seat, SaveError> {
        let Self { rank, world_size, .. } = self;
        let found = format!("rank {rank} of {world_size}");
        if rank.0 >= *world_size {
            return Err(FormatError::invalid("group", found, "a rank below the number of ranks").into());
        }
        if (*rank == LEADER) != leads {
            let rule = "rank 0 leads: its session saves, the others hand in through `Member`";
            return Err(FormatError::invalid("group", found, rule).into());
        }
        Ok(Seat { rank: *rank, world_size: *world_size })
    }
}

/// One rank's place in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) rank: Rank,
    pub(crate) world_size: u32,
}

impl Seat {
    /// Whether nobody else takes part.
    pub(crate) fn is_alone(self) -> bool {
        self.world_size == 1
    }
}

/// Which ranks hold the same box with the same bytes. One of them stores each piece of it, the others only say what they
/// have. All of them must say the same here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Replicas {
    /// This rank alone.
    #[default]
    None,
    /// Every rank of the group.
    All,
    /// These. Clones share one list, so that many shards of a large job cost no more than one.
    These(RankSet),
}

/// Some ranks, ascending, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankSet(Arc<[Rank]>);

impl RankSet {
    /// The ranks of `ranks`, in any order.
    pub fn new(ranks: impl IntoIterator<Item = Rank>) -> Self {
        let mut ranks: Vec<Rank> = ranks.into_iter().collect();
        ranks.sort_unstable();
        ranks.dedup();
        Self(ranks.into())
    }

    /// The ranks.
    pub fn ranks(&self) -> &[Rank] {
        &self.0
    }
}

impl Replicas {
    /// `Ok` when `seat` is among them and all of them are in the group.
    pub(crate) fn check(&self, seat: Seat) -> Result<(), FormatError> {
        let Self::These(set) = self else { return Ok(()) };
        let inside = set.0.last().is_some_and(|last| last.0 < seat.world_size);
        if inside && set.0.binary_search(&seat.rank).is_ok() {
            return Ok(());
        }
        let found = format!("{} ranks up to {:?}", set.0.len(), set.0.last().map(|rank| rank.0));
        let rule = format!("ranks below {}, rank {} among them", seat.world_size, seat.rank);
        Err(FormatError::invalid("replicas", found, rule))
    }

    /// The rank that is `number` places, round and round, after the lowest.
    fn owner(&self, seat: Seat, number: u64) -> Rank {
        match self {
            Self::None => seat.rank,
            Self::All => Rank(within(number, u64::from(seat.world_size))),
            Self::These(set) => usize::try_from(within(number, set.0.len() as u64))
                .ok()
                .and_then(|position| set.0.get(position).copied())
                .unwrap_or(seat.rank),
        }
    }
}

fn within(number: u64, count: u64) -> u32 {
    u32::try_from(number % count.max(1)).unwrap_or_default()
}

/// Decides, for the pieces of one tensor, whether this rank stores them. No rank needs to ask another.
#[derive(Debug)]
pub(crate) struct Ownership<'p> {
    seat: Seat,
    grid: &'p Grid,
    shape: &'p [u64],
    name: &'p str,
}

impl<'p> Ownership<'p> {
    pub(crate) fn new(seat: Seat, name: &'p str, grid: &'p Grid, shape: &'p [u64]) -> Self {
        Self { seat, grid, shape, name }
    }

    /// Where the round begins: the first 8 bytes of the BLAKE3 of the name.
    fn start(&self) -> u64 {
        let hash = ChunkId::of(self.name.as_bytes());
        let (start, _) = hash.0.split_first_chunk::<8>().expect("a hash has 32 bytes");
        u64::from_le_bytes(*start)
    }

    /// Whether this rank stores `piece`, which `replicas` hold and which `shares` a chunk or is one.
    pub(crate) fn stores(&self, piece: &Bounds, replicas: &Replicas, shares: bool) -> bool {
        if self.seat.is_alone() || *replicas == Replicas::None {
            return true;
        }
        let number = || self.start().wrapping_add(self.grid.block_number(self.shape, &piece.offset));
        replicas.owner(self.seat, if shares { 0 } else { number() }) == self.seat.rank
    }
}

#[cfg(test)]
mod tests {
    use everstep_format::dtype::Dtype;
    use everstep_format::repository::Chunking;
    use everstep_format::row::ElementType;

    use super::*;

    fn owners(replicas: &Replicas, ranks: &[u32], world_size: u32, shares: bool) -> Vec<Vec<u32>> {
        let chunking = Chunking { block_elements: 40, ..Chunking::default() };
        let (shape, element) = ([100, 10], ElementType::Dtype(Dtype::F32));
        let grid = Grid::new(&shape, &element, &chunking, "w");
        let owner = |piece: &Bounds| {
            let stores = |rank: &u32| {
                let seat = Seat { rank: Rank(*rank), world_size };
                Ownership::new(seat, "w", &grid, &shape).stores(piece, replicas, shares)
            };
            ranks.iter().copied().filter(stores).collect()
        };
        grid.pieces(&Bounds::whole(&shape)).iter().map(owner).collect()
    }

    #[test]
    fn each_piece_has_one_owner_and_a_large_tensor_is_spread_evenly() {
        for (replicas, ranks, world_size) in [
            (Replicas::All, vec![0, 1, 2, 3, 4], 5),
            (Replicas::These(RankSet::new([3, 9, 1, 3, 7].map(Rank))), vec![1, 3, 7, 9], 16),
        ] {
            let owners = owners(&replicas, &ranks, world_size, false);
            assert_eq!(owners.len(), 25);
            assert!(owners.iter().all(|ranks| ranks.len() == 1), "{owners:?}");
            for rank in &ranks {
                let share = owners.iter().filter(|of| of[0] == *rank).count();
                assert!(share == 25 / ranks.len() || share == 25 / ranks.len() + 1, "{rank}: {share}");
            }
        }
    }

    #[test]
    fn what_shares_chunks_belongs_to_the_lowest_rank_and_what_one_rank_holds_to_it() {
        let these = Replicas::These(RankSet::new([3, 9].map(Rank)));
        assert!(owners(&these, &[3, 9], 16, true).iter().all(|ranks| *ranks == [3]));
        assert!(owners(&Replicas::All, &[0, 1, 2], 3, true).iter().all(|ranks| *ranks == [0]));
        assert!(owners(&Replicas::None, &[5], 16, false).iter().all(|ranks| *ranks == [5]));
    }

    #[test]
    fn replicas_that_are_not_in_the_group_are_refused() {
        let seat = Seat { rank: Rank(2), world_size: 4 };
        let these = |ranks: &[u32]| Replicas::These(RankSet::new(ranks.iter().copied().map(Rank)));
        for good in [Replicas::None, Replicas::All, these(&[2]), these(&[0, 2, 3])] {
            good.check(seat).unwrap();
        }
        for bad in [these(&[]), these(&[0, 1]), these(&[2, 4])] {
            assert!(bad.check(seat).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_rank_0_leads_and_ranks_are_below_the_world_size() {
        assert!(Group::alone().check(true).unwrap().is_alone());
        assert!(Group::new(Rank(1), 2).check(false).is_ok());
        for (group, leads) in [
            (Group::new(Rank(1), 2), true),
            (Group::new(Rank(0), 2), false),
            (Group::new(Rank(2), 2), false),
            (Group::new(Rank(0), 0), true),
        ] {
            assert!(group.check(leads).is_err(), "{group:?}");
        }
    }
}
