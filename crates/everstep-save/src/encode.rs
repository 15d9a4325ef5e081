//! Encoding new chunks in parallel, with the same result whatever the threads do.

use everstep_format::codec::{Codec, Encoded, Habit};
use everstep_format::id::ChunkId;
use everstep_format::pack::PackChunk;
use rayon::prelude::*;

use crate::cpu::Encoders;
use crate::gather::Raw;
use crate::plan::{Plan, PlannedChunk};

/// Blocks of a tensor that follow the habit of the first of them.
const STRETCH: usize = 16;

/// A chunk that must be stored.
#[derive(Debug)]
pub(crate) struct NewChunk<'a> {
    /// Position in the plan.
    pub(crate) planned: usize,
    pub(crate) id: ChunkId,
    pub(crate) raw: Raw<'a>,
}

/// Which chunks share a habit: stretches of blocks of one tensor. A habit is formed by the stretch's first new chunk and
/// copied by the others, which is why they can run at once and yet depend on nothing but the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    item: usize,
    number: usize,
}

/// Encodes waves of chunks.
#[derive(Debug)]
pub(crate) struct Coder {
    encoders: Encoders,
    compress: bool,
    /// The habit of the last stretch, which the next wave may go on with.
    last: Option<(Stretch, Habit)>,
}

impl Coder {
    pub(crate) fn new(encoders: Encoders, compress: bool) -> Self {
        Self { encoders, compress, last: None }
    }

    /// Encodes `chunks` in order. Runs on the current pool.
    pub(crate) fn encode(&mut self, plan: &Plan<'_>, chunks: &[NewChunk<'_>]) -> Vec<PackChunk> {
        if !self.compress {
            return chunks.par_iter().map(|chunk| packed(plan, chunk, raw(chunk.raw.bytes()))).collect();
        }
        let stretches: Vec<Option<Stretch>> = chunks.iter().map(|new| stretch(plan, new)).collect();
        let leaders = self.leaders(&stretches);
        let led: Vec<Option<(PackChunk, Habit)>> = chunks
            .par_iter()
            .zip(&leaders)
            .enumerate()
            .map(|(n, (chunk, leader))| (*leader == Some(n)).then(|| self.one(plan, chunk, Habit::default())))
            .collect();
        let habit = |leader: Option<usize>| match leader {
            Some(n) => led[n].as_ref().map(|(_, habit)| habit.clone()),
            None => self.last.as_ref().map(|(_, habit)| habit.clone()),
        };
        let followed: Vec<Option<PackChunk>> = chunks
            .par_iter()
            .zip(&leaders)
            .enumerate()
            .map(|(n, (chunk, leader))| {
                (*leader != Some(n)).then(|| self.one(plan, chunk, habit(*leader).unwrap_or_default()).0)
            })
            .collect();
        let last = stretches.last().copied().flatten().zip(leaders.last().and_then(|leader| habit(*leader)));
        if !chunks.is_empty() {
            self.last = last;
        }
        led.into_iter()
            .zip(followed)
            .filter_map(|(led, followed)| led.map(|(chunk, _)| chunk).or(followed))
            .collect()
    }

    /// For each chunk the position of the one whose habit it follows; `None` for the habit of the wave before.
    fn leaders(&self, stretches: &[Option<Stretch>]) -> Vec<Option<usize>> {
        let mut current = self.last.as_ref().map(|(stretch, _)| *stretch);
        let mut leader = None;
        let lead = |(n, stretch): (usize, &Option<Stretch>)| {
            if stretch.is_none() || *stretch != current {
                (current, leader) = (*stretch, Some(n));
            }
            leader
        };
        stretches.iter().enumerate().map(lead).collect()
    }

    fn one(&self, plan: &Plan<'_>, chunk: &NewChunk<'_>, mut habit: Habit) -> (PackChunk, Habit) {
        let dtype = plan.dtype(planned(plan, chunk));
        let encoded = self.encoders.own().encode(chunk.raw.bytes(), dtype, &mut habit);
        (packed(plan, chunk, encoded), habit)
    }
}

fn planned<'p>(plan: &'p Plan<'_>, chunk: &NewChunk<'_>) -> &'p PlannedChunk {
    &plan.chunks[chunk.planned]
}

/// Shared chunks belong to no stretch.
fn stretch(plan: &Plan<'_>, chunk: &NewChunk<'_>) -> Option<Stretch> {
    let [row] = plan.members(planned(plan, chunk)) else { return None };
    let origin = plan.origins[*row];
    Some(Stretch { item: origin.item, number: origin.ordinal / STRETCH })
}

fn packed(plan: &Plan<'_>, chunk: &NewChunk<'_>, encoded: Encoded) -> PackChunk {
    PackChunk { chunk: chunk.id, raw_len: planned(plan, chunk).raw_len, encoded }
}

fn raw(bytes: &[u8]) -> Encoded {
    Encoded { codec: Codec::Raw, bytes: bytes.to_vec() }
}
