//! Why `file://` is own code: what `object_store`'s `LocalFileSystem` does where this store needs something else. Should
//! one of these tests fail after an update, that reason is gone.

use futures::TryStreamExt as _;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore as _, ObjectStoreExt as _};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

fn peer() -> (tempfile::TempDir, LocalFileSystem) {
    let root = tempfile::tempdir().unwrap();
    let store = LocalFileSystem::new_with_prefix(root.path()).unwrap();
    (root, store)
}

#[tokio::test]
async fn the_peer_follows_links_out_of_its_root() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "x").unwrap();
    let (root, store) = peer();
    std::os::unix::fs::symlink(outside.path(), root.path().join("packs")).unwrap();
    assert!(store.get(&Path::from("packs/secret")).await.is_ok());
}

#[tokio::test]
async fn the_peer_lists_in_directory_order_and_stops_at_a_name_that_is_not_utf8() {
    let (root, store) = peer();
    for name in ["c", "a", "b"] {
        std::fs::write(root.path().join(name), "x").unwrap();
    }
    std::fs::write(root.path().join(OsStr::from_bytes(b"\xff")), "x").unwrap();
    let listed: Result<Vec<_>, _> = store.list(None).try_collect().await;
    assert!(listed.is_err());
}

#[tokio::test]
async fn the_peer_hides_its_left_over_temporary_names_instead_of_removing_them() {
    let (root, store) = peer();
    std::fs::write(root.path().join("object#1"), "half").unwrap();
    store.put(&Path::from("object"), "whole".into()).await.unwrap();
    let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert!(root.path().join("object#1").exists());
}
