//! Remembers what is not on disk yet, and what could not be brought there. A flush that failed is never taken for done:
//! the kernel reports a lost write once and then forgets it, so the memory must be ours.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use futures::StreamExt as _;
use rustix::io::Errno;

use super::Disk;
use super::failure::Failure;
use super::tree::{Tree, split};
use crate::{StoreError, StoreErrorKind};

/// Files kept open until they are flushed. A failed write-back is reported for certain only on a descriptor that was
/// open when it failed; beyond so many, a put flushes its file at once.
const OPEN_FILES: usize = 256;
/// Flushes at once.
const PARALLEL: usize = 16;

/// What brings the file or directory at a path to disk.
type FlushOne = dyn Fn(&Path, &File) -> io::Result<()> + Send + Sync;

/// Brings a file or directory to disk; tests put failures here.
#[derive(Clone)]
pub(super) struct Flush(pub(super) Arc<FlushOne>);

impl fmt::Debug for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flush")
    }
}

impl Default for Flush {
    fn default() -> Self {
        Self(Arc::new(|_, file| file.sync_all()))
    }
}

/// The books of one store.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    flush: Flush,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Objects put since the last sync, by name.
    pending: BTreeMap<String, Pending>,
    /// How many of them hold a file open.
    open: usize,
    /// Counts puts, so that a sync does not tick off a newer object of the same name.
    puts: u64,
    /// Files whose flush failed, until they are put again or deleted.
    lost: BTreeMap<String, Failure>,
    /// Directories whose flush failed, for good: which of their entries are on disk is not known.
    lost_directories: BTreeMap<String, Failure>,
    /// Directories known to be entered in the directory above them on disk.
    entered: HashMap<String, Identity>,
}

#[derive(Debug)]
struct Pending {
    number: u64,
    /// `None` once flushed; its directory is still owed.
    file: Option<Arc<Unflushed>>,
}

/// A file that is not on disk yet.
#[derive(Debug)]
struct Unflushed {
    file: Arc<File>,
    /// Held while it is flushed and the result is booked. Of two flushes at once, the kernel would tell one alone that a
    /// write was lost.
    turn: Mutex<()>,
}

/// A pending object as a flush saw it.
struct Owed {
    name: String,
    number: u64,
    file: Option<Arc<Unflushed>>,
}

