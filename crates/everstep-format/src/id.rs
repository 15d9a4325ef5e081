//! One typed identifier per stored kind. Printed whole, as lower-case hex of the bytes in order.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::FormatError;

fn from_hex<const N: usize>(what: &'static str, text: &str) -> Result<[u8; N], FormatError> {
    let bad = || FormatError::invalid(what, text, format!("expected {} lower-case hex digits", N * 2));
    let digits = text.as_bytes();
    if digits.len() != N * 2 {
        return Err(bad());
    }
    let mut out = [0u8; N];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (nibble(pair[0]).ok_or_else(bad)? << 4) | nibble(pair[1]).ok_or_else(bad)?;
    }
    Ok(out)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $len:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub [u8; $len]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = FormatError;
            fn from_str(text: &str) -> Result<Self, FormatError> {
                from_hex($what, text).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = FormatError;
            fn try_from(text: String) -> Result<Self, FormatError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }
    };
}

identifier!(
    /// A chunk: BLAKE3-256 of its raw bytes.
    ChunkId, 32, "chunk id"
);
identifier!(
    /// A pack: BLAKE3-256 of its header and chunk table.
    PackId, 32, "pack id"
);
identifier!(
    /// BLAKE3-256 of a stored object or of a part of it.
    ContentHash, 32, "content hash"
);
identifier!(
    /// One attempt at saving one checkpoint: 128 random bits. Never reused, so two attempts meeting by chance would need
    /// about 2^64 attempts.
    AttemptId, 16, "attempt id"
);
identifier!(
    /// One opening of a run for writing: 128 random bits.
    SessionId, 16, "session id"
);
identifier!(
    /// One repository: 128 random bits.
    RepositoryId, 16, "repository id"
);

impl ChunkId {
    /// The id of `raw`.
    pub fn of(raw: &[u8]) -> Self {
        Self(*blake3::hash(raw).as_bytes())
    }
}

impl ContentHash {
    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_printed_whole_and_read_back() {
        let id = AttemptId([0x0f, 0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 255]);
        assert_eq!(id.to_string(), "0fa00102030405060708090a0b0c0dff");
        assert_eq!(id.to_string().parse::<AttemptId>().unwrap(), id);
        assert_eq!(format!("{id:?}"), "AttemptId(0fa00102030405060708090a0b0c0dff)");
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<AttemptId>(&json).unwrap(), id);
    }

    #[test]
    fn an_id_has_one_spelling() {
        let good = "00".repeat(32);
        assert!(good.parse::<ChunkId>().is_ok());
        let upper = "AB".repeat(32);
        let wide = "\u{e9}".repeat(32);
        for bad in [
            "",
            &good[1..],
            &good[2..],
            &format!("{good}00"),
            &upper,
            &wide,
            &" 0".repeat(32),
            &"+1".repeat(32),
        ] {
            assert!(matches!(bad.parse::<ChunkId>(), Err(FormatError::Invalid { .. })), "{bad}");
        }
    }

    #[test]
    fn a_chunk_is_named_by_the_blake3_of_its_raw_bytes() {
        let expected = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(ChunkId::of(b"").to_string(), expected);
        assert_eq!(ContentHash::of(b"").to_string(), expected);
    }
}
