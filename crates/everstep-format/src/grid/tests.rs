use super::*;
use crate::dtype::Dtype;
use crate::repository::ChunkingOverride;
use proptest::prelude::*;

fn of(dtype: Dtype) -> ElementType {
    ElementType::Dtype(dtype)
}

fn small(block_elements: u64) -> Chunking {
    Chunking { block_elements, block_bytes: 1 << 20, overrides: Vec::new() }
}

fn block(shape: &[u64], dtype: Dtype, chunking: &Chunking) -> Vec<u64> {
    Grid::new(shape, &of(dtype), chunking, "t").block().to_vec()
}

#[test]
fn a_block_is_the_largest_run_of_slices_along_the_outermost_dimension_that_fits() {
    let chunking = small(100);
    for (shape, expected) in [
        (&[][..], &[][..]),
        (&[7], &[7]),
        (&[1000], &[100]),
        (&[50, 10], &[10, 10]),
        (&[50, 200], &[1, 100]),
        (&[50, 30], &[3, 30]),
        (&[4, 5, 60], &[1, 1, 60]),
        (&[4, 5, 6, 7], &[1, 2, 6, 7]),
        (&[2, 3, 1000], &[1, 1, 100]),
        (&[0, 3], &[0, 3]),
        (&[3, 0, 5], &[3, 0, 5]),
    ] {
        assert_eq!(block(shape, Dtype::F32, &chunking), expected, "{shape:?}");
    }
}

#[test]
fn a_block_keeps_within_the_bytes_for_wide_types_and_coincides_for_a_master_copy() {
    let chunking = Chunking::default();
    let shape = [50_000, 4096];
    assert_eq!(block(&shape, Dtype::Bf16, &chunking), [512, 4096]);
    assert_eq!(
        block(&shape, Dtype::F32, &chunking),
        [512, 4096],
        "bf16 and its fp32 master share their cuts"
    );
    assert_eq!(block(&shape, Dtype::Complex128, &chunking), [128, 4096], "8 MiB of 16-byte elements");
}

#[test]
fn the_first_matching_override_sets_the_elements() {
    let rule = |pattern: &str, block_elements| ChunkingOverride { pattern: pattern.into(), block_elements };
    let chunking = Chunking { overrides: vec![rule("embed.*", 10), rule("*", 1000)], ..small(100) };
    let run = |name: &str| Grid::new(&[5000], &of(Dtype::U8), &chunking, name).block()[0];
    assert_eq!((run("embed.weight"), run("head.weight")), (10, 1000));
}

#[test]
fn a_huge_shape_costs_only_the_blocks_that_are_touched() {
    let grid = Grid::new(&[1 << 40, 1 << 40, 1 << 20], &of(Dtype::F32), &Chunking::default(), "t");
    assert_eq!(grid.block(), [1, 2, 1 << 20]);
    let bounds = Bounds { offset: vec![1 << 39, 1, 5].into(), extent: vec![1, 3, 7].into() };
    assert_eq!(grid.pieces(&bounds).len(), 2);
}

#[test]
fn cuts_of_4_bit_types_never_split_a_byte() {
    let chunking = small(11);
    assert_eq!(block(&[100], Dtype::F4E2m1, &chunking), [10]);
    assert_eq!(block(&[101], Dtype::I4, &chunking), [10], "an odd end takes its half byte whole");
    assert_eq!(block(&[9, 5], Dtype::I4, &chunking), [2, 5], "two rows of five are five bytes");
    assert_eq!(block(&[9, 50], Dtype::I4, &chunking), [1, 10]);
    assert_eq!(block(&[9, 51], Dtype::I4, &chunking), [2, 51], "above the limit rather than inside a byte");
    assert_eq!(block(&[1, 3, 5], Dtype::I4, &chunking), [1, 3, 5]);
    assert_eq!(block(&[], Dtype::I4, &chunking), [0u64; 0]);
}

#[test]
fn boxes_of_4_bit_types_that_split_a_byte_are_refused() {
    let bounds = |offset: &[u64], extent: &[u64]| Bounds { offset: offset.into(), extent: extent.into() };
    for (shape, bounds, expected) in [
        (&[4, 6][..], bounds(&[1, 2], &[1, 4]), true),
        (&[4, 6], bounds(&[1, 1], &[1, 2]), false),
        (&[4, 6], bounds(&[0, 0], &[4, 3]), false),
        (&[5, 3], bounds(&[2, 0], &[2, 3]), true),
        (&[5, 3], bounds(&[4, 0], &[1, 3]), true),
        (&[5, 3], bounds(&[1, 0], &[2, 3]), false),
        (&[5, 3], bounds(&[0, 0], &[2, 2]), false),
        (&[], bounds(&[], &[]), true),
    ] {
        let found = keeps_bytes_whole(shape, &of(Dtype::I4), &bounds);
        assert_eq!(found.is_ok(), expected, "{shape:?} {bounds}");
        assert!(keeps_bytes_whole(shape, &of(Dtype::U8), &bounds).is_ok());
    }
}

/// C31: scalars are one piece, tensors without elements none.
#[test]
fn c31_a_scalar_is_one_piece_and_an_empty_tensor_none() {
    let pieces = |shape: &[u64]| {
        Grid::new(shape, &of(Dtype::Bool), &Chunking::default(), "t").pieces(&Bounds::whole(shape))
    };
    assert_eq!(pieces(&[]), [Bounds::whole(&[])]);
    for shape in [&[0][..], &[0, 3], &[3, 0, 5]] {
        assert!(pieces(shape).is_empty(), "{shape:?}");
    }
}

