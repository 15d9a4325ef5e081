//! Prints what an index costs: `cargo run --example index_size [ROWS]`.

use std::time::Duration;

use bytes::Bytes;
use everstep_format::bounds::Bounds;
use everstep_format::codec::Codec;
use everstep_format::dtype::Dtype;
use everstep_format::id::{AttemptId, ChunkId, PackId};
use everstep_format::index::{self, EncodedIndex, Footer};
use everstep_format::invariant::rows_are_sound;
use everstep_format::key::PackAddress;
use everstep_format::name::Rank;
use everstep_format::row::{ElementType, Kind, Location, Piece, Row};

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let rows: Vec<Row> = (0..count).map(row).collect();
    let (encoded, writing) =
        timed(|| index::write(rows_are_sound(&rows).expect("sound rows")).expect("small"));
    let (back, reading) =
        timed(|| index::read_all(&encoded.bytes, &encoded.reference).expect("what was written"));
    assert!(back == rows, "the index gives back other rows");
    let per_row = f64::from(u32::try_from(encoded.bytes.len()).unwrap_or(u32::MAX))
        / f64::from(u32::try_from(count).unwrap_or(1));
    println!(
        "{count} rows: {} bytes, {per_row:.1} per row; written in {writing:.2?}, read in {reading:.2?}",
        encoded.bytes.len()
    );
    let wanted = &rows[rows.len() / 2];
    let lookups = (0..20).map(|_| timed(|| find(&encoded, wanted)));
    let (read_bytes, lookup) = lookups.min_by_key(|(_, time)| *time).expect("twenty lookups");
    println!("one name: 2 reads (footer, row group), {read_bytes} bytes, {lookup:.2?} at best");
}

/// A million small tensors: random hashes, 1 to 64 KiB stored, packs of 8 MiB, 64 writers.
fn row(i: u64) -> Row {
    let random = *blake3::hash(&i.to_le_bytes()).as_bytes();
    let stored_len = 1024 + u64::from(u16::from_le_bytes([random[0], random[1]]));
    let pack = PackAddress {
        attempt: AttemptId([u8::try_from(i % 97 / 90).unwrap_or(0); 16]),
        rank: Rank(u32::try_from(i / 250 % 64).unwrap_or(0)),
        pack: PackId(*blake3::hash(&(i / 250).to_le_bytes()).as_bytes()),
    };
    let elements = stored_len / 2;
    let location = Location {
        pack,
        pack_len: 10_000_000,
        pack_offset: 64 * (300 + i % 250 * 512),
        stored_len,
        codec: Codec::Planes,
    };
    Row {
        name: format!("model.layers.{:04}.mlp.experts.{:03}.up_proj.weight", i / 1000, i % 1000).into(),
        kind: Kind::Tensor,
        element: ElementType::Dtype(Dtype::F32),
        shape: vec![elements].into(),
        bounds: Bounds::whole(&[elements]),
        alias_of: None,
        rank: None,
        piece: Some(Piece { chunk: ChunkId(random), chunk_offset: 0, raw_len: 4 * elements, location }),
    }
}

fn find(EncodedIndex { bytes, reference }: &EncodedIndex, wanted: &Row) -> usize {
    let slice = |start: u64, end: u64| -> Bytes {
        let at = |n| usize::try_from(n).expect("offsets of a file in memory");
        bytes.slice(at(start)..at(end))
    };
    let tail = slice(reference.footer_offset, reference.len);
    let footer = Footer::parse(&tail, reference).expect("a sound footer");
    let number = footer.groups_of(&wanted.name).start;
    let range = footer.groups()[number].range.clone();
    let group = slice(range.start, range.end);
    let rows = footer.read_named(number, &group, &wanted.name).expect("a sound row group");
    assert!(rows.contains(wanted), "the row is missing");
    tail.len() + group.len()
}

#[allow(clippy::disallowed_methods, reason = "an example measures real time, and runs nowhere else")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = std::time::Instant::now();
    let value = work();
    (value, start.elapsed())
}
