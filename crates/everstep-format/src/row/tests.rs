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
}