#[test]
fn a_million_scalars_share_about_a_thousand_chunks() {
    let mut filled = 0;
    let mut chunks = 0;
    for i in 0..1_000_000 {
        filled += 4;
        if closes_shared_chunk(&format!("scalar.{i:07}"), filled) {
            assert!(filled <= limits::SHARED_CHUNK_BYTES);
            filled = 0;
            chunks += 1;
        }
    }
    assert!((977..1500).contains(&chunks), "{chunks}");
}

fn shared_chunks(names: &[String], len: u64) -> Vec<Vec<String>> {
    let mut chunks = vec![Vec::new()];
    let mut filled = 0;
    for name in names {
        filled += len;
        chunks.last_mut().unwrap().push(name.clone());
        if closes_shared_chunk(name, filled) {
            chunks.push(Vec::new());
            filled = 0;
        }
    }
    chunks
}

#[test]
fn one_new_name_dirties_few_shared_chunks() {
    for len in [4, 40, 300, 500] {
        let names: Vec<String> = (0..20_000).map(|i| format!("state.{i:06}.scale")).collect();
        let mut grown = names.clone();
        grown.insert(1000, "state.000999.scale.x".to_owned());
        let before: std::collections::HashSet<Vec<String>> = shared_chunks(&names, len).into_iter().collect();
        let dirty = shared_chunks(&grown, len).iter().filter(|chunk| !before.contains(*chunk)).count();
        assert!((1..=12).contains(&dirty), "{dirty} chunks of pieces of {len} bytes");
    }
}

fn tensors() -> impl Strategy<Value = (Vec<u64>, Dtype, u64)> {
    let dtypes = prop_oneof![Just(Dtype::I4), Just(Dtype::U8), Just(Dtype::F32), Just(Dtype::Complex128)];
    (prop::collection::vec(0u64..9, 0..4), dtypes, 1u64..200)
}

proptest! {
    #[test]
    fn pieces_of_a_whole_tensor_cover_it_once_and_split_no_byte((shape, dtype, limit) in tensors()) {
        let grid = Grid::new(&shape, &of(dtype), &small(limit), "t");
        let pieces = grid.pieces(&Bounds::whole(&shape));
        let mut bits = 0;
        for piece in &pieces {
            piece.check_inside(&shape).unwrap();
            keeps_bytes_whole(&shape, &of(dtype), piece).unwrap();
            bits += piece.elements().unwrap();
        }
        prop_assert_eq!(bits, crate::bounds::elements(&shape).unwrap());
        prop_assert!(pieces.is_sorted());
        if dtype != Dtype::I4 {
            prop_assert!(pieces.iter().all(|piece| piece.elements().unwrap() <= limit));
        }
    }

    #[test]
    fn a_shard_is_cut_where_the_whole_tensor_is((shape, dtype, limit) in tensors(), cut in 0u64..9) {
        let grid = Grid::new(&shape, &of(dtype), &small(limit), "t");
        let Some(rows) = shape.first() else { return Ok(()) };
        let mut upper = Bounds::whole(&shape);
        upper.extent[0] = cut.min(*rows);
        let whole = grid.pieces(&Bounds::whole(&shape));
        for piece in grid.pieces(&upper) {
            prop_assert!(whole.iter().any(|block| block.intersect(&piece).as_ref() == Some(&piece)));
        }
    }
}

#[test]
fn blocks_are_numbered_in_row_major_order_wherever_a_shard_cuts_them() {
    let shape = [5, 7, 4];
    let grid = Grid::new(&shape, &of(Dtype::F32), &small(8), "w");
    assert_eq!(grid.block(), [1, 2, 4]);
    let whole = grid.pieces(&Bounds::whole(&shape));
    let numbers: Vec<u64> = whole.iter().map(|piece| grid.block_number(&shape, &piece.offset)).collect();
    assert!(numbers.iter().copied().eq(0..20), "{numbers:?}");
    assert_eq!(grid.block_number(&shape, &[4, 3, 2]), grid.block_number(&shape, &[4, 2, 0]));
    assert_eq!(grid.block_number(&[], &[]), 0);
}

#[test]
fn c24_blocks_on_either_side_of_32_bits_are_cut_like_all_others() {
    let grid = Grid::new(&[(1 << 40) + 1], &of(Dtype::U8), &Chunking::default(), "t");
    for border in [1u64 << 31, 1 << 32, 1 << 33, 1 << 40] {
        let pieces = grid.pieces(&Bounds { offset: (&[border - 1][..]).into(), extent: (&[2][..]).into() });
        let found: Vec<(u64, u64)> = pieces.iter().map(|piece| (piece.offset[0], piece.extent[0])).collect();
        assert_eq!(found, [(border - 1, 1), (border, 1)]);
        assert_eq!(grid.block_number(&[(1 << 40) + 1], &[border]), border >> 21);
    }
    let rows = Grid::new(&[1 << 33, 3], &of(Dtype::F32), &small(6), "t");
    assert_eq!(rows.block(), [2, 3]);
    assert_eq!(rows.block_number(&[1 << 33, 3], &[(1 << 33) - 1, 0]), (1 << 32) - 1);
}
