//! A repository in memory, with everything needed to save into it and to read from it.

use std::sync::{Arc, LazyLock};

use everstep_check::{CheckOptions, Report};
use everstep_format::bounds::Bounds;
use everstep_format::key::{Prefix, StoredKind};
use everstep_format::name::{Rank, RunName, Step};
use everstep_format::repository::Chunking;
use everstep_repo::{InitOptions, MemoryRendezvous, OpenOptions, Repository};
use everstep_restore::{
    CheckpointReader, Content as Stored, Entry, RestoreError, RestoreOptions, RestoreReport, Selection,
    Settings, StoredObject, Target, Tools,
};
use everstep_save::{
    Content, Engine, Group, Member, SaveCache, SaveError, SaveOptions, SaveReport, ShareOptions, State,
};
use everstep_store::{Listed, MemoryStore, SystemWorld, list_all};
use futures::future::{join, join_all};
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});
static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(2).unwrap());

fn tools<'t>(settings: &'t everstep_save::Settings, cache: &'t SaveCache) -> everstep_save::Tools<'t> {
    everstep_save::Tools { pool: ENGINE.pool(), settings, progress: &(), cache }
}

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

    #[expect(clippy::result_large_err, reason = "errors are rare, and tests look into them")]
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

    /// One save by as many ranks as there are `states`, in memory; all of them hear the same of it.
    #[expect(clippy::result_large_err, reason = "errors are rare, and tests look into them")]
    pub(crate) fn save_in_ranks(&self, states: &[State<'_>]) -> Result<CheckpointReader, SaveError> {
        let saved = RUNTIME.block_on(async {
            let mut session = self.repository.open_session(&self.run, OpenOptions::default()).await.unwrap();
            let (rendezvous, ticket) = (Arc::new(MemoryRendezvous::new()), session.ticket());
            let group = |rank: u32| {
                Group::new(Rank(rank), u32::try_from(states.len()).unwrap()).meeting(rendezvous.clone())
            };
            let settings = everstep_save::Settings::default();
            let hand_in = async |(rank, state): (u32, &State<'_>)| {
                let cache = SaveCache::default();
                let tools = tools(&settings, &cache);
                let mut member = Member::new(self.repository.clone(), ticket.clone());
                member.save(state, &ShareOptions { step: Step(1), group: group(rank) }, &tools).await
            };
            let members = join_all((1..).zip(&states[1..]).map(hand_in));
            let cache = SaveCache::default();
            let options = SaveOptions { group: group(0), ..SaveOptions::at(1) };
            let tools = tools(&settings, &cache);
            let (saved, members) =
                join(everstep_save::save(&mut session, &states[0], options, &tools), members).await;
            for member in members {
                assert_eq!(member.is_ok(), saved.is_ok(), "{member:?}");
            }
            session.close().await.unwrap();
            saved
        });
        Ok(CheckpointReader::new(&self.repository, saved?.checkpoint))
    }

    /// Bytes in packs, of one rank or of all.
    pub(crate) fn stored_bytes(&self, rank: Option<u32>) -> u64 {
        let objects = RUNTIME.block_on(list_all(self.repository.store().as_ref(), &Prefix::packs())).unwrap();
        let counts = |object: &&Listed| match object.key.kind() {
            Some(StoredKind::Pack(address)) => rank.is_none_or(|rank| address.rank.0 == rank),
            _ => false,
        };
        objects.iter().filter(counts).map(|object| object.size).sum()
    }

    pub(crate) fn object_of_rank(
        &self,
        reader: &CheckpointReader,
        name: &str,
        place: (Rank, u32),
    ) -> Result<Stored, RestoreError> {
        let settings = Settings::default();
        let tools = Tools { pool: ENGINE.pool(), settings: &settings, progress: &() };
        RUNTIME.block_on(reader.object_of_rank(name, place, &tools))
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

    /// What a deep check calls damage; parts and unused packs are none.
    pub(crate) fn sound(&self) -> Vec<String> {
        self.check().damage().map(|finding| format!("{finding:?}")).collect()
    }

    /// Whatever a deep check does not like, in words.
    pub(crate) fn damage(&self) -> Vec<String> {
        self.check().findings.iter().map(|finding| format!("{finding:?}")).collect()
    }

    fn check(&self) -> Report {
        let settings = everstep_check::Settings::default();
        let tools = everstep_check::Tools { pool: ENGINE.pool(), settings: &settings, progress: &() };
        let options = CheckOptions { deep: true, only: None };
        RUNTIME.block_on(everstep_check::check(&self.repository, &options, &tools)).unwrap()
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
