//! Decoding, verifying and placing chunks, in parallel, each straight where it belongs when that is possible.

use std::sync::{Mutex, MutexGuard, PoisonError};

use everstep_format::codec::{Codec, Decoder};
use everstep_format::id::ChunkId;
use everstep_format::row::Piece;
use rayon::prelude::*;

use crate::Progress;
use crate::plan::{Placement, Plan};

/// A chunk that is not what the index says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Which chunk of the plan.
    pub(crate) chunk: usize,
    /// Where, what was expected, what was found.
    pub(crate) detail: String,
}

/// Memory that decoding needs; reused from chunk to chunk.
#[derive(Debug, Default)]
struct Scratch {
    decoder: Decoder,
    raw: Vec<u8>,
}

/// Puts chunks into the memory of the wishes.
pub(crate) struct Placer<'p> {
    plan: &'p Plan<'p>,
    // A band with one placement is locked by that placement's chunk alone; a band that several share only while one of
    // them copies. So a chunk may hold the first kind while it waits for the second without ever blocking for good.
    bands: Vec<Mutex<&'p mut [u8]>>,
    scratch: Mutex<Vec<Scratch>>,
    verify: bool,
    progress: &'p dyn Progress,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere ends the whole restore; what the lock guards is plain bytes.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `bytes` of a plan as this machine counts them.
///
/// The plan has checked every length against a limit far below 4 GiB.
pub(crate) fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("checked against a limit when planned")
}

impl<'p> Placer<'p> {
    /// Places what `plan` wants into `buffers`, one for each wish, of exactly the bytes of its box.
    pub(crate) fn new(
        plan: &'p Plan<'p>,
        buffers: Vec<&'p mut [u8]>,
        verify: bool,
        progress: &'p dyn Progress,
    ) -> Self {
        let mut bands = Vec::new();
        for (mut rest, lengths) in buffers.into_iter().zip(&plan.bands) {
            for &len in lengths {
                let (band, tail) = rest.split_at_mut(len);
                bands.push(Mutex::new(band));
                rest = tail;
            }
        }
        Self { plan, bands, scratch: Mutex::default(), verify, progress }
    }

    /// Decodes, checks and places one chunk from its stored bytes. Runs on the pool.
    pub(crate) fn chunk(&self, chunk: usize, stored: &[u8]) -> Result<(), Damage> {
        let placements = self.plan.placements_of(chunk);
        let damage = |detail| Damage { chunk, detail };
        if placements[0].piece.location.codec == Codec::Raw {
            self.as_stored(placements, stored).map_err(damage)?;
        } else if let Some(direct) = placements.iter().position(|p| self.is_direct(p)) {
            self.in_place(placements, direct, stored).map_err(damage)?;
        } else {
            self.through_scratch(placements, stored).map_err(damage)?;
        }
        self.progress.placed(placements.iter().map(|p| p.copy.len() as u64).sum());
        Ok(())
    }

    /// Whether the whole chunk is the whole band.
    fn is_direct(&self, placement: &Placement<'_>) -> bool {
        let whole = 0..size(placement.piece.raw_len);
        placement.copy.single_run().is_some_and(|(from, to)| from == whole && to == whole)
            && locked(&self.bands[placement.band]).len() == whole.end
    }

    /// The stored bytes are the raw bytes: checked where they are, then copied once.
    fn as_stored(&self, placements: &[Placement<'_>], stored: &[u8]) -> Result<(), String> {
        let piece = placements[0].piece;
        if stored.len() as u64 != piece.raw_len {
            return Err(about(
                piece,
                format!("expected {} raw bytes, found {}", piece.raw_len, stored.len()),
            ));
        }
        self.check(piece, stored)?;
        self.copy(placements, stored);
        Ok(())
    }

    /// Decoded and checked in the caller's memory; other places get copies.
    fn in_place(&self, placements: &[Placement<'_>], direct: usize, stored: &[u8]) -> Result<(), String> {
        let piece = placements[direct].piece;
        let mut band = locked(&self.bands[placements[direct].band]);
        let mut scratch = locked(&self.scratch).pop().unwrap_or_default();
        let decoded = scratch.decoder.decode(piece.location.codec, stored, &mut band);
        locked(&self.scratch).push(scratch);
        decoded.map_err(|e| about(piece, e.to_string()))?;
        self.check(piece, &band)?;
        self.copy(&placements[..direct], &band);
        self.copy(&placements[direct + 1..], &band);
        Ok(())
    }

    fn through_scratch(&self, placements: &[Placement<'_>], stored: &[u8]) -> Result<(), String> {
        let mut scratch = locked(&self.scratch).pop().unwrap_or_default();
        let result = self.decode_and_copy(placements, stored, &mut scratch);
        locked(&self.scratch).push(scratch);
        result
    }

    fn decode_and_copy(
        &self,
        placements: &[Placement<'_>],
        stored: &[u8],
        scratch: &mut Scratch,
    ) -> Result<(), String> {
        let piece = placements[0].piece;
        let len = size(piece.raw_len);
        if scratch.raw.len() < len {
            scratch.raw.resize(len, 0);
        }
        let raw = &mut scratch.raw[..len];
        scratch.decoder.decode(piece.location.codec, stored, raw).map_err(|e| about(piece, e.to_string()))?;
        self.check(piece, raw)?;
        self.copy(placements, raw);
        Ok(())
    }

    fn check(&self, piece: &Piece, raw: &[u8]) -> Result<(), String> {
        if !self.verify {
            return Ok(());
        }
        let found = ChunkId::of(raw);
        if found == piece.chunk {
            return Ok(());
        }
        Err(about(piece, format!("expected BLAKE3 {} of its raw bytes, found {found}", piece.chunk)))
    }

    fn copy(&self, placements: &[Placement<'_>], raw: &[u8]) {
        let copy = |p: &Placement<'_>| p.copy.apply(raw, &mut locked(&self.bands[p.band]));
        // One chunk in many places (zeros of a fresh optimizer) would otherwise keep all other threads waiting.
        match placements {
            [] => {}
            [one] => copy(one),
            many => many.par_iter().for_each(copy),
        }
    }
}

/// Says which chunk of its pack `detail` is about.
fn about(piece: &Piece, detail: impl std::fmt::Display) -> String {
    let at = &piece.location;
    format!(
        "chunk {} ({} bytes at offset {} of {}, as {:?}): {detail}",
        piece.chunk, at.stored_len, at.pack_offset, at.pack_len, at.codec
    )
}
