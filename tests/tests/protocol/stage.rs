//! The stage the protocol is tested on: a store in memory with scripted faults and a log of calls, and a
//! world whose clock only the test (or a short wait of the code under test) moves.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use everstep_format::decision::{IndexRef, RefsRef, Totals};
use everstep_format::id::{ContentHash, RepositoryId};
use everstep_format::key::{Key, Prefix};
use everstep_format::name::{Ordinal, RunName, Step};
use everstep_format::repository::{Chunking, RepositoryConfig, WriterMode};
use everstep_repo::{
    Attempt, Checkpoint, CommitOutcome, Draft, OpenOptions, Parents, RepoError, Repository, Session, Takeover,
};
use everstep_store::{
    Class, Create, Deleted, Listed, Object, Page, Payload, Span, Store, StoreError, StoreErrorKind, World,
};
use futures::future::BoxFuture;
use tokio::sync::watch;

/// What happens to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing is done and no answer comes.
    Lost,
    /// It is done, but no answer comes.
    ReplyLost,
    /// It is done; a retry below found the object and says `Exists`.
    ReplyLostThenExists,
    /// `Exists` is said, nothing is stored.
    FalseExists,
    /// Other bytes are stored first, by somebody else.
    Beaten(Vec<u8>),
    /// The store says no and surely did nothing.
    Denied,
    /// These objects appear just before a read is served.
    Before(Vec<(Key, Bytes)>),
}

type Script = Box<dyn FnMut(&str, &str) -> Option<Fault> + Send>;

#[derive(Default)]
struct Inner {
    objects: BTreeMap<String, (Bytes, SystemTime)>,
    calls: Vec<(String, String)>,
    script: Option<Script>,
}

/// Objects in memory.
pub(crate) struct Shelf {
    inner: Mutex<Inner>,
    world: Arc<Clockwork>,
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shelf")
    }
}

impl Shelf {
    pub(crate) fn script(&self, script: impl FnMut(&str, &str) -> Option<Fault> + Send + 'static) {
        self.inner.lock().unwrap().script = Some(Box::new(script));
    }

    /// `fault` on the first call of `operation` on a key that contains `part`.
    pub(crate) fn once(&self, operation: &'static str, part: &'static str, fault: Fault) {
        let mut fault = Some(fault);
        self.script(
            move |called, key| {
                if called == operation && key.contains(part) { fault.take() } else { None }
            },
        );
    }

    pub(crate) fn heal(&self) {
        self.inner.lock().unwrap().script = None;
    }

    /// The calls since the last time, as "operation key".
    pub(crate) fn take_calls(&self) -> Vec<String> {
        let calls = std::mem::take(&mut self.inner.lock().unwrap().calls);
        calls.into_iter().map(|(operation, key)| format!("{operation} {key}")).collect()
    }

    pub(crate) fn keys(&self, prefix: &str) -> Vec<String> {
        let inner = self.inner.lock().unwrap();
        inner.objects.keys().filter(|key| key.starts_with(prefix)).cloned().collect()
    }

    pub(crate) fn read(&self, key: &Key) -> Option<Bytes> {
        self.inner.lock().unwrap().objects.get(key.as_str()).map(|(bytes, _)| bytes.clone())
    }

    /// Puts an object behind everybody's back.
    pub(crate) fn plant(&self, key: impl AsRef<str>, bytes: impl Into<Vec<u8>>) {
        let bytes = Bytes::from(bytes.into());
        let now = self.world.now();
        self.inner.lock().unwrap().objects.insert(key.as_ref().to_owned(), (bytes, now));
    }

    pub(crate) fn steal(&self, key: &Key) {
        self.inner.lock().unwrap().objects.remove(key.as_str());
    }

    fn enter(&self, operation: &'static str, key: &str) -> Option<Fault> {
        let mut inner = self.inner.lock().unwrap();
        inner.calls.push((operation.to_owned(), key.to_owned()));
        let mut script = inner.script.take()?;
        let fault = script(operation, key);
        inner.script = Some(script);
        fault
    }

    fn insert(&self, key: &Key, body: &Payload) {
        self.plant(key.as_str(), body.0.concat());
    }
}

fn no_answer(operation: &'static str, key: impl std::fmt::Display) -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, operation, key, "scripted: no answer")
}

fn denied(operation: &'static str, key: impl std::fmt::Display) -> StoreError {
    StoreError::new(StoreErrorKind::Denied, operation, key, "scripted: denied")
}

