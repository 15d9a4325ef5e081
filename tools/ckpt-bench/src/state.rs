//! States to save: values with the exponents of real weights, the same in every run.

use everstep::{Bounds, Dtype, Replicas, Shard, Source, State};

/// A small generator of pseudo-random bits (splitmix64).
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// `elements` fp32 values, bell-shaped around zero like weights, from `seed`.
pub(crate) fn weights(elements: usize, seed: u64) -> Vec<u8> {
    let mut bits = Bits(seed);
    let mut bytes = Vec::with_capacity(elements * 4);
    for _ in 0..elements {
        let word = bits.next();
        // The sum of four uniform numbers is close to normal.
        let [a, b, c, d] =
            [0, 16, 32, 48].map(|shift| f32::from(u16::try_from(word >> shift & 0xffff).unwrap_or(0)));
        let value = (a + b + c + d - 131_070.0) / 65_536.0 * 0.04;
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// A state over `tensors`, each with its name, seen as rows of `width` fp32 values.
pub(crate) fn state<'t>(names: &[String], tensors: &'t [Vec<u8>], width: u64) -> State<'t> {
    let shards = names.iter().zip(tensors).map(|(name, bytes)| {
        let shape = shape(bytes.len() as u64, width);
        let bounds = Bounds::whole(&shape);
        let source = Source::Memory(bytes);
        Shard {
            name: name.clone(),
            dtype: Dtype::F32,
            shape,
            bounds,
            alias_of: None,
            replicas: Replicas::None,
            source,
        }
    });
    State { shards: shards.collect(), objects: Vec::new() }
}

/// The shape of a tensor of so many bytes: rows of `width` values where that divides, else one dimension.
pub(crate) fn shape(bytes: u64, width: u64) -> Vec<u64> {
    let elements = bytes / 4;
    if elements.is_multiple_of(width) { vec![elements / width, width] } else { vec![elements] }
}
