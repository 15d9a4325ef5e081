use super::*;
use crate::codec::Codec;
use crate::dtype::Dtype;
use crate::id::PackId;
use crate::name::Rank;
use proptest::prelude::*;

fn b(offset: &[u64], extent: &[u64]) -> Bounds {
    Bounds { offset: offset.into(), extent: extent.into() }
}

fn cover(shape: &[u64], boxes: &[Bounds]) -> Result<(), FormatError> {
    boxes_cover("model.w", shape, &boxes.iter().collect::<Vec<_>>())
}

fn message(shape: &[u64], boxes: &[Bounds]) -> String {
    cover(shape, boxes).unwrap_err().to_string()
}

#[test]
fn boxes_that_tile_a_shape_cover_it() {
    cover(&[], &[b(&[], &[])]).unwrap();
    cover(&[5], &[b(&[2], &[3]), b(&[0], &[2])]).unwrap();
    cover(&[4, 4], &[b(&[0, 0], &[4, 1]), b(&[0, 1], &[1, 3]), b(&[1, 1], &[3, 3])]).unwrap();
    let pinwheel = [
        b(&[0, 0], &[1, 2]),
        b(&[0, 2], &[2, 1]),
        b(&[2, 1], &[1, 2]),
        b(&[1, 0], &[2, 1]),
        b(&[1, 1], &[1, 1]),
    ];
    cover(&[3, 3], &pinwheel).unwrap();
}

#[test]
fn a_gap_is_named_by_its_first_element() {
    assert!(message(&[5], &[b(&[0], &[2]), b(&[3], &[2])]).contains("no box has element [2]"));
    let holed = [b(&[0, 0], &[4, 1]), b(&[0, 1], &[1, 3]), b(&[1, 2], &[3, 2])];
    let text = message(&[4, 4], &holed);
    assert!(text.contains("\\\"model.w\\\"") && text.contains("no box has element [1, 1]"), "{text}");
    assert!(message(&[4], &[]).contains("no box has element [0]"));
    assert!(message(&[], &[]).contains("no box has element []"));
}

#[test]
fn overlapping_boxes_are_both_named() {
    let text = message(&[4], &[b(&[0], &[3]), b(&[2], &[2])]);
    assert!(text.contains("offset [0] extent [3] and offset [2] extent [2] overlap at [2]"), "{text}");
    assert!(message(&[4], &[b(&[0], &[4]), b(&[0], &[4])]).contains("overlap at [0]"));
}

#[test]
fn boxes_outside_the_shape_are_refused_without_overflow() {
    assert!(cover(&[4], &[b(&[0], &[5])]).is_err());
    assert!(cover(&[4], &[b(&[u64::MAX], &[2])]).is_err());
    assert!(cover(&[4], &[b(&[0, 0], &[4, 1])]).is_err());
    assert!(cover(&[1 << 62, 4], &[]).unwrap_err().to_string().contains("2^64"));
}

/// C31: tensors without elements have one row, which is the whole.
#[test]
fn c31_a_tensor_without_elements_is_covered_by_one_empty_box() {
    for shape in [&[0][..], &[0, 3], &[3, 0, 5]] {
        cover(shape, &[Bounds::whole(shape)]).unwrap();
        assert!(cover(shape, &[]).is_err());
        assert!(cover(shape, &[Bounds::whole(shape), Bounds::whole(shape)]).is_err());
    }
}

#[test]
fn a_hundred_thousand_boxes_are_checked_without_pairwise_work() {
    let mut boxes = Vec::new();
    for row in 0..400 {
        for column in 0..250 {
            let shift = row % 3;
            let width = if column == 249 { 4 - shift } else { 4 };
            let offset = if column == 0 { 0 } else { column * 4 + shift };
            boxes.push(b(&[row, offset], &[1, if column == 0 { 4 + shift } else { width }]));
        }
    }
    let borrowed: Vec<&Bounds> = boxes.iter().collect();
    boxes_cover("w", &[400, 1000], &borrowed).unwrap();
    assert!(boxes_cover("w", &[400, 1000], &borrowed[..99_999]).is_err());
}

#[test]
fn hostile_irregular_boxes_meet_a_limit_instead_of_hanging() {
    let boxes: Vec<Bounds> =
        (0..64u64).map(|i| b(&[i; 64], &[64 - i / 2; 64].map(|e| e - i / 2 - i % 2))).collect();
    let error = cover(&[1 + 64; 64], &boxes);
    assert!(error.is_err());
    let nested: Vec<Bounds> = (0..40u64).map(|i| b(&[i; 9], &[100 - 2 * i; 9])).collect();
    assert!(cover(&[100; 9], &nested).is_err());
}

