//! A reader of checkpoints that shares nothing with the writer: rows, packs, decoder.

use std::collections::BTreeMap;

use everstep_format::bounds::{Bounds, Dims, elements};
use everstep_format::codec::Decoder;
use everstep_format::id::ChunkId;
use everstep_format::key::Key;
use everstep_format::name::Rank;
use everstep_format::row::Row;
use everstep_repo::{Checkpoint, IndexReader};
use everstep_store::{Span, Store};

use crate::bench::Bench;

pub(crate) async fn rows(bench: &Bench, checkpoint: &Checkpoint) -> Vec<Row> {
    IndexReader::new(bench.repository.store().clone(), checkpoint.clone()).all().await.unwrap()
}

/// The bytes of everything, by name and rank.
pub(crate) async fn contents(
    bench: &Bench,
    checkpoint: &Checkpoint,
) -> BTreeMap<(String, Option<Rank>), Vec<u8>> {
    let mut contents = BTreeMap::new();
    for row in rows(bench, checkpoint).await {
        let total = row.element.byte_len(elements(&row.shape).unwrap()).unwrap();
        let whole: &mut Vec<u8> = contents
            .entry((row.name.to_string(), row.rank))
            .or_insert_with(|| vec![0xEE; usize::try_from(total).unwrap()]);
        let bytes = piece(bench, &row).await;
        place(&row, &bytes, whole);
    }
    contents
}

/// The bytes of one tensor.
pub(crate) async fn tensor(bench: &Bench, checkpoint: &Checkpoint, name: &str) -> Vec<u8> {
    contents(bench, checkpoint).await.remove(&(name.to_owned(), None)).unwrap()
}

async fn piece(bench: &Bench, row: &Row) -> Vec<u8> {
    let Some(piece) = &row.piece else { return Vec::new() };
    let span = Span::Range { start: piece.location.pack_offset, len: piece.location.stored_len };
    let stored = bench.spy.get(&Key::pack(&piece.location.pack), span).await.unwrap().bytes;
    let mut raw = vec![0; usize::try_from(piece.raw_len).unwrap()];
    Decoder::default().decode(piece.location.codec, &stored, &mut raw).unwrap();
    assert_eq!(ChunkId::of(&raw), piece.chunk);
    let start = usize::try_from(piece.chunk_offset).unwrap();
    raw[start..start + usize::try_from(row.byte_len().unwrap()).unwrap()].to_vec()
}

/// Copies the bytes of a piece to their place in the whole. Two 4-bit elements count as one of 8 bits.
fn place(row: &Row, bytes: &[u8], whole: &mut [u8]) {
    if bytes.is_empty() {
        return;
    }
    let bits = row.element.bits().unwrap();
    let (shape, bounds, width) = match (bits, row.shape.last()) {
        (4, Some(last)) if last.is_multiple_of(2) => {
            let half = |values: &Dims| {
                let mut values = values.clone();
                *values.last_mut().unwrap() /= 2;
                values
            };
            let box_of_bytes = Bounds { offset: half(&row.bounds.offset), extent: half(&row.bounds.extent) };
            (half(&row.shape), box_of_bytes, 1)
        }
        (4, _) => {
            let slice: u64 = row.shape.iter().skip(1).product();
            let start = row.bounds.offset.first().map_or(0, |first| first * slice / 2);
            let start = usize::try_from(start).unwrap();
            whole[start..start + bytes.len()].copy_from_slice(bytes);
            return;
        }
        _ => (row.shape.clone(), row.bounds.clone(), usize::try_from(bits / 8).unwrap()),
    };
    for (number, element) in bytes.chunks_exact(width).enumerate() {
        let at = usize::try_from(position(&shape, &bounds, number as u64)).unwrap() * width;
        whole[at..at + width].copy_from_slice(element);
    }
}

/// Where in `shape` the element `number` of `bounds` is.
fn position(shape: &[u64], bounds: &Bounds, mut number: u64) -> u64 {
    let (mut position, mut stride) = (0, 1);
    for d in (0..shape.len()).rev() {
        position += (bounds.offset[d] + number % bounds.extent[d]) * stride;
        number /= bounds.extent[d];
        stride *= shape[d];
    }
    position
}
