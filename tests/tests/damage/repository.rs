//! A small repository as a map from keys to bytes, so that every damage gets a repository of its own in a moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use everstep_check::{CheckOptions, Finding, Report};
use everstep_format::bounds::Bounds;
use everstep_format::dtype::Dtype;
use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_format::name::{Ordinal, PinName, RunName};
use everstep_format::repository::Chunking;
use everstep_format::row::{Kind, Row};
use everstep_format::value::Value;
use everstep_repo::{Checkpoint, IndexReader, InitOptions, LeaseOptions, OpenOptions, RepoError, Repository};
use everstep_restore::{CheckpointReader, RestoreError, RestoreOptions, Selection, Settings, Target, Tools};
use everstep_save::{
    Content, Engine, ObjectEntry, Owner, Replicas, SaveCache, SaveOptions, Shard, Source, State,
};
use everstep_store::{Class, MemoryStore, Span, Store, SystemWorld, list_all};
use tokio::runtime::Runtime;

use crate::inflict::Damage;

pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});
pub(crate) static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(2).unwrap());
static SOUND: LazyLock<Image> = LazyLock::new(|| RUNTIME.block_on(build()));

/// Tensors by name, each with its bytes.
pub(crate) type Contents = BTreeMap<String, Vec<u8>>;

/// What a load came to.
pub(crate) type Loaded = Result<Contents, RestoreError>;

/// A checkpoint of the image.
pub(crate) struct Point {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) decision: Key,
    pub(crate) expected: Contents,
    rows: Vec<Row>,
}

/// All objects of a repository.
pub(crate) struct Image {
    objects: BTreeMap<String, Bytes>,
    pub(crate) points: Vec<Point>,
}

/// A repository that was opened on an image.
pub(crate) struct World {
    pub(crate) repository: Repository,
}

impl Point {
    /// As a finding names it.
    pub(crate) fn describe(&self) -> String {
        let manifest = &self.checkpoint.manifest;
        format!("{}@ordinal={} (step {})", manifest.run, manifest.ordinal, manifest.step)
    }
}

impl Image {
    pub(crate) fn sound() -> &'static Self {
        &SOUND
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.objects.keys().cloned().collect()
    }

    pub(crate) fn bytes(&self, key: &str) -> &Bytes {
        &self.objects[key]
    }

    pub(crate) fn packs(&self) -> Vec<String> {
        self.keys().into_iter().filter(|key| key.starts_with("packs/")).collect()
    }

    /// The objects after `damage`.
    pub(crate) fn with(&self, damage: &Damage) -> Self {
        let mut objects = self.objects.clone();
        for (key, now) in &damage.now {
            match now {
                Some(bytes) => drop(objects.insert(key.clone(), bytes.clone())),
                None => drop(objects.remove(key)),
            }
        }
        Self { objects, points: Vec::new() }
    }

    /// A store that holds these objects.
    pub(crate) async fn store(&self) -> Arc<dyn Store> {
        let store = MemoryStore::private();
        for (key, bytes) in &self.objects {
            let key = Key::listed(key).unwrap();
            store.put(&key, bytes.clone().into(), Class::Control).await.unwrap();
        }
        Arc::new(store)
    }

    /// `None` when `everstep.json` cannot be read.
    pub(crate) fn open(&self) -> Option<World> {
        RUNTIME.block_on(async {
            match Repository::open(self.store().await, Arc::new(SystemWorld::new())).await {
                Ok(repository) => Some(World { repository }),
                Err(RepoError::Object { key, .. }) => {
                    assert_eq!(key, Key::repository());
                    None
                }
                Err(RepoError::NotFound(_)) => None,
                Err(error) => panic!("{error}"),
            }
        })
    }

    /// Whether `point` can possibly notice that `key` is damaged.
    pub(crate) fn uses(&self, point: &Point, key: &str) -> bool {
        let own = [&point.decision, &point.checkpoint.index_key()].map(Key::to_string);
        own.iter().any(|own| own == key) || !self.names_in(point, &Key::listed(key).unwrap()).is_empty()
    }

    /// Whether `point` cannot be restored rightly when `key` is `now`. Of a pack, only the payloads that it uses count:
    /// its header and table are not needed to restore, and two packs may hold the same payloads.
    pub(crate) fn needs(&self, point: &Point, key: &str, now: Option<&Bytes>) -> bool {
        let Some(StoredKind::Pack(address)) = Key::listed(key).unwrap().kind() else {
            return self.uses(point, key);
        };
        let used = point.rows.iter().filter_map(|row| row.piece.as_ref()).map(|piece| piece.location);
        used.filter(|location| location.pack == address).any(|location| {
            let start = usize::try_from(location.pack_offset).unwrap();
            let payload = start..start + usize::try_from(location.stored_len).unwrap();
            now.and_then(|now| now.get(payload.clone())) != self.bytes(key).get(payload)
        })
    }

    /// Everything of `point` that has bytes in the pack `key`.
    pub(crate) fn names_in(&self, point: &Point, key: &Key) -> BTreeSet<String> {
        let in_it =
            |row: &&Row| row.piece.as_ref().is_some_and(|piece| Key::pack(&piece.location.pack) == *key);
        point.rows.iter().filter(in_it).map(|row| row.name.to_string()).collect()
    }

    /// Whether nothing is lost, and nothing can be noticed, when `key` is gone: a sign of life, or the decision of a
    /// fence, which is ABORT by definition.
    pub(crate) fn may_vanish(&self, key: &str) -> bool {
        match Key::listed(key).unwrap().kind() {
            Some(
                StoredKind::Session(_)
                | StoredKind::Alive(_)
                | StoredKind::Lease(_)
                | StoredKind::LeaseEnd(_),
            ) => true,
            Some(StoredKind::Decision(run, ordinal)) => {
                let committed = |point: &Point| {
                    let manifest = &point.checkpoint.manifest;
                    manifest.run == run && manifest.ordinal == ordinal
                };
                !self.points.iter().any(committed)
            }
            _ => false,
        }
    }
}

