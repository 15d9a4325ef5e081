use std::time::SystemTime;

use everstep_format::id::SessionId;
use everstep_format::key::Key;

use super::*;
use crate::store::list_all;
use crate::{Class, SystemWorld};

fn of<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("{name}: {checks:#?}"))
}

async fn looked_at(address: &str) -> Examination {
    examine(address, &StoreOptions::default(), Arc::new(SystemWorld::new())).await.unwrap()
}

#[tokio::test]
async fn a_directory_is_sound_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let examination = looked_at(folder.path().to_str().unwrap()).await;
    for name in ["file-system", "reachable", "list", "write", "read", "clock", "delete", "create", "room"] {
        assert_eq!(of(&examination.checks, name).health, Health::Sound, "{name}: {:#?}", examination.checks);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing stays");
}

#[tokio::test]
async fn keys_that_a_crashed_probe_left_are_removed_and_those_of_a_running_one_stay() {
    let folder = tempfile::tempdir().unwrap();
    let address = folder.path().to_str().unwrap();
    let store = looked_at(address).await.store.unwrap();
    let [old, new] = [0, 1].map(|number| Key::probe(SessionId([number; 16]), 0));
    for key in [&old, &new] {
        store.put(key, vec![1].into(), Class::Control).await.unwrap();
    }
    let file = std::fs::File::options().write(true).open(folder.path().join(old.as_str())).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let examination = looked_at(address).await;
    assert!(of(&examination.checks, "leftovers").found.contains("1 keys"), "{:?}", examination.checks);
    let left = list_all(&*store, &Prefix::probes()).await.unwrap();
    assert_eq!(left.iter().map(|listed| &listed.key).collect::<Vec<_>>(), [&new]);
}

#[tokio::test]
async fn two_sides_see_each_others_keys_at_once_and_a_name_serves_once() {
    let world = SystemWorld::new();
    let store = looked_at("memory://doctor-two-sides").await.store.unwrap();
    let patience = Duration::from_secs(20);
    let (listen, echo) = futures::join!(
        meet(&store, &world, ("a", Side::Listen), patience),
        meet(&store, &world, ("a", Side::Echo), patience),
    );
    for seen in [listen.unwrap(), echo.unwrap()] {
        assert_eq!((seen.keys, seen.late, seen.left), (20, 0, 0));
    }
    assert!(list_all(&*store, &Prefix::probes()).await.unwrap().is_empty());
    let alone = meet(&store, &world, ("b", Side::Echo), Duration::from_millis(1)).await.unwrap_err();
    assert_eq!(alone.kind, StoreErrorKind::Unreachable);
    let again = meet(&store, &world, ("b", Side::Echo), patience).await.unwrap_err();
    assert_eq!(again.kind, StoreErrorKind::Invalid);
}
