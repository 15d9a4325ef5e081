//! Decoding: bounded by the declared raw length, strict about everything else.

use std::ops::Range;

use super::frame::FrameReader;
use super::{
    Codec, FRAME_LENGTH_BYTES, MAX_PLANES, PLANE_CONSTANT, PLANE_FRAME, PLANE_RAW, is_plane_width, planes,
};
use crate::FormatError;

/// Decodes chunks. Holds reusable scratch memory: keep one per thread.
#[derive(Debug, Default)]
pub struct Decoder {
    frames: FrameReader,
    planes: Vec<u8>,
}

/// Where the bytes of a plane come from.
#[derive(Debug, Clone)]
enum Source {
    Stored(Range<usize>),
    Constant(u8),
    Frame(Range<usize>),
}

impl Decoder {
    /// Decodes `stored` into `out`, whose length is the declared raw length and bounds all work and memory.
    /// After an error, `out` holds nothing of use.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] when `stored` does not decode to exactly `out.len()` bytes.
    pub fn decode(&mut self, codec: Codec, stored: &[u8], out: &mut [u8]) -> Result<(), FormatError> {
        match codec {
            Codec::Raw if stored.len() == out.len() => {
                out.copy_from_slice(stored);
                Ok(())
            }
            Codec::Raw => {
                let (expected, found) = (format!("{} bytes", out.len()), format!("{} bytes", stored.len()));
                Err(FormatError::corrupt("raw chunk", 0, expected, found))
            }
            Codec::Zstd => self.frames.read(stored, out),
            Codec::Planes => self.decode_planes(stored, out),
        }
    }

    fn decode_planes(&mut self, stored: &[u8], out: &mut [u8]) -> Result<(), FormatError> {
        let sources = PlaneReader::new(stored, out.len())?.sources()?;
        let per_plane = out.len() / sources.len();
        let unpacked =
            sources.iter().filter(|source| !matches!(source, Source::Stored(_))).count() * per_plane;
        if self.planes.len() < unpacked {
            self.planes.resize(unpacked, 0);
        }
        let Self { frames, planes: scratch } = self;
        let mut rooms = scratch.chunks_exact_mut(per_plane);
        let mut planes: [&[u8]; MAX_PLANES] = [&[]; MAX_PLANES];
        for (plane, source) in planes.iter_mut().zip(&sources) {
            *plane = match source {
                Source::Stored(range) => &stored[range.clone()],
                Source::Constant(_) | Source::Frame(_) => {
                    let room = rooms.next().expect("there is room for every plane that is not stored raw");
                    fill(frames, source, stored, room)?;
                    room
                }
            };
        }
        planes::join(&planes[..sources.len()], out);
        Ok(())
    }
}

fn fill(
    frames: &mut FrameReader,
    source: &Source,
    stored: &[u8],
    room: &mut [u8],
) -> Result<(), FormatError> {
    match source {
        Source::Stored(range) => room.copy_from_slice(&stored[range.clone()]),
        Source::Constant(byte) => room.fill(*byte),
        Source::Frame(range) => frames.read(&stored[range.clone()], room)?,
    }
    Ok(())
}

/// Walks the stored form of a chunk in planes.
struct PlaneReader<'a> {
    stored: &'a [u8],
    kinds: &'a [u8],
    per_plane: usize,
    at: usize,
}

impl<'a> PlaneReader<'a> {
    fn new(stored: &'a [u8], raw_len: usize) -> Result<Self, FormatError> {
        let width = stored.first().copied().map_or(0, usize::from);
        if !is_plane_width(width) {
            return Err(damaged(0, "an element width of 2, 4 or 8", format!("{:?}", stored.first())));
        }
        if raw_len == 0 || !raw_len.is_multiple_of(width) {
            return Err(damaged(
                0,
                format!("elements that fill {raw_len} bytes"),
                format!("elements of {width} bytes"),
            ));
        }
        let kinds = stored.get(1..=width).ok_or_else(|| {
            damaged(1, format!("{width} plane kinds"), format!("{} bytes in all", stored.len()))
        })?;
        Ok(Self { stored, kinds, per_plane: raw_len / width, at: 1 + width })
    }

    /// One source per plane; together they cover the stored bytes exactly.
    fn sources(mut self) -> Result<Vec<Source>, FormatError> {
        let kinds = self.kinds;
        let sources = kinds.iter().map(|kind| self.source(*kind)).collect::<Result<Vec<_>, _>>()?;
        match self.stored.len() - self.at {
            0 => Ok(sources),
            rest => Err(damaged(self.at, "the end of the chunk", format!("{rest} bytes more"))),
        }
    }

    fn source(&mut self, kind: u8) -> Result<Source, FormatError> {
        match kind {
            PLANE_RAW => Ok(Source::Stored(self.take(self.per_plane as u64)?)),
            PLANE_CONSTANT => {
                let range = self.take(1)?;
                Ok(Source::Constant(self.stored[range.start]))
            }
            PLANE_FRAME => {
                let range = self.take(FRAME_LENGTH_BYTES as u64)?;
                let mut length = [0; FRAME_LENGTH_BYTES];
                length.copy_from_slice(&self.stored[range]);
                Ok(Source::Frame(self.take(u64::from_le_bytes(length))?))
            }
            _ => Err(damaged(
                self.at,
                "plane kinds 0 (raw), 1 (frame) or 2 (constant)",
                format!("kind {kind}"),
            )),
        }
    }

    fn take(&mut self, len: u64) -> Result<Range<usize>, FormatError> {
        let left = self.stored.len() - self.at;
        let len = usize::try_from(len).ok().filter(|len| *len <= left).ok_or_else(|| {
            damaged(
                self.at,
                format!("{len} bytes of a plane"),
                format!("{left} bytes to the end of the chunk"),
            )
        })?;
        let start = self.at;
        self.at += len;
        Ok(start..self.at)
    }
}

fn damaged(at: usize, expected: impl Into<String>, found: impl Into<String>) -> FormatError {
    FormatError::corrupt("chunk in planes", at as u64, expected, found)
}