impl World {
    /// Restores everything in the checkpoint that `point` was, as a trainer would.
    pub(crate) fn load(&self, point: &Point) -> Loaded {
        let manifest = &point.checkpoint.manifest;
        RUNTIME.block_on(load(&self.repository, (&manifest.run, manifest.ordinal)))
    }

    pub(crate) fn check(&self, deep: bool) -> Vec<Finding> {
        self.report(&CheckOptions { deep, only: None }).findings
    }

    pub(crate) fn report(&self, options: &CheckOptions) -> Report {
        let settings = everstep_check::Settings::default();
        let tools = everstep_check::Tools { pool: ENGINE.pool(), settings: &settings, progress: &() };
        RUNTIME.block_on(everstep_check::check(&self.repository, options, &tools)).unwrap()
    }
}

async fn load(repository: &Repository, (run, ordinal): (&RunName, Ordinal)) -> Loaded {
    let checkpoint = repository.checkpoint(run, ordinal).await?;
    let reader = CheckpointReader::new(repository, checkpoint);
    let settings = Settings::default();
    let tools = Tools { pool: ENGINE.pool(), settings: &settings, progress: &() };
    let entries = reader.entries(&Selection::all()).await?;
    let mut contents = Contents::new();
    for entry in entries.iter().filter(|entry| entry.kind == Kind::Tensor) {
        contents.insert(entry.name.to_string(), vec![0; usize::try_from(entry.raw_bytes).unwrap()]);
    }
    let targets = contents.iter_mut().map(|(name, into)| {
        let entry = entries.iter().find(|entry| *entry.name == **name).unwrap();
        let shape = entry.shape.clone();
        let dtype = entry.element.name().parse().unwrap();
        Target { name: name.clone(), dtype, bounds: Bounds::whole(&shape), shape, into }
    });
    everstep_restore::restore(&reader, targets.collect(), &RestoreOptions::default(), &tools).await?;
    for object in reader.objects(&Selection::all(), None, &tools).await? {
        contents.insert(object.name.to_string(), object_bytes(&object.content));
    }
    Ok(contents)
}

fn object_bytes(content: &everstep_restore::Content) -> Vec<u8> {
    match content {
        everstep_restore::Content::Value(value) => value.to_bytes().unwrap(),
        everstep_restore::Content::Opaque(bytes) => bytes.to_vec(),
    }
}

/// Bytes that no codec shortens.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(|_| next()).collect()
}

/// Floats of one scale, which the planes codec shortens.
fn weights(count: usize, seed: u64) -> Vec<u8> {
    let value = |byte: u8| (f32::from(byte) - 127.5) / 1000.0;
    noise(count, seed).into_iter().flat_map(|byte| value(byte).to_le_bytes()).collect()
}

fn counting(count: usize) -> Vec<u8> {
    (0..count as u64).flat_map(|n| (n / 7).to_le_bytes()).collect()
}

/// Three tensors, as in the case, and an object.
fn contents(seed: u64) -> Contents {
    let step = Value::Map(vec![(Value::Text("step".into()), Value::Int(1))]).to_bytes().unwrap();
    [
        ("counts".to_owned(), counting(1500)),
        ("noise".to_owned(), noise(9000, seed)),
        ("trainer".to_owned(), step),
        ("weights".to_owned(), weights(5000, 7)),
    ]
    .into()
}

