//! From rows and wishes to reads: which chunks, where their bytes go, and which ranges of packs to fetch. Pure.
//!
//! ```text
//! wish (box of one tensor) x rows -> placements -> grouped by chunk -> coalesced into reads
//!                                        |
//!                                        +-> bands: disjoint slices of the wish's memory
//! ```

use std::ops::Range;

use everstep_format::bounds::Bounds;
use everstep_format::key::PackAddress;
use everstep_format::row::{ElementType, Piece, Row};
use everstep_format::{grid, invariant, limits};

use crate::Settings;
use crate::copy::{BoxCopy, NoCopy};

/// One box wanted of one stored thing.
#[derive(Debug, Clone)]
pub(crate) struct Wish<'r> {
    /// All rows of that name and rank.
    pub(crate) rows: &'r [Row],
    /// The box, inside the shape of the rows.
    pub(crate) bounds: Bounds,
}

/// A range of a chunk that goes into one band.
#[derive(Debug)]
pub(crate) struct Placement<'r> {
    /// The bytes' chunk.
    pub(crate) piece: &'r Piece,
    /// Which band.
    pub(crate) band: usize,
    /// From the raw chunk into the band.
    pub(crate) copy: BoxCopy,
}

/// Neighbouring chunks of one pack, fetched together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    /// The pack.
    pub(crate) pack: PackAddress,
    /// First byte.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// Which chunks of [`Plan::chunks`].
    pub(crate) chunks: Range<usize>,
}

/// What to fetch and where it goes.
#[derive(Debug, Default)]
pub(crate) struct Plan<'r> {
    /// Every placement, by location of its chunk.
    pub(crate) placements: Vec<Placement<'r>>,
    /// Per chunk, its placements (at least one).
    pub(crate) chunks: Vec<Range<usize>>,
    /// The reads, in the order of packs.
    pub(crate) reads: Vec<Read>,
    /// Per wish, the lengths in bytes of the disjoint bands that make up its memory.
    pub(crate) bands: Vec<Vec<usize>>,
    /// How many bands these are in all.
    pub(crate) band_count: usize,
    /// Raw bytes to place.
    pub(crate) bytes: u64,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoPlan {
    /// The index contradicts itself.
    Index {
        /// The name whose rows do.
        name: String,
        /// How.
        detail: String,
    },
    /// The box cuts a byte that two elements share, or is larger than this machine can address.
    Box {
        /// The name.
        name: String,
        /// The rule.
        problem: String,
    },
}

impl<'r> Plan<'r> {
    /// Plans `wishes`.
    pub(crate) fn new(wishes: &[Wish<'r>], settings: &Settings) -> Result<Self, NoPlan> {
        let mut plan = Self::default();
        for wish in wishes {
            plan.add(wish)?;
        }
        plan.group()?;
        plan.coalesce(settings);
        Ok(plan)
    }

    /// The chunk's placements.
    pub(crate) fn placements_of(&self, chunk: usize) -> &[Placement<'r>] {
        &self.placements[self.chunks[chunk].clone()]
    }

    /// The chunk itself.
    pub(crate) fn chunk(&self, chunk: usize) -> &'r Piece {
        self.placements_of(chunk)[0].piece
    }

    fn add(&mut self, wish: &Wish<'r>) -> Result<(), NoPlan> {
        keeps_bytes_whole(wish)?;
        let first = self.placements.len();
        let mut boxes = Vec::new();
        for row in wish.rows {
            if row.shape != wish.rows[0].shape || row.element != wish.rows[0].element {
                return Err(index_error(row, "its pieces disagree about shape or element type"));
            }
            let Some((common, placement)) = place(row, &wish.bounds)? else { continue };
            self.bytes += placement.copy.len() as u64;
            self.placements.push(placement);
            boxes.push(common);
        }
        covers(wish, &boxes)?;
        let bands = band(&mut self.placements[first..], self.band_count);
        self.band_count += bands.len();
        self.bands.push(bands);
        Ok(())
    }

    fn group(&mut self) -> Result<(), NoPlan> {
        self.placements.sort_by_key(|p| (p.piece.location.pack, p.piece.location.pack_offset));
        let same_place = |a: &Placement<'_>, b: &Placement<'_>| {
            let (a, b) = (&a.piece.location, &b.piece.location);
            a.pack == b.pack && a.pack_offset == b.pack_offset
        };
        let mut start = 0;
        for group in self.placements.chunk_by(same_place) {
            if let Some(other) = group.iter().find(|p| !same_chunk(p.piece, group[0].piece)) {
                let (one, two) = (group[0].piece.chunk, other.piece.chunk);
                let detail = format!("one place of a pack holds chunk {one} and chunk {two}");
                return Err(NoPlan::Index { name: String::new(), detail });
            }
            self.chunks.push(start..start + group.len());
            start += group.len();
        }
        Ok(())
    }

    fn coalesce(&mut self, settings: &Settings) {
        for chunk in 0..self.chunks.len() {
            let at = self.chunk(chunk).location;
            let end = at.pack_offset + at.stored_len;
            if let Some(read) = self.reads.last_mut()
                && read.pack == at.pack
                && at.pack_offset <= (read.start + read.len).saturating_add(settings.coalesce_gap)
                && end - read.start <= settings.coalesce_max
            {
                read.len = read.len.max(end - read.start);
                read.chunks.end = chunk + 1;
                continue;
            }
            let (start, len) = (at.pack_offset, at.stored_len);
            self.reads.push(Read { pack: at.pack, start, len, chunks: chunk..chunk + 1 });
        }
    }
}

