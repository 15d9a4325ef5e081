//! Boxes: an offset and an extent per dimension, in the global coordinates of one tensor.

use std::fmt;

use crate::FormatError;

/// A box of elements. A scalar has no dimensions and one element.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bounds {
    /// First index per dimension.
    pub offset: Vec<u64>,
    /// Length per dimension.
    pub extent: Vec<u64>,
}

impl Bounds {
    /// The whole tensor of `shape`.
    pub fn whole(shape: &[u64]) -> Self {
        Self { offset: vec![0; shape.len()], extent: shape.to_vec() }
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

    /// One past the last index in dimension `d`.
    pub fn end(&self, d: usize) -> u64 {
        self.offset[d] + self.extent[d]
    }

    /// The common part, or `None` when there is none (or either box is empty). Both must have the same rank.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let mut out = Self { offset: Vec::with_capacity(self.rank()), extent: Vec::with_capacity(self.rank()) };
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
