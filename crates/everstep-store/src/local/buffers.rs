//! Buffers of large reads, used again as long as reads go on: touching fresh memory takes longer than reading into it. They
//! are mapped, not allocated: an allocator would keep much of what is given back.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use memmap2::MmapMut;

/// Smaller buffers are cheaper to allocate than to keep.
const KEPT_BYTES: usize = 256 << 10;

/// The buffers of a store. None is kept once none is in use, so that a restore leaves no memory behind.
#[derive(Debug, Clone, Default)]
pub(super) struct Buffers(Arc<Mutex<Pool>>);

#[derive(Debug, Default)]
struct Pool {
    idle: Vec<MmapMut>,
    lent: usize,
}

/// A buffer in use; `len` bytes of it.
#[derive(Debug)]
pub(super) struct Lent {
    memory: Memory,
    len: usize,
}

#[derive(Debug)]
enum Memory {
    Own(Vec<u8>),
    /// `Some` until it goes back.
    Kept(Option<MmapMut>, Buffers),
}

impl Buffers {
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of `len` bytes, whatever they are.
    pub(super) fn take(&self, len: usize) -> io::Result<Lent> {
        if len < KEPT_BYTES {
            return Ok(Lent::new(len));
        }
        let kept = self.idle(len).filter(|kept| kept.len() >= len);
        let buffer = kept.map_or_else(|| mapped(len), Ok)?;
        self.pool().lent += 1;
        Ok(Lent { memory: Memory::Kept(Some(buffer), self.clone()), len })
    }

    /// The smallest one that is large enough. If none is, another one makes way, so that there are never more than were in
    /// use at a time.
    fn idle(&self, len: usize) -> Option<MmapMut> {
        let mut pool = self.pool();
        let fits = pool.idle.iter().enumerate().filter(|(_, idle)| idle.len() >= len);
        let best = fits.min_by_key(|(_, idle)| idle.len()).map(|(at, _)| at);
        best.or_else(|| pool.idle.len().checked_sub(1)).map(|at| pool.idle.swap_remove(at))
    }
}

fn mapped(len: usize) -> io::Result<MmapMut> {
    let memory = MmapMut::map_anon(len)?;
    // Where there are no huge pages, small ones do.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    Ok(memory)
}

impl Lent {
    /// One that nobody wants back.
    pub(super) fn new(len: usize) -> Self {
        Self { memory: Memory::Own(vec![0; len]), len }
    }

    /// What is to be filled.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let memory = match &mut self.memory {
            Memory::Own(buffer) => buffer.as_mut_slice(),
            Memory::Kept(buffer, _) => buffer.as_deref_mut().unwrap_or_default(),
        };
        &mut memory[..self.len]
    }

    /// The first `len` bytes.
    pub(super) fn into_bytes(mut self, len: usize) -> Bytes {
        self.len = len.min(self.len);
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        let memory = match &self.memory {
            Memory::Own(buffer) => buffer.as_slice(),
            Memory::Kept(buffer, _) => buffer.as_deref().unwrap_or_default(),
        };
        &memory[..self.len]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Memory::Kept(buffer, home) = &mut self.memory else { return };
        let mut pool = home.pool();
        pool.lent -= 1;
        if pool.lent == 0 {
            pool.idle = Vec::new();
        } else {
            pool.idle.extend(buffer.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(buffers: &Buffers, len: usize) -> Lent {
        buffers.take(len).expect("there is memory")
    }

    fn address(lent: &Lent) -> usize {
        lent.as_ref().as_ptr().addr()
    }

    #[test]
    fn a_buffer_is_used_again_while_others_are_in_use_and_for_no_longer() {
        let buffers = Buffers::default();
        let (first, second) = (take(&buffers, 2 * KEPT_BYTES), take(&buffers, 2 * KEPT_BYTES));
        let place = address(&first);
        drop(first.into_bytes(5));
        let again = take(&buffers, KEPT_BYTES);
        assert_eq!((address(&again), again.as_ref().len()), (place, KEPT_BYTES));
        drop((second, again));
        assert!(buffers.pool().idle.is_empty(), "nothing is in use");
    }

    #[test]
    fn there_are_never_more_buffers_than_were_in_use_at_a_time() {
        let buffers = Buffers::default();
        let stays = take(&buffers, KEPT_BYTES);
        for more in 1..20 {
            drop(take(&buffers, KEPT_BYTES + more));
        }
        assert_eq!(buffers.pool().idle.len(), 1);
        drop(stays);
    }

    #[test]
    fn bytes_hold_their_buffer() {
        let buffers = Buffers::default();
        let mut lent = take(&buffers, KEPT_BYTES);
        lent.bytes_mut()[..3].copy_from_slice(b"abc");
        let bytes = lent.into_bytes(3);
        let mut other = take(&buffers, KEPT_BYTES);
        other.bytes_mut().fill(b'z');
        assert_eq!(&bytes[..], b"abc");
    }
}
