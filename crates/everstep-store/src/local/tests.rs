//! What only a directory promises: durability, names, permissions, no left-overs. What every store promises is in the
//! conformance suite.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use everstep_format::id::SessionId;

use super::*;
use crate::store::list_all;

mod durability;
mod processes;

/// A store in a directory of its own.
struct Home {
    root: tempfile::TempDir,
    store: LocalStore,
}

fn home() -> Home {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    Home { root, store }
}

fn open(root: &Path) -> LocalStore {
    LocalStore::open(root, LocalOptions::default()).unwrap()
}

/// As `home`, on a file system that has no files without a name.
fn home_with_named_files() -> Home {
    let root = tempfile::tempdir().unwrap();
    let tree = Tree::new(std::fs::canonicalize(root.path()).unwrap());
    let store = LocalStore::on(tree, Staging::named_only(), Ledger::default());
    Home { root, store }
}

fn key(text: &str) -> Key {
    Key::listed(text).unwrap()
}

fn probe_key(number: u32) -> Key {
    Key::probe(SessionId([9; 16]), number)
}

fn body(text: &str) -> Payload {
    Payload::from(text.as_bytes().to_vec())
}

async fn read(store: &LocalStore, name: &str) -> Result<String, StoreErrorKind> {
    let object = store.get(&key(name), Span::Whole).await.map_err(|error| error.kind)?;
    Ok(String::from_utf8(object.bytes.to_vec()).unwrap())
}

