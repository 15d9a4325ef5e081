//! Packs there and back, and packs with every byte or length wrong.

use proptest::prelude::*;

use super::*;

const ATTEMPT: AttemptId = AttemptId([7; 16]);

fn raw_chunk(raw: &[u8]) -> PackChunk {
    PackChunk {
        chunk: ChunkId::of(raw),
        raw_len: raw.len() as u64,
        encoded: Encoded { codec: Codec::Raw, bytes: raw.to_vec() },
    }
}

fn joined(pack: &BuiltPack) -> Vec<u8> {
    pack.segments.concat()
}

fn small_pack() -> (BuiltPack, Vec<u8>) {
    let planes = PackChunk {
        chunk: ChunkId([9; 32]),
        raw_len: 8,
        encoded: Encoded { codec: Codec::Planes, bytes: vec![4, 2, 2, 2, 0, 0, 0, 0, 1, 2] },
    };
    let pack = build(ATTEMPT, Rank(3), vec![raw_chunk(b"hello"), planes, raw_chunk(&[1; 200])]).unwrap();
    let bytes = joined(&pack);
    (pack, bytes)
}

/// The table of `bytes` after `change`, under the id that fits it: what a hostile writer can do.
fn reparsed(change: impl FnOnce(&mut Vec<u8>)) -> Result<PackTable, FormatError> {
    let (_, mut bytes) = small_pack();
    change(&mut bytes);
    let front = bytes.len().min(64 + 3 * 64);
    let id = PackId(*blake3::hash(&bytes[..front]).as_bytes());
    PackTable::parse(&bytes, id)
}

fn set(at: usize, value: &[u8]) -> impl FnOnce(&mut Vec<u8>) {
    move |bytes| bytes[at..at + value.len()].copy_from_slice(value)
}

fn is_corrupt<T: std::fmt::Debug>(result: Result<T, FormatError>) -> bool {
    matches!(result, Err(FormatError::Corrupt { .. }))
}

#[test]
fn a_pack_returns_from_its_own_bytes() {
    let (pack, bytes) = small_pack();
    assert_eq!(bytes.len() as u64, pack.len);
    assert_eq!(table_len(&bytes).unwrap(), 64 + 3 * 64);
    let table = PackTable::parse(&bytes, pack.address.pack).unwrap();
    assert_eq!((table.address, table.len), (pack.address, pack.len));
    table.check_address(&pack.address).unwrap();
    table.check_pack(&bytes).unwrap();
    let located: Vec<_> = table
        .rows
        .iter()
        .map(|row| (row.chunk, row.raw_len, row.location(table.address, table.len)))
        .collect();
    assert_eq!(located, pack.chunks);
    assert_eq!(&bytes[256..261], b"hello");
}

