//! The oracle: boxes taken element by element, without any of the product's geometry.

use everstep_format::bounds::Bounds;

/// The flat positions, in a tensor of `shape`, of the elements of `bounds` in row-major order.
pub(crate) fn positions(shape: &[u64], bounds: &Bounds) -> Vec<usize> {
    let mut all = vec![0u64];
    for (d, &size) in shape.iter().enumerate() {
        let range = bounds.offset[d]..bounds.offset[d] + bounds.extent[d];
        all = all.into_iter().flat_map(|base| range.clone().map(move |i| base * size + i)).collect();
    }
    all.into_iter().map(|at| usize::try_from(at).unwrap()).collect()
}

/// The packed bytes of the elements of `tensor`, each `bits` wide, at `positions`. Of two 4-bit elements in a byte the
/// first is in the low half; a half byte that is left over stays 0.
pub(crate) fn gather(tensor: &[u8], bits: u64, positions: &[usize]) -> Vec<u8> {
    if bits == 4 {
        let nibble = |at: usize| (tensor[at / 2] >> (4 * (at % 2))) & 0xF;
        let pair = |pair: &[usize]| nibble(pair[0]) | (pair.get(1).map_or(0, |&at| nibble(at)) << 4);
        return positions.chunks(2).map(pair).collect();
    }
    let width = usize::try_from(bits / 8).unwrap();
    positions.iter().flat_map(|at| &tensor[at * width..(at + 1) * width]).copied().collect()
}