fn same_chunk(a: &Piece, b: &Piece) -> bool {
    a.chunk == b.chunk && a.raw_len == b.raw_len && a.location == b.location
}

fn index_error(row: &Row, detail: impl Into<String>) -> NoPlan {
    NoPlan::Index { name: row.name.to_string(), detail: detail.into() }
}

/// Bits of one element; everything that is no tensor is bytes.
pub(crate) fn bits(element: &ElementType) -> u64 {
    match element {
        ElementType::Dtype(dtype) => dtype.bits(),
        ElementType::Value | ElementType::Opaque | ElementType::Unknown(_) => 8,
    }
}

/// A box of packed elements must not cut a byte, however the tensor is stored.
fn keeps_bytes_whole(wish: &Wish<'_>) -> Result<(), NoPlan> {
    let Some(row) = wish.rows.first() else { return Ok(()) };
    grid::keeps_bytes_whole(&row.shape, &row.element, &wish.bounds)
        .map_err(|e| NoPlan::Box { name: row.name.to_string(), problem: e.to_string() })
}

/// What `row` gives to the box `wanted`. The band is set later.
fn place<'r>(row: &'r Row, wanted: &Bounds) -> Result<Option<(Bounds, Placement<'r>)>, NoPlan> {
    row.bounds.check_inside(&row.shape).map_err(|e| index_error(row, e.to_string()))?;
    let Some(common) = row.bounds.intersect(wanted) else { return Ok(None) };
    let piece = row.piece.as_ref().ok_or_else(|| index_error(row, "a piece with elements has no chunk"))?;
    check_piece(row, piece)?;
    let mut copy =
        BoxCopy::new(&common, &row.bounds, wanted, bits(&row.element)).map_err(|e| refuse(row, e))?;
    let offset = usize::try_from(piece.chunk_offset).map_err(|_| refuse(row, NoCopy::TooLarge))?;
    copy.shift_from(offset);
    Ok(Some((common, Placement { piece, band: 0, copy })))
}

fn refuse(row: &Row, why: NoCopy) -> NoPlan {
    let problem = match why {
        NoCopy::CutsByte => format!(
            "the box cuts a byte in which {} keeps two elements; rows must start and end at even elements",
            row.element.name()
        ),
        NoCopy::TooLarge => "the box is larger than this machine can address".to_owned(),
    };
    NoPlan::Box { name: row.name.to_string(), problem }
}

/// Whatever the index says is checked before a byte is allocated or read for it.
fn check_piece(row: &Row, piece: &Piece) -> Result<(), NoPlan> {
    let bytes = row.byte_len().ok_or_else(|| index_error(row, "the bytes of a piece cannot be counted"))?;
    let at = &piece.location;
    let inside_chunk = piece.chunk_offset.checked_add(bytes).is_some_and(|end| end <= piece.raw_len);
    let inside_pack = at.pack_offset.checked_add(at.stored_len).is_some_and(|end| end <= at.pack_len);
    let within_limits = piece.raw_len <= limits::CHUNK_RAW_BYTES
        && (1..=limits::CHUNK_STORED_BYTES).contains(&at.stored_len)
        && at.pack_len <= limits::PACK_BYTES;
    if inside_chunk && inside_pack && within_limits {
        return Ok(());
    }
    let detail = format!(
        "a piece of {bytes} bytes at {} of a chunk of {} bytes, stored as {} bytes at {} of a pack of {}",
        piece.chunk_offset, piece.raw_len, at.stored_len, at.pack_offset, at.pack_len
    );
    Err(index_error(row, format!("{detail}, does not fit or is beyond the limits")))
}

/// `Ok` when the parts make up the wished box without gap and overlap.
fn covers(wish: &Wish<'_>, parts: &[Bounds]) -> Result<(), NoPlan> {
    if matches!(parts, [only] if *only == wish.bounds) || (parts.is_empty() && wish.bounds.is_empty()) {
        return Ok(());
    }
    let name = wish.rows.first().map(|row| row.name.to_string()).unwrap_or_default();
    let relative = |part: &Bounds| {
        let offset = part.offset.iter().zip(&wish.bounds.offset).map(|(at, base)| at - base).collect();
        Bounds { offset, extent: part.extent.clone() }
    };
    let relative: Vec<Bounds> = parts.iter().map(relative).collect();
    let boxes: Vec<&Bounds> = relative.iter().collect();
    invariant::boxes_cover(&name, &wish.bounds.extent, &boxes)
        .map_err(|e| NoPlan::Index { name, detail: e.to_string() })
}

/// Cuts the memory of one wish into bands: placements whose spans overlap (columns of one block, say) share one, every
/// other placement has its own. Returns the bands' lengths; `base` is the number of the first.
fn band(placements: &mut [Placement<'_>], base: usize) -> Vec<usize> {
    placements.sort_by_key(|p| p.copy.destination_span().start);
    let mut ends: Vec<usize> = Vec::new();
    let mut start = 0;
    for placement in placements {
        let span = placement.copy.destination_span();
        let apart = ends.last().is_none_or(|&end| span.start >= end);
        if apart {
            start = span.start;
            ends.push(span.end);
        } else if let Some(end) = ends.last_mut() {
            *end = span.end.max(*end);
        }
        placement.band = base + ends.len() - 1;
        placement.copy.rebase_to(start);
    }
    let starts = std::iter::once(0).chain(ends.iter().copied());
    ends.iter().zip(starts).map(|(end, start)| end - start).collect()
}

#[cfg(test)]
mod tests;
