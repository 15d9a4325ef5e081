//! `file://`

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use everstep_store::{LocalOptions, LocalStore, Store, StoreOptions, SystemWorld, open};
use everstep_tests::conformance::every_store_conforms;
use futures::FutureExt as _;

/// Fresh directories below one that goes away with the test.
struct Directories {
    above: tempfile::TempDir,
    made: AtomicU32,
}

impl Directories {
    fn new() -> Self {
        Self { above: tempfile::tempdir().unwrap(), made: AtomicU32::new(0) }
    }

    fn next(&self) -> std::path::PathBuf {
        self.above.path().join(self.made.fetch_add(1, Ordering::Relaxed).to_string())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_conforms() {
    let directories = Directories::new();
    let fresh = || {
        let store = LocalStore::open(&directories.next(), LocalOptions::default()).unwrap();
        async { Arc::new(store) as Arc<dyn Store> }.boxed()
    };
    every_store_conforms(&fresh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_opened_by_its_address_conforms_with_all_decorators() {
    let directories = Directories::new();
    let fresh = || {
        let address = format!("file://{}", directories.next().display());
        async move { open(&address, &StoreOptions::default(), Arc::new(SystemWorld::new())).await.unwrap() }
            .boxed()
    };
    every_store_conforms(&fresh).await;
}
