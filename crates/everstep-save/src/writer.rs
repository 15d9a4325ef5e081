//! Chunks through the pipeline: hash, look up, encode, pack, upload; wave by wave, in the plan's order.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use everstep_format::id::{AttemptId, ChunkId};
use everstep_format::pack::{self, BuiltPack};
use everstep_format::{FormatError, limits};
use everstep_repo::Spent;
use everstep_store::{Store, World};
use rayon::prelude::*;

use crate::cpu::{self, Encoders};
use crate::encode::{Coder, NewChunk};
use crate::gather::{self, Raw, Scratch};
use crate::group::Seat;
use crate::known::{Chunks, Known, Stored, share};
use crate::packer::{Group, Packer};
use crate::phases::Stopwatch;
use crate::plan::{Plan, PlannedChunk, Sums};
use crate::upload::{Holds, Room, UploadLimits, Uploads, shrink};
use crate::{SaveError, Settings, Tools};

/// Bytes per thread that are hashed at one go where that takes no memory.
const HASHED_AT_ONCE: u64 = 64 << 20;
/// A save takes at most this part of the state's bytes for itself, so that its memory is small beside that of the trainer;
/// but never less than [`SMALL_SHARE`], so that small states are still stored by several uploads at once.
const SHARE_OF_STATE: u64 = 20;
const SMALL_SHARE: u64 = 64 << 20;
/// What rounding may add to the bytes in flight.
const SLACK: u64 = 16 << 10;

/// Where a writer writes.
pub(crate) struct Target<'w> {
    pub(crate) store: &'w Arc<dyn Store>,
    pub(crate) world: &'w Arc<dyn World>,
    pub(crate) attempt: AttemptId,
    pub(crate) seat: Seat,
}

/// What became of the chunks.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// One per chunk of the plan.
    pub(crate) ids: Vec<ChunkId>,
    /// Hashes of pieces that share chunks, by row; nobody needs them where nobody else may have the same pieces.
    pub(crate) own: Vec<(usize, ChunkId)>,
    /// Those stored by this attempt.
    pub(crate) placed: Chunks,
    pub(crate) tally: Tally,
    pub(crate) spent: Spent,
}

/// The bytes of a chunk and what they hash to.
struct Hashed<'a> {
    id: ChunkId,
    own: Vec<(usize, ChunkId)>,
    raw: Raw<'a>,
}

/// Sums over the distinct chunks and the packs of this rank.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) new: u64,
    pub(crate) reused: u64,
    pub(crate) packs: u64,
    pub(crate) pack_bytes: u64,
}

/// How the bytes in flight are divided.
#[derive(Debug, Clone, Copy)]
struct Division {
    /// Raw bytes copied for one wave, and encoded bytes that one batch may make.
    wave: u64,
    /// Encoded bytes waiting or being uploaded.
    room: u64,
}

impl Division {
    /// A quarter for copies of raw bytes, the rest for encoded ones: an open pack, a batch, and uploads.
    fn new(settings: &Settings, sums: &Sums) -> Self {
        let largest = room_for(sums.largest_chunk);
        let target = settings.pack_target.min(limits::PACK_BYTES);
        let share = settings.bytes_in_flight.min((sums.raw_bytes / SHARE_OF_STATE).max(SMALL_SHARE));
        let total = share.max(4 * largest).max(2 * (target + largest + SLACK));
        Self { wave: total / 4, room: total - total / 4 }
    }
}

/// The hash of each piece in `chunk`, whose bytes are `raw`, unless it is the whole of it.
fn own_hashes(plan: &Plan<'_>, chunk: &PlannedChunk, raw: &[u8]) -> Vec<(usize, ChunkId)> {
    let rows = plan.members(chunk);
    if rows.len() == 1 {
        return Vec::new();
    }
    let mut rest = raw;
    let own = |&row: &usize| {
        let len = plan.rows[row].byte_len().and_then(|len| usize::try_from(len).ok());
        let (piece, after) = rest.split_at(len.expect("a piece lies in its chunk"));
        rest = after;
        (row, ChunkId::of(piece))
    };
    rows.iter().map(own).collect()
}

