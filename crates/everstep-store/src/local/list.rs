//! Listing in key order: directories are walked so that the whole walk is sorted as the keys are, and each page starts
//! where the one before ended.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::{Duration, SystemTime};

use everstep_format::key::{Key, Prefix};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, Stat, statat};
use rustix::io::Errno;

use super::failure::Failure;
use super::staging;
use super::tree::Tree;
use crate::{Listed, Page};

/// Objects per page.
const PAGE: usize = 4096;
/// Directories in directories; our keys need three. Deeper ones are not ours.
const DEPTH: usize = 8;

/// One page of what lies below `prefix`, after the key `token`.
pub(super) fn page(tree: &Tree, prefix: &Prefix, token: Option<&str>) -> Result<Page, Failure> {
    let mut walk = Walk { tree, after: token.unwrap_or(""), page: Page::default() };
    let start = prefix.as_str().trim_end_matches('/');
    walk.visit(start, 0)?;
    Ok(walk.page)
}

struct Walk<'a> {
    tree: &'a Tree,
    /// Keys up to this one were in earlier pages.
    after: &'a str,
    page: Page,
}

/// An entry of a directory. A directory's path ends with `/`, which is how it sorts among its neighbours' keys: `a.b`
/// comes before `a/c`.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    path: OsString,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    File,
    Directory,
    /// Links, devices, pipes.
    Other,
}

impl Walk<'_> {
    fn visit(&mut self, directory: &str, depth: usize) -> Result<(), Failure> {
        let at = match self.tree.directory(directory) {
            // Removed meanwhile, or never there: nothing is listed.
            Err(failure) if matches!(failure.errno, Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            other => other?,
        };
        for entry in self.entries(&at, directory)? {
            if self.page.next.is_some() {
                return Ok(());
            }
            self.enter(&at, &entry, depth)?;
        }
        Ok(())
    }

    /// What of `directory` comes after the token, sorted.
    fn entries(&self, at: &OwnedFd, directory: &str) -> Result<Vec<Entry>, Failure> {
        let failed = |errno| Failure::new(errno, "list", self.tree.path(directory));
        let mut entries = Vec::new();
        for found in Dir::read_from(at).map_err(failed)? {
            let found = found.map_err(failed)?;
            let name = OsStr::from_bytes(found.file_name().to_bytes());
            if name == "." || name == ".." || (directory.is_empty() && name == staging::DIRECTORY) {
                continue;
            }
            let kind = kind_of(at, name, found.file_type()).map_err(failed)?;
            let entry = Entry { path: joined(directory, name, kind), kind };
            if self.is_due(&entry) {
                entries.push(entry);
            }
        }
        entries.sort_unstable();
        Ok(entries)
    }

    fn is_due(&self, entry: &Entry) -> bool {
        let path = entry.path.as_bytes();
        let holds_token = entry.kind == Kind::Directory && self.after.as_bytes().starts_with(path);
        self.after.is_empty() || path > self.after.as_bytes() || holds_token
    }

    fn enter(&mut self, at: &OwnedFd, entry: &Entry, depth: usize) -> Result<(), Failure> {
        let key = entry.path.to_str().and_then(|path| Key::listed(path.trim_end_matches('/')));
        match (key, entry.kind) {
            (Some(key), Kind::File) => self.file(at, key)?,
            // Nobody follows a link that has the name of an object. But it is in the place of that object: whoever lists must
            // meet it and find it damaged, not take the object for absent.
            (Some(key), _) if key.kind().is_some() => self.file(at, key)?,
            (Some(key), Kind::Directory) if depth < DEPTH => self.visit(key.as_str(), depth + 1)?,
            _ if self.is_full() => {}
            _ => self.page.strays.push(entry.path.to_string_lossy().into_owned()),
        }
        Ok(())
    }

    /// Whether the page has no room; if so, what comes now is where the next one starts.
    fn is_full(&mut self) -> bool {
        let full = self.page.objects.len() == PAGE;
        if full {
            self.page.next = self.page.objects.last().map(|last| last.key.to_string());
        }
        full
    }

    fn file(&mut self, at: &OwnedFd, key: Key) -> Result<(), Failure> {
        if self.is_full() {
            return Ok(());
        }
        let name = super::tree::split(key.as_str()).1;
        match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => self.page.objects.push(Listed { size: size(&stat), modified: modified(&stat), key }),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(Failure::new(errno, "look at", self.tree.path(key.as_str()))),
        }
        Ok(())
    }
}

/// Some file systems leave the type out of a directory's entries.
fn kind_of(at: &OwnedFd, name: &OsStr, told: FileType) -> Result<Kind, Errno> {
    let kind = match told {
        FileType::Unknown => match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) => FileType::Unknown,
            Err(errno) => return Err(errno),
        },
        known => known,
    };
    Ok(match kind {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        _ => Kind::Other,
    })
}

fn joined(directory: &str, name: &OsStr, kind: Kind) -> OsString {
    let mut path = Vec::with_capacity(directory.len() + name.len() + 2);
    if !directory.is_empty() {
        path.extend_from_slice(directory.as_bytes());
        path.push(b'/');
    }
    path.extend_from_slice(name.as_bytes());
    if kind == Kind::Directory {
        path.push(b'/');
    }
    OsString::from_vec(path)
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn modified(stat: &Stat) -> SystemTime {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(u64::from(nanos(stat)))
}

fn nanos(stat: &Stat) -> u32 {
    u32::try_from(stat.st_mtime_nsec).unwrap_or(0)
}
