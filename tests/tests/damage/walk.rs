//! What a check tells apart: damage, garbage, strays, and a store that cannot be read.

use std::sync::Arc;

use async_trait::async_trait;
use everstep_check::{CheckError, CheckOptions, Finding, Severity};
use everstep_format::feature::Operation;
use everstep_format::id::PackId;
use everstep_format::key::{Key, PackAddress, Prefix};
use everstep_format::name::{Ordinal, Rank, RunName};
use everstep_repo::{OpenOptions, Parents, RepoError, Repository};
use everstep_restore::{CheckpointReader, RestoreError, Selection, Settings, Tools};
use everstep_store::{
    Class, Create, Deleted, Object, Page, Payload, Span, Store, StoreError, StoreErrorKind, SystemWorld,
};

use crate::repository::{ENGINE, Image, RUNTIME, World, empty, train};

fn run() -> RunName {
    "run".parse().unwrap()
}

fn only(findings: &[Finding], severity: Severity) -> Vec<&Finding> {
    findings.iter().filter(|finding| finding.severity == severity).collect()
}

/// A repository with some checkpoints, after `change`.
fn world(change: impl AsyncFnOnce(&Repository)) -> World {
    RUNTIME.block_on(async {
        let repository = empty().await;
        train(&repository, "run", &[1, 2]).await;
        change(&repository).await;
        World { repository }
    })
}

async fn put(repository: &Repository, key: &str, bytes: &'static [u8]) {
    let key = Key::listed(key).unwrap();
    repository.store().put(&key, bytes::Bytes::from_static(bytes).into(), Class::Control).await.unwrap();
}

#[test]
fn c27_strays_are_noted_once_and_hurt_nothing() {
    let world = world(async |repository| {
        for key in ["readme", "runs/run/notes", "runs/run/intents/7", "packs/ab", "index/tmp123/x"] {
            put(repository, key, b"not ours").await;
        }
    });
    let findings = world.check(true);
    assert_eq!(findings.len(), 5, "{findings:#?}");
    assert!(findings.iter().all(|finding| finding.severity == Severity::Note), "{findings:#?}");
}

#[test]
fn packs_of_an_unfinished_attempt_are_garbage_and_not_damage() {
    let world = world(async |repository| {
        let mut session = repository.open_session(&run(), OpenOptions::default()).await.unwrap();
        let attempt = session.begin(everstep_format::name::Step(3), 1, Parents::Latest).await.unwrap();
        let address = PackAddress { attempt: attempt.id, rank: Rank(0), pack: PackId([7; 32]) };
        put(repository, Key::pack(&address).as_str(), b"half a save").await;
    });
    let findings = world.check(true);
    let [note] = findings.as_slice() else { panic!("{findings:#?}") };
    assert_eq!(note.severity, Severity::Note);
    assert!(note.what.contains("not decided") && note.found.contains("1 packs"), "{note:?}");
    assert!(note.found.contains("11 bytes"), "{note:?}");
}

#[test]
fn an_expired_checkpoint_is_not_judged_and_what_it_alone_used_is_garbage() {
    let world = world(async |repository| repository.expire(&run(), Ordinal(2), "test").await.unwrap());
    let report = world.report(&CheckOptions { deep: true, only: None });
    assert_eq!(report.counts.checkpoints, 1);
    let [note] = report.findings.as_slice() else { panic!("{:#?}", report.findings) };
    assert!(note.severity == Severity::Note && note.what.contains("expired"), "{note:?}");
}

#[test]
fn a_pack_that_only_an_expired_checkpoint_used_may_be_gone() {
    let world = world(async |repository| {
        repository.expire(&run(), Ordinal(2), "test").await.unwrap();
        let decided = repository.decision(&run(), Ordinal(2), Operation::Read).await.unwrap();
        let attempt = decided.unwrap().attempt;
        let newest = repository.latest(&run()).await.unwrap().unwrap();
        let kept = everstep_repo::IndexReader::new(repository.store().clone(), newest).all().await.unwrap();
        let kept = everstep_format::refs::Refs::of(&kept);
        let listed = everstep_store::list_all(repository.store().as_ref(), &Prefix::packs()).await.unwrap();
        for object in listed {
            let Some(everstep_format::key::StoredKind::Pack(address)) = object.key.kind() else { continue };
            if address.attempt == attempt && !kept.packs().contains(&address) {
                repository.store().delete(&[object.key]).await.unwrap();
            }
        }
    });
    let findings = world.check(true);
    assert_eq!(only(&findings, Severity::Damage), Vec::<&Finding>::new());
}

