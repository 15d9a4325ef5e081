//! How a writer decides: by small samples, remembered per tensor.

use super::MAX_PLANES;
use super::frame::{FrameStyle, FrameWriter};
use super::planes;

/// Chunks of a tensor that follow one sampling.
const CHUNKS_PER_SAMPLE: u8 = 16;
/// Bits per byte above which a plane is stored raw: there is less than 3 % to win and a third of the speed to
/// lose.
const RAW_ENTROPY: f64 = 7.75;
/// Windows and elements per window of the entropy sample.
const ENTROPY_SAMPLE: Sample = Sample { windows: 16, elements: 256 };
/// Windows and elements per window that the two kinds of frame are tried on.
const TRIAL_SAMPLE: Sample = Sample { windows: 4, elements: 4096 };
/// The same for bytes that are no floats: matches reach further there.
const BYTES_SAMPLE: Sample = Sample { windows: 4, elements: 16 * 1024 };
/// Elements looked at to notice that a plane thought random has become constant (a tensor reset to zero).
const GLANCE: usize = 32;

#[derive(Debug, Clone, Copy)]
struct Sample {
    windows: usize,
    elements: usize,
}

/// What to do with one plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// Store it as it is.
    Raw,
    /// Make a frame of it.
    Frame(FrameStyle),
}

/// What to do with a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// Bytes per element; 1 stands for bytes that are no floats.
    width: usize,
    planes: [Treatment; MAX_PLANES],
}

impl Plan {
    pub(super) fn new(width: usize, treatment: impl FnMut(usize) -> Treatment) -> Self {
        debug_assert!(width <= MAX_PLANES);
        Self { width, planes: std::array::from_fn(treatment) }
    }

    /// One treatment per plane.
    pub(super) fn treatments(&self) -> &[Treatment] {
        &self.planes[..self.width]
    }

    pub(super) fn is_raw(&self) -> bool {
        self.treatments().iter().all(|treatment| *treatment == Treatment::Raw)
    }

    /// Whether `raw` still looks as it did when sampled, as far as a glance tells.
    fn still_fits(&self, raw: &[u8]) -> bool {
        let elements = raw.len() / self.width;
        let step = (elements / GLANCE).max(1);
        let constant = |plane: usize| {
            let mut bytes = (0..elements).step_by(step).map(|index| raw[index * self.width + plane]);
            let first = bytes.next();
            bytes.all(|byte| Some(byte) == first)
        };
        !(0..self.width).any(|plane| self.planes[plane] == Treatment::Raw && constant(plane))
    }
}

/// What an encoder remembers of one tensor, so that it need not sample every chunk of it.
#[derive(Debug, Clone, Default)]
pub struct Habit {
    plan: Option<Plan>,
    chunks_left: u8,
}

impl Habit {
    /// The plan for `raw`, elements of `width` bytes: the remembered one, or a fresh one.
    pub(super) fn plan(&mut self, raw: &[u8], width: usize, sampler: &mut Sampler) -> Plan {
        let remembered = self.plan.filter(|plan| self.chunks_left > 0 && plan.width == width);
        if let Some(plan) = remembered.filter(|plan| plan.still_fits(raw)) {
            self.chunks_left -= 1;
            return plan;
        }
        let plan = sampler.plan(raw, width);
        self.plan = Some(plan);
        self.chunks_left = CHUNKS_PER_SAMPLE - 1;
        plan
    }

    /// Notes that the plan did not pay: the next chunks are stored raw without trying.
    pub(super) fn give_up(&mut self) {
        if let Some(plan) = &mut self.plan {
            plan.planes = [Treatment::Raw; MAX_PLANES];
        }
    }
}

/// Takes samples; keeps its memory.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    pub(super) frames: FrameWriter,
    gathered: Vec<u8>,
    lanes: Vec<u8>,
    trial: Vec<u8>,
}

impl Sampler {
    fn plan(&mut self, raw: &[u8], width: usize) -> Plan {
        if width == 1 {
            self.gather(raw, width, BYTES_SAMPLE);
            std::mem::swap(&mut self.gathered, &mut self.lanes);
            let treatment = self.try_frames(0..self.lanes.len());
            return Plan::new(1, |_| treatment);
        }
        let random = self.find_random(raw, width);
        self.gather(raw, width, TRIAL_SAMPLE);
        let per_plane = self.split_gathered(width);
        Plan::new(width, |plane| {
            if plane >= width || random[plane] {
                return Treatment::Raw;
            }
            self.try_frames(plane * per_plane..(plane + 1) * per_plane)
        })
    }

    /// Which planes look random.
    fn find_random(&mut self, raw: &[u8], width: usize) -> [bool; MAX_PLANES] {
        self.gather(raw, width, ENTROPY_SAMPLE);
        let per_plane = self.split_gathered(width);
        let mut random = [false; MAX_PLANES];
        for (plane, random) in self.lanes.chunks_exact(per_plane).zip(&mut random) {
            *random = entropy(plane) > RAW_ENTROPY;
        }
        random
    }

    /// Collects whole elements from evenly spread windows of `raw`, or all of a short one.
    fn gather(&mut self, raw: &[u8], width: usize, sample: Sample) {
        self.gathered.clear();
        let len = sample.elements * width;
        if raw.len() <= len * sample.windows {
            self.gathered.extend_from_slice(raw);
            return;
        }
        let step = (raw.len() - len) / (sample.windows - 1);
        for window in 0..sample.windows {
            let start = window * step / width * width;
            self.gathered.extend_from_slice(&raw[start..start + len]);
        }
    }

    /// Splits what was gathered into `lanes`; the bytes per plane.
    fn split_gathered(&mut self, width: usize) -> usize {
        let per_plane = self.gathered.len() / width;
        self.lanes.resize(self.gathered.len(), 0);
        let mut lanes: Vec<&mut [u8]> = self.lanes.chunks_exact_mut(per_plane).collect();
        planes::split(&self.gathered, &mut lanes);
        per_plane
    }

    /// The better kind of frame for a range of `lanes`, or raw when neither saves 3 %.
    fn try_frames(&mut self, range: std::ops::Range<usize>) -> Treatment {
        let Self { frames, lanes, trial, .. } = self;
        let sample = &lanes[range];
        trial.resize(sample.len(), 0);
        let mut size = |style| frames.write(style, sample, trial).unwrap_or(sample.len());
        let (huffman, matches) = (size(FrameStyle::Huffman), size(FrameStyle::Matches));
        // Matches are looked for at a third of the speed: they have to save 1.5 % of the plane more.
        if huffman.min(matches) > sample.len() * 97 / 100 {
            return Treatment::Raw;
        }
        let matches_pay = matches + sample.len() * 3 / 200 < huffman;
        Treatment::Frame(if matches_pay { FrameStyle::Matches } else { FrameStyle::Huffman })
    }
}

/// Bits per byte of `bytes`, taken one by one.
fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let total = counts.iter().map(|count| f64::from(*count)).sum::<f64>();
    let weight = |count: f64| count / total * (total / count).log2();
    counts.iter().filter(|count| **count > 0).map(|count| weight(f64::from(*count))).sum()
}
