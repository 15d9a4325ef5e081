//! `refs`: the sorted list of packs that a checkpoint's index uses, for garbage collection.
//!
//! ```text
//! "EVSTREFS" | version u32 | 0 u32 | count u64 | count x (attempt 16 B, rank u32, pack 32 B)     little-endian
//! ```

use crate::decision::RefsRef;
use crate::id::{AttemptId, ContentHash, PackId};
use crate::key::PackAddress;
use crate::name::Rank;
use crate::row::Row;
use crate::{FormatError, limits, repository};

const MAGIC: &[u8; 8] = b"EVSTREFS";
const HEADER_BYTES: usize = 24;
const ENTRY_BYTES: usize = 52;

/// The packs of one index, sorted, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refs {
    packs: Vec<PackAddress>,
}

impl Refs {
    /// Collects the packs of `rows`.
    pub fn of(rows: &[Row]) -> Self {
        let pieces = rows.iter().filter_map(|row| row.piece.as_ref());
        let mut packs: Vec<PackAddress> = pieces.map(|piece| piece.location.pack).collect();
        packs.dedup();
        packs.sort_unstable();
        packs.dedup();
        Self { packs }
    }

    /// The packs.
    pub fn packs(&self) -> &[PackAddress] {
        &self.packs
    }

    /// The attempts that own them, sorted, each once.
    pub fn owners(&self) -> Vec<AttemptId> {
        let mut owners: Vec<AttemptId> = self.packs.iter().map(|pack| pack.attempt).collect();
        owners.dedup();
        owners
    }

    /// The stored bytes and what the manifest says of them.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`] beyond [`limits::REFS_ENTRIES`].
    pub fn to_bytes(&self) -> Result<(Vec<u8>, RefsRef), FormatError> {
        let packs = self.packs.len() as u64;
        FormatError::within("refs", packs, limits::REFS_ENTRIES)?;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + ENTRY_BYTES * self.packs.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&repository::FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&0u32.to_le_bytes());
        bytes.extend_from_slice(&packs.to_le_bytes());
        for PackAddress { attempt, rank, pack } in &self.packs {
            bytes.extend_from_slice(&attempt.0);
            bytes.extend_from_slice(&rank.0.to_le_bytes());
            bytes.extend_from_slice(&pack.0);
        }
        let reference = RefsRef { blake3: ContentHash::of(&bytes), len: bytes.len() as u64, packs };
        Ok((bytes, reference))
    }

    /// Reads refs, checking them against `reference`.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for a wrong hash, order or length; [`FormatError::Unsupported`], [`FormatError::TooLarge`].
    pub fn from_bytes(bytes: &[u8], reference: &RefsRef) -> Result<Self, FormatError> {
        FormatError::within("refs", reference.packs, limits::REFS_ENTRIES)?;
        let actual = ContentHash::of(bytes);
        if bytes.len() as u64 != reference.len || actual != reference.blake3 {
            let expected = format!("{} bytes with BLAKE3 {}", reference.len, reference.blake3);
            return Err(bad(0, expected, format!("{} bytes with BLAKE3 {actual}", bytes.len())));
        }
        let (header, body) =
            bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(|| bad(0, "a header", "fewer bytes"))?;
        check_header(header, reference.packs)?;
        if body.len() as u64 != reference.packs.saturating_mul(ENTRY_BYTES as u64) {
            let expected = format!("{} entries of {ENTRY_BYTES} bytes", reference.packs);
            return Err(bad(HEADER_BYTES as u64, expected, format!("{} bytes", body.len())));
        }
        let packs: Vec<PackAddress> = body.as_chunks::<ENTRY_BYTES>().0.iter().map(entry).collect();
        match packs.windows(2).position(|pair| pair[0] >= pair[1]) {
            None => Ok(Self { packs }),
            Some(i) => Err(bad(
                (HEADER_BYTES + ENTRY_BYTES * (i + 1)) as u64,
                "entries in order",
                "one out of order",
            )),
        }
    }
}

fn check_header(header: &[u8; HEADER_BYTES], packs: u64) -> Result<(), FormatError> {
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if &header[..8] != MAGIC {
        return Err(bad(0, "EVSTREFS", "another magic"));
    }
    repository::check_version(number(8).into())?;
    let count = u64::from(number(16)) | u64::from(number(20)) << 32;
    if number(12) != 0 || count != packs {
        return Err(bad(12, format!("0 and a count of {packs}"), format!("{} and {count}", number(12))));
    }
    Ok(())
}

fn entry(bytes: &[u8; ENTRY_BYTES]) -> PackAddress {
    let mut attempt = [0; 16];
    let mut rank = [0; 4];
    let mut pack = [0; 32];
    attempt.copy_from_slice(&bytes[..16]);
    rank.copy_from_slice(&bytes[16..20]);
    pack.copy_from_slice(&bytes[20..]);
    PackAddress { attempt: AttemptId(attempt), rank: Rank(u32::from_le_bytes(rank)), pack: PackId(pack) }
}

fn bad(offset: u64, expected: impl Into<String>, found: impl Into<String>) -> FormatError {
    FormatError::corrupt("refs", offset, expected, found)
}

#[cfg(test)]
mod tests;