fn pieces() -> impl Strategy<Value = (Vec<u64>, Vec<Bounds>)> {
    let shape = prop::collection::vec(1u64..5, 1..4);
    shape.prop_flat_map(|shape| {
        let axes: Vec<_> = shape
            .iter()
            .map(|&n| (0..n).prop_flat_map(move |start| (Just(start), 1..=n - start)).boxed())
            .collect();
        let one = axes.prop_map(|axes| {
            let (offset, extent) = axes.into_iter().unzip();
            Bounds { offset, extent }
        });
        (Just(shape), prop::collection::vec(one, 0..6))
    })
}

fn counts(shape: &[u64], boxes: &[Bounds]) -> Vec<usize> {
    let total = bounds::elements(shape).unwrap();
    (0..total)
        .map(|flat| {
            let mut rest = flat;
            let mut point: Vec<u64> = shape
                .iter()
                .rev()
                .map(|n| {
                    let at = rest % n;
                    rest /= n;
                    at
                })
                .collect();
            point.reverse();
            let inside = |x: &&Bounds| (0..point.len()).all(|d| (x.offset[d]..x.end(d)).contains(&point[d]));
            boxes.iter().filter(inside).count()
        })
        .collect()
}

/// Cuts `boxes[0]`, the whole, again and again.
fn cut(shape: &[u64], cuts: &[(usize, usize, u64)]) -> Vec<Bounds> {
    let mut boxes = vec![Bounds::whole(shape)];
    for (which, d, at) in cuts {
        let (which, d) = (which % boxes.len(), d % shape.len());
        let extent = boxes[which].extent[d];
        if extent < 2 {
            continue;
        }
        let at = 1 + at % (extent - 1);
        let mut upper = boxes[which].clone();
        upper.offset[d] += at;
        upper.extent[d] -= at;
        boxes[which].extent[d] = at;
        boxes.push(upper);
    }
    boxes
}

fn piece(n: u8, raw_len: u64) -> Piece {
    let pack = PackAddress { attempt: AttemptId([1; 16]), rank: Rank(0), pack: PackId([9; 32]) };
    let pack_offset = 64 * (1 + u64::from(n));
    let location = Location { pack, pack_len: 100_000, pack_offset, stored_len: 50, codec: Codec::Raw };
    Piece { chunk: ChunkId([n; 32]), chunk_offset: 0, raw_len, location }
}

fn tensor(name: &str, shape: &[u64], n: u8) -> Row {
    Row {
        name: name.into(),
        kind: Kind::Tensor,
        element: ElementType::Dtype(Dtype::U8),
        shape: shape.into(),
        bounds: Bounds::whole(shape),
        alias_of: None,
        rank: None,
        piece: (!Bounds::whole(shape).is_empty()).then(|| piece(n, 100)),
    }
}

fn object(rank: Option<u32>, n: u8) -> Row {
    Row { kind: Kind::Object, element: ElementType::Value, rank: rank.map(Rank), ..tensor("rng", &[40], n) }
}

fn sound() -> Vec<Row> {
    let half = |start: u64, n| Row { bounds: b(&[start], &[20]), ..tensor("w", &[40], n) };
    let tied = Row { alias_of: Some("b".into()), ..tensor("c", &[10], 1) };
    let ranks = [object(Some(0), 2), object(Some(10), 3)];
    let mut rows = vec![tensor("b", &[10], 1), tied, tensor("empty", &[0, 3], 0)];
    rows.extend(ranks);
    rows.extend([half(0, 4), half(20, 5)]);
    rows
}

fn refused(change: impl FnOnce(&mut Vec<Row>)) -> String {
    let mut rows = sound();
    change(&mut rows);
    rows_are_sound(&rows).expect_err("unsound rows").to_string()
}

#[test]
fn sound_rows_pass() {
    rows_are_sound(&sound()).unwrap();
    rows_are_sound(&[]).unwrap();
}

