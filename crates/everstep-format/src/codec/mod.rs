//! How a chunk's raw bytes become stored bytes: raw, zstd, planes. Ids 3 (delta) and 4 (derived) are
//! reserved.
//!
//! What a reader must accept is small and fixed (`format-spec/07-codecs.md`); how a writer chooses is its own
//! affair and lives in `plan`.

mod decode;
mod encode;
mod frame;
mod plan;
mod planes;
#[cfg(test)]
mod tests;

pub use decode::Decoder;
pub use encode::Encoder;
pub use plan::Habit;

use crate::FormatError;

/// Id of an encoding, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Codec {
    /// The raw bytes.
    Raw = 0,
    /// One zstd frame.
    Zstd = 1,
    /// Byte planes of rotated floats, each raw, constant or a zstd frame.
    Planes = 2,
}

impl Codec {
    /// From the stored id.
    ///
    /// # Errors
    /// [`FormatError::Unsupported`] for reserved and unknown ids.
    pub fn from_id(id: u8) -> Result<Self, FormatError> {
        match id {
            0 => Ok(Self::Raw),
            1 => Ok(Self::Zstd),
            2 => Ok(Self::Planes),
            _ => Err(FormatError::Unsupported {
                what: "codec",
                found: id.to_string(),
                supported: "0 (raw), 1 (zstd), 2 (planes)".to_owned(),
            }),
        }
    }

    /// The stored id.
    pub fn id(self) -> u8 {
        self as u8
    }
}

/// An encoded chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// How.
    pub codec: Codec,
    /// The stored bytes.
    pub bytes: Vec<u8>,
}

/// Kind of a stored plane: its bytes as they are.
const PLANE_RAW: u8 = 0;
/// Kind of a stored plane: a length and one zstd frame.
const PLANE_FRAME: u8 = 1;
/// Kind of a stored plane: the one byte that all its elements share.
const PLANE_CONSTANT: u8 = 2;

/// Bytes of the length that precedes a plane's frame.
const FRAME_LENGTH_BYTES: usize = 8;
/// The most planes an element has: one per byte of a double.
const MAX_PLANES: usize = 8;

/// Whether planes of this element width exist.
fn is_plane_width(width: usize) -> bool {
    matches!(width, 2 | 4 | 8)
}
