//! Encoding: carries out a plan, and falls back to raw where it does not pay.

use super::plan::{Habit, Plan, Sampler, Treatment};
use super::{
    Codec, Encoded, FRAME_LENGTH_BYTES, PLANE_CONSTANT, PLANE_FRAME, PLANE_RAW, is_plane_width, planes,
};
use crate::dtype::Dtype;

/// Percent of raw that an encoding may take; above it, raw is stored and restoring is faster for it.
const WORTHWHILE_PERCENT: u64 = 98;

/// Encodes chunks. Holds reusable scratch memory (about twice the largest chunk): keep one per thread.
#[derive(Debug, Default)]
pub struct Encoder {
    sampler: Sampler,
    planes: Vec<u8>,
    stored: Vec<u8>,
}

impl Encoder {
    /// Encodes `raw`, the bytes of elements of `dtype` (`None`: bytes of unknown layout), by what pays; never
    /// longer than `raw`.
    pub fn encode(&mut self, raw: &[u8], dtype: Option<Dtype>, habit: &mut Habit) -> Encoded {
        if raw.is_empty() {
            return as_raw(raw);
        }
        // Bytes that are not whole floats (a shared chunk, a cut one) are bytes of unknown layout.
        let width =
            dtype.and_then(Dtype::plane_width).filter(|width| raw.len().is_multiple_of(*width)).unwrap_or(1);
        let plan = habit.plan(raw, width, &mut self.sampler);
        if plan.is_raw() {
            return as_raw(raw);
        }
        match self.carry_out(raw, &plan).filter(|(_, len)| pays(*len, raw.len())) {
            // A copy of just what is stored: fresh memory is taken for no more, and packs in flight hold no
            // more.
            Some((codec, len)) => Encoded { codec, bytes: self.stored[..len].to_vec() },
            None => {
                habit.give_up();
                as_raw(raw)
            }
        }
    }

    /// Encodes to the start of `stored`: how, and how many bytes.
    fn carry_out(&mut self, raw: &[u8], plan: &Plan) -> Option<(Codec, usize)> {
        match plan.treatments() {
            [Treatment::Raw] => None,
            [Treatment::Frame(style)] => {
                let room = at_least(&mut self.stored, raw.len());
                self.sampler.frames.write(*style, raw, room).map(|len| (Codec::Zstd, len))
            }
            treatments => Some((Codec::Planes, self.encode_planes(raw, treatments))),
        }
    }

    /// Stores `raw` as planes, one per treatment, at the start of `stored`; the length, at most `raw.len()`
    /// and the header.
    pub(super) fn encode_planes(&mut self, raw: &[u8], treatments: &[Treatment]) -> usize {
        let (width, per_plane) = (treatments.len(), raw.len() / treatments.len());
        debug_assert!(is_plane_width(width) && !raw.is_empty() && raw.len().is_multiple_of(width));
        let direct = treatments.iter().take_while(|treatment| **treatment == Treatment::Raw).count();
        let scratch = at_least(&mut self.planes, (width - direct) * per_plane);
        let mut out = PlaneWriter::new(at_least(&mut self.stored, 1 + width + raw.len()), width);
        split_apart(raw, width, out.leading(direct, per_plane), scratch);
        for (plane, treatment) in scratch.chunks_exact(per_plane).zip(&treatments[direct..]) {
            out.push(plane, *treatment, &mut self.sampler);
        }
        out.len
    }

    /// What [`Encoder::encode_planes`] stored.
    #[cfg(test)]
    pub(super) fn stored(&self, len: usize) -> &[u8] {
        &self.stored[..len]
    }
}

/// Splits `raw`: the first planes, which stay raw, straight to their place in `leading`, the others to
/// `rest`.
fn split_apart(raw: &[u8], width: usize, leading: &mut [u8], rest: &mut [u8]) {
    let per_plane = raw.len() / width;
    let mut targets: Vec<&mut [u8]> =
        leading.chunks_exact_mut(per_plane).chain(rest.chunks_exact_mut(per_plane)).collect();
    planes::split(raw, &mut targets);
}

/// The first `len` bytes of `scratch`, which grows where needed and is never cleared.
fn at_least(scratch: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if scratch.len() < len {
        scratch.resize(len, 0);
    }
    &mut scratch[..len]
}

/// The stored form of a chunk in planes, while it grows.
struct PlaneWriter<'a> {
    bytes: &'a mut [u8],
    done: usize,
    len: usize,
}

impl<'a> PlaneWriter<'a> {
    fn new(bytes: &'a mut [u8], width: usize) -> Self {
        bytes[0] = width.to_le_bytes()[0];
        bytes[1..=width].fill(PLANE_RAW);
        Self { bytes, done: 0, len: 1 + width }
    }

    /// Room for the first `count` planes, raw ones of `per_plane` bytes.
    fn leading(&mut self, count: usize, per_plane: usize) -> &mut [u8] {
        let start = self.len;
        self.done = count;
        self.len += count * per_plane;
        &mut self.bytes[start..self.len]
    }

    fn push(&mut self, plane: &[u8], treatment: Treatment, sampler: &mut Sampler) {
        // Each plane takes at most its own raw length, so the room never ends.
        let room = &mut self.bytes[self.len..self.len + plane.len()];
        let (kind, len) = write_plane(plane, treatment, sampler, room);
        self.done += 1;
        self.bytes[self.done] = kind;
        self.len += len;
    }
}

/// Writes one plane into `room` (as long as the plane); its kind and stored length.
fn write_plane(plane: &[u8], treatment: Treatment, sampler: &mut Sampler, room: &mut [u8]) -> (u8, usize) {
    if plane.iter().all(|byte| *byte == plane[0]) {
        room[0] = plane[0];
        return (PLANE_CONSTANT, 1);
    }
    if let (Treatment::Frame(style), Some((length, frame))) =
        (treatment, room.split_first_chunk_mut::<FRAME_LENGTH_BYTES>())
        && let Some(len) = sampler.frames.write(style, plane, frame)
    {
        *length = (len as u64).to_le_bytes();
        return (PLANE_FRAME, FRAME_LENGTH_BYTES + len);
    }
    room.copy_from_slice(plane);
    (PLANE_RAW, plane.len())
}

fn as_raw(raw: &[u8]) -> Encoded {
    Encoded { codec: Codec::Raw, bytes: raw.to_vec() }
}

fn pays(stored: usize, raw: usize) -> bool {
    stored as u64 * 100 <= raw as u64 * WORTHWHILE_PERCENT
}
