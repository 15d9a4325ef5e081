//! zstd frames: written with one of two parameter sets, read into memory of known size.

use std::fmt;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{self, CParameter, ParamSwitch, Strategy};

use crate::FormatError;

/// First bytes of a standard zstd frame. Skippable frames and other formats that the library reads are not
/// ours.
const FRAME_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// How a frame is made. Both are standard frames; a reader cannot and need not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameStyle {
    /// Entropy coding alone: exponents repeat in value, hardly ever in sequence, and searching for matches
    /// costs three quarters of the time.
    Huffman,
    /// zstd level 1: where there are runs and repeats.
    Matches,
}

/// Makes frames; keeps its zstd contexts.
pub(super) struct FrameWriter {
    huffman: Compressor<'static>,
    matches: Compressor<'static>,
}

impl Default for FrameWriter {
    fn default() -> Self {
        // The smallest tables and the longest step that zstd knows, so that its match finder does next to
        // nothing; and literals compressed all the same, which negative levels otherwise leave out.
        let huffman = [
            CParameter::CompressionLevel(-1),
            CParameter::Strategy(Strategy::ZSTD_fast),
            CParameter::TargetLength(131_072),
            CParameter::HashLog(6),
            CParameter::MinMatch(7),
            CParameter::WindowLog(18),
            CParameter::LiteralCompressionMode(ParamSwitch::Enable),
        ];
        Self { huffman: compressor(&huffman), matches: compressor(&[CParameter::CompressionLevel(1)]) }
    }
}

fn compressor(parameters: &[CParameter]) -> Compressor<'static> {
    let mut compressor = Compressor::default();
    for parameter in parameters {
        compressor.set_parameter(*parameter).expect("constant parameters lie within zstd's bounds");
    }
    compressor
}

impl FrameWriter {
    /// Writes `bytes` as one frame at the start of `into`; its length, or `None` when it does not fit.
    pub(super) fn write(&mut self, style: FrameStyle, bytes: &[u8], into: &mut [u8]) -> Option<usize> {
        let compressor = match style {
            FrameStyle::Huffman => &mut self.huffman,
            FrameStyle::Matches => &mut self.matches,
        };
        compressor.compress_to_buffer(bytes, into).ok()
    }
}

impl fmt::Debug for FrameWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrameWriter")
    }
}

/// Reads frames; keeps its zstd context.
#[derive(Default)]
pub(super) struct FrameReader {
    context: Decompressor<'static>,
}

impl FrameReader {
    /// Reads `frame`, which must be exactly one frame of exactly `out.len()` bytes. Memory is bounded by
    /// `out`, time by both lengths.
    pub(super) fn read(&mut self, frame: &[u8], out: &mut [u8]) -> Result<(), FormatError> {
        check_extent(frame, out.len() as u64)?;
        let written = self
            .context
            .decompress_to_buffer(frame, out)
            .map_err(|error| damaged("a zstd frame that decodes", error.to_string()))?;
        if written == out.len() {
            return Ok(());
        }
        Err(damaged(format!("{} bytes", out.len()), format!("{written} bytes")))
    }
}

impl fmt::Debug for FrameReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrameReader")
    }
}

/// Judges a frame by its headers alone: one standard frame, nothing after it, declaring `content` bytes.
fn check_extent(frame: &[u8], content: u64) -> Result<(), FormatError> {
    if !frame.starts_with(&FRAME_MAGIC) {
        return Err(damaged("the magic of a zstd frame", format!("{:02x?}", &frame[..frame.len().min(4)])));
    }
    let declared = zstd_safe::get_frame_content_size(frame).ok().flatten();
    if declared != Some(content) {
        let found =
            declared.map_or_else(|| "no content size".to_owned(), |size| format!("content size {size}"));
        return Err(damaged(format!("content size {content}"), found));
    }
    match zstd_safe::find_frame_compressed_size(frame) {
        Ok(len) if len == frame.len() => Ok(()),
        Ok(len) => Err(damaged(format!("a frame of {} bytes", frame.len()), format!("one of {len} bytes"))),
        Err(code) => Err(damaged("a whole zstd frame", zstd_safe::get_error_name(code))),
    }
}

fn damaged(expected: impl Into<String>, found: impl Into<String>) -> FormatError {
    FormatError::corrupt("zstd frame", 0, expected, found)
}
