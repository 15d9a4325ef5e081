//! What is on disk when: seen through a recorded flush, with failures put in.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

use rustix::io::Errno;

use super::super::ledger::Flush;
use super::*;

/// Records flushes (path below the root, and whether the name was there already) and fails those that it is told to.
#[derive(Default)]
struct Recorder {
    flushed: Mutex<Vec<(String, bool)>>,
    failures: Mutex<VecDeque<String>>,
}

struct Bench {
    root: tempfile::TempDir,
    store: LocalStore,
    recorder: Arc<Recorder>,
}

impl Recorder {
    fn flush(&self, root: &Path, path: &Path, _file: &File) -> io::Result<()> {
        let name = match path.strip_prefix(root) {
            Ok(below) => below.display().to_string(),
            Err(_) => "(above)".to_owned(),
        };
        let mut failures = self.failures.lock().unwrap();
        if failures.front() == Some(&name) {
            failures.pop_front();
            return Err(Errno::IO.into());
        }
        self.flushed.lock().unwrap().push((name, path.exists()));
        Ok(())
    }

    fn take(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut self.flushed.lock().unwrap())
    }

    fn fail(&self, name: &str) {
        self.failures.lock().unwrap().push_back(name.to_owned());
    }
}

fn bench() -> Bench {
    let root = tempfile::tempdir().unwrap();
    let path: PathBuf = std::fs::canonicalize(root.path()).unwrap();
    let recorder = Arc::new(Recorder::default());
    let (shared, base) = (recorder.clone(), path.clone());
    let flush = Flush(Arc::new(move |path, file| shared.flush(&base, path, file)));
    let store = LocalStore::on(Tree::new(path), Staging::default(), Ledger::with_flush(flush));
    Bench { root, store, recorder }
}

fn flushed(expected: &[(&str, bool)]) -> Vec<(String, bool)> {
    expected.iter().map(|&(name, there)| (name.to_owned(), there)).collect()
}

#[tokio::test]
async fn a_control_object_is_flushed_before_it_has_its_name_and_the_way_to_it_before_the_call_returns() {
    let Bench { store, recorder, root: _root } = bench();
    store.put(&key("runs/a/intents/1"), body("x"), Class::Control).await.unwrap();
    let way = [("runs/a/intents", true), ("runs/a", true), ("runs", true), ("", true), ("(above)", true)];
    assert_eq!(recorder.take(), flushed(&[&[("runs/a/intents/1", false)], &way[..]].concat()));
    assert!(matches!(store.create(&key("runs/a/intents/2"), body("x")).await.unwrap(), Create::Created));
    assert_eq!(
        recorder.take(),
        flushed(&[("runs/a/intents/2", false), ("runs/a/intents", true)]),
        "the way is known"
    );
    assert!(matches!(store.create(&key("runs/a/decisions/1"), body("x")).await.unwrap(), Create::Created));
    let expected = [("runs/a/decisions/1", false), ("runs/a/decisions", true), ("runs/a", true)];
    assert_eq!(recorder.take(), flushed(&expected), "of a new directory the entry is flushed too");
}

#[tokio::test]
async fn a_directory_made_anew_is_entered_anew() {
    let Bench { root, store, recorder } = bench();
    store.put(&key("runs/a/x"), body("x"), Class::Control).await.unwrap();
    std::fs::remove_dir_all(root.path().join("runs")).unwrap();
    // Keeps the old inode number from being given out again.
    std::fs::create_dir(root.path().join("other")).unwrap();
    std::fs::create_dir(root.path().join("another")).unwrap();
    recorder.take();
    store.put(&key("runs/a/x"), body("x"), Class::Control).await.unwrap();
    assert!(recorder.take().contains(&(String::new(), true)), "the root has a new entry");
}

#[tokio::test]
async fn what_exists_is_on_disk_before_a_loser_hears_of_it() {
    let Bench { root, store, recorder } = bench();
    std::fs::create_dir(root.path().join("probe")).unwrap();
    std::fs::write(root.path().join("probe/x"), "winner").unwrap();
    assert!(matches!(store.create(&key("probe/x"), body("x")).await.unwrap(), Create::Exists));
    assert!(recorder.take().contains(&("probe".to_owned(), true)));
}

#[tokio::test]
async fn bulk_objects_are_flushed_by_sync_and_only_once() {
    let Bench { store, recorder, root: _root } = bench();
    for name in ["packs/a/1", "packs/a/2", "packs/b/1"] {
        store.put(&key(name), body("x"), Class::Bulk).await.unwrap();
    }
    assert_eq!(recorder.take(), [], "a put does not wait for the disk");
    store.sync().await.unwrap();
    let names: BTreeSet<String> = recorder.take().into_iter().map(|(name, _)| name).collect();
    let expected = ["packs/a/1", "packs/a/2", "packs/b/1", "packs/a", "packs/b", "packs", "", "(above)"];
    assert_eq!(names, super::names(&expected));
    store.sync().await.unwrap();
    assert_eq!(recorder.take(), []);
}

#[tokio::test]
async fn beyond_the_files_kept_open_a_put_flushes_its_own() {
    let Bench { store, recorder, root: _root } = bench();
    for number in 0..300 {
        store.put(&probe_key(number), body("x"), Class::Bulk).await.unwrap();
    }
    assert_eq!(recorder.take().len(), 300 - 256);
    store.sync().await.unwrap();
    assert_eq!(recorder.take().len(), 256 + 3, "the open files, their directory, the root, above");
}

