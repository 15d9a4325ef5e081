//! Cutting a box into slabs that fit memory, so that a tensor of any size can be looked at.

use everstep::{Bounds, Dtype};

/// Bytes of a slab: some eight chunks.
const SLAB_BYTES: u64 = 64 << 20;

/// Boxes that follow each other in row-major order and make up `bounds`; each of about 64 MiB at most.
pub(crate) fn slabs(bounds: &Bounds, dtype: Dtype) -> Vec<Bounds> {
    of_elements(bounds, dtype, SLAB_BYTES * 8 / dtype.bits())
}

fn of_elements(bounds: &Bounds, dtype: Dtype, most: u64) -> Vec<Bounds> {
    if bounds.is_empty() {
        return Vec::new();
    }
    let inner = |d: usize| bounds.extent[d + 1..].iter().fold(1u64, |n, &extent| n.saturating_mul(extent));
    let Some(split) = (0..bounds.rank()).find(|&d| inner(d) <= most) else { return vec![bounds.clone()] };
    // A slab must not end within a byte that two elements share.
    if dtype.bits() < 8 && inner(split) % 2 == 1 {
        return vec![bounds.clone()];
    }
    let step = (most / inner(split)).max(1);
    let mut slabs = vec![Bounds::whole(&[])];
    for d in 0..bounds.rank() {
        let step = if d < split {
            1
        } else if d == split {
            step
        } else {
            bounds.extent[d]
        };
        slabs = slabs.iter().flat_map(|slab| runs(slab, (bounds.offset[d], bounds.end(d)), step)).collect();
    }
    slabs
}

/// `slab` with one more dimension, cut into runs of `step`.
fn runs(slab: &Bounds, (start, end): (u64, u64), step: u64) -> Vec<Bounds> {
    let mut runs = Vec::new();
    let mut at = start;
    while at < end {
        let mut run = slab.clone();
        run.offset.push(at);
        run.extent.push(step.min(end - at));
        runs.push(run);
        at = at.saturating_add(step);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row-major indices of a box of a tensor of `shape`.
    fn indices(bounds: &Bounds, shape: &[u64]) -> Vec<u64> {
        let mut found = vec![0];
        for (d, n) in shape.iter().enumerate() {
            found = found
                .iter()
                .flat_map(|&before| (bounds.offset[d]..bounds.end(d)).map(move |at| before * n + at))
                .collect();
        }
        found
    }

    #[test]
    fn slabs_follow_each_other_and_make_up_the_box() {
        let shape = [5, 4, 6];
        let bounds = Bounds { offset: vec![1, 0, 2].into(), extent: vec![4, 3, 4].into() };
        for most in [1, 2, 4, 5, 8, 12, 13, 24, 48, 1000] {
            let slabs = of_elements(&bounds, Dtype::F32, most);
            let found: Vec<u64> = slabs.iter().flat_map(|slab| indices(slab, &shape)).collect();
            assert_eq!(found, indices(&bounds, &shape), "{most}");
            assert!(slabs.iter().all(|slab| slab.elements() <= Some(most)), "{most}");
        }
    }

    #[test]
    fn scalars_are_one_slab_and_nothing_is_none() {
        assert_eq!(slabs(&Bounds::whole(&[]), Dtype::F32), vec![Bounds::whole(&[])]);
        assert!(slabs(&Bounds::whole(&[3, 0]), Dtype::F32).is_empty());
    }

    #[test]
    fn c24_slabs_of_a_tensor_beyond_4_gibibytes_reach_its_end() {
        for (shape, dtype) in [(vec![(1 << 32) + 1], Dtype::U8), (vec![1 << 20, 1 << 20], Dtype::F32)] {
            let slabs = slabs(&Bounds::whole(&shape), dtype);
            let elements: u64 = slabs.iter().filter_map(Bounds::elements).sum();
            assert_eq!(Some(elements), Bounds::whole(&shape).elements(), "{shape:?}");
            assert!(
                slabs.iter().all(|slab| slab.elements().and_then(|n| dtype.byte_len(n)) <= Some(SLAB_BYTES))
            );
            assert_eq!(slabs.last().map(|slab| slab.end(0)), Some(shape[0]));
        }
    }

    #[test]
    fn pairs_of_packed_elements_stay_together() {
        let odd = Bounds::whole(&[8, 5]);
        assert_eq!(of_elements(&odd, Dtype::I4, 10), vec![odd.clone()]);
        assert_eq!(of_elements(&Bounds::whole(&[8, 4]), Dtype::I4, 8).len(), 4);
    }
}
