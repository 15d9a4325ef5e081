//! Whole packs, and fronts of packs that lie under the id that fits them.

use everstep_format::codec::{Codec, Encoded};
use everstep_format::id::{AttemptId, ChunkId, PackId};
use everstep_format::name::Rank;
use everstep_format::pack::{self, PackChunk, PackTable};
use serde::{Deserialize, Serialize};

use crate::bytes::Hex;
use crate::{Refusal, refusal, vectors};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct PackVectors {
    about: String,
    packs: Vec<PackVector>,
    refused: Vec<RefusedFront>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct PackVector {
    name: String,
    attempt: AttemptId,
    rank: u32,
    chunks: Vec<ChunkInPack>,
    id: PackId,
    bytes: Hex,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ChunkInPack {
    raw: Hex,
    codec: u8,
    stored: Hex,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct RefusedFront {
    name: String,
    id: PackId,
    front: Hex,
    refusal: Refusal,
}

#[test]
fn packs_agree_with_the_vectors() {
    let fresh = PackVectors {
        about: "Packs with the chunks that make them. Refused: fronts (header and table) under the BLAKE3 that fits, \
                which a reader must not accept all the same."
            .to_owned(),
        packs: cases().into_iter().map(|(name, rank, chunks)| built(name, rank, chunks)).collect(),
        refused: refused(),
    };
    let stored = vectors("packs.json", &fresh);
    assert_eq!(stored, fresh);
    stored.packs.iter().for_each(check);
    for RefusedFront { name, id, front, refusal: expected } in &stored.refused {
        assert_eq!(refusal(PackTable::parse(&front.0, *id)), *expected, "{name}");
    }
}

fn check(vector: &PackVector) {
    let table = PackTable::parse(&vector.bytes.0, vector.id).unwrap();
    table.check_pack(&vector.bytes.0).unwrap();
    assert_eq!(
        (table.address.attempt, table.address.rank),
        (vector.attempt, Rank(vector.rank)),
        "{}",
        vector.name
    );
    for (row, chunk) in table.rows.iter().zip(&vector.chunks) {
        let start = usize::try_from(row.offset).unwrap();
        let stored = &vector.bytes.0[start..start + chunk.stored.0.len()];
        assert_eq!(
            (row.chunk, row.codec.id(), stored),
            (ChunkId::of(&chunk.raw.0), chunk.codec, &chunk.stored.0[..])
        );
        let mut raw = vec![0; chunk.raw.0.len()];
        everstep_format::codec::Decoder::default().decode(row.codec, stored, &mut raw).unwrap();
        assert_eq!(raw, chunk.raw.0, "{}", vector.name);
    }
}

fn cases() -> Vec<(&'static str, u32, Vec<ChunkInPack>)> {
    let hello = chunk(0, b"hello", b"hello");
    let frame = [0x28, 0xB5, 0x2F, 0xFD, 0x20, 5, 0x2B, 0, 0, 0x41];
    let floats = [0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0];
    let planes = [4, 0, 2, 2, 0, 0, 1, 0, 0, 0x7F, 0x80];
    vec![
        ("one chunk of five bytes", 0, vec![hello.clone()]),
        ("a chunk of each codec", 300, vec![hello, chunk(1, &frame, b"AAAAA"), chunk(2, &planes, &floats)]),
        (
            "a payload that ends on the alignment",
            1,
            vec![chunk(0, &[7; 64], &[7; 64]), chunk(0, &[8; 65], &[8; 65])],
        ),
    ]
}

fn chunk(codec: u8, stored: &[u8], raw: &[u8]) -> ChunkInPack {
    ChunkInPack { raw: Hex(raw.to_vec()), codec, stored: Hex(stored.to_vec()) }
}

fn built(name: &str, rank: u32, chunks: Vec<ChunkInPack>) -> PackVector {
    let attempt = AttemptId(*b"attempt of packs");
    let into_pack = |chunk: &ChunkInPack| PackChunk {
        chunk: ChunkId::of(&chunk.raw.0),
        raw_len: chunk.raw.0.len() as u64,
        encoded: Encoded { codec: Codec::from_id(chunk.codec).unwrap(), bytes: chunk.stored.0.clone() },
    };
    let pack = pack::build(attempt, Rank(rank), chunks.iter().map(into_pack).collect()).unwrap();
    let bytes = Hex(pack.segments.concat());
    PackVector { name: name.to_owned(), attempt, rank, chunks, id: pack.address.pack, bytes }
}

fn refused() -> Vec<RefusedFront> {
    let (name, rank, chunks) = cases().remove(1);
    let front = built(name, rank, chunks).bytes.0[..64 + 3 * 64].to_vec();
    let changed = |name: &str, at: usize, value: &[u8], refusal: Refusal| {
        let mut front = front.clone();
        front[at..at + value.len()].copy_from_slice(value);
        let id = PackId(*blake3::hash(&front).as_bytes());
        RefusedFront { name: name.to_owned(), id, front: Hex(front), refusal }
    };
    let row = 128;
    let mut refused = vec![
        changed("another magic", 0, b"f", Refusal::Corrupt),
        changed("another version", 8, &[9], Refusal::Unsupported),
        changed("another header length", 10, &[63], Refusal::Corrupt),
        changed("another row length", 12, &[65], Refusal::Corrupt),
        changed("a reserved byte after the row length", 14, &[1], Refusal::Corrupt),
        changed("a reserved byte at the end of the header", 63, &[1], Refusal::Corrupt),
        changed("no chunks", 16, &[0; 4], Refusal::Corrupt),
        changed("four billion chunks", 16, &[0xFF; 4], Refusal::TooLarge),
        changed("a pack length that is not the end of the last payload", 40, &[0x40], Refusal::Corrupt),
        changed("a pack length beyond the limit", 44, &[1], Refusal::TooLarge),
        changed("a reserved codec", row + 32, &[3], Refusal::Unsupported),
        changed("an element width without elements", row + 33, &[4], Refusal::Corrupt),
        changed("a base", row + 34, &[1], Refusal::Unsupported),
        changed("no raw bytes", row + 40, &[0], Refusal::Corrupt),
        changed("no stored bytes", row + 48, &[0], Refusal::Corrupt),
        changed("raw bytes beyond the limit", row + 44, &[1], Refusal::TooLarge),
        changed("an unaligned offset", row + 56, &[0x41], Refusal::Corrupt),
        changed("an offset that leaves a hole", row + 56, &[0x80], Refusal::Corrupt),
        changed("an offset that overlaps", row + 57, &[0], Refusal::Corrupt),
        changed("planes without an element width", row + 64 + 33, &[0], Refusal::Corrupt),
    ];
    let mut short = changed("a table cut short", 0, b"E", Refusal::Corrupt);
    short.front.0.truncate(200);
    let mut foreign = changed("under another id", 0, b"E", Refusal::Corrupt);
    foreign.id = PackId([0; 32]);
    refused.extend([short, foreign]);
    refused
}
