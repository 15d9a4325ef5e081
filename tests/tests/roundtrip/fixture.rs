//! A repository in memory, with everything needed to save into it and to read from it.

use std::sync::{Arc, LazyLock};

use everstep_check::CheckOptions;
use everstep_format::bounds::Bounds;
use everstep_format::name::{Rank, RunName};
use everstep_format::repository::Chunking;
use everstep_repo::{InitOptions, OpenOptions, Repository};
use everstep_restore::{
    CheckpointReader, Content as Stored, Entry, RestoreError, RestoreOptions, RestoreReport, Selection,
    Settings, StoredObject, Target, Tools,
};
use everstep_save::{Content, Engine, SaveCache, SaveError, SaveOptions, SaveReport, State};
use everstep_store::{MemoryStore, SystemWorld};
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});
static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(2).unwrap());

pub(crate) struct Fixture {
    repository: Repository,
    run: RunName,
}

impl Fixture {
    pub(crate) fn new(chunking: Chunking) -> Self {
        // The probe of the store has its own tests; here every case needs a repository.
        let options = InitOptions { chunking, single_writer: true };
        let made = Repository::init(Arc::new(MemoryStore::private()), Arc::new(SystemWorld::new()), options);
        Self { repository: RUNTIME.block_on(made).unwrap(), run: "run".parse().unwrap() }
    }

    pub(crate) fn save(&self, state: &State<'_>) -> CheckpointReader {
        let report = self.save_report(state);
        CheckpointReader::new(&self.repository, report.checkpoint)
    }

    pub(crate) fn save_report(&self, state: &State<'_>) -> SaveReport {
        self.try_save(state).unwrap()
    }

    pub(crate) fn try_save(&self, state: &State<'_>) -> Result<SaveReport, SaveError> {
        RUNTIME.block_on(async {
            let mut session = self.repository.open_session(&self.run, OpenOptions::default()).await.unwrap();
            let (settings, cache) = (everstep_save::Settings::default(), SaveCache::default());
            let tools = everstep_save::Tools {
                pool: ENGINE.pool(),
                settings: &settings,
                progress: &(),
                cache: &cache,
            };
            let report = everstep_save::save(&mut session, state, SaveOptions::at(1), &tools).await;
            session.close().await.unwrap();
            report
        })
    }

    pub(crate) fn restore(
        &self,
        reader: &CheckpointReader,
        targets: Vec<Target<'_>>,
        options: &RestoreOptions,
        settings: &Settings,
    ) -> Result<RestoreReport, RestoreError> {
        let tools = Tools { pool: ENGINE.pool(), settings, progress: &() };
        RUNTIME.block_on(everstep_restore::restore(reader, targets, options, &tools))
    }

    pub(crate) fn entry(&self, reader: &CheckpointReader, name: &str) -> Option<Entry> {
        // A fresh reader has no rows yet, so this is the look-up of a single name.
        let fresh = CheckpointReader::new(&self.repository, reader.checkpoint().clone());
        RUNTIME.block_on(fresh.entry(name)).unwrap()
    }

    pub(crate) fn read(&self, reader: &CheckpointReader, name: &str, bounds: Option<Bounds>) -> Vec<u8> {
        self.try_read(reader, name, bounds).unwrap()
    }

    pub(crate) fn try_read(
        &self,
        reader: &CheckpointReader,
        name: &str,
        bounds: Option<Bounds>,
    ) -> Result<Vec<u8>, RestoreError> {
        let settings = Settings::default();
        let tools = Tools { pool: ENGINE.pool(), settings: &settings, progress: &() };
        RUNTIME.block_on(reader.read_box(name, bounds, &tools))
    }

    pub(crate) fn object(
        &self,
        reader: &CheckpointReader,
        name: &str,
        rank: Option<Rank>,
    ) -> Result<Stored, RestoreError> {
        let settings = Settings::default();
        let tools = Tools { pool: ENGINE.pool(), settings: &settings, progress: &() };
        RUNTIME.block_on(reader.object(name, rank, &tools))
    }

    pub(crate) fn objects(&self, reader: &CheckpointReader) -> Vec<StoredObject> {
        let settings = Settings::default();
        let tools = Tools { pool: ENGINE.pool(), settings: &settings, progress: &() };
        RUNTIME.block_on(reader.objects(&Selection::all(), None, &tools)).unwrap()
    }

    pub(crate) fn entries(&self, reader: &CheckpointReader) -> Vec<Entry> {
        RUNTIME.block_on(reader.entries(&Selection::all())).unwrap()
    }

    /// Whatever a deep check does not like, in words.
    pub(crate) fn damage(&self) -> Vec<String> {
        let settings = everstep_check::Settings::default();
        let tools = everstep_check::Tools { pool: ENGINE.pool(), settings: &settings, progress: &() };
        let options = CheckOptions { deep: true, only: None };
        let report = RUNTIME.block_on(everstep_check::check(&self.repository, &options, &tools)).unwrap();
        report.findings.iter().map(|finding| format!("{finding:?}")).collect()
    }
}

/// The canonical bytes of an object that is to be saved.
pub(crate) fn bytes_of(content: &Content) -> Vec<u8> {
    match content {
        Content::Value(value) => value.to_bytes().unwrap(),
        Content::Opaque(bytes) => bytes.to_vec(),
    }
}

/// The canonical bytes of an object that was read.
pub(crate) fn bytes_of_stored(content: &Stored) -> Vec<u8> {
    match content {
        Stored::Value(value) => value.to_bytes().unwrap(),
        Stored::Opaque(bytes) => bytes.to_vec(),
    }
}
