//! `refs`: the sorted list of packs that a checkpoint's index uses, for garbage collection.

use crate::FormatError;
use crate::decision::RefsRef;
use crate::id::AttemptId;
use crate::key::PackAddress;
use crate::row::Row;

/// The packs of one index, sorted, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refs {
    packs: Vec<PackAddress>,
}

impl Refs {
    /// Collects the packs of `rows`.
    pub fn of(rows: &[Row]) -> Self {
        let mut packs: Vec<PackAddress> =
            rows.iter().filter_map(|row| row.piece.as_ref()).map(|piece| piece.location.pack).collect();
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
    /// [`FormatError::TooLarge`].
    pub fn to_bytes(&self) -> Result<(Vec<u8>, RefsRef), FormatError> {
        unimplemented!()
    }

    /// Reads refs, checking them against `reference`.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] for a wrong hash, order or length.
    pub fn from_bytes(bytes: &[u8], reference: &RefsRef) -> Result<Self, FormatError> {
        let _ = (bytes, reference);
        unimplemented!()
    }
}
