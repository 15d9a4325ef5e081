//! The rows of the index to be, and which chunks their bytes make.

use std::ops::Range;
use std::sync::Arc;

use everstep_format::bounds::Bounds;
use everstep_format::dtype::Dtype;
use everstep_format::grid::{self, Grid};
use everstep_format::limits;
use everstep_format::repository::Chunking;
use everstep_format::row::{ElementType, Kind, Row};

use crate::group::{Ownership, Replicas, Seat};
use crate::item::{Item, Part};

/// What is to be done, without having read a byte of it.
#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    /// Sorted; their pieces are still to be filled in.
    pub(crate) rows: Vec<Row>,
    /// For each row, where its bytes come from.
    pub(crate) origins: Vec<Origin>,
    /// The boxes that origins point to.
    pub(crate) parts: Vec<Part<'a>>,
    /// In the order in which they are hashed and packed.
    pub(crate) chunks: Vec<PlannedChunk>,
    /// Rows of shared chunks, by ranges.
    shared: Vec<usize>,
    pub(crate) sums: Sums,
}

/// Sums over the state.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sums {
    pub(crate) raw_bytes: u64,
    /// Raw bytes of the largest chunk.
    pub(crate) largest_chunk: u64,
}

/// Where the bytes of a row come from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    /// Position in the plan's parts.
    pub(crate) part: usize,
    /// The tensor or object, by number.
    pub(crate) item: usize,
    /// Whether this rank stores them, or only says what they are.
    pub(crate) stored: bool,
}

/// A chunk to be.
#[derive(Debug, Clone)]
pub(crate) struct PlannedChunk {
    pub(crate) raw_len: u64,
    /// Whether this rank stores it. Otherwise it is one piece, of any size.
    pub(crate) stored: bool,
    rows: Members,
}

#[derive(Debug, Clone)]
enum Members {
    One(usize),
    Shared(Range<usize>),
}

impl<'a> Plan<'a> {
    /// The plan of `items`, which are sorted and checked.
    pub(crate) fn new(items: &[Item<'a>], chunking: &Chunking, seat: Seat) -> Self {
        let mut plan = Self::default();
        for (number, item) in items.iter().enumerate() {
            plan.add_item((number, item), chunking, seat);
        }
        plan.add_chunks();
        plan
    }

    fn add_item(&mut self, (number, item): (usize, &Item<'a>), chunking: &Chunking, seat: Seat) {
        let first_part = self.parts.len();
        self.parts.extend(&item.boxes);
        let name: Arc<str> = item.name.into();
        let alias: Option<Arc<str>> = item.alias_of.map(Into::into);
        let grid = Grid::new(item.shape, &item.element, chunking, item.name);
        let ownership = Ownership::new(seat, item.name, &grid, item.shape);
        for (part, bounds) in pieces(item, &grid) {
            let row = row(item, &name, alias.clone(), bounds);
            let stored = item.boxes.get(part).is_none_or(|part| is_stored(&row, part.replicas, &ownership));
            self.origins.push(Origin { part: first_part + part, item: number, stored });
            self.rows.push(row);
        }
    }

    /// Rows with bytes, in order: large ones are chunks of their own, small ones fill shared chunks.
    fn add_chunks(&mut self) {
        let mut open = PlannedChunk { raw_len: 0, stored: true, rows: Members::Shared(0..0) };
        for (number, row) in self.rows.iter().enumerate() {
            let len = row.byte_len().expect("sizes were checked");
            self.sums.raw_bytes += len;
            let stored = self.origins[number].stored;
            if len >= limits::SHARED_PIECE_BYTES || (len > 0 && !stored) {
                self.chunks.push(PlannedChunk { raw_len: len, stored, rows: Members::One(number) });
            } else if len > 0 {
                self.shared.push(number);
                open.raw_len += len;
                if grid::closes_shared_chunk(&row.name, open.raw_len) {
                    close(&mut self.chunks, &mut open, self.shared.len());
                }
            }
        }
        close(&mut self.chunks, &mut open, self.shared.len());
        self.sums.largest_chunk = self.chunks.iter().map(|chunk| chunk.raw_len).max().unwrap_or(0);
    }

    /// The rows whose bytes make up `chunk`, in order.
    pub(crate) fn members<'p>(&'p self, chunk: &'p PlannedChunk) -> &'p [usize] {
        match &chunk.rows {
            Members::One(row) => std::slice::from_ref(row),
            Members::Shared(range) => &self.shared[range.clone()],
        }
    }

    /// The type that all bytes of `chunk` have, if it is one.
    pub(crate) fn dtype(&self, chunk: &PlannedChunk) -> Option<Dtype> {
        let mut of_rows = self.members(chunk).iter().map(|&row| match &self.rows[row].element {
            ElementType::Dtype(dtype) => Some(*dtype),
            _ => None,
        });
        let first = of_rows.next()?;
        of_rows.all(|dtype| dtype == first).then_some(first)?
    }
}

fn close(chunks: &mut Vec<PlannedChunk>, open: &mut PlannedChunk, end: usize) {
    let Members::Shared(range) = &open.rows else { return };
    let start = range.start;
    if open.raw_len > 0 {
        chunks.push(PlannedChunk { rows: Members::Shared(start..end), ..*open });
    }
    *open = PlannedChunk { raw_len: 0, stored: true, rows: Members::Shared(end..end) };
}

/// The pieces of `item` in the order of rows, each with the position of its box. Without elements: one empty piece, whose
/// box is never looked at.
fn pieces(item: &Item<'_>, grid: &Grid) -> Vec<(usize, Bounds)> {
    if item.shape.contains(&0) {
        return vec![(0, Bounds::whole(item.shape))];
    }
    let of_box =
        |(n, part): (usize, &Part<'_>)| grid.pieces(part.bounds).into_iter().map(move |piece| (n, piece));
    let mut pieces: Vec<(usize, Bounds)> = item.boxes.iter().enumerate().flat_map(of_box).collect();
    if item.boxes.len() > 1 {
        pieces.sort_by(|a, b| a.1.cmp(&b.1));
    }
    pieces
}

/// Objects that all ranks may have are the leader's to store, so that the others may leave them out.
fn is_stored(row: &Row, replicas: &Replicas, ownership: &Ownership<'_>) -> bool {
    let len = row.byte_len().expect("sizes were checked");
    let of_lowest = row.kind == Kind::Object || len < limits::SHARED_PIECE_BYTES;
    ownership.stores(&row.bounds, replicas, of_lowest)
}

fn row(item: &Item<'_>, name: &Arc<str>, alias_of: Option<Arc<str>>, bounds: Bounds) -> Row {
    Row {
        name: name.clone(),
        kind: item.kind,
        element: item.element.clone(),
        shape: item.shape.into(),
        bounds,
        alias_of,
        rank: item.rank,
        piece: None,
    }
}
