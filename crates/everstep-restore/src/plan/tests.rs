use everstep_format::codec::Codec;
use everstep_format::dtype::Dtype;
use everstep_format::id::{AttemptId, ChunkId, PackId};
use everstep_format::name::Rank;
use everstep_format::row::{Kind, Location};

use super::*;

fn location(pack: u8, pack_offset: u64, stored_len: u64) -> Location {
    let pack = PackAddress { attempt: AttemptId([1; 16]), rank: Rank(0), pack: PackId([pack; 32]) };
    Location { pack, pack_len: 1 << 20, pack_offset, stored_len, codec: Codec::Zstd }
}

/// A row of a u8 tensor "t" of `shape`; the chunk is the piece.
fn row(shape: &[u64], bounds: Bounds, (pack, pack_offset): (u8, u64)) -> Row {
    let raw_len = bounds.elements().unwrap();
    let chunk = ChunkId([pack.wrapping_mul(31) ^ u8::try_from(pack_offset % 251).unwrap(); 32]);
    let location = location(pack, pack_offset, raw_len);
    Row {
        name: "t".into(),
        kind: Kind::Tensor,
        element: ElementType::Dtype(Dtype::U8),
        shape: shape.into(),
        bounds,
        alias_of: None,
        rank: None,
        piece: Some(Piece { chunk, chunk_offset: 0, raw_len, location }),
    }
}

fn bounds(offset: &[u64], extent: &[u64]) -> Bounds {
    Bounds { offset: offset.into(), extent: extent.into() }
}

/// [100, 10] in ten blocks of ten rows, one after the other in a pack.
fn blocks() -> Vec<Row> {
    (0..10).map(|n| row(&[100, 10], bounds(&[n * 10, 0], &[10, 10]), (7, n * 100))).collect()
}

fn settings(coalesce_gap: u64, coalesce_max: u64) -> Settings {
    Settings { coalesce_gap, coalesce_max, ..Settings::default() }
}

#[test]
fn only_blocks_that_the_box_touches_are_read() {
    let rows = blocks();
    let wish = Wish { rows: &rows, bounds: bounds(&[25, 0], &[10, 10]) };
    let plan = Plan::new(&[wish], &settings(0, 1 << 20)).unwrap();
    let read = &plan.reads[0];
    assert_eq!((plan.reads.len(), read.start, read.len, read.chunks.clone()), (1, 200, 200, 0..2));
    assert_eq!((plan.bytes, plan.bands), (100, vec![vec![50, 50]]));
}

#[test]
fn neighbours_are_joined_up_to_the_bounds() {
    let mut rows = blocks();
    let whole = Bounds::whole(&[100, 10]);
    let reads = |rows: &[Row], settings: &Settings| {
        let wish = Wish { rows, bounds: whole.clone() };
        Plan::new(&[wish], settings)
            .unwrap()
            .reads
            .iter()
            .map(|read| (read.start, read.len))
            .collect::<Vec<_>>()
    };
    assert_eq!(reads(&rows, &settings(0, 1000)), [(0, 1000)]);
    assert_eq!(reads(&rows, &settings(0, 500)), [(0, 500), (500, 500)]);
    assert_eq!(reads(&rows, &settings(0, 1)).len(), 10);

    rows[9].piece.as_mut().unwrap().location.pack_offset = 964;
    assert_eq!(reads(&rows, &settings(63, 2000)), [(0, 900), (964, 100)]);
    assert_eq!(reads(&rows, &settings(64, 2000)), [(0, 1064)]);
    rows[9].piece.as_mut().unwrap().location.pack.pack = PackId([8; 32]);
    assert_eq!(reads(&rows, &settings(64, 2000)), [(0, 900), (964, 100)]);
}

#[test]
fn a_chunk_that_several_wishes_need_is_read_once() {
    let rows = blocks();
    let wish = || Wish { rows: &rows, bounds: bounds(&[0, 0], &[5, 10]) };
    let plan = Plan::new(&[wish(), wish(), wish()], &Settings::default()).unwrap();
    assert_eq!((plan.chunks.len(), plan.reads.len(), plan.placements_of(0).len()), (1, 1, 3));
    assert_eq!(plan.bytes, 150);
}

#[test]
fn columns_of_one_block_share_a_band_and_other_rows_do_not() {
    let shape = [4, 6];
    let rows = vec![
        row(&shape, bounds(&[0, 0], &[2, 3]), (1, 0)),
        row(&shape, bounds(&[0, 3], &[2, 3]), (2, 0)),
        row(&shape, bounds(&[2, 0], &[2, 6]), (3, 0)),
    ];
    let plan =
        Plan::new(&[Wish { rows: &rows, bounds: Bounds::whole(&shape) }], &Settings::default()).unwrap();
    assert_eq!(plan.bands, vec![vec![12, 12]]);
    let bands: Vec<usize> = plan.placements.iter().map(|p| p.band).collect();
    assert_eq!(bands, [0, 0, 1]);
    assert_eq!(plan.placements[2].copy.single_run(), Some((0..12, 0..12)));
}

