//! A repository in memory whose store watches what a save does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use everstep_format::bounds::Bounds;
use everstep_format::dtype::Dtype;
use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_format::name::RunName;
use everstep_format::repository::Chunking;
use everstep_repo::{InitOptions, OpenOptions, Repository, Session, Takeover};
use everstep_save::{
    Engine, Progress, Replicas, SaveCache, SaveError, SaveOptions, SaveReport, Settings, Shard, Source,
    State, Tools, save,
};
use everstep_store::memory::MemoryStore;
use everstep_store::{
    Class, Create, Deleted, Object, Page, Payload, Span, Store, StoreError, StoreErrorKind, SystemWorld,
    World,
};

/// What the store was asked for, and what it shall refuse.
#[derive(Debug)]
pub(crate) struct Spy {
    inner: MemoryStore,
    pub(crate) requests: AtomicU64,
    /// Keys written, with their bytes.
    pub(crate) written: Mutex<Vec<(Key, u64)>>,
    outstanding: AtomicU64,
    /// The most bytes of packs that were under way at once.
    pub(crate) most_outstanding: AtomicU64,
    pub(crate) fault: Mutex<Fault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fault {
    #[default]
    None,
    /// Every pack beyond the first so many is refused.
    PacksBeyond(usize),
    /// The index is refused.
    Index,
    /// No answer about decisions can be had.
    DecisionsLost,
}

impl Spy {
    fn new() -> Self {
        Self {
            inner: MemoryStore::private(),
            requests: AtomicU64::new(0),
            written: Mutex::default(),
            outstanding: AtomicU64::new(0),
            most_outstanding: AtomicU64::new(0),
            fault: Mutex::default(),
        }
    }

    fn count(&self) {
        self.requests.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn packs(&self) -> Vec<(Key, u64)> {
        let written = self.written.lock().unwrap();
        written.iter().filter(|(key, _)| matches!(key.kind(), Some(StoredKind::Pack(_)))).cloned().collect()
    }

    fn refuses(&self, key: &Key) -> bool {
        let packs = self.packs().len();
        match (*self.fault.lock().unwrap(), key.kind()) {
            (Fault::PacksBeyond(limit), Some(StoredKind::Pack(_))) => packs >= limit,
            (Fault::Index, Some(StoredKind::Index(..))) => true,
            (Fault::DecisionsLost, Some(StoredKind::Decision(..))) => true,
            _ => false,
        }
    }
}

fn refused(operation: &'static str, key: &Key) -> StoreError {
    StoreError::new(StoreErrorKind::Denied, operation, key, "403 from the test")
}

#[async_trait]
impl Store for Spy {
    fn describe(&self) -> String {
        "spy".to_owned()
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        self.count();
        if self.refuses(key) {
            return Err(refused("get", key));
        }
        self.inner.get(key, span).await
    }

    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError> {
        self.count();
        let len = body.len();
        let is_pack = matches!(key.kind(), Some(StoredKind::Pack(_)));
        if is_pack {
            let now = self.outstanding.fetch_add(len, Ordering::SeqCst) + len;
            self.most_outstanding.fetch_max(now, Ordering::SeqCst);
            // Lets other uploads begin, so that the most there can be is seen.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }
        let result = match self.refuses(key) {
            true => Err(refused("put", key)),
            false => self.inner.put(key, body, class).await,
        };
        if is_pack {
            self.outstanding.fetch_sub(len, Ordering::SeqCst);
        }
        if result.is_ok() {
            self.written.lock().unwrap().push((key.clone(), len));
        }
        result
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        self.count();
        if self.refuses(key) {
            return Ok(Create::Unknown(refused("create", key)));
        }
        let len = body.len();
        let created = self.inner.create(key, body).await?;
        if matches!(created, Create::Created) {
            self.written.lock().unwrap().push((key.clone(), len));
        }
        Ok(created)
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        self.count();
        self.inner.list(prefix, token).await
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        self.count();
        self.inner.delete(keys).await
    }

    async fn sync(&self) -> Result<(), StoreError> {
        self.inner.sync().await
    }
}

/// A repository and what saves into it need.
pub(crate) struct Bench {
    pub(crate) spy: Arc<Spy>,
    pub(crate) repository: Repository,
    pub(crate) engine: Engine,
    pub(crate) cache: SaveCache,
    pub(crate) settings: Settings,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(Chunking::default()).await
    }

    /// Blocks of so many elements.
    pub(crate) async fn with_blocks(block_elements: u64) -> Self {
        Self::with(Chunking { block_elements, ..Chunking::default() }).await
    }

    async fn with(chunking: Chunking) -> Self {
        Self::in_world(chunking, Arc::new(SystemWorld::new())).await
    }

    pub(crate) async fn in_world(chunking: Chunking, world: Arc<dyn World>) -> Self {
        let spy = Arc::new(Spy::new());
        let options = InitOptions { chunking, ..InitOptions::default() };
        let repository = Repository::init(spy.clone(), world, options).await.unwrap();
        Self {
            spy,
            repository,
            engine: Engine::new(2).unwrap(),
            cache: SaveCache::default(),
            settings: Settings::default(),
        }
    }

    pub(crate) async fn session(&self) -> Session {
        let options = OpenOptions { takeover: Takeover::Now, ..OpenOptions::default() };
        self.repository.open_session(&RunName::new("run").unwrap(), options).await.unwrap()
    }

    pub(crate) async fn save(
        &self,
        session: &mut Session,
        state: &State<'_>,
    ) -> Result<SaveReport, SaveError> {
        self.save_telling(session, state, &()).await
    }

    pub(crate) async fn save_telling(
        &self,
        session: &mut Session,
        state: &State<'_>,
        progress: &dyn Progress,
    ) -> Result<SaveReport, SaveError> {
        let Self { engine, settings, cache, .. } = self;
        let tools = Tools { pool: engine.pool(), settings, progress, cache };
        save(session, state, SaveOptions::at(1), &tools).await
    }

    pub(crate) fn requests(&self) -> u64 {
        self.spy.requests.load(Ordering::SeqCst)
    }
}

/// A whole tensor in memory.
pub(crate) fn whole<'a>(name: &str, dtype: Dtype, shape: &[u64], bytes: &'a [u8]) -> Shard<'a> {
    Shard {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
        bounds: Bounds::whole(shape),
        alias_of: None,
        replicas: Replicas::None,
        source: Source::Memory(bytes),
    }
}

pub(crate) fn tensors(shards: Vec<Shard<'_>>) -> State<'_> {
    State { shards, objects: Vec::new() }
}

/// A box.
pub(crate) fn bounds(offset: &[u64], extent: &[u64]) -> Bounds {
    Bounds { offset: offset.into(), extent: extent.into() }
}

/// Bytes that do not compress, the same for the same seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next()).collect();
    bytes.truncate(len);
    bytes
}

/// One tensor of bytes for each name.
pub(crate) fn many<'a>(names: &[String], data: &'a [Vec<u8>]) -> State<'a> {
    tensors(
        names
            .iter()
            .zip(data)
            .map(|(name, bytes)| whole(name, Dtype::U8, &[bytes.len() as u64], bytes))
            .collect(),
    )
}