#[async_trait]
impl Store for Shelf {
    fn describe(&self) -> String {
        "memory://shelf".to_owned()
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        match self.enter("get", key.as_str()) {
            Some(Fault::Denied) => return Err(denied("get", key)),
            Some(Fault::Before(objects)) => {
                objects.into_iter().for_each(|(key, bytes)| self.plant(key.as_str(), bytes));
            }
            Some(_) => return Err(no_answer("get", key)),
            None => {}
        }
        let none = || StoreError::new(StoreErrorKind::NotFound, "get", key, "no such object");
        let bytes = self.read(key).ok_or_else(none)?;
        let range = span.within(bytes.len() as u64);
        let range = range.map_err(|(kind, why)| StoreError::new(kind, "get", key, why))?;
        let (start, end) = (usize::try_from(range.start).unwrap(), usize::try_from(range.end).unwrap());
        Ok(Object { bytes: bytes.slice(start..end) })
    }

    async fn put(&self, key: &Key, body: Payload, _: Class) -> Result<(), StoreError> {
        match self.enter("put", key.as_str()) {
            Some(Fault::Lost) => return Err(no_answer("put", key)),
            Some(Fault::Denied) => return Err(denied("put", key)),
            Some(_) => {
                self.insert(key, &body);
                return Err(no_answer("put", key));
            }
            None => self.insert(key, &body),
        }
        Ok(())
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        let fault = self.enter("create", key.as_str());
        if let Some(Fault::Beaten(bytes)) = &fault {
            self.plant(key.as_str(), bytes.clone());
        }
        match &fault {
            Some(Fault::Lost) => return Ok(Create::Unknown(no_answer("create", key))),
            Some(Fault::Denied) => return Err(denied("create", key)),
            Some(Fault::FalseExists) => return Ok(Create::Exists),
            _ => {}
        }
        let mut inner = self.inner.lock().unwrap();
        let taken = inner.objects.contains_key(key.as_str());
        if !taken {
            let now = self.world.now();
            inner.objects.insert(key.as_str().to_owned(), (Bytes::from(body.0.concat()), now));
        }
        Ok(match fault {
            Some(Fault::ReplyLost) => Create::Unknown(no_answer("create", key)),
            Some(Fault::ReplyLostThenExists) => Create::Exists,
            _ if taken => Create::Exists,
            _ => Create::Created,
        })
    }

    /// Pages of three, so that every listing of a test spans several.
    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        if self.enter("list", prefix.as_str()).is_some() {
            return Err(no_answer("list", prefix));
        }
        let inner = self.inner.lock().unwrap();
        let after = token.unwrap_or_default();
        let mut below =
            inner.objects.iter().filter(|(key, _)| key.starts_with(prefix.as_str()) && **key > after);
        let mut page = Page::default();
        for (key, (bytes, modified)) in below.by_ref().take(3) {
            let (size, modified) = (bytes.len() as u64, *modified);
            match Key::listed(key) {
                Some(key) => page.objects.push(Listed { key, size, modified }),
                None => page.strays.push(key.clone()),
            }
            page.next = Some(key.clone());
        }
        if below.next().is_none() {
            page.next = None;
        }
        Ok(page)
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        for key in keys {
            if self.enter("delete", key.as_str()).is_some() {
                return Err(no_answer("delete", key));
            }
            self.steal(key);
        }
        Ok(keys.iter().map(|key| Deleted { key: key.clone(), result: Ok(()) }).collect())
    }

    async fn sync(&self) -> Result<(), StoreError> {
        match self.enter("sync", "") {
            Some(_) => Err(no_answer("sync", "everything")),
            None => Ok(()),
        }
    }
}

/// A clock that stands still until it is moved. Waits of less than a minute move it; longer ones wait for
/// [`Clockwork::advance`], so that signs of life are written exactly when a test says so.
#[derive(Debug)]
pub(crate) struct Clockwork {
    milliseconds: watch::Sender<u64>,
    random: AtomicU64,
}

const SHORT: Duration = Duration::from_secs(60);

impl Clockwork {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { milliseconds: watch::Sender::new(0), random: AtomicU64::new(1) })
    }

    pub(crate) fn advance(&self, time: Duration) {
        self.milliseconds.send_modify(|now| *now += u64::try_from(time.as_millis()).unwrap());
    }
}

#[async_trait]
impl World for Clockwork {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000) + self.elapsed()
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(*self.milliseconds.borrow())
    }

    async fn sleep(&self, time: Duration) {
        if time < SHORT {
            self.advance(time);
            return tokio::task::yield_now().await;
        }
        let due = self.elapsed() + time;
        let due = u64::try_from(due.as_millis()).unwrap();
        let reached = self.milliseconds.subscribe().wait_for(|now| *now >= due).await.map(drop);
        reached.expect("the clock outlives whoever waits for it");
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        let number = self.random.fetch_add(1, Ordering::Relaxed);
        let stream = ContentHash::of(&number.to_le_bytes()).0;
        bytes.iter_mut().zip(stream.iter().cycle()).for_each(|(byte, random)| *byte = *random);
    }

    #[expect(clippy::disallowed_methods, reason = "this is the test's door")]
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

