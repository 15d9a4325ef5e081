//! Which chunks go into which pack.

use std::sync::Arc;

use everstep_format::limits;
use everstep_format::pack::PackChunk;

use crate::known::share;

/// The chunks of one pack.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) chunks: Vec<PackChunk>,
    /// The name of the first tensor in it, for messages.
    pub(crate) first: Option<Arc<str>>,
    size: u64,
}

/// Gathers small chunks, in the order in which they come, into packs of about the target's size.
#[derive(Debug)]
pub(crate) struct Packer {
    target: u64,
    open: Group,
    closed: Vec<Group>,
}

impl Packer {
    /// Packs are closed at `target` encoded bytes, which is cut so that one more small chunk still fits.
    pub(crate) fn new(target: u64) -> Self {
        let target = target.min(limits::PACK_BYTES - 2 * limits::OWN_PACK_BYTES);
        Self { target, open: Group::default(), closed: Vec::new() }
    }

    /// Adds a chunk of the tensor `name`.
    pub(crate) fn add(&mut self, chunk: PackChunk, name: &Arc<str>) {
        if chunk.raw_len >= limits::OWN_PACK_BYTES {
            let size = chunk.encoded.bytes.len() as u64;
            self.closed.push(Group { chunks: vec![chunk], first: Some(name.clone()), size });
            return;
        }
        self.open.size += share(chunk.encoded.bytes.len() as u64);
        self.open.first.get_or_insert_with(|| name.clone());
        self.open.chunks.push(chunk);
        if self.open.size >= self.target || self.open.chunks.len() as u64 == limits::PACK_CHUNKS {
            self.close();
        }
    }

    /// Closes the open pack, if it has chunks.
    pub(crate) fn close(&mut self) {
        let group = std::mem::take(&mut self.open);
        if !group.chunks.is_empty() {
            self.closed.push(group);
        }
    }

    /// Bytes that wait in the open pack.
    pub(crate) fn waiting(&self) -> u64 {
        self.open.size
    }

    /// The packs closed since the last call.
    pub(crate) fn take(&mut self) -> Vec<Group> {
        std::mem::take(&mut self.closed)
    }
}
