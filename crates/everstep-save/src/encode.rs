//! Encoding new chunks in parallel, with the same result whatever the threads do.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use everstep_format::codec::{Codec, Encoded, Habit};
use everstep_format::dtype::Dtype;
use everstep_format::id::ChunkId;
use everstep_format::pack::PackChunk;
use rayon::prelude::*;

use crate::cpu::Encoders;
use crate::gather::Raw;
use crate::plan::{Plan, PlannedChunk};

/// Chunks that follow the habit of the first of them.
const CHUNKS_PER_HABIT: usize = 16;
/// Chunks below this take less time to encode than to sample, so tensors that are named alike share their habits.
const SMALL_BYTES: u64 = 1 << 20;

/// A chunk that must be stored.
#[derive(Debug)]
pub(crate) struct NewChunk<'a> {
    /// Position in the plan.
    pub(crate) planned: usize,
    pub(crate) id: ChunkId,
    pub(crate) raw: Raw<'a>,
}

/// Which chunks share habits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kin {
    /// The blocks of one tensor or object.
    Item(usize),
    /// Small tensors of one type whose names differ in numbers alone, as those of a model's layers do.
    Alike(Option<Dtype>, u64),
    /// Chunks that several tensors share.
    Shared,
}

/// The habit of some chunks, and how far it has been used.
#[derive(Debug, Default)]
struct Formed {
    habit: Habit,
    used: usize,
    /// Position in the current batch of the chunk that forms the next habit.
    leader: Option<usize>,
}

/// A habit is formed by one chunk and copied by those that follow it. Who leads is settled in the plan's order before
/// anything is encoded, which is why all followers can run at once and yet depend on nothing but the state.
#[derive(Debug)]
enum Role {
    Leads,
    Follows(usize),
    /// Follows a chunk of an earlier batch.
    Recalls(Habit),
}

/// Encodes batches of chunks.
#[derive(Debug)]
pub(crate) struct Coder {
    encoders: Encoders,
    compress: bool,
    habits: HashMap<Kin, Formed>,
}

impl Coder {
    pub(crate) fn new(encoders: Encoders, compress: bool) -> Self {
        Self { encoders, compress, habits: HashMap::new() }
    }

    /// Encodes `chunks` in order. Runs on the current pool.
    pub(crate) fn encode(&mut self, plan: &Plan<'_>, chunks: &[NewChunk<'_>]) -> Vec<PackChunk> {
        if !self.compress {
            return chunks.par_iter().map(|chunk| packed(plan, chunk, raw(chunk.raw.bytes()))).collect();
        }
        let kin: Vec<Kin> = chunks.iter().map(|chunk| kin(plan, chunk)).collect();
        let roles: Vec<Role> = kin.iter().enumerate().map(|(n, kin)| self.role(n, *kin)).collect();
        let lead = |(chunk, role): (_, &Role)| match role {
            Role::Leads => Some(self.one(plan, chunk, Habit::default())),
            _ => None,
        };
        let led: Vec<Option<(PackChunk, Habit)>> = chunks.par_iter().zip(&roles).map(lead).collect();
        let follow = |(chunk, role): (_, &Role)| match role {
            Role::Leads => None,
            Role::Recalls(habit) => Some(self.one(plan, chunk, habit.clone()).0),
            Role::Follows(leader) => {
                let habit = led[*leader].as_ref().map(|(_, habit)| habit.clone());
                Some(self.one(plan, chunk, habit.unwrap_or_default()).0)
            }
        };
        let followed: Vec<Option<PackChunk>> = chunks.par_iter().zip(&roles).map(follow).collect();
        self.remember(&kin, &led);
        led.into_iter()
            .zip(followed)
            .filter_map(|(led, followed)| led.map(|(chunk, _)| chunk).or(followed))
            .collect()
    }

    fn role(&mut self, position: usize, kin: Kin) -> Role {
        let formed = self.habits.entry(kin).or_default();
        let number = formed.used % CHUNKS_PER_HABIT;
        formed.used += 1;
        match formed.leader {
            _ if number == 0 => {
                formed.leader = Some(position);
                Role::Leads
            }
            Some(leader) => Role::Follows(leader),
            None => Role::Recalls(formed.habit.clone()),
        }
    }

    /// Keeps the habits formed by a batch for the next.
    fn remember(&mut self, kin: &[Kin], led: &[Option<(PackChunk, Habit)>]) {
        for (kin, led) in kin.iter().zip(led) {
            if let (Some((_, habit)), Some(formed)) = (led, self.habits.get_mut(kin)) {
                formed.habit = habit.clone();
                formed.leader = None;
            }
        }
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

fn kin(plan: &Plan<'_>, chunk: &NewChunk<'_>) -> Kin {
    let planned = planned(plan, chunk);
    match plan.members(planned) {
        [row] if planned.raw_len >= SMALL_BYTES => Kin::Item(plan.origins[*row].item),
        [row] => Kin::Alike(plan.dtype(planned), without_numbers(&plan.rows[*row].name)),
        _ => Kin::Shared,
    }
}

/// A hash of `name` without its digits. A collision costs a few bytes of storage.
fn without_numbers(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.split(|c: char| c.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .for_each(|part| part.hash(&mut hasher));
    hasher.finish()
}

fn packed(plan: &Plan<'_>, chunk: &NewChunk<'_>, encoded: Encoded) -> PackChunk {
    PackChunk { chunk: chunk.id, raw_len: planned(plan, chunk).raw_len, encoded }
}

fn raw(bytes: &[u8]) -> Encoded {
    Encoded { codec: Codec::Raw, bytes: bytes.to_vec() }
}