/// Bytes that a chunk takes in a pack, at most: an encoder never stores more than raw.
fn room_for(raw_len: u64) -> u64 {
    share(raw_len) + pack::HEADER_BYTES as u64
}

/// Takes the chunks of a plan to the store.
pub(crate) struct Writer<'w, 'a> {
    plan: &'w Plan<'a>,
    known: &'w Known,
    tools: &'w Tools<'w>,
    attempt: AttemptId,
    seat: Seat,
    division: Division,
    scratch: Scratch,
    coder: Coder,
    packer: Packer,
    uploads: Uploads<'w>,
    /// Chunks met, whether known or new.
    seen: HashSet<ChunkId>,
    written: Written,
    stopwatch: Stopwatch,
}

impl<'w, 'a> Writer<'w, 'a> {
    pub(crate) fn new(
        plan: &'w Plan<'a>,
        known: &'w Known,
        tools: &'w Tools<'w>,
        target: &Target<'_>,
    ) -> Self {
        let settings = tools.settings;
        let division = Division::new(settings, &plan.sums);
        let limits = UploadLimits { bytes: division.room, uploads: settings.uploads };
        Self {
            plan,
            known,
            tools,
            attempt: target.attempt,
            seat: target.seat,
            division,
            scratch: Scratch::new(division.wave),
            coder: Coder::new(Encoders::new(tools.pool), settings.compress),
            packer: Packer::new(settings.pack_target),
            uploads: Uploads::new(target.store.clone(), target.world.clone(), tools.progress, limits),
            seen: HashSet::with_capacity(plan.chunks.len()),
            written: Written { ids: Vec::with_capacity(plan.chunks.len()), ..Written::default() },
            stopwatch: Stopwatch::start(target.world),
        }
    }

    /// Stores every chunk that no parent has; returns once all packs are stored, though not yet synced.
    ///
    /// # Errors
    /// [`SaveError::Source`], [`SaveError::Upload`], [`SaveError::UploadsLost`].
    pub(crate) async fn run(mut self) -> Result<Written, SaveError> {
        let mut room = self.uploads.room(0).await?;
        let mut next = 0;
        while next < self.plan.chunks.len() {
            let wave = self.wave(next);
            next = wave.end;
            let mut new = self.hash(wave)?;
            self.written.spent.hash += self.stopwatch.lap();
            while !new.is_empty() {
                let rest = new.split_off(self.batch(&new));
                self.store(new, &mut room).await?;
                new = rest;
            }
        }
        self.packer.close();
        self.start_packs(&mut room)?;
        drop(room);
        let mut written = self.written;
        written.spent.encode += self.stopwatch.lap();
        self.uploads.finish().await?;
        written.spent.upload += self.stopwatch.lap();
        Ok(written)
    }

    /// The next chunks to hash: as many as memory allows, for uploads to go on meanwhile not too many.
    fn wave(&self, start: usize) -> Range<usize> {
        let at_once = HASHED_AT_ONCE * self.tools.pool.current_num_threads() as u64;
        let (mut copied, mut hashed) = (0, 0);
        let fits = |chunk: &&PlannedChunk| {
            hashed += chunk.raw_len;
            copied += if gather::copies(self.plan, chunk) { chunk.raw_len } else { 0 };
            hashed <= at_once && copied <= self.division.wave
        };
        let count = self.plan.chunks[start..].iter().take_while(fits).count();
        start..start + count.max(1)
    }

