//! Large objects go to disk while the next ones are still being made: otherwise the disk would stand still until a sync, and
//! the processors during it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Disk;

/// Bytes from which on an object is large. Small ones are many, and cheaper to flush together.
const LARGE: u64 = 4 << 20;
/// Flushes at once: the second begins while the first one waits for the disk to say that it is done.
const AT_ONCE: usize = 2;

/// Objects that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Queue(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    names: VecDeque<String>,
    running: usize,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another flush may begin.
    fn push(&self, name: String) -> bool {
        let mut state = self.lock();
        state.names.push_back(name);
        let free = state.running < AT_ONCE;
        state.running += usize::from(free);
        free
    }

    /// The next one; whoever gets none is done.
    fn pop(&self) -> Option<String> {
        let mut state = self.lock();
        let name = state.names.pop_front();
        state.running -= usize::from(name.is_none());
        name
    }
}

/// Begins to flush the object `name` of `len` bytes, which was just put, if it is large. Nobody waits for that: a failure is
/// booked, and the next sync tells it.
pub(super) fn flush(disk: &Arc<Disk>, name: &str, len: u64) {
    if len < LARGE || !disk.early.push(name.to_owned()) {
        return;
    }
    let disk = disk.clone();
    tokio::task::spawn_blocking(move || {
        while let Some(name) = disk.early.pop() {
            disk.ledger.settle(&disk.tree, &name);
        }
    });
}