#[test]
fn header_and_first_row_have_the_bytes_of_the_specification() {
    let (_, bytes) = small_pack();
    assert_eq!(bytes[..8], *b"EVSTPACK");
    assert_eq!(bytes[8..24], [1, 0, 64, 0, 64, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(bytes[24..40], [7; 16]);
    assert_eq!(bytes[40..48], 584u64.to_le_bytes());
    assert_eq!(bytes[48..64], [0; 16]);
    assert_eq!(bytes[64..96], ChunkId::of(b"hello").0);
    assert_eq!(bytes[96..100], [0, 0, 0, 0]);
    // CRC-32C of "hello".
    assert_eq!(bytes[100..104], 0x9A71_BB4Cu32.to_le_bytes());
    assert_eq!(bytes[104..112], 5u64.to_le_bytes());
    assert_eq!(bytes[112..120], 5u64.to_le_bytes());
    assert_eq!(bytes[120..128], 256u64.to_le_bytes());
    assert_eq!(bytes[160..164], [2, 4, 0, 0], "codec and element width of the second row");
}

#[test]
fn the_same_chunks_make_the_same_pack_and_other_writers_another() {
    let chunks = || vec![raw_chunk(b"abc"), raw_chunk(&[5; 100_000])];
    let first = build(ATTEMPT, Rank(0), chunks()).unwrap();
    let second = build(ATTEMPT, Rank(0), chunks()).unwrap();
    assert_eq!((first.address, joined(&first)), (second.address, joined(&second)));
    assert_ne!(build(ATTEMPT, Rank(1), chunks()).unwrap().address.pack, first.address.pack);
    assert_ne!(build(AttemptId([8; 16]), Rank(0), chunks()).unwrap().address.pack, first.address.pack);
}

#[test]
fn large_payloads_are_moved_not_copied() {
    let chunks = vec![raw_chunk(b"abc"), raw_chunk(&[5; 100_000]), raw_chunk(b"x"), raw_chunk(&[6; 70_000])];
    let large: Vec<*const u8> = chunks.iter().map(|chunk| chunk.encoded.bytes.as_ptr()).collect();
    let pack = build(ATTEMPT, Rank(0), chunks).unwrap();
    let starts: Vec<*const u8> = pack.segments.iter().map(|segment| segment.as_ptr()).collect();
    assert!(starts.contains(&large[1]) && starts.contains(&large[3]));
    assert_eq!(pack.segments.len(), 4);
}

#[test]
fn what_cannot_be_a_pack_is_not_built() {
    let build = |chunks| build(ATTEMPT, Rank(0), chunks).map(|pack| pack.len);
    assert!(matches!(build(vec![]), Err(FormatError::Invalid { .. })));
    assert!(matches!(build(vec![raw_chunk(b"")]), Err(FormatError::Invalid { .. })));
    let mut lying = raw_chunk(b"abc");
    lying.raw_len = 4;
    assert!(matches!(build(vec![lying.clone()]), Err(FormatError::Invalid { .. })));
    lying.encoded.codec = Codec::Planes;
    assert!(matches!(build(vec![lying]), Err(FormatError::Invalid { .. })));
    let big = raw_chunk(&vec![1; 32 << 20]);
    assert!(matches!(build(vec![big.clone(), big]), Err(FormatError::TooLarge { what: "pack length", .. })));
    assert!(matches!(
        build(vec![raw_chunk(&vec![1; (32 << 20) + 1])]),
        Err(FormatError::TooLarge { what: "raw bytes of a chunk", .. })
    ));
    let many = vec![raw_chunk(b"a"); 131_073];
    assert!(matches!(build(many), Err(FormatError::TooLarge { what: "chunks of a pack", .. })));
}

#[test]
fn any_changed_byte_of_header_or_table_is_noticed() {
    let (pack, bytes) = small_pack();
    for at in 0..256 {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        assert!(PackTable::parse(&damaged, pack.address.pack).is_err(), "byte {at}");
    }
}

#[test]
fn any_changed_byte_behind_the_table_is_noticed() {
    let (pack, bytes) = small_pack();
    let table = PackTable::parse(&bytes, pack.address.pack).unwrap();
    for at in 256..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(is_corrupt(table.check_pack(&damaged)), "byte {at}");
    }
}

#[test]
fn a_pack_cut_anywhere_is_noticed() {
    let (pack, bytes) = small_pack();
    let table = PackTable::parse(&bytes, pack.address.pack).unwrap();
    for len in 0..bytes.len() {
        assert!(is_corrupt(table.check_pack(&bytes[..len])), "{len} bytes");
        assert_eq!(is_corrupt(PackTable::parse(&bytes[..len], pack.address.pack)), len < 256, "{len} bytes");
        assert_eq!(is_corrupt(table_len(&bytes[..len])), len < 64, "{len} bytes");
    }
}

#[test]
fn a_payload_is_checked_by_length_checksum_and_width() {
    let (pack, bytes) = small_pack();
    let mut row = PackTable::parse(&bytes, pack.address.pack).unwrap().rows[1].clone();
    let payload = &bytes[320..330];
    row.check_payload(payload).unwrap();
    assert!(is_corrupt(row.check_payload(&payload[..9])));
    assert!(is_corrupt(row.check_payload(&[0; 10])));
    row.element_width = 8;
    assert!(is_corrupt(row.check_payload(payload)));
}

#[test]
fn a_pack_under_another_key_is_noticed() {
    let (pack, bytes) = small_pack();
    assert!(is_corrupt(PackTable::parse(&bytes, PackId([0; 32]))));
    let table = PackTable::parse(&bytes, pack.address.pack).unwrap();
    for other in [
        PackAddress { rank: Rank(4), ..pack.address },
        PackAddress { attempt: AttemptId([8; 16]), ..pack.address },
    ] {
        assert!(is_corrupt(table.check_address(&other)));
    }
}

#[test]
fn headers_that_lie_are_refused() {
    reparsed(|_| ()).unwrap();
    for at in [0, 10, 12, 14, 48, 63] {
        assert!(is_corrupt(reparsed(set(at, &[1]))), "byte {at}");
    }
    assert!(matches!(reparsed(set(8, &[2])), Err(FormatError::Unsupported { what: "format version", .. })));
    assert!(is_corrupt(reparsed(set(16, &[0; 4]))), "no chunks");
    assert!(is_corrupt(reparsed(set(16, &[2]))), "pack length beyond two rows");
    assert!(matches!(reparsed(set(16, &[0xFF; 4])), Err(FormatError::TooLarge { .. })), "four billion rows");
    assert!(is_corrupt(reparsed(set(40, &583u64.to_le_bytes()))), "short pack length");
    assert!(matches!(reparsed(set(40, &[0xFF; 8])), Err(FormatError::TooLarge { .. })));
}

#[test]
fn rows_that_lie_are_refused() {
    let row = 128;
    for id in [3, 4, 200] {
        assert!(matches!(
            reparsed(set(row + 32, &[id])),
            Err(FormatError::Unsupported { what: "codec", .. })
        ));
    }
    assert!(matches!(
        reparsed(set(row + 34, &[0, 1])),
        Err(FormatError::Unsupported { what: "base of a chunk", .. })
    ));
    for (at, value, why) in [
        (row + 32, 0u64, "raw with another stored length"),
        (row + 40, 0, "no raw bytes"),
        (row + 40, 9, "raw bytes that are no whole elements"),
        (row + 48, 0, "no stored bytes"),
        (row + 48, 65, "stored bytes into the next payload"),
        (row + 56, 256, "the offset of another payload"),
        (row + 56, 321, "an unaligned offset"),
        (row + 56, 448, "a hole"),
        (row + 56, u64::MAX, "an offset beyond everything"),
    ] {
        let bytes = value.to_le_bytes();
        let bytes = if at == row + 32 { &bytes[..2] } else { &bytes[..] };
        assert!(is_corrupt(reparsed(set(at, bytes))), "{why}");
    }
    for width in [0, 1, 3, 16] {
        assert!(is_corrupt(reparsed(set(row + 33, &[width]))), "width {width}");
    }
    for at in [row + 40, row + 48] {
        assert!(matches!(reparsed(set(at, &[0xFF; 8])), Err(FormatError::TooLarge { .. })));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_chunks_return(
        sizes in prop::collection::vec(prop_oneof![1usize..200, 60_000usize..70_000], 1..12)
    ) {
        let raws: Vec<Vec<u8>> = sizes.iter().map(|size| vec![size.to_le_bytes()[0]; *size]).collect();
        let pack = build(ATTEMPT, Rank(u32::MAX), raws.iter().map(|raw| raw_chunk(raw)).collect()).unwrap();
        let bytes = joined(&pack);
        let table = PackTable::parse(&bytes, pack.address.pack).unwrap();
        table.check_pack(&bytes).unwrap();
        for (row, raw) in table.rows.iter().zip(&raws) {
            prop_assert_eq!(row.offset % 64, 0);
            prop_assert!(range(&bytes, row.offset, row.offset + row.stored_len) == raw.as_slice());
        }
    }

    #[test]
    fn hostile_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), count in 0u8..8) {
        if bytes.len() >= 64 {
            let (_, good) = small_pack();
            bytes[..64].copy_from_slice(&good[..64]);
            bytes[16] = count;
        }
        let id = PackId(*blake3::hash(&bytes).as_bytes());
        let _ = (table_len(&bytes), PackTable::parse(&bytes, id));
    }
}