impl Ledger {
    #[cfg(test)]
    pub(super) fn with_flush(flush: Flush) -> Self {
        Self { flush, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a put may leave its flush to the next sync.
    pub(super) fn has_room(&self) -> bool {
        self.lock().open < OPEN_FILES
    }

    /// A bulk object was put; `file` if it is not flushed yet.
    pub(super) fn wrote(&self, name: &str, file: Option<Arc<File>>) {
        let mut state = self.lock();
        state.forget(name);
        state.puts += 1;
        state.open += usize::from(file.is_some());
        let file = file.map(|file| Arc::new(Unflushed { file, turn: Mutex::default() }));
        let pending = Pending { number: state.puts, file };
        state.pending.insert(name.to_owned(), pending);
    }

    /// The object was deleted, or is on disk by other means.
    pub(super) fn forget(&self, name: &str) {
        self.lock().forget(name);
    }

    /// Flushes a file.
    pub(super) fn flush_file(&self, path: &Path, file: &File) -> Result<(), Failure> {
        self.flush.0(path, file).map_err(|e| Failure::io(&e, "flush", path))
    }

    /// Flushes a directory, and every entry on the way to it that is not known to be on disk.
    pub(super) fn flush_entries(&self, tree: &Tree, directory: &str) -> Result<(), Failure> {
        self.flush_directory(tree, directory)?;
        let mut name = directory;
        loop {
            let identity = identity(tree, name)?;
            if self.lock().entered.get(name) != Some(&identity) {
                self.flush_above(tree, name)?;
                self.lock().entered.insert(name.to_owned(), identity);
            }
            if name.is_empty() {
                return Ok(());
            }
            name = split(name).0;
        }
    }

    fn flush_above(&self, tree: &Tree, name: &str) -> Result<(), Failure> {
        if !name.is_empty() {
            return self.flush_directory(tree, split(name).0);
        }
        // The root may be all that we may look at; then whoever made it has to care for its own entry.
        let Some(above) = tree.root().parent() else { return Ok(()) };
        match File::open(above) {
            Ok(directory) => self.flush_file(above, &directory),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            Err(error) => Err(Failure::io(&error, "open", above)),
        }
    }

    fn flush_directory(&self, tree: &Tree, name: &str) -> Result<(), Failure> {
        if let Some(failure) = self.lock().lost_directories.get(name) {
            return Err(failure.clone());
        }
        let directory = File::from(tree.directory(name)?);
        let path = tree.path(name);
        match self.flush.0(&path, &directory) {
            // Some file systems do not flush directories at all, and say so.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => Ok(()),
            Err(error) => {
                let failure = Failure::io(&error, "flush directory", path);
                self.lock().lost_directories.insert(name.to_owned(), failure.clone());
                Err(failure)
            }
            Ok(()) => Ok(()),
        }
    }

    fn owed(&self) -> Vec<Owed> {
        self.lock().pending.iter().map(|(name, pending)| pending.owed(name)).collect()
    }

    /// Flushes the object `name`, unless that is not owed any more, and books the result.
    pub(super) fn settle(&self, tree: &Tree, name: &str) {
        let owed = self.lock().pending.get(name).map(|pending| pending.owed(name));
        if let Some(owed) = owed {
            self.settle_file(tree, &owed);
        }
    }

    /// Flushes one file and books the result.
    fn settle_file(&self, tree: &Tree, owed: &Owed) {
        let Some(Unflushed { file, turn }) = owed.file.as_deref() else { return };
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.lock().is_unflushed(owed) {
            return;
        }
        let result = self.flush_file(&tree.path(&owed.name), file);
        let mut state = self.lock();
        if !state.is_current(owed) {
            return;
        }
        match result {
            Ok(()) => state.flushed(&owed.name),
            Err(failure) => {
                state.forget(&owed.name);
                state.lost.insert(owed.name.clone(), failure);
            }
        }
    }

    /// Flushes one directory and ticks off the flushed objects of `owed` in it.
    fn settle_directory(&self, tree: &Tree, directory: &str, owed: &[Owed]) -> Result<(), Failure> {
        self.flush_entries(tree, directory)?;
        let mut state = self.lock();
        for object in owed.iter().filter(|object| split(&object.name).0 == directory) {
            if state.is_current(object) {
                state.pending.remove(&object.name);
            }
        }
        Ok(())
    }

    /// The error for what is lost, if anything is.
    fn verdict(&self) -> Result<(), StoreError> {
        let state = self.lock();
        let Some((name, failure)) = state.lost.iter().next() else { return Ok(()) };
        let mut error = failure.clone().into_error("sync", name, 0);
        error.detail.push_str("; what was written is not safe: write it again");
        if state.lost.len() > 1 {
            error.detail.push_str(&format!(" ({} objects in all)", state.lost.len()));
        }
        Err(error)
    }
}

impl Pending {
    fn owed(&self, name: &str) -> Owed {
        Owed { name: name.to_owned(), number: self.number, file: self.file.clone() }
    }
}

impl State {
    fn forget(&mut self, name: &str) {
        self.lost.remove(name);
        let removed = self.pending.remove(name);
        self.open -= usize::from(removed.is_some_and(|pending| pending.file.is_some()));
    }

    fn flushed(&mut self, name: &str) {
        let file = self.pending.get_mut(name).and_then(|pending| pending.file.take());
        self.open -= usize::from(file.is_some());
    }

    fn is_current(&self, owed: &Owed) -> bool {
        self.pending.get(&owed.name).is_some_and(|pending| pending.number == owed.number)
    }

    fn is_unflushed(&self, owed: &Owed) -> bool {
        self.is_current(owed) && self.pending[&owed.name].file.is_some()
    }
}

/// Flushes everything put so far: files first, then the directories that name them. Each result is booked where the
/// flush ran, so a caller that goes away loses none.
pub(super) async fn sync(disk: &Arc<Disk>) -> Result<(), StoreError> {
    let owed = Arc::new(disk.ledger.owed());
    let files = (0..owed.len()).map(|at| {
        let (disk, owed) = (disk.clone(), owed.clone());
        tokio::task::spawn_blocking(move || disk.ledger.settle_file(&disk.tree, &owed[at]))
    });
    all(files).await?;
    disk.ledger.verdict()?;
    let directories: BTreeSet<String> = owed.iter().map(|object| split(&object.name).0.to_owned()).collect();
    let directories = directories.into_iter().map(|directory| {
        let (disk, owed) = (disk.clone(), owed.clone());
        tokio::task::spawn_blocking(move || disk.ledger.settle_directory(&disk.tree, &directory, &owed))
    });
    for settled in all(directories).await? {
        settled.map_err(|failure| failure.into_error("sync", disk.tree.root().display(), 0))?;
    }
    Ok(())
}

async fn all<T>(tasks: impl Iterator<Item = tokio::task::JoinHandle<T>>) -> Result<Vec<T>, StoreError> {
    let mut results = Vec::new();
    let mut running = futures::stream::iter(tasks).buffer_unordered(PARALLEL);
    while let Some(result) = running.next().await {
        match result {
            Ok(result) => results.push(result),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {
                let why = "the runtime is shutting down";
                return Err(StoreError::new(StoreErrorKind::Unreachable, "sync", "the store", why));
            }
        }
    }
    Ok(results)
}

/// Which directory it is. An inode number alone is given out again; with the time of birth it is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    born: Option<SystemTime>,
}

fn identity(tree: &Tree, name: &str) -> Result<Identity, Failure> {
    let directory = File::from(tree.directory(name)?);
    let about = directory.metadata().map_err(|e| Failure::io(&e, "look at", tree.path(name)))?;
    Ok(Identity { device: about.dev(), inode: about.ino(), born: about.created().ok() })
}