fn dtype(name: &str) -> Dtype {
    match name {
        "counts" => Dtype::I64,
        "weights" => Dtype::F32,
        _ => Dtype::U8,
    }
}

fn state(contents: &Contents) -> State<'_> {
    let mut state = State::default();
    for (name, bytes) in contents {
        if name == "trainer" {
            let content = Content::Value(Value::from_bytes(bytes).unwrap());
            state.objects.push(ObjectEntry { name: name.clone(), owner: Owner::Job, content });
            continue;
        }
        let dtype = dtype(name);
        let shape = vec![bytes.len() as u64 * 8 / dtype.bits()];
        let (bounds, source) = (Bounds::whole(&shape), Source::Memory(bytes));
        state.shards.push(Shard {
            name: name.clone(),
            dtype,
            shape,
            bounds,
            alias_of: None,
            replicas: Replicas::None,
            source,
        });
    }
    state
}

/// Small blocks and small packs, so that a small state has many of both.
pub(crate) async fn empty() -> Repository {
    let chunking = Chunking { block_elements: 1024, block_bytes: 4096, overrides: vec![] };
    let options = InitOptions { chunking, single_writer: false };
    Repository::init(Arc::new(MemoryStore::private()), Arc::new(SystemWorld::new()), options).await.unwrap()
}

/// Saves `steps` in one session, each the seed of what changes.
pub(crate) async fn train(repository: &Repository, run: &str, steps: &[u64]) -> Vec<(Checkpoint, Contents)> {
    let run: RunName = run.parse().unwrap();
    let mut session = repository.open_session(&run, OpenOptions::default()).await.unwrap();
    let settings = everstep_save::Settings { pack_target: 12 << 10, ..Default::default() };
    let cache = SaveCache::default();
    let tools =
        everstep_save::Tools { pool: ENGINE.pool(), settings: &settings, progress: &(), cache: &cache };
    let mut saved = Vec::new();
    for &step in steps {
        let contents = contents(step);
        let state = state(&contents);
        let report = everstep_save::save(&mut session, &state, SaveOptions::at(step), &tools).await.unwrap();
        saved.push((report.checkpoint, contents));
    }
    session.close().await.unwrap();
    saved
}

/// Every object that `store` holds.
pub(crate) async fn objects(store: &dyn Store) -> BTreeMap<String, Bytes> {
    let mut objects = BTreeMap::new();
    for listed in list_all(store, &Prefix::everything()).await.unwrap() {
        let object = store.get(&listed.key, Span::Whole).await.unwrap();
        objects.insert(listed.key.to_string(), object.bytes);
    }
    objects
}

/// Pins a checkpoint; what is pinned is a checkpoint like any other.
async fn pinned(
    repository: &Repository,
    (checkpoint, contents): &(Checkpoint, Contents),
) -> (Checkpoint, Contents) {
    let name = PinName::new("release").unwrap();
    let pinned = repository.pin(&name, checkpoint).await.unwrap();
    repository.open_session(&RunName::pins(), OpenOptions::default()).await.unwrap().close().await.unwrap();
    (pinned.checkpoint, contents.clone())
}

/// One lease that counts, and one that has ended.
async fn lease(repository: &Repository, checkpoint: &Checkpoint) {
    repository.lease(checkpoint, LeaseOptions::default()).await.unwrap().end().await.unwrap();
    drop(repository.lease(checkpoint, LeaseOptions::default()).await.unwrap());
}

/// Two runs, a pin and leases; in one run, checkpoints that share chunks. Each run is opened once more at the end, so that every decision
/// below that fence is known to have been made.
async fn build() -> Image {
    let repository = empty().await;
    let mut saved = train(&repository, "run", &[10, 20]).await;
    saved.extend(train(&repository, "run", &[30]).await);
    saved.extend(train(&repository, "other", &[40]).await);
    for run in ["run", "other"] {
        train(&repository, run, &[]).await;
    }
    saved.push(pinned(&repository, &saved[1]).await);
    lease(&repository, &saved[0].0).await;
    let mut points = Vec::new();
    for (checkpoint, expected) in saved {
        let rows = IndexReader::new(repository.store().clone(), checkpoint.clone()).all().await.unwrap();
        let decision = Key::decision(&checkpoint.manifest.run, checkpoint.manifest.ordinal);
        points.push(Point { checkpoint, decision, expected, rows });
    }
    Image { objects: objects(repository.store().as_ref()).await, points }
}