/// Every file and directory below `root`, as an independent client sees them.
fn everything_below(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut todo = vec![root.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in std::fs::read_dir(&directory).unwrap().map(Result::unwrap) {
            found.insert(entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            if entry.file_type().unwrap().is_dir() {
                todo.push(entry.path());
            }
        }
    }
    found
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[tokio::test]
async fn with_and_without_unnamed_files_writes_leave_the_objects_and_nothing_else() {
    for Home { root, store } in [home(), home_with_named_files()] {
        for class in [Class::Bulk, Class::Control] {
            store.put(&key("a/b"), body("one"), class).await.unwrap();
            store.put(&key("a/b"), body("two"), class).await.unwrap();
        }
        assert!(matches!(store.create(&key("a/c"), body("mine")).await.unwrap(), Create::Created));
        assert!(matches!(store.create(&key("a/c"), body("theirs")).await.unwrap(), Create::Exists));
        store.sync().await.unwrap();
        assert_eq!(read(&store, "a/b").await.unwrap(), "two");
        assert_eq!(read(&store, "a/c").await.unwrap(), "mine");
        assert_eq!(everything_below(root.path()), names(&["a", "a/b", "a/c"]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_creates_on_named_files_one_wins() {
    let Home { root, store } = home_with_named_files();
    for number in 0..20 {
        let key = probe_key(number);
        let creates = (0..16).map(|who| store.create(&key, body(&format!("writer {who}"))));
        let outcomes = futures::future::join_all(creates).await;
        let won = |outcome: &Result<Create, StoreError>| matches!(outcome, Ok(Create::Created));
        assert_eq!(outcomes.iter().filter(|outcome| won(outcome)).count(), 1, "{outcomes:?}");
    }
    assert!(!root.path().join(staging::DIRECTORY).exists());
}

#[tokio::test]
async fn c26_links_and_pipes_are_never_followed_and_are_listed_as_strays() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "x").unwrap();
    let Home { root, store } = home();
    std::fs::create_dir(root.path().join("runs")).unwrap();
    std::os::unix::fs::symlink(outside.path(), root.path().join("packs")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret"), root.path().join("runs/link")).unwrap();
    let pipe = root.path().join("runs/pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
    for name in ["packs/secret", "runs/link", "runs/pipe"] {
        assert_eq!(read(&store, name).await.unwrap_err(), StoreErrorKind::Untrusted, "{name}");
    }
    let written = store.put(&key("packs/new"), body("x"), Class::Bulk).await.unwrap_err();
    assert_eq!(written.kind, StoreErrorKind::Untrusted);
    assert_eq!(everything_below(outside.path()), names(&["secret"]));
    let page = store.list(&Prefix::everything(), None).await.unwrap();
    assert_eq!(
        (page.objects.len(), page.strays),
        (0, vec!["packs".into(), "runs/link".into(), "runs/pipe".into()])
    );
}

#[tokio::test]
async fn c26_a_link_in_the_place_of_an_object_is_listed_and_refused_so_that_nobody_takes_it_for_absent() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("sound"), "x").unwrap();
    let Home { root, store } = home();
    let decisions = root.path().join("runs/gpt/decisions");
    std::fs::create_dir_all(&decisions).unwrap();
    let keys: Vec<String> = (1..4).map(|n| format!("runs/gpt/decisions/{n:020}")).collect();
    std::os::unix::fs::symlink(outside.path().join("sound"), root.path().join(&keys[0])).unwrap();
    std::os::unix::fs::symlink("nowhere", root.path().join(&keys[1])).unwrap();
    std::fs::create_dir(root.path().join(&keys[2])).unwrap();
    std::os::unix::fs::symlink(outside.path().join("sound"), decisions.join("4")).unwrap();
    let page = store.list(&Prefix::everything(), None).await.unwrap();
    assert_eq!(page.objects.iter().map(|listed| listed.key.to_string()).collect::<Vec<_>>(), keys);
    assert_eq!(page.strays, ["runs/gpt/decisions/4"]);
    for name in &keys {
        assert_eq!(read(&store, name).await.unwrap_err(), StoreErrorKind::Untrusted, "{name}");
        let created = store.create(&key(name), body("other")).await;
        assert!(matches!(created, Ok(Create::Exists)), "{created:?}");
    }
}

#[tokio::test]
async fn c27_foreign_names_are_strays_and_stop_nothing() {
    let Home { root, store } = home();
    store.put(&key("runs/a/intents/1"), body("x"), Class::Control).await.unwrap();
    for name in [".DS_Store", "README", "checkpoint 476000", "runs/object#1", "runs/Über"] {
        std::fs::write(root.path().join(name), "x").unwrap();
    }
    std::fs::write(root.path().join(OsStr::from_bytes(b"not\xffutf8")), "x").unwrap();
    std::fs::create_dir(root.path().join("Copy of runs")).unwrap();
    std::fs::write(root.path().join("Copy of runs/1"), "x").unwrap();
    let page = store.list(&Prefix::everything(), None).await.unwrap();
    assert_eq!(
        page.objects.iter().map(|listed| listed.key.as_str()).collect::<Vec<_>>(),
        ["runs/a/intents/1"]
    );
    let strays: BTreeSet<String> = page.strays.into_iter().collect();
    let expected =
        [".DS_Store", "README", "checkpoint 476000", "runs/object#1", "runs/Über", "not\u{fffd}utf8"];
    assert_eq!(strays, names(&[&expected[..], &["Copy of runs/"]].concat()));
}

#[tokio::test]
async fn a_listing_is_sorted_as_keys_are_and_not_as_directories_are() {
    let Home { store, root: _root } = home();
    let sorted = ["runs/a-b/x", "runs/a.b", "runs/a/b", "runs/a0/x", "runs/ab"];
    for name in sorted.iter().rev() {
        store.put(&key(name), body("x"), Class::Bulk).await.unwrap();
    }
    let listed = list_all(&store, &Prefix::runs()).await.unwrap();
    assert_eq!(listed.iter().map(|listed| listed.key.as_str()).collect::<Vec<_>>(), sorted);
    for (number, name) in sorted.iter().enumerate() {
        let rest = store.list(&Prefix::runs(), Some((*name).to_owned())).await.unwrap().objects;
        assert_eq!(rest.iter().map(|listed| listed.key.as_str()).collect::<Vec<_>>(), sorted[number + 1..]);
    }
}

#[tokio::test]
async fn a_directory_of_several_pages_is_listed_once_each_strays_included() {
    let Home { root, store } = home();
    std::fs::create_dir(root.path().join("probe")).unwrap();
    for number in 0..9000 {
        std::fs::write(root.path().join(format!("probe/{number:05}")), "").unwrap();
        if number % 100 == 0 {
            std::fs::write(root.path().join(format!("probe/{number:05}-STRAY")), "").unwrap();
        }
    }
    let (mut keys, mut strays, mut token, mut pages) = (Vec::new(), Vec::new(), None, 0);
    loop {
        let page = store.list(&Prefix::probes(), token).await.unwrap();
        keys.extend(page.objects.into_iter().map(|listed| listed.key));
        strays.extend(page.strays);
        pages += 1;
        match page.next {
            None => break,
            next => token = next,
        }
    }
    assert!(pages > 2 && keys.is_sorted());
    assert_eq!((keys.len(), keys.iter().collect::<BTreeSet<_>>().len()), (9000, 9000));
    assert_eq!((strays.len(), strays.iter().collect::<BTreeSet<_>>().len()), (90, 90));
}

#[tokio::test]
async fn c29_a_root_with_odd_characters_is_that_very_directory() {
    let above = tempfile::tempdir().unwrap();
    for odd in ["my run/50%/a+b#c?d~e", "m\u{e4}ggi/\u{6a21}\u{578b}", "x%20y", "#1", "a:b", " "] {
        let text = format!("{}/{odd}", above.path().display());
        for (number, spelling) in
            [text.clone(), format!("file://{text}"), format!("{text}//")].iter().enumerate()
        {
            let store = crate::open(spelling, &Default::default(), Arc::new(crate::SystemWorld::new()))
                .await
                .unwrap();
            let key = probe_key(u32::try_from(number).unwrap());
            store.put(&key, body(odd), Class::Control).await.unwrap();
            assert_eq!(std::fs::read_to_string(Path::new(&text).join(key.as_str())).unwrap(), odd);
            assert_eq!(
                list_all(&*store, &Prefix::everything()).await.unwrap().len(),
                number + 1,
                "one place"
            );
            assert_eq!(store.get(&key, Span::Whole).await.unwrap().bytes, odd.as_bytes());
        }
    }
}

#[tokio::test]
async fn deleting_the_last_object_of_a_directory_removes_it() {
    let Home { root, store } = home();
    for name in ["packs/aa/1/x", "packs/aa/1/y", "packs/bb/1/x"] {
        store.put(&key(name), body("x"), Class::Bulk).await.unwrap();
    }
    let results =
        store.delete(&[key("packs/aa/1/x"), key("packs/aa/1/y"), key("packs/cc/none")]).await.unwrap();
    assert!(results.iter().all(|deleted| deleted.result.is_ok()));
    assert_eq!(everything_below(root.path()), names(&["packs", "packs/bb", "packs/bb/1", "packs/bb/1/x"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_put_does_not_mind_that_a_delete_takes_its_directory_away() {
    let Home { store, root: _root } = home();
    let worker = |number: u32| {
        let store = store.clone();
        async move {
            for round in 0..300 {
                let class = if round % 3 == 0 { Class::Control } else { Class::Bulk };
                store.put(&probe_key(number), body("x"), class).await.unwrap();
                assert!(matches!(
                    store.create(&probe_key(number + 100), body("x")).await.unwrap(),
                    Create::Created
                ));
                let deleted = store.delete(&[probe_key(number), probe_key(number + 100)]).await.unwrap();
                assert!(deleted.iter().all(|deleted| deleted.result.is_ok()));
            }
        }
    };
    futures::future::join_all((0..4).map(worker)).await;
}

#[tokio::test]
async fn a_root_that_is_no_directory_is_refused_and_a_missing_one_is_empty_until_written() {
    let above = tempfile::tempdir().unwrap();
    std::fs::write(above.path().join("file"), "x").unwrap();
    let error = LocalStore::open(&above.path().join("file"), LocalOptions::default()).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Invalid);
    let store = open(&above.path().join("new/root"));
    assert!(list_all(&store, &Prefix::everything()).await.unwrap().is_empty());
    assert_eq!(read(&store, "everstep.json").await.unwrap_err(), StoreErrorKind::NotFound);
    assert!(!above.path().join("new").exists(), "reading makes nothing");
    store.put(&Key::repository(), body("x"), Class::Control).await.unwrap();
    assert_eq!(read(&store, "everstep.json").await.unwrap(), "x");
}

#[tokio::test]
async fn a_key_below_a_file_is_not_found_and_cannot_be_written() {
    let Home { store, root: _root } = home();
    store.put(&key("a"), body("x"), Class::Bulk).await.unwrap();
    assert!(store.put(&key("a/b"), body("x"), Class::Bulk).await.is_err());
    assert!(store.delete(&[key("a/b")]).await.unwrap()[0].result.is_ok());
    assert!(read(&store, "a/b").await.is_err());
}

#[tokio::test]
async fn c25_a_file_of_absurd_size_is_refused_unread() {
    let Home { root, store } = home();
    std::fs::File::create(root.path().join("everstep.json")).unwrap().set_len(1 << 40).unwrap();
    let error = store.get(&Key::repository(), Span::Whole).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::TooLarge, "{error}");
    let tail = Span::Range { start: (1 << 40) - 4, len: 4 };
    assert_eq!(store.get(&Key::repository(), tail).await.unwrap().bytes, [0; 4][..]);
}
