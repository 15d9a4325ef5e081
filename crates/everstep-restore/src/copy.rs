//! Moving the common part of two row-major boxes: runs of bytes and the strides between them.

use std::ops::Range;

use everstep_format::bounds::Bounds;

/// One nest level of a copy: so many times, so far apart in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Level {
    count: usize,
    from: usize,
    to: usize,
}

/// A copy of a box out of one row-major box of bytes into another: runs of `run` bytes, nested in levels, innermost
/// first. Neighbouring dimensions that are whole on both sides are one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoxCopy {
    run: usize,
    from: usize,
    to: usize,
    levels: Vec<Level>,
}

/// Why there is no such copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoCopy {
    /// A run starts or ends inside a byte that holds two elements.
    CutsByte,
    /// Some offset is beyond what this machine can address.
    TooLarge,
}

/// Walks dimensions from the innermost outwards, in elements.
struct Walk {
    run: u64,
    from: u64,
    to: u64,
    levels: Vec<(u64, u64, u64)>,
}

impl Walk {
    fn step(&mut self, count: u64, from: u64, to: u64) {
        if count == 1 {
            return;
        }
        match self.levels.last_mut() {
            None if from == self.run && to == self.run => self.run *= count,
            Some((inner, f, t)) if from == *inner * *f && to == *inner * *t => *inner *= count,
            _ => self.levels.push((count, from, to)),
        }
    }

    /// None of the products overflows: each is at most the number of elements of `from` or `to`.
    fn over(common: &Bounds, from: &Bounds, to: &Bounds) -> Self {
        let mut walk = Self { run: 1, from: 0, to: 0, levels: Vec::new() };
        let (mut from_stride, mut to_stride) = (1, 1);
        for d in (0..common.rank()).rev() {
            walk.step(common.extent[d], from_stride, to_stride);
            walk.from += (common.offset[d] - from.offset[d]) * from_stride;
            walk.to += (common.offset[d] - to.offset[d]) * to_stride;
            from_stride *= from.extent[d];
            to_stride *= to.extent[d];
        }
        walk
    }
}

/// Elements to whole bytes.
fn bytes(elements: u64, bits: u64) -> Result<usize, NoCopy> {
    let bits = elements.checked_mul(bits).ok_or(NoCopy::TooLarge)?;
    if bits % 8 != 0 {
        return Err(NoCopy::CutsByte);
    }
    usize::try_from(bits / 8).map_err(|_| NoCopy::TooLarge)
}

impl BoxCopy {
    /// The copy of `common`, which lies in both boxes and is not empty, out of `from` into `to`, elements being `bits`
    /// wide. The number of elements of both boxes must be known not to overflow.
    pub(crate) fn new(common: &Bounds, from: &Bounds, to: &Bounds, bits: u64) -> Result<Self, NoCopy> {
        let walk = Walk::over(common, from, to);
        // The half byte at the end of a box with an odd number of elements may move, for nothing follows it.
        let ends = |start: u64, all: &Bounds| all.elements().is_some_and(|n| start + walk.run == n);
        let last = walk.levels.is_empty() && ends(walk.from, from) && ends(walk.to, to);
        let run = if last { walk.run.next_multiple_of(8 / bits.min(8)) } else { walk.run };
        let level = |&(count, from, to): &(u64, u64, u64)| {
            let count = usize::try_from(count).map_err(|_| NoCopy::TooLarge)?;
            Ok(Level { count, from: bytes(from, bits)?, to: bytes(to, bits)? })
        };
        Ok(Self {
            run: bytes(run, bits)?,
            from: bytes(walk.from, bits)?,
            to: bytes(walk.to, bits)?,
            levels: walk.levels.iter().map(level).collect::<Result<_, _>>()?,
        })
    }

    /// Starts `bytes` later in the source, as when the source box lies inside a chunk.
    pub(crate) fn shift_from(&mut self, bytes: usize) {
        self.from += bytes;
    }

    /// Starts `bytes` earlier in the destination, as when only a part of it is at hand.
    pub(crate) fn rebase_to(&mut self, bytes: usize) {
        self.to -= bytes;
    }

    /// Bytes moved.
    pub(crate) fn len(&self) -> usize {
        self.levels.iter().fold(self.run, |all, level| all * level.count)
    }

    /// The run, if there is only one: where in the source, where in the destination.
    pub(crate) fn single_run(&self) -> Option<(Range<usize>, Range<usize>)> {
        let one = self.levels.is_empty();
        one.then(|| (self.from..self.from + self.run, self.to..self.to + self.run))
    }

    /// From the first source byte touched to the last.
    #[cfg(test)]
    pub(crate) fn source_span(&self) -> Range<usize> {
        let reach: usize = self.levels.iter().map(|level| (level.count - 1) * level.from).sum();
        self.from..self.from + reach + self.run
    }

    /// From the first destination byte touched to the last.
    pub(crate) fn destination_span(&self) -> Range<usize> {
        let reach: usize = self.levels.iter().map(|level| (level.count - 1) * level.to).sum();
        self.to..self.to + reach + self.run
    }

    /// Moves the bytes. Both slices must reach to the end of their spans.
    pub(crate) fn apply(&self, source: &[u8], destination: &mut [u8]) {
        self.nest(self.levels.len(), (self.from, source), (self.to, destination));
    }

    fn nest(&self, depth: usize, (from, source): (usize, &[u8]), (to, destination): (usize, &mut [u8])) {
        let Some(outer) = depth.checked_sub(1) else {
            destination[to..to + self.run].copy_from_slice(&source[from..from + self.run]);
            return;
        };
        let level = self.levels[outer];
        for n in 0..level.count {
            self.nest(outer, (from + n * level.from, source), (to + n * level.to, destination));
        }
    }
}

#[cfg(test)]
mod tests;