/// A store with a repository in it.
pub(crate) struct Stage {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) world: Arc<Clockwork>,
    pub(crate) repository: Repository,
}

pub(crate) fn bare() -> (Arc<Shelf>, Arc<Clockwork>) {
    let world = Clockwork::new();
    let shelf = Arc::new(Shelf { inner: Mutex::default(), world: world.clone() });
    (shelf, world)
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::made_for(WriterMode::ManyWriters).await
    }

    /// A repository whose store was found (or declared) to be so, without the requests of the probe.
    pub(crate) async fn made_for(writers: WriterMode) -> Self {
        let (shelf, world) = bare();
        let created = "2026-01-01T00:00:00Z".to_owned();
        let config = RepositoryConfig::new(RepositoryId([9; 16]), Chunking::default(), writers, created);
        shelf.plant(Key::repository().as_str(), config.to_bytes().unwrap());
        let repository = Repository::open(shelf.clone(), world.clone()).await.unwrap();
        shelf.take_calls();
        Self { shelf, world, repository }
    }

    /// Another process: the same store, nothing remembered.
    pub(crate) async fn reopen(&self) -> Repository {
        Repository::open(self.shelf.clone(), self.world.clone()).await.unwrap()
    }

    pub(crate) async fn session(&self, options: OpenOptions) -> Session {
        self.reopen().await.open_session(&run(), options).await.unwrap()
    }

    pub(crate) async fn closed_run(&self, steps: &[u64]) -> Vec<Checkpoint> {
        let mut session = self.session(now("setup")).await;
        let mut checkpoints = Vec::new();
        for step in steps {
            checkpoints.push(save(&mut session, *step).await.unwrap());
        }
        session.close().await.unwrap();
        self.shelf.take_calls();
        checkpoints
    }
}

pub(crate) fn run() -> RunName {
    RunName::new("llama").unwrap()
}

pub(crate) fn job(job: &str, takeover: Takeover) -> OpenOptions {
    OpenOptions { job: Some(job.to_owned()), takeover, ..OpenOptions::default() }
}

pub(crate) fn now(label: &str) -> OpenOptions {
    job(label, Takeover::Now)
}

/// Stores an index and refs (any bytes will do for the protocol) and says what a COMMIT must say.
pub(crate) async fn upload(session: &Session, attempt: &Attempt) -> Result<Draft, StoreError> {
    let store = session.repository().store();
    let index = Bytes::from(format!("index of {}", attempt.id));
    let refs = Bytes::from(format!("refs of {}", attempt.id));
    let (index_hash, refs_hash) = (ContentHash::of(&index), ContentHash::of(&refs));
    let draft = Draft {
        index: IndexRef {
            blake3: index_hash,
            len: index.len() as u64,
            rows: 1,
            footer_offset: 4,
            footer_blake3: ContentHash::of(&index[4..]),
        },
        refs: RefsRef { blake3: refs_hash, len: refs.len() as u64, packs: 1 },
        owners: vec![attempt.id],
        totals: Totals {
            chunks: 3,
            chunks_new: 3,
            new_raw_bytes: 300,
            new_stored_bytes: 200,
            ..Totals::default()
        },
        metadata: serde_json::Map::new(),
        stats: None,
    };
    store.put(&Key::index(attempt.id, index_hash), index.into(), Class::Bulk).await?;
    store.put(&Key::refs(attempt.id, refs_hash), refs.into(), Class::Bulk).await?;
    Ok(draft)
}

pub(crate) async fn save(session: &mut Session, step: u64) -> Result<Checkpoint, RepoError> {
    save_with(session, step, serde_json::Map::new()).await
}

pub(crate) async fn save_with(
    session: &mut Session,
    step: u64,
    metadata: serde_json::Map<String, serde_json::Value>,
) -> Result<Checkpoint, RepoError> {
    let attempt = session.begin(Step(step), 1, Parents::Latest).await?;
    let draft = Draft { metadata, ..upload(session, &attempt).await? };
    match session.commit(attempt, draft).await? {
        CommitOutcome::Committed(checkpoint) => Ok(checkpoint),
        CommitOutcome::Conflict(error) => Err(error),
        CommitOutcome::Unknown(error) => Err(error.into()),
    }
}

/// The ordinal and step of the newest checkpoint, as a process without memory sees it.
pub(crate) async fn latest(stage: &Stage) -> Option<(Ordinal, Step)> {
    let latest = stage.reopen().await.latest(&run()).await.unwrap();
    latest.map(|checkpoint| (checkpoint.manifest.ordinal, checkpoint.manifest.step))
}
