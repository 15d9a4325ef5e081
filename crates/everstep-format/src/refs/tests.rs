use super::*;

fn pack(attempt: u8, rank: u32, pack: u8) -> PackAddress {
    PackAddress { attempt: AttemptId([attempt; 16]), rank: Rank(rank), pack: PackId([pack; 32]) }
}

fn some() -> Refs {
    Refs { packs: vec![pack(1, 0, 9), pack(1, 2, 3), pack(1, 256, 0), pack(7, 1, 1)] }
}

#[test]
fn refs_come_back_as_they_were_written() {
    for refs in [some(), Refs { packs: Vec::new() }] {
        let (bytes, reference) = refs.to_bytes().unwrap();
        assert_eq!(Refs::from_bytes(&bytes, &reference).unwrap(), refs);
    }
    assert_eq!(some().owners(), [AttemptId([1; 16]), AttemptId([7; 16])]);
}

#[test]
fn every_prefix_and_every_flipped_bit_is_noticed() {
    let (bytes, reference) = some().to_bytes().unwrap();
    for len in 0..bytes.len() {
        assert!(
            matches!(Refs::from_bytes(&bytes[..len], &reference), Err(FormatError::Corrupt { .. })),
            "{len}"
        );
    }
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 1 << (at % 8);
        assert!(matches!(Refs::from_bytes(&other, &reference), Err(FormatError::Corrupt { .. })), "{at}");
    }
}

/// C25: bytes that somebody made up and hashed.
#[test]
fn c25_made_up_refs_with_a_right_hash_are_refused() {
    let sealed = |bytes: &[u8], packs: u64| {
        let reference = RefsRef { blake3: ContentHash::of(bytes), len: bytes.len() as u64, packs };
        Refs::from_bytes(bytes, &reference)
    };
    let (bytes, reference) = some().to_bytes().unwrap();
    for len in 0..bytes.len() {
        assert!(sealed(&bytes[..len], reference.packs).is_err(), "{len}");
    }
    assert!(sealed(&bytes, u64::MAX).is_err());
    assert!(sealed(&bytes, reference.packs + 1).is_err());
    let mut swapped = bytes.clone();
    swapped[HEADER_BYTES] = 255;
    assert!(sealed(&swapped, reference.packs).unwrap_err().to_string().contains("out of order"));
    let mut newer = bytes.clone();
    newer[8] = 9;
    assert!(matches!(sealed(&newer, reference.packs), Err(FormatError::Unsupported { .. })));
    for at in 0..HEADER_BYTES {
        let mut other = bytes.clone();
        other[at] ^= 0x80;
        assert!(sealed(&other, reference.packs).is_err(), "{at}");
    }
}
