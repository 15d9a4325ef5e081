//! Files that have no name yet. Linux can make a file without one (`O_TMPFILE`), so that a killed process leaves
//! nothing behind. Where the file system cannot, and for the moment in which one file replaces another, a file stands
//! under a name in one directory of its own, locked by its writer: the next writer removes what nobody locks any more.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, RenameFlags, flock, fstat, linkat, openat, renameat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::failure::Failure;
use super::tree::{FILE_MODE, Tree};

/// Where staged files stand, below the root. No key has a capital letter, so none can be in here.
pub(super) const DIRECTORY: &str = ".Staging";

/// Other processes may remove the directory, or a name before it is locked, this often before we give up.
const TRIES: u32 = 64;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Makes files without a name, or with one that is swept up.
#[derive(Debug)]
pub(super) struct Staging {
    /// Whether the file system has files without a name.
    unnamed: AtomicBool,
    swept: AtomicBool,
}

/// A file being written. Dropped unpublished, it leaves nothing.
pub(super) struct Staged<'a> {
    pub(super) file: Arc<File>,
    tree: &'a Tree,
    name: Option<Name>,
}

/// A name in the staging directory.
struct Name {
    directory: OwnedFd,
    name: String,
}

impl Default for Staging {
    /// A file without a name is linked through /proc.
    fn default() -> Self {
        let unnamed = AtomicBool::new(std::path::Path::new("/proc/self/fd").exists());
        Self { unnamed, swept: AtomicBool::new(false) }
    }
}

impl Staging {
    /// As on a file system that has no files without a name.
    #[cfg(test)]
    pub(super) fn named_only() -> Self {
        Self { unnamed: AtomicBool::new(false), swept: AtomicBool::new(false) }
    }

    /// An empty file below the root of `tree`, which is made if need be.
    pub(super) fn begin<'a>(&self, tree: &'a Tree) -> Result<Staged<'a>, Failure> {
        let root = tree.make_directory("")?;
        if !self.swept.swap(true, Ordering::Relaxed) {
            sweep(tree);
        }
        if self.unnamed.load(Ordering::Relaxed) {
            let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
            match openat(&root, ".", flags, FILE_MODE) {
                Ok(file) => return Ok(Staged { file: Arc::new(file.into()), tree, name: None }),
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => {
                    self.unnamed.store(false, Ordering::Relaxed);
                }
                Err(errno) => return Err(Failure::new(errno, "write a file in", tree.root())),
            }
        }
        named(tree)
    }
}

impl Staged<'_> {
    /// Gives the file its name in `parent` unless there is one of that name.
    pub(super) fn link(&mut self, parent: &OwnedFd, file: &str) -> Result<(), Errno> {
        let Some(name) = &self.name else { return link_unnamed(&self.file, parent, file) };
        match linkat(&name.directory, &name.name, parent, file, AtFlags::empty()) {
            // No hard links here (FAT, some FUSE file systems).
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                renameat_with(&name.directory, &name.name, parent, file, RenameFlags::NOREPLACE)?;
                self.name = None;
                Ok(())
            }
            other => other,
        }
    }

    /// Gives the file its name in `parent`, in place of what may be there.
    pub(super) fn replace(&mut self, parent: &OwnedFd, file: &str) -> Result<(), Errno> {
        if self.name.is_none() {
            match link_unnamed(&self.file, parent, file) {
                Err(Errno::EXIST) => self.name = Some(give_name(self.tree, &self.file)?),
                other => return other,
            }
        }
        if let Some(name) = &self.name {
            renameat(&name.directory, &name.name, parent, file)?;
        }
        self.name = None;
        remove_directory(self.tree);
        Ok(())
    }

    fn remove_name(&mut self) {
        if let Some(name) = self.name.take() {
            // Nothing better can be done about a failure than to leave the name to the next sweep.
            let _ = unlinkat(&name.directory, &name.name, AtFlags::empty());
            remove_directory(self.tree);
        }
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        self.remove_name();
    }
}

fn link_unnamed(file: &File, parent: &OwnedFd, name: &str) -> Result<(), Errno> {
    linkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), parent, name, AtFlags::SYMLINK_FOLLOW)
}

/// A name in the staging directory for a file without one. It is locked before it can be seen.
fn give_name(tree: &Tree, file: &File) -> Result<Name, Errno> {
    let _ = flock(file, FlockOperation::NonBlockingLockExclusive);
    for _ in 0..TRIES {
        let (directory, name) = (staging_directory(tree)?, next_name());
        match link_unnamed(file, &directory, &name) {
            Ok(()) => return Ok(Name { directory, name }),
            Err(Errno::EXIST | Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::AGAIN)
}

/// A new file with a name in the staging directory.
fn named(tree: &Tree) -> Result<Staged<'_>, Failure> {
    let failed = |errno| Failure::new(errno, "write a file in", tree.path(DIRECTORY));
    for _ in 0..TRIES {
        let (directory, name) = (staging_directory(tree).map_err(failed)?, next_name());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file: File = match openat(&directory, &name, flags, FILE_MODE) {
            Ok(file) => file.into(),
            Err(Errno::EXIST | Errno::NOENT) => continue,
            Err(errno) => return Err(failed(errno)),
        };
        if locked_in_time(&file) {
            return Ok(Staged { file: Arc::new(file), tree, name: Some(Name { directory, name }) });
        }
    }
    Err(failed(Errno::AGAIN))
}

/// Between making and locking, a sweep of another process may have taken the file for a dead one's.
fn locked_in_time(file: &File) -> bool {
    let ours = !matches!(flock(file, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
    ours && fstat(file).is_ok_and(|stat| stat.st_nlink > 0)
}

fn staging_directory(tree: &Tree) -> Result<OwnedFd, Errno> {
    tree.make_directory(DIRECTORY).map_err(|failure| failure.errno)
}

fn next_name() -> String {
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Removes what dead writers left. A file that cannot be locked has a living writer, or is on a file system without
/// locks, where it is left alone.
fn sweep(tree: &Tree) {
    let Ok(directory) = tree.directory(DIRECTORY) else { return };
    let Ok(entries) = Dir::read_from(&directory) else { return };
    for entry in entries.flatten() {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = openat(&directory, entry.file_name(), flags, Mode::empty()) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = unlinkat(&directory, entry.file_name(), AtFlags::empty());
        }
    }
    remove_directory(tree);
}

/// Fails while somebody uses it, which is fine.
fn remove_directory(tree: &Tree) {
    if let Ok(root) = tree.directory("") {
        let _ = unlinkat(&root, DIRECTORY, AtFlags::REMOVEDIR);
    }
}