#[tokio::test]
async fn a_failed_flush_is_reported_until_the_object_is_written_again() {
    let Bench { store, recorder, root: _root } = bench();
    store.put(&key("packs/a"), body("x"), Class::Bulk).await.unwrap();
    store.put(&key("packs/b"), body("x"), Class::Bulk).await.unwrap();
    recorder.fail("packs/b");
    for _ in 0..3 {
        let error = store.sync().await.unwrap_err();
        assert_eq!((error.key.as_str(), error.operation), ("packs/b", "sync"));
        assert!(error.detail.contains("write it again"), "{error}");
    }
    store.put(&key("packs/b"), body("x"), Class::Bulk).await.unwrap();
    store.sync().await.unwrap();
}

#[tokio::test]
async fn a_deleted_object_owes_no_flush() {
    let Bench { store, recorder, root: _root } = bench();
    store.put(&key("packs/a"), body("x"), Class::Bulk).await.unwrap();
    store.put(&key("packs/b"), body("x"), Class::Bulk).await.unwrap();
    recorder.fail("packs/a");
    store.sync().await.unwrap_err();
    store.delete(&[key("packs/a"), key("packs/b")]).await.unwrap();
    store.sync().await.unwrap();
}

#[tokio::test]
async fn a_directory_whose_flush_failed_is_not_trusted_again() {
    let Bench { store, recorder, root: _root } = bench();
    store.put(&key("packs/a"), body("x"), Class::Bulk).await.unwrap();
    recorder.fail("packs");
    for _ in 0..2 {
        let error = store.sync().await.unwrap_err();
        assert!(error.detail.contains("flush directory"), "{error}");
    }
    store.put(&key("packs/b"), body("x"), Class::Control).await.unwrap_err();
    store.put(&key("other/b"), body("x"), Class::Control).await.unwrap();
}

#[tokio::test]
async fn a_create_whose_directory_could_not_be_flushed_is_unknown() {
    let Bench { store, recorder, root: _root } = bench();
    recorder.fail("runs");
    for _ in 0..2 {
        assert!(matches!(store.create(&key("runs/a"), body("x")).await.unwrap(), Create::Unknown(_)));
    }
}

#[tokio::test]
async fn a_control_object_whose_flush_failed_never_gets_its_name() {
    let Bench { root, store, recorder } = bench();
    recorder.fail("runs/a");
    assert!(store.create(&key("runs/a"), body("x")).await.is_err());
    recorder.fail("runs/a");
    assert!(store.put(&key("runs/a"), body("x"), Class::Control).await.is_err());
    assert!(!root.path().join("runs/a").exists());
}

#[tokio::test]
async fn a_sync_that_nobody_waits_for_loses_nothing() {
    let Bench { store, recorder, root: _root } = bench();
    store.put(&key("packs/a"), body("x"), Class::Bulk).await.unwrap();
    recorder.fail("packs/a");
    drop(futures::poll!(Box::pin(store.sync())));
    assert!(store.sync().await.is_err() || store.sync().await.is_err(), "the failure is still known");
}

/// Just large enough to be flushed without a sync.
fn large() -> Payload {
    vec![7; 4 << 20].into()
}

/// Returns once `is_so`.
async fn until(is_so: impl Fn() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), looking).await.expect("it came");
}

#[tokio::test]
async fn large_objects_go_to_disk_by_themselves_and_a_sync_owes_their_directories_alone() {
    let Bench { store, recorder, root: _root } = bench();
    for name in ["packs/1", "packs/2", "packs/3", "packs/4"] {
        store.put(&key(name), large(), Class::Bulk).await.unwrap();
    }
    until(|| recorder.flushed.lock().unwrap().len() == 4).await;
    let names: BTreeSet<String> = recorder.take().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, super::names(&["packs/1", "packs/2", "packs/3", "packs/4"]));
    store.sync().await.unwrap();
    assert_eq!(recorder.take(), flushed(&[("packs", true), ("", true), ("(above)", true)]));
}

#[tokio::test]
async fn what_was_lost_before_a_sync_is_told_by_it() {
    let Bench { store, recorder, root: _root } = bench();
    recorder.fail("packs/a");
    store.put(&key("packs/a"), large(), Class::Bulk).await.unwrap();
    until(|| recorder.failures.lock().unwrap().is_empty()).await;
    for _ in 0..2 {
        assert_eq!(store.sync().await.unwrap_err().key, "packs/a");
    }
    store.put(&key("packs/a"), large(), Class::Bulk).await.unwrap();
    store.sync().await.unwrap();
}

#[tokio::test]
async fn a_sync_waits_for_a_flush_that_is_under_way_and_does_not_ask_the_kernel_again() {
    let (enter, entered) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Mutex::new(released);
    let flush = Flush(Arc::new(move |path, _| {
        if !path.ends_with("packs/a") {
            return Ok(());
        }
        enter.send(()).unwrap();
        released.lock().unwrap().recv().expect("the only flush");
        Err(Errno::IO.into())
    }));
    let root = tempfile::tempdir().unwrap();
    let path = std::fs::canonicalize(root.path()).unwrap();
    let store = LocalStore::on(Tree::new(path), Staging::default(), Ledger::with_flush(flush));
    store.put(&key("packs/a"), large(), Class::Bulk).await.unwrap();
    entered.recv().unwrap();
    let mut syncing = store.sync();
    for _ in 0..1000 {
        assert!(futures::poll!(&mut syncing).is_pending(), "it is not known yet whether all is well");
        tokio::task::yield_now().await;
    }
    release.send(()).unwrap();
    drop(release);
    assert_eq!(syncing.await.unwrap_err().key, "packs/a");
    assert!(entered.try_recv().is_err(), "one flush");
}
