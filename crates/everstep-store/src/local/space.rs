//! Room left, and which file systems are not trusted with commits.

use std::path::Path;

use rustix::fs::{statfs, statvfs};
use rustix::io::Errno;

use super::failure::Failure;
use crate::{StoreError, StoreErrorKind};

/// Magic numbers of statfs(2) of file systems whose files live on another machine or behind another process. Their
/// link, rename and flush may be answered from a cache of this machine.
const NETWORK: &[(u32, &str)] = &[
    (0x0000_6969, "NFS"),
    (0x0000_517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
    (0x6A65_6A63, "virtiofs"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0xAAD7_AAEA, "PanFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "kAFS"),
    (0x7375_7245, "Coda"),
    (0x0000_564C, "NCP"),
    (0x786F_4256, "VirtualBox shared folder"),
];

/// Bytes that an unprivileged process can still write where `path` is or will be.
pub(super) fn free(path: &Path) -> Result<u64, Failure> {
    let at = existing(path)?;
    let stat = statvfs(at).map_err(|e| Failure::new(e, "look at", at))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The kind of network file system that `root` is or will be on.
pub(super) fn network(root: &Path) -> Result<Option<&'static str>, Failure> {
    let at = existing(root)?;
    let stat = statfs(at).map_err(|e| Failure::new(e, "look at", at))?;
    Ok(network_name(stat.f_type))
}

/// Refuses a root on a network file system.
pub(super) fn refuse_network(root: &Path) -> Result<(), StoreError> {
    let found = network(root).map_err(|failure| failure.into_error("open", root.display(), 0))?;
    match found {
        None => Ok(()),
        Some(name) => Err(StoreError::new(StoreErrorKind::Invalid, "open", root.display(), refusal(name))),
    }
}

fn refusal(name: &str) -> String {
    format!(
        "is on a network file system ({name}), where atomic creation and durability depend on server and mount \
         options; allow network file systems by name (allow_network_fs) if yours keeps them"
    )
}

/// The type's width and sign differ between architectures; its low 32 bits are the magic number.
fn network_name(magic: impl TryInto<i64>) -> Option<&'static str> {
    let low = magic.try_into().ok()?.rem_euclid(1 << 32);
    NETWORK.iter().find(|(known, _)| i64::from(*known) == low).map(|(_, name)| *name)
}

/// `path` or the nearest directory above it that is there.
fn existing(path: &Path) -> Result<&Path, Failure> {
    for at in path.ancestors() {
        match std::fs::metadata(at) {
            Ok(_) => return Ok(at),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::io(&error, "look at", at)),
        }
    }
    Err(Failure::new(Errno::NOENT, "find", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_magic_number_whatever_its_sign() {
        assert_eq!(network_name(0x6969_i64), Some("NFS"));
        assert_eq!(network_name(0xFF53_4D42_u32), Some("CIFS"));
        assert_eq!(network_name(0xFF53_4D42_u32.cast_signed()), Some("CIFS"));
        assert_eq!(network_name(0xEF53_i64), None, "ext4");
        assert_eq!(network_name(0x0102_1994_i64), None, "tmpfs");
    }

    #[test]
    fn the_refusal_names_the_option() {
        assert!(refusal("NFS").contains("allow_network_fs"));
    }

    #[test]
    fn space_is_told_for_a_directory_that_is_still_to_be_made() {
        let root = tempfile::tempdir().unwrap();
        assert!(free(&root.path().join("a/b/c")).unwrap() > 0);
    }
}
