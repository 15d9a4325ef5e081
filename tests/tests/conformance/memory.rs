//! `memory://`

use std::sync::Arc;

use everstep_format::key::{Key, Prefix};
use everstep_store::{Class, MemoryStore, Span, Store, StoreOptions, SystemWorld, list_all, open};
use everstep_tests::conformance::every_store_conforms;
use futures::FutureExt as _;

async fn opened(address: &str) -> Arc<dyn Store> {
    open(address, &StoreOptions::default(), Arc::new(SystemWorld::new())).await.unwrap()
}

#[tokio::test]
async fn memory_conforms() {
    every_store_conforms(&|| async { Arc::new(MemoryStore::private()) as Arc<dyn Store> }.boxed()).await;
}

#[tokio::test]
async fn c29_memory_is_one_place_per_name_however_it_is_spelt() {
    let odd = ["my run/50%/a+b#c?d~e", "m\u{e4}ggi/\u{6a21}\u{578b}", "x%20y", "x y", "", "run1", "run10"];
    for name in odd {
        let store = opened(&format!("memory://{name}")).await;
        assert!(
            list_all(&*store, &Prefix::everything()).await.unwrap().is_empty(),
            "{name:?} is another's place"
        );
        store.put(&Key::repository(), name.as_bytes().to_vec().into(), Class::Control).await.unwrap();
    }
    for name in odd {
        for spelling in ["", "/", "//"] {
            let store = opened(&format!("memory://{name}{spelling}")).await;
            assert_eq!(store.get(&Key::repository(), Span::Whole).await.unwrap().bytes, name.as_bytes());
        }
    }
}
