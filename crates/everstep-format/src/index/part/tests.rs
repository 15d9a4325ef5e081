use super::*;
use crate::bounds::Bounds;
use crate::codec::Codec;
use crate::dtype::Dtype;
use crate::id::{AttemptId, PackId};
use crate::key::PackAddress;
use crate::name::Rank;
use crate::row::{ElementType, Kind, Location, Piece};

fn stored(name: &str, elements: u64, raw_len: u64) -> PartRow {
    let pack = PackAddress { attempt: AttemptId([1; 16]), rank: Rank(3), pack: PackId([2; 32]) };
    let location =
        Location { pack, pack_len: 1 << 20, pack_offset: 64, stored_len: raw_len, codec: Codec::Raw };
    let chunk = ChunkId::of(name.as_bytes());
    let row = Row {
        name: name.into(),
        kind: Kind::Tensor,
        element: ElementType::Dtype(Dtype::U8),
        shape: vec![10 * elements].into(),
        bounds: Bounds { offset: vec![elements].into(), extent: vec![elements].into() },
        alias_of: None,
        rank: None,
        piece: Some(Piece { chunk, chunk_offset: 0, raw_len, location }),
    };
    PartRow { own: (elements < raw_len).then(|| ChunkId::of(b"own")), row }
}

fn reported(name: &str) -> PartRow {
    let stored = stored(name, 8, 8);
    PartRow { own: stored.hash(), row: Row { piece: None, ..stored.row } }
}

fn empty(name: &str) -> PartRow {
    let mut row = stored(name, 0, 0).row;
    row.piece = None;
    PartRow { row, own: None }
}

/// A whole chunk, a share of one, a replica that another rank stores, and a tensor without elements.
fn varied() -> Vec<PartRow> {
    vec![stored("a", 8, 8), stored("b", 8, 100), reported("c"), empty("d")]
}

#[test]
fn rows_of_every_kind_come_back_as_they_were_written() {
    let rows = varied();
    let (bytes, reference) = write(&rows).unwrap();
    assert_eq!(read(&bytes, &reference).unwrap(), rows);
    assert_eq!(write(&rows).unwrap(), (bytes, reference), "equal rows give equal bytes");
}

#[test]
fn a_part_may_have_no_rows_and_many_row_groups() {
    for count in [0, 1, 40_000] {
        let rows: Vec<PartRow> = (0..count).map(|i| stored(&format!("{i:06}"), 8, 8)).collect();
        let (bytes, reference) = write(&rows).unwrap();
        assert_eq!(read(&bytes, &reference).unwrap(), rows);
    }
}

#[test]
fn every_row_tells_the_hash_of_its_own_bytes() {
    let hashes: Vec<_> = varied().iter().map(PartRow::hash).collect();
    assert_eq!(hashes, [Some(ChunkId::of(b"a")), Some(ChunkId::of(b"own")), Some(ChunkId::of(b"c")), None]);
}

#[test]
fn rows_without_the_hash_that_replicas_are_compared_by_are_refused() {
    let without = |row: PartRow| PartRow { own: None, ..row };
    let with = |row: PartRow| PartRow { own: Some(ChunkId::of(b"own")), ..row };
    for row in
        [without(stored("b", 8, 100)), without(reported("c")), with(stored("a", 8, 8)), with(empty("d"))]
    {
        let error = write(std::slice::from_ref(&row)).unwrap_err();
        assert!(matches!(error, FormatError::Invalid { what: "row of a part", .. }), "{error}");
    }
}

#[test]
fn any_changed_byte_or_another_length_is_corrupt() {
    let (bytes, reference) = write(&varied()).unwrap();
    for at in (0..bytes.len()).step_by(7) {
        let mut changed = bytes.to_vec();
        changed[at] ^= 1;
        let cut = bytes.slice(..at);
        for damaged in [Bytes::from(changed), cut] {
            assert!(matches!(read(&damaged, &reference), Err(FormatError::Corrupt { .. })), "byte {at}");
        }
    }
}

/// Bytes with the right hash that were never a part.
#[test]
fn an_index_or_other_bytes_are_no_part() {
    let index_of = |rows: &[Row]| crate::index::write(invariant::rows_are_sound(rows).unwrap()).unwrap();
    let index = index_of(&[]);
    let of = |bytes: &Bytes| PartRef { blake3: ContentHash::of(bytes), len: bytes.len() as u64 };
    let some =
        index_of(&[Row { shape: [8][..].into(), bounds: Bounds::whole(&[8]), ..stored("a", 8, 8).row }]);
    let text = Bytes::from_static(b"PAR1 and something else PAR1");
    for bytes in [&some.bytes, &text, &Bytes::new()] {
        assert!(matches!(read(bytes, &of(bytes)), Err(FormatError::Corrupt { .. })), "{} bytes", bytes.len());
    }
    assert_eq!(read(&index.bytes, &of(&index.bytes)).unwrap(), [], "without rows there is no difference");
}