#[test]
fn a_lost_decision_is_damage_once_a_child_names_the_checkpoint() {
    let world = world(async |repository| {
        repository.store().delete(&[Key::decision(&run(), Ordinal(2))]).await.unwrap();
    });
    let findings = world.check(false);
    let damage = only(&findings, Severity::Damage);
    let [lost] = damage.as_slice() else { panic!("{findings:#?}") };
    assert_eq!(lost.object, Key::decision(&run(), Ordinal(2)).to_string());
    assert_eq!(lost.hurts[0].to_string(), "run@ordinal=2 (step 1)");
}

#[test]
fn the_newest_decision_of_a_closed_session_is_at_least_missed() {
    let world = world(async |repository| {
        repository.store().delete(&[Key::decision(&run(), Ordinal(3))]).await.unwrap();
    });
    let findings = world.check(false);
    let warnings = only(&findings, Severity::Warning);
    assert_eq!(warnings.len(), 1, "{findings:#?}");
    assert_eq!(warnings[0].object, Key::decision(&run(), Ordinal(3)).to_string());
}

#[test]
fn a_restore_that_an_expiry_overtakes_says_expired_and_not_corrupt() {
    let failed = RUNTIME.block_on(async {
        let repository = empty().await;
        let saved = train(&repository, "run", &[1, 2]).await;
        let (first, contents) = &saved[0];
        let reader = CheckpointReader::new(&repository, first.clone());
        reader.entries(&Selection::all()).await.unwrap();
        repository.expire(&run(), first.manifest.ordinal, "test").await.unwrap();
        let packs = everstep_store::list_all(repository.store().as_ref(), &Prefix::packs()).await.unwrap();
        let keys: Vec<Key> = packs.into_iter().map(|object| object.key).collect();
        repository.store().delete(&keys).await.unwrap();
        let settings = Settings::default();
        let tools = Tools { pool: ENGINE.pool(), settings: &settings, progress: &() };
        let name = contents.keys().next().unwrap();
        reader.read_box(name, None, &tools).await.unwrap_err()
    });
    assert!(matches!(&failed, RestoreError::Repo(RepoError::Expired { .. })), "{failed}");
}

#[test]
fn one_checkpoint_is_judged_alone() {
    let image = Image::sound();
    let world = image.open().unwrap();
    let (first, other) = (&image.points[0], &image.points[3]);
    let index = [first.checkpoint.index_key()];
    RUNTIME.block_on(world.repository.store().delete(&index)).unwrap();
    let judge = |point: &crate::repository::Point| {
        let only = Some(point.checkpoint.clone());
        world.report(&CheckOptions { deep: true, only })
    };
    let report = judge(other);
    assert_eq!((report.findings, report.counts.checkpoints), (vec![], 1));
    let report = judge(first);
    assert_eq!(report.findings[0].object, index[0].to_string());
    assert!(!report.is_sound());
}

#[test]
fn counts_say_how_much_was_looked_at() {
    let image = Image::sound();
    let world = image.open().unwrap();
    let counts = world.report(&CheckOptions { deep: true, only: None }).counts;
    assert_eq!((counts.checkpoints, counts.packs), (image.points.len() as u64, image.packs().len() as u64));
    assert_eq!(counts.objects, image.keys().len() as u64);
    assert!(counts.bytes_read >= counts.pack_bytes, "every pack is read once: {counts:?}");
    let shallow = world.report(&CheckOptions::default()).counts;
    assert!(shallow.bytes_read < counts.pack_bytes, "tables are small: {shallow:?}");
    assert_eq!(shallow.chunks, counts.chunks);
}

/// A store that cannot read packs.
#[derive(Debug)]
struct Unreachable(Arc<dyn Store>);

#[async_trait]
impl Store for Unreachable {
    fn describe(&self) -> String {
        self.0.describe()
    }
    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        if key.as_str().starts_with("packs/") {
            return Err(StoreError::new(StoreErrorKind::Unreachable, "get", key, "no route"));
        }
        self.0.get(key, span).await
    }
    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError> {
        self.0.put(key, body, class).await
    }
    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        self.0.create(key, body).await
    }
    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        self.0.list(prefix, token).await
    }
    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        self.0.delete(keys).await
    }
    async fn sync(&self) -> Result<(), StoreError> {
        self.0.sync().await
    }
}

#[test]
fn a_store_that_cannot_be_read_is_an_error_and_not_a_finding() {
    let failed = RUNTIME.block_on(async {
        let store = Arc::new(Unreachable(Image::sound().store().await));
        let repository = Repository::open(store, Arc::new(SystemWorld::new())).await.unwrap();
        let settings = everstep_check::Settings::default();
        let tools = everstep_check::Tools { pool: ENGINE.pool(), settings: &settings, progress: &() };
        let options = CheckOptions { deep: true, only: None };
        everstep_check::check(&repository, &options, &tools).await.unwrap_err()
    });
    let CheckError::Repo(RepoError::Store(error)) = &failed else { panic!("{failed}") };
    assert_eq!(error.kind, StoreErrorKind::Unreachable);
}
