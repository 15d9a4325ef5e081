//! The directory tree below the root. Every name is resolved from the root without following a symbolic link, so
//! nothing outside the root is ever opened through a key.

use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;

use super::failure::Failure;

/// Files get these permissions, less the umask.
pub(super) const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o777);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The root and the way below it. Names are relative to it, segments joined by `/`; empty means the root itself.
#[derive(Debug)]
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Where `name` is, for messages.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.root.clone() } else { self.root.join(name) }
    }

    /// Opens `name` with `flags`.
    pub(super) fn open(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Failure> {
        let root = self.open_root()?;
        open_beneath(&root, name, flags | OFlags::CLOEXEC)
            .map_err(|e| Failure::new(e, "open", self.path(name)))
    }

    /// Opens the directory `name`.
    pub(super) fn directory(&self, name: &str) -> Result<OwnedFd, Failure> {
        if name.is_empty() { self.open_root() } else { self.open(name, DIRECTORY) }
    }

    /// Opens the directory `name`; makes it and what leads to it when it is not there.
    pub(super) fn make_directory(&self, name: &str) -> Result<OwnedFd, Failure> {
        match self.directory(name) {
            Err(failure) if failure.errno == Errno::NOENT => {}
            other => return other,
        }
        self.make_root()?;
        let mut at = self.open_root()?;
        for segment in name.split('/').filter(|segment| !segment.is_empty()) {
            at = make_child(&at, segment).map_err(|e| Failure::new(e, "make directory", self.path(name)))?;
        }
        Ok(at)
    }

    fn open_root(&self) -> Result<OwnedFd, Failure> {
        openat(CWD, &self.root, DIRECTORY, Mode::empty()).map_err(|e| Failure::new(e, "open", &self.root))
    }

    /// Makes the root and what leads to it; every new entry is on disk when this returns.
    fn make_root(&self) -> Result<(), Failure> {
        if self.root.is_dir() {
            return Ok(());
        }
        let missing: Vec<&Path> = self.root.ancestors().take_while(|path| !path.exists()).collect();
        std::fs::create_dir_all(&self.root).map_err(|e| Failure::io(&e, "make directory", &self.root))?;
        for parent in missing.iter().filter_map(|path| path.parent()) {
            let synced = std::fs::File::open(parent).and_then(|directory| directory.sync_all());
            synced.map_err(|e| Failure::io(&e, "flush directory", parent))?;
        }
        Ok(())
    }
}

/// The directory part and the file part of a name.
pub(super) fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

/// `root` made absolute; links on the way to it (not below it) are the user's business and are resolved once.
pub(super) fn absolute(root: &Path) -> Result<PathBuf, Failure> {
    match std::fs::canonicalize(root) {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(path) => Err(Failure::new(Errno::NOTDIR, "open directory", path)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::path::absolute(root).map_err(|e| Failure::io(&e, "find", root))
        }
        Err(error) => Err(Failure::io(&error, "open", root)),
    }
}

fn make_child(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    match mkdirat(parent, name, DIRECTORY_MODE) {
        Ok(()) | Err(Errno::EXIST) => openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()),
        Err(errno) => Err(errno),
    }
}

/// One system call where the kernel has it (Linux 5.6); else, or where a sandbox forbids it, segment by segment.
fn open_beneath(root: &OwnedFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(root, name, flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS | Errno::PERM) => open_by_segments(root, name, flags),
        other => other,
    }
}

fn open_by_segments(root: &OwnedFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let (directory, file) = split(name);
    let mut at = None;
    for segment in directory.split('/').filter(|segment| !segment.is_empty()) {
        let next = openat(at.as_ref().unwrap_or(root), segment, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
        at = Some(next.map_err(link_not_directory)?);
    }
    openat(at.as_ref().unwrap_or(root), file, flags | OFlags::NOFOLLOW, Mode::empty())
}

/// With both O_DIRECTORY and O_NOFOLLOW a link is reported as "not a directory"; as is a plain file, which is no
/// directory on the way to a key either.
fn link_not_directory(errno: Errno) -> Errno {
    if errno == Errno::NOTDIR { Errno::LOOP } else { errno }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Opener = fn(&OwnedFd, &str, OFlags) -> Result<OwnedFd, Errno>;

    #[test]
    fn c26_both_ways_to_open_refuse_links_and_tell_missing_from_linked() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        let inside = tempfile::tempdir().unwrap();
        std::fs::create_dir(inside.path().join("d")).unwrap();
        std::fs::write(inside.path().join("d/f"), "x").unwrap();
        std::os::unix::fs::symlink(outside.path(), inside.path().join("out")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), inside.path().join("d/link")).unwrap();
        let root = openat(CWD, inside.path(), DIRECTORY, Mode::empty()).unwrap();
        for open in [open_beneath as Opener, open_by_segments as Opener] {
            assert!(open(&root, "d/f", OFlags::RDONLY).is_ok());
            assert_eq!(open(&root, "d/none", OFlags::RDONLY).unwrap_err(), Errno::NOENT);
            assert_eq!(open(&root, "none/f", OFlags::RDONLY).unwrap_err(), Errno::NOENT);
            assert_eq!(open(&root, "d/link", OFlags::RDONLY).unwrap_err(), Errno::LOOP);
            assert_eq!(open(&root, "out/secret", OFlags::RDONLY).unwrap_err(), Errno::LOOP);
        }
    }
}
