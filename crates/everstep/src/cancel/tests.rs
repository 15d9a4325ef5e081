use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use everstep_format::key::{Key, Prefix};
use everstep_repo::Repository as Inner;
use everstep_store::{Class, Create, Deleted, MemoryStore, Object, Page, Payload, Span, Store, StoreError};

use crate::repository::Engine;
use crate::{
    AttemptState, Bounds, Cancel, Dtype, Error, ErrorKind, Group, MemoryRendezvous, Options, Ordinal, Rank,
    Replicas, Repository, RunName, SaveReport, Shard, Source, State, Step, Writer,
};

/// Which requests are never answered, nor carried out.
const NONE: u8 = 0;
const PACKS: u8 = 1;
const DECISIONS: u8 = 2;

/// A store that hangs.
#[derive(Debug)]
struct Hanging {
    inner: MemoryStore,
    on: Arc<AtomicU8>,
    hung: Mutex<Sender<()>>,
}

impl Hanging {
    async fn pass(&self, on: u8) {
        if self.on.load(Ordering::SeqCst) == on {
            self.hung.lock().unwrap().send(()).unwrap();
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Store for Hanging {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        self.inner.get(key, span).await
    }

    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError> {
        if class == Class::Bulk {
            self.pass(PACKS).await;
        }
        self.inner.put(key, body, class).await
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        if key.as_str().contains("/decisions/") {
            self.pass(DECISIONS).await;
        }
        self.inner.create(key, body).await
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        self.inner.list(prefix, token).await
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        self.inner.delete(keys).await
    }

    async fn sync(&self) -> Result<(), StoreError> {
        self.inner.sync().await
    }
}

struct Scene {
    repository: Repository,
    memory: MemoryStore,
    on: Arc<AtomicU8>,
    hung: Receiver<()>,
}

fn over(store: Arc<dyn Store>, init: bool) -> Repository {
    let engine = Arc::new(Engine::new(&Options::default()).unwrap());
    let world = Engine::world();
    let inner = match init {
        true => engine.runtime.block_on(Inner::init(store, world, Default::default())).unwrap(),
        false => engine.runtime.block_on(Inner::open(store, world)).unwrap(),
    };
    Repository { inner, engine }
}

impl Scene {
    fn new() -> Self {
        let (told, hung) = channel();
        let (memory, on) = (MemoryStore::private(), Arc::new(AtomicU8::new(NONE)));
        let store = Hanging { inner: memory.clone(), on: on.clone(), hung: Mutex::new(told) };
        Self { repository: over(Arc::new(store), true), memory, on, hung }
    }

    fn writer(&self) -> Writer {
        self.repository.run("gpt").unwrap().writer(Default::default()).unwrap()
    }

    /// What becomes of `save` when the store hangs on `what` and the caller then stops it.
    fn interrupted(
        &self,
        what: u8,
        save: impl FnOnce() -> Result<SaveReport, Error> + Send,
    ) -> Result<SaveReport, Error> {
        self.on.store(what, Ordering::SeqCst);
        let cancel = Cancel::new();
        let result = thread::scope(|scope| {
            let saving = scope.spawn(|| cancel.scope(save));
            self.hung.recv().unwrap();
            cancel.cancel();
            saving.join().unwrap()
        });
        self.on.store(NONE, Ordering::SeqCst);
        result
    }

    fn attempt(&self, ordinal: u64) -> AttemptState {
        let run = RunName::new("gpt").unwrap();
        self.repository.attempt(&run, Ordinal(ordinal)).unwrap()
    }
}

fn state(name: &str, bytes: &'static [u8]) -> State<'static> {
    let shape = [bytes.len() as u64];
    let shard = Shard {
        name: name.to_owned(),
        dtype: Dtype::U8,
        shape: shape.to_vec(),
        bounds: Bounds::whole(&shape),
        alias_of: None,
        replicas: Replicas::None,
        source: Source::Memory(bytes),
    };
    State { shards: vec![shard], objects: Vec::new() }
}

fn kind(result: &Result<SaveReport, Error>) -> ErrorKind {
    result.as_ref().unwrap_err().kind()
}

#[test]
fn a_save_on_a_store_that_hangs_can_be_stopped_and_the_same_writer_saves_again() {
    let scene = Scene::new();
    let mut writer = scene.writer();
    let state = state("w", &[7; 5000]);
    let stopped = scene.interrupted(PACKS, || writer.save(Step(1), &state, Default::default()));
    assert_eq!(kind(&stopped), ErrorKind::Interrupted);
    let saved = writer.save(Step(2), &state, Default::default()).unwrap();
    assert_eq!((saved.checkpoint.manifest.ordinal, saved.chunks_uploaded), (Ordinal(3), 1));
    // By then it is decided for sure; the ABORT was on its way in the background.
    writer.close().unwrap();
    assert!(matches!(scene.attempt(2), AttemptState::Aborted(..)), "{:?}", scene.attempt(2));
}

#[test]
fn an_attempt_that_was_stopped_in_the_middle_of_its_commit_is_left_alone() {
    let scene = Scene::new();
    let mut writer = scene.writer();
    let state = state("w", &[7; 5000]);
    let stopped = scene.interrupted(DECISIONS, || writer.save(Step(1), &state, Default::default()));
    assert_eq!(kind(&stopped), ErrorKind::Interrupted);
    writer.save(Step(2), &state, Default::default()).unwrap();
    writer.close().unwrap();
    assert!(matches!(scene.attempt(2), AttemptState::Undecided(_)), "{:?}", scene.attempt(2));
}

#[test]
fn the_other_ranks_are_told_that_their_leader_was_stopped() {
    let scene = Scene::new();
    let mut writer = scene.writer();
    let meeting = Arc::new(MemoryRendezvous::new());
    let group = |rank| Group::new(Rank(rank), 2).within(Duration::from_secs(60)).meeting(meeting.clone());
    let mut member = over(Arc::new(scene.memory.clone()), false).member(&writer.ticket()).unwrap();
    let (own, theirs) = (state("a", &[1; 5000]), state("b", &[2; 5000]));
    thread::scope(|scope| {
        let heard = scope.spawn(|| member.save(Step(1), &theirs, &group(1)));
        let stopped =
            scene.interrupted(PACKS, || writer.save_in(Step(1), &own, Default::default(), &group(0)));
        assert_eq!(kind(&stopped), ErrorKind::Interrupted);
        let error = heard.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RankFailed, "{error}");
        assert!(error.to_string().contains("interrupted"), "{error}");
    });
    thread::scope(|scope| {
        let handed_in = scope.spawn(|| member.save(Step(2), &theirs, &group(1)));
        writer.save_in(Step(2), &own, Default::default(), &group(0)).unwrap();
        handed_in.join().unwrap().unwrap();
    });
}

#[test]
fn scopes_nest_and_end() {
    let (outer, inner) = (Cancel::new(), Cancel::new());
    let in_scope = || Cancel::in_scope().is_some_and(|cancel| cancel.is_cancelled());
    inner.cancel();
    assert!(Cancel::in_scope().is_none());
    outer.scope(|| {
        assert!(!in_scope());
        inner.scope(|| assert!(in_scope()));
        assert!(!in_scope());
    });
    assert!(Cancel::in_scope().is_none());
}
