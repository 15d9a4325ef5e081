//! How a chunk's raw bytes become stored bytes: raw, zstd, planes. Ids 3 (delta) and 4 (derived) are reserved.

use crate::FormatError;
use crate::dtype::Dtype;

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

/// Encodes chunks. Holds reusable scratch memory: keep one per thread.
#[derive(Debug, Default)]
pub struct Encoder {}

/// What an encoder remembers of one tensor, so that it need not sample every chunk of it.
#[derive(Debug, Clone, Default)]
pub struct Habit {}

impl Encoder {
    /// Encodes `raw`, the bytes of elements of `dtype` (`None`: bytes of unknown layout), by what pays; never longer
    /// than raw plus the planes header.
    pub fn encode(&mut self, raw: &[u8], dtype: Option<Dtype>, habit: &mut Habit) -> Encoded {
        let _ = (dtype, habit);
        Encoded { codec: Codec::Raw, bytes: raw.to_vec() }
    }
}

/// Decodes chunks. Holds reusable scratch memory: keep one per thread.
#[derive(Debug, Default)]
pub struct Decoder {}

impl Decoder {
    /// Decodes `stored` into `out`, whose length is the declared raw length and bounds all work and memory.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] when `stored` does not decode to exactly `out.len()` bytes.
    pub fn decode(&mut self, codec: Codec, stored: &[u8], out: &mut [u8]) -> Result<(), FormatError> {
        let _ = codec;
        out.copy_from_slice(stored);
        Ok(())
    }
}
