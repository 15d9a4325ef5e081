//! The test vectors of `fixtures/vectors`: every one is read back and, where the encoding leaves no freedom,
//! written again byte for byte.
//!
//! `EVERSTEP_WRITE_VECTORS=1 cargo test --workspace --test vectors` writes the files anew. Do that
//! only for a deliberate change of the format, and read the difference: other readers are tested against
//! these files.

#![allow(clippy::unwrap_used, reason = "a test")]

mod bytes;
mod codecs;
mod dtypes;
mod packs;
mod sealed;
mod values;

use std::path::PathBuf;

use everstep_format::FormatError;
use everstep_format::id::{AttemptId, ChunkId, PackId};
use everstep_format::key::{Key, PackAddress};
use everstep_format::name::Rank;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::bytes::Hex;

/// The file of this name as it is, after writing `fresh` to it when asked to.
fn vectors<T: Serialize + DeserializeOwned>(name: &str, fresh: &T) -> T {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/vectors").join(name);
    if std::env::var_os("EVERSTEP_WRITE_VECTORS").is_some() {
        let text = serde_json::to_string_pretty(fresh).unwrap() + "\n";
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Why bytes are refused, as the vectors say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Refusal {
    Corrupt,
    TooLarge,
    Unsupported,
}

fn refusal<T: std::fmt::Debug>(result: Result<T, FormatError>) -> Refusal {
    match result {
        Err(FormatError::Corrupt { .. }) => Refusal::Corrupt,
        Err(FormatError::TooLarge { .. }) => Refusal::TooLarge,
        Err(FormatError::Unsupported { .. }) => Refusal::Unsupported,
        other => panic!("not refused as bytes are: {other:?}"),
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct IdVectors {
    about: String,
    chunks: Vec<ChunkVector>,
    pack_keys: Vec<PackKeyVector>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct ChunkVector {
    name: String,
    raw: Hex,
    id: ChunkId,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct PackKeyVector {
    attempt: AttemptId,
    rank: u32,
    pack: PackId,
    key: String,
}

#[test]
fn ids_and_pack_keys_agree_with_the_vectors() {
    let fresh = IdVectors {
        about: "Chunk id = BLAKE3-256 of the raw bytes. Pack key = packs/<xx>/<attempt>/<rank>-<pack>, xx = first byte \
                of BLAKE3(attempt, rank mod 16 as one byte)."
            .to_owned(),
        chunks: vec![
            chunk_vector("one zero byte", &[0]),
            chunk_vector("abc", b"abc"),
            chunk_vector("f32 +0.0", &[0, 0, 0, 0]),
            chunk_vector("f32 -0.0 is another chunk", &[0, 0, 0, 0x80]),
            chunk_vector("1025 bytes, more than one BLAKE3 block", &[0x5A; 1025]),
        ],
        pack_keys: [0, 1, 15, 16, u32::MAX].map(pack_key_vector).into(),
    };
    assert_eq!(vectors("ids.json", &fresh), fresh);
}

fn chunk_vector(name: &str, raw: &[u8]) -> ChunkVector {
    ChunkVector { name: name.to_owned(), raw: Hex(raw.to_vec()), id: ChunkId::of(raw) }
}

fn pack_key_vector(rank: u32) -> PackKeyVector {
    let attempt = AttemptId(*b"attempt of ranks");
    let pack = PackId([0xC4; 32]);
    let key = Key::pack(&PackAddress { attempt, rank: Rank(rank), pack }).to_string();
    PackKeyVector { attempt, rank, pack, key }
}