    /// Hashes the chunks of `wave` and picks those that must be stored, each once.
    fn hash(&mut self, wave: Range<usize>) -> Result<Vec<NewChunk<'a>>, SaveError> {
        let Self { plan, scratch, seat, .. } = &*self;
        let hash_one = |chunk: &PlannedChunk| {
            let raw = gather::load(plan, chunk, scratch)?;
            let own = if seat.is_alone() { Vec::new() } else { own_hashes(plan, chunk, raw.bytes()) };
            Ok(Hashed { id: ChunkId::of(raw.bytes()), own, raw })
        };
        let hashed: Vec<Result<Hashed<'a>, SaveError>> =
            cpu::run(self.tools.pool, || plan.chunks[wave.clone()].par_iter().map(hash_one).collect());
        let mut new = Vec::new();
        let mut settled = 0;
        for (planned, hashed) in wave.zip(hashed) {
            let Hashed { id, mut own, raw } = hashed?;
            self.written.ids.push(id);
            self.written.own.append(&mut own);
            let PlannedChunk { raw_len, stored, .. } = self.plan.chunks[planned];
            if stored && self.must_store(id) {
                new.push(NewChunk { planned, id, raw });
            } else {
                settled += raw_len;
                self.scratch.give_back(raw);
            }
        }
        self.tools.progress.processed(settled);
        Ok(new)
    }

    fn must_store(&mut self, id: ChunkId) -> bool {
        if !self.seen.insert(id) {
            return false;
        }
        let tally = &mut self.written.tally;
        if self.known.get(&id).is_some() {
            tally.reused += 1;
            return false;
        }
        tally.new += 1;
        true
    }

    /// How many of `new` are encoded at one go.
    fn batch(&self, new: &[NewChunk<'_>]) -> usize {
        let mut room = 0;
        let fits = |chunk: &&NewChunk<'_>| {
            room += room_for(self.plan.chunks[chunk.planned].raw_len);
            room <= self.division.wave
        };
        new.iter().take_while(fits).count().max(1)
    }

    /// Encodes and packs `batch`, and starts the uploads of the packs that are full.
    async fn store(&mut self, batch: Vec<NewChunk<'a>>, room: &mut Room) -> Result<(), SaveError> {
        let raw_len = |chunk: &NewChunk<'_>| self.plan.chunks[chunk.planned].raw_len;
        let raw_bytes: u64 = batch.iter().map(raw_len).sum();
        let needed = batch.iter().map(|chunk| room_for(raw_len(chunk))).sum();
        room.merge(self.uploads.room(needed).await?);
        self.written.spent.upload += self.stopwatch.lap();
        let encoded = cpu::run(self.tools.pool, || self.coder.encode(self.plan, &batch));
        for (new, chunk) in batch.into_iter().zip(encoded) {
            let first_row = self.plan.members(&self.plan.chunks[new.planned])[0];
            self.packer.add(chunk, &self.plan.rows[first_row].name);
            self.scratch.give_back(new.raw);
        }
        self.tools.progress.processed(raw_bytes);
        self.start_packs(room)?;
        shrink(room, self.packer.waiting());
        self.written.spent.encode += self.stopwatch.lap();
        Ok(())
    }

    fn start_packs(&mut self, room: &mut Room) -> Result<(), SaveError> {
        let (attempt, rank, groups) = (self.attempt, self.seat.rank, self.packer.take());
        let build = |group: Group| {
            let holds = Holds { first: group.first, chunks: group.chunks.len() };
            pack::build(attempt, rank, group.chunks).map(|pack| (pack, holds))
        };
        let built: Vec<Result<(BuiltPack, Holds), FormatError>> =
            cpu::run(self.tools.pool, || groups.into_par_iter().map(build).collect());
        for pack in built {
            let (pack, holds) = pack?;
            self.written.tally.packs += 1;
            self.written.tally.pack_bytes += pack.len;
            let placed =
                pack.chunks.iter().map(|&(id, raw_len, location)| (id, Stored { raw_len, location }));
            self.written.placed.extend(placed);
            self.uploads.start(pack, holds, room);
        }
        Ok(())
    }
}
