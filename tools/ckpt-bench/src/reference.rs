//! What the machine itself can do, measured beside the product.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use rayon::prelude::*;

use crate::clock::timed;

const BLOCK: usize = 8 << 20;

/// Seconds to write `blocks` of bytes to one file and fsync it.
pub(crate) fn write_fsync(path: &Path, tensors: &[Vec<u8>]) -> std::io::Result<f64> {
    let (seconds, written) = timed(|| {
        let mut file = File::create(path)?;
        for tensor in tensors {
            tensor.chunks(BLOCK).try_for_each(|block| file.write_all(block))?;
        }
        file.sync_all()
    });
    written.map(|()| seconds)
}

/// Seconds to read the (cached) file into fresh memory, block after block.
pub(crate) fn read_cache_fresh(path: &Path) -> std::io::Result<f64> {
    let len =
        usize::try_from(std::fs::metadata(path)?.len()).expect("a file that was just written fits memory");
    let (seconds, read) = timed(|| {
        let mut memory = vec![0; len];
        let mut file = File::open(path)?;
        memory.chunks_mut(BLOCK).try_for_each(|block| file.read_exact(block))
    });
    read.map(|()| seconds)
}

/// Seconds to hash all tensors on all cores.
pub(crate) fn blake3(tensors: &[Vec<u8>]) -> f64 {
    let hash = || tensors.par_iter().map(|tensor| blake3::hash(tensor).as_bytes()[0]).max();
    timed(hash).0
}

/// Seconds to copy all tensors into warm memory on one thread.
pub(crate) fn memcpy(tensors: &[Vec<u8>], warm: &mut [u8]) -> f64 {
    let copy = || {
        for tensor in tensors {
            for block in tensor.chunks(warm.len()) {
                warm[..block.len()].copy_from_slice(block);
            }
        }
    };
    timed(copy).0
}