#[test]
fn an_empty_box_needs_nothing() {
    let rows = blocks();
    let plan =
        Plan::new(&[Wish { rows: &rows, bounds: bounds(&[0, 0], &[0, 10]) }], &Settings::default()).unwrap();
    assert_eq!((plan.reads.len(), plan.bytes, plan.bands), (0, 0, vec![vec![]]));
}

fn refused(change: impl FnOnce(&mut Vec<Row>)) -> String {
    let mut rows = blocks();
    change(&mut rows);
    match Plan::new(&[Wish { rows: &rows, bounds: Bounds::whole(&[100, 10]) }], &Settings::default()) {
        Err(NoPlan::Index { detail, .. }) => detail,
        other => panic!("{other:?}"),
    }
}

fn piece(rows: &mut [Row]) -> &mut Piece {
    rows[3].piece.as_mut().unwrap()
}

#[test]
fn an_index_that_contradicts_itself_is_refused() {
    refused(|rows| drop(rows.remove(4)));
    refused(|rows| rows.push(row(&[100, 10], bounds(&[95, 0], &[5, 10]), (9, 0))));
    refused(|rows| rows[3].piece = None);
    refused(|rows| rows[3].shape = vec![100, 10, 1].into());
    refused(|rows| rows[3].bounds.offset[0] = u64::MAX);
    refused(|rows| rows[3].bounds = bounds(&[30], &[10]));
    refused(|rows| piece(rows).raw_len = 99);
    refused(|rows| piece(rows).chunk_offset = u64::MAX);
    refused(|rows| piece(rows).raw_len = u64::MAX);
    refused(|rows| piece(rows).location.stored_len = 0);
    refused(|rows| piece(rows).location.pack_offset = u64::MAX);
    refused(|rows| piece(rows).location.pack_len = 350);
    refused(|rows| piece(rows).location.pack_len = u64::MAX);
    assert!(refused(|rows| piece(rows).location.pack_offset = 400).contains("one place"));
}

/// Rows of a u8 tensor of 2^33 + 1 elements in blocks of 2 MiB, from block `first` on.
fn beyond_32_bits(first: u64, count: u64) -> Vec<Row> {
    let (shape, block) = ([(1 << 33) + 1], 2 << 20);
    let row_of = |n: u64| {
        let len = block.min(shape[0] - n * block);
        let mut row = row(&shape, bounds(&[n * block], &[len]), (1, 64));
        let piece = row.piece.as_mut().unwrap();
        (piece.chunk, piece.location.stored_len) = (ChunkId::of(&n.to_le_bytes()), 100);
        piece.location.pack.pack = PackId(ChunkId::of(&n.to_le_bytes()).0);
        row
    };
    (first..first + count).map(row_of).collect()
}

#[test]
fn c24_a_box_is_found_on_either_side_of_2_and_4_gibibytes_and_at_an_end_beyond_them() {
    for (border, chunks) in [(1 << 31, 2), (1 << 32, 2), ((1 << 32) + (1 << 20), 1), ((1 << 33) - 7, 2)] {
        let rows = beyond_32_bits((border - 8) / (2 << 20), 2);
        let wish = Wish { rows: &rows, bounds: bounds(&[border - 8], &[16]) };
        let plan = Plan::new(&[wish], &Settings::default()).unwrap();
        assert_eq!((plan.bytes, plan.chunks.len(), plan.reads.len()), (16, chunks, chunks), "{border}");
        assert_eq!(plan.bands[0].iter().sum::<usize>(), 16);
        assert!(plan.placements.iter().all(|p| p.copy.source_span().end <= 2 << 20), "{border}");
    }
}

#[test]
fn c24_a_whole_tensor_beyond_4_gibibytes_is_planned_without_a_byte_of_it() {
    let rows = beyond_32_bits(0, (1 << 12) + 1);
    let wish = Wish { rows: &rows, bounds: Bounds::whole(&[(1 << 33) + 1]) };
    let plan = Plan::new(&[wish], &Settings::default()).unwrap();
    assert_eq!((plan.bytes, plan.chunks.len()), ((1 << 33) + 1, (1 << 12) + 1));
    assert_eq!(plan.bands[0].iter().sum::<usize>(), (1 << 33) + 1);
    assert_eq!(plan.bands[0].last(), Some(&1));
}
