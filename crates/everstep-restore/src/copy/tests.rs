use proptest::prelude::*;

use super::*;

fn bounds(offset: &[u64], extent: &[u64]) -> Bounds {
    Bounds { offset: offset.into(), extent: extent.into() }
}

/// Bytes of a box whose elements are their own global positions in `shape`, two bytes each.
fn filled(shape: &[u64], of: &Bounds) -> Vec<u8> {
    positions(shape, of).into_iter().flat_map(|at| u16::try_from(at).unwrap().to_le_bytes()).collect()
}

fn positions(shape: &[u64], of: &Bounds) -> Vec<u64> {
    let mut all = vec![0];
    for (d, &size) in shape.iter().enumerate() {
        let step = |base: u64| (of.offset[d]..of.end(d)).map(move |i| base * size + i);
        all = all.into_iter().flat_map(step).collect();
    }
    all
}

fn any_box(shape: Vec<u64>) -> impl Strategy<Value = Bounds> {
    let dimension = |size: u64| (0..size).prop_flat_map(move |start| (Just(start), 1..=size - start));
    shape.into_iter().map(dimension).collect::<Vec<_>>().prop_map(|pairs| {
        let (offset, extent) = pairs.into_iter().unzip();
        Bounds { offset, extent }
    })
}

fn any_two_boxes() -> impl Strategy<Value = (Vec<u64>, Bounds, Bounds)> {
    prop::collection::vec(1u64..6, 0..5)
        .prop_flat_map(|shape| (Just(shape.clone()), any_box(shape.clone()), any_box(shape)))
}

proptest! {
    #[test]
    fn exactly_the_common_elements_move((shape, from, to) in any_two_boxes()) {
        let Some(common) = from.intersect(&to) else { return Ok(()) };
        let copy = BoxCopy::new(&common, &from, &to, 16).unwrap();
        let source = filled(&shape, &from);
        let mut found = vec![0xEE; filled(&shape, &to).len()];
        copy.apply(&source, &mut found);

        let inside = positions(&shape, &common);
        let expected: Vec<u8> = positions(&shape, &to)
            .into_iter()
            .flat_map(|at| if inside.contains(&at) { u16::try_from(at).unwrap().to_le_bytes() } else { [0xEE; 2] })
            .collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(copy.len(), inside.len() * 2);
        prop_assert!(copy.source_span().end <= source.len());
    }
}

#[test]
fn whole_inner_dimensions_are_one_run() {
    let all = Bounds::whole(&[4, 5, 6]);
    let rows = bounds(&[1, 0, 0], &[2, 5, 6]);
    let copy = BoxCopy::new(&rows, &all, &rows, 32).unwrap();
    assert_eq!(copy.single_run(), Some((120..360, 0..240)));
}

#[test]
fn a_scalar_is_one_run() {
    let scalar = Bounds::whole(&[]);
    let copy = BoxCopy::new(&scalar, &scalar, &scalar, 64).unwrap();
    assert_eq!(copy.single_run(), Some((0..8, 0..8)));
}

#[test]
fn columns_are_runs_with_a_stride() {
    let all = Bounds::whole(&[3, 8]);
    let columns = bounds(&[0, 2], &[3, 2]);
    let copy = BoxCopy::new(&columns, &all, &columns, 8).unwrap();
    assert_eq!(copy.single_run(), None);
    assert_eq!((copy.source_span(), copy.destination_span()), (2..20, 0..6));
}

#[test]
fn c21_a_box_that_cuts_a_packed_pair_is_refused() {
    let all = Bounds::whole(&[2, 8]);
    let odd = bounds(&[0, 1], &[2, 2]);
    assert_eq!(BoxCopy::new(&odd, &all, &odd, 4), Err(NoCopy::CutsByte));
    let short = bounds(&[0, 0], &[1, 3]);
    assert_eq!(BoxCopy::new(&short, &all, &short, 4), Err(NoCopy::CutsByte));
    let half = bounds(&[0, 4], &[2, 4]);
    assert!(BoxCopy::new(&half, &all, &half, 4).is_ok());
}

#[test]
fn c21_the_last_half_byte_of_an_odd_packed_tensor_moves() {
    let all = Bounds::whole(&[5]);
    let tail = bounds(&[2], &[3]);
    let copy = BoxCopy::new(&tail, &all, &tail, 4).unwrap();
    assert_eq!(copy.single_run(), Some((1..3, 0..2)));
}

#[test]
fn offsets_beyond_the_machine_are_refused() {
    let huge = bounds(&[0], &[u64::MAX]);
    assert_eq!(BoxCopy::new(&huge, &huge, &huge, 64), Err(NoCopy::TooLarge));
}

#[test]
fn c24_offsets_beyond_4_gibibytes_are_kept_whole() {
    let wide = bounds(&[0, 0], &[1 << 20, 1 << 14]);
    let rows = bounds(&[(1 << 20) - 1, 0], &[1, 1 << 14]);
    let last = bounds(&[(1 << 20) - 1, (1 << 14) - 4], &[1, 4]);
    let (end, row) = (1usize << 36, 1usize << 16);
    assert_eq!(
        BoxCopy::new(&last, &wide, &rows, 32).unwrap().single_run(),
        Some((end - 16..end, row - 16..row))
    );
    assert_eq!(
        BoxCopy::new(&last, &rows, &wide, 32).unwrap().single_run(),
        Some((row - 16..row, end - 16..end))
    );
    let column = bounds(&[0, 5], &[1 << 20, 1]);
    let copy = BoxCopy::new(&column, &wide, &column, 32).unwrap();
    assert_eq!((copy.len(), copy.source_span().end), (4 << 20, end - row + 24));
}