#[test]
fn every_rule_of_a_row_has_its_refusal() {
    for (rule, text) in [
        ("order", refused(|rows| rows.swap(0, 1))),
        ("once", refused(|rows| rows.insert(0, rows[0].clone()))),
        ("outside", refused(|rows| rows[6].bounds = b(&[21], &[20]))),
        ("gap", refused(|rows| drop(rows.remove(6)))),
        ("kind", refused(|rows| rows[3].kind = Kind::Tensor)),
        ("object shape", refused(|rows| rows[3].shape = vec![4, 10].into())),
        ("no chunk", refused(|rows| rows[0].piece = None)),
        ("chunk of nothing", refused(|rows| rows[2].piece = Some(piece(1, 100)))),
        ("past the chunk", refused(|rows| rows[0].piece.as_mut().unwrap().chunk_offset = 91)),
        ("chunk offset", refused(|rows| rows[0].piece.as_mut().unwrap().chunk_offset = u64::MAX)),
        ("huge chunk", refused(|rows| rows[0].piece.as_mut().unwrap().raw_len = u64::MAX)),
        ("past the pack", refused(|rows| rows[0].piece.as_mut().unwrap().location.pack_len = 100)),
        ("pack offset", refused(|rows| rows[0].piece.as_mut().unwrap().location.pack_offset = u64::MAX - 63)),
        ("alignment", refused(|rows| rows[0].piece.as_mut().unwrap().location.pack_offset = 65)),
        ("huge pack", refused(|rows| rows[0].piece.as_mut().unwrap().location.pack_len = 1 << 40)),
        ("stored nothing", refused(|rows| rows[0].piece.as_mut().unwrap().location.stored_len = 0)),
        ("two places", refused(|rows| rows[1].piece.as_mut().unwrap().location.pack_offset = 640)),
        (
            "empty box",
            refused(|rows| rows.insert(6, Row { bounds: b(&[10], &[0]), piece: None, ..rows[5].clone() })),
        ),
        ("two chunks at a place", refused(|rows| rows[6].piece.as_mut().unwrap().location.pack_offset = 320)),
        ("two pack lengths", refused(|rows| rows[6].piece.as_mut().unwrap().location.pack_len += 64)),
        ("two dtypes", refused(|rows| rows[6].element = ElementType::Dtype(Dtype::Bool))),
        ("two shapes", refused(|rows| rows[6].shape = vec![41].into())),
        ("alias", refused(|rows| rows[1].alias_of = Some("gone".into()))),
        ("own alias", refused(|rows| rows[1].alias_of = Some("c".into()))),
        ("ranks", refused(|rows| rows[3].rank = None)),
        ("dimensions", refused(|rows| rows[0] = tensor("b", &[1; 65], 1))),
        ("name", refused(|rows| rows[6].name = "n".repeat(20_000).into())),
    ] {
        assert!(!text.is_empty() && text.len() < 2500, "{rule}: {text}");
    }
}

/// W4: a row may refer to the own attempt, or exactly to where a confirmed parent has the chunk.
#[test]
fn references_outside_of_the_own_attempt_and_its_confirmed_parents_are_refused() {
    let rows = sound();
    rows_refer_to(&rows, AttemptId([1; 16]), |_| false).unwrap();
    let confirmed: Vec<Piece> = rows.iter().filter_map(|row| row.piece.clone()).collect();
    rows_refer_to(&rows, AttemptId([2; 16]), |piece| confirmed.contains(piece)).unwrap();
    let moved = |piece: &Piece| confirmed[1..].contains(piece);
    let text =
        rows_refer_to(&rows, AttemptId([2; 16]), |p| p.chunk != confirmed[0].chunk && moved(p)).unwrap_err();
    assert!(text.to_string().contains("\\\"b\\\""), "{text}");
}

proptest! {
    #[test]
    fn coverage_agrees_with_counting_every_element((shape, boxes) in pieces()) {
        let sound = counts(&shape, &boxes).iter().all(|&n| n == 1);
        prop_assert_eq!(cover(&shape, &boxes).is_ok(), sound);
    }

    #[test]
    fn any_cutting_covers_and_any_loss_or_copy_does_not(
        shape in prop::collection::vec(1u64..20, 1..5),
        cuts in prop::collection::vec((any::<usize>(), any::<usize>(), any::<u64>()), 0..40),
        victim in any::<usize>(),
    ) {
        let mut boxes = cut(&shape, &cuts);
        prop_assert!(cover(&shape, &boxes).is_ok());
        let victim = victim % boxes.len();
        boxes.push(boxes[victim].clone());
        prop_assert!(message(&shape, &boxes).contains("overlap"));
        boxes.pop();
        boxes.remove(victim);
        prop_assert!(message(&shape, &boxes).contains("no box has element"));
    }
}
