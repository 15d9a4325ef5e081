use super::*;
use crate::id::AttemptId;
use proptest::prelude::*;

/// A row with this chunk; every chunk begins with the same bytes when `alike`.
fn row(chunk: Option<u8>, alike: bool) -> Row {
    let pack = PackAddress { attempt: AttemptId([1; 16]), rank: Rank(0), pack: PackId([9; 32]) };
    let location = Location { pack, pack_len: 100_000, pack_offset: 64, stored_len: 50, codec: Codec::Raw };
    let id = |chunk| {
        let mut id = [if alike { 7 } else { chunk }; 32];
        id[31] = chunk;
        ChunkId(id)
    };
    Row {
        name: "w".into(),
        kind: Kind::Tensor,
        element: ElementType::Dtype(Dtype::U8),
        shape: vec![1].into(),
        bounds: Bounds { offset: vec![0].into(), extent: vec![1].into() },
        alias_of: None,
        rank: None,
        piece: chunk.map(|chunk| Piece { chunk: id(chunk), chunk_offset: 0, raw_len: 1, location }),
    }
}

proptest! {
    #[test]
    fn repeated_chunks_are_found_however_alike_their_names_are(
        chunks in prop::collection::vec(prop::option::of(0u8..12), 0..40),
        alike in any::<bool>(),
    ) {
        let rows: Vec<Row> = chunks.iter().map(|chunk| row(*chunk, alike)).collect();
        let mut found = repeated_chunks(&rows);
        found.sort();
        let of = |chunk: u8| (0..chunks.len()).filter(|&n| chunks[n] == Some(chunk)).collect::<Vec<_>>();
        let mut expected: Vec<Vec<usize>> = (0..12).map(of).filter(|same| same.len() > 1).collect();
        expected.sort();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn places_that_hold_two_chunks_are_found_however_alike_they_look(
        pieces in prop::collection::vec(prop::option::of((0u8..4, 0u64..4, 0u8..4)), 0..30),
    ) {
        let at = |(pack, offset, chunk): (u8, u64, u8)| {
            let mut row = row(Some(chunk), true);
            let piece = row.piece.as_mut().expect("a chunk");
            // Pack and offset of one place may add up to those of another.
            piece.location.pack.pack.0 = [0; 32];
            piece.location.pack.pack.0[7] = 64 * (pack % 2);
            piece.location.pack.rank = Rank(u32::from(pack / 2));
            piece.location.pack_offset = 64 * offset;
            row
        };
        let rows: Vec<Row> = pieces.iter().map(|piece| piece.map_or_else(|| row(None, true), at)).collect();
        let place = |n: usize| pieces[n].map(|(pack, offset, _)| (pack, offset));
        let has_two = |n: &usize| pieces.iter().any(|other| {
            other.is_some_and(|(pack, offset, chunk)| {
                place(*n) == Some((pack, offset)) && pieces[*n].is_some_and(|(_, _, own)| own != chunk)
            })
        });
        let expected: std::collections::BTreeSet<_> = (0..pieces.len()).filter(has_two).map(place).collect();
        let found = shared_places(&rows);
        prop_assert_eq!(found.len(), expected.len(), "one pair for each place");
        for (a, b) in found {
            prop_assert!(place(a) == place(b) && pieces[a] != pieces[b] && expected.contains(&place(a)));
        }
    }
}
