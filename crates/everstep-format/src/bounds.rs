//! Boxes: an offset and an extent per dimension, in the global coordinates of one tensor.

use std::fmt;

use smallvec::SmallVec;

use crate::FormatError;

/// One number per dimension. Those of a vector or matrix lie in the value itself: an index of a very large job has
/// millions of boxes, and nothing is as slow as memory that is far.
pub type Dims = SmallVec<[u64; 2]>;

/// A box of elements. A scalar has no dimensions and one element.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bounds {
    /// First index per dimension.
    pub offset: Dims,
    /// Length per dimension.
    pub extent: Dims,
}

impl Bounds {
    /// The whole tensor of `shape`.
    pub fn whole(shape: &[u64]) -> Self {
        Self { offset: Dims::from_elem(0, shape.len()), extent: shape.into() }
    }

    /// Dimensions.
    pub fn rank(&self) -> usize {
        self.extent.len()
    }

    /// Elements, or `None` on overflow.
    pub fn elements(&self) -> Option<u64> {
        elements(&self.extent)
    }

    /// Whether some extent is 0.
    pub fn is_empty(&self) -> bool {
        self.extent.contains(&0)
    }

    /// One past the last index in dimension `d`; the largest number if that overflows, as only boxes outside of every
    /// shape do.
    pub fn end(&self, d: usize) -> u64 {
        self.offset[d].saturating_add(self.extent[d])
    }

    /// The common part, or `None` when there is none (or either box is empty). Both must have the same rank.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let mut out =
            Self { offset: Dims::with_capacity(self.rank()), extent: Dims::with_capacity(self.rank()) };
        for d in 0..self.rank() {
            let start = self.offset[d].max(other.offset[d]);
            let end = self.end(d).min(other.end(d));
            if start >= end {
                return None;
            }
            out.offset.push(start);
            out.extent.push(end - start);
        }
        Some(out)
    }

    /// `Ok` when the box lies inside `shape` and nothing overflows.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] with both.
    pub fn check_inside(&self, shape: &[u64]) -> Result<(), FormatError> {
        let inside = self.offset.len() == shape.len()
            && self.extent.len() == shape.len()
            && (0..shape.len())
                .all(|d| self.offset[d].checked_add(self.extent[d]).is_some_and(|end| end <= shape[d]));
        if inside {
            return Ok(());
        }
        Err(FormatError::invalid("box", self.to_string(), format!("it must lie inside the shape {shape:?}")))
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {:?} extent {:?}", self.offset, self.extent)
    }
}

/// The product of `extent`, or `None` on overflow. Any zero makes it 0, whatever the others are.
pub fn elements(extent: &[u64]) -> Option<u64> {
    if extent.contains(&0) {
        return Some(0);
    }
    extent.iter().try_fold(1u64, |product, &n| product.checked_mul(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn b(offset: &[u64], extent: &[u64]) -> Bounds {
        Bounds { offset: offset.into(), extent: extent.into() }
    }

    /// C31: a scalar has one element, and any zero makes a shape empty, whatever the others are.
    #[test]
    fn c31_elements_of_scalars_and_of_empty_and_huge_shapes() {
        assert_eq!(elements(&[]), Some(1));
        assert_eq!(elements(&[3, 0, 5]), Some(0));
        assert_eq!(elements(&[1 << 62, 4]), None);
        assert_eq!(elements(&[u64::MAX, 0, u64::MAX]), Some(0));
        assert!(Bounds::whole(&[0, 3]).is_empty() && !Bounds::whole(&[]).is_empty());
    }

    #[test]
    fn boxes_meet_in_their_common_part() {
        assert_eq!(b(&[0, 2], &[4, 4]).intersect(&b(&[2, 0], &[4, 3])), Some(b(&[2, 2], &[2, 1])));
        assert_eq!(b(&[0], &[2]).intersect(&b(&[2], &[2])), None);
        assert_eq!(b(&[0], &[0]).intersect(&b(&[0], &[2])), None);
        assert_eq!(b(&[], &[]).intersect(&b(&[], &[])), Some(b(&[], &[])), "scalars meet");
    }

    #[test]
    fn c24_boxes_beyond_32_bits_are_boxes_like_any_other() {
        let large = [(1 << 32) + 1, 1 << 30];
        assert_eq!(elements(&large), Some((1 << 62) + (1 << 30)));
        let last = b(&[1 << 32, (1 << 30) - 1], &[1, 1]);
        assert!(last.check_inside(&large).is_ok());
        assert_eq!(last.intersect(&Bounds::whole(&large)), Some(last.clone()));
        assert_eq!(last.intersect(&b(&[0, 0], &[1 << 32, 1 << 30])), None, "no offset wraps");
        assert!(b(&[1 << 32, 1 << 30], &[1, 1]).check_inside(&large).is_err());
    }

    #[test]
    fn boxes_outside_a_shape_are_refused_whatever_their_numbers() {
        assert!(b(&[1, 0], &[2, 3]).check_inside(&[3, 3]).is_ok());
        for bad in [b(&[2, 0], &[2, 3]), b(&[u64::MAX, 0], &[1, 1]), b(&[0], &[1]), b(&[0, 0], &[1])] {
            assert!(matches!(bad.check_inside(&[3, 3]), Err(FormatError::Invalid { .. })), "{bad}");
        }
    }
}
