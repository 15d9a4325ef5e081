//! An open repository with the threads that serve it.

use std::fmt;
use std::ops::{Deref, Range};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use everstep_check::{CheckOptions, Tools};
use everstep_format::name::RunName;
use everstep_format::reference::CheckpointRef;
use everstep_repo::{InitOptions, Rendezvous, Repository as Inner, StoreRendezvous};
use everstep_store::{Snapshot, Store, SystemWorld, World};
use futures::future::{Either, select};
use tokio::runtime::Runtime;

use crate::cpu::CpuThreads;
use crate::progress::Watched;
use crate::{Cancel, Checkpoint, Error, Options, Progress, Report, Run};

/// One prefix in one store. Cheap to clone; every clone shares threads and connections.
#[derive(Clone)]
pub struct Repository {
    pub(crate) inner: Inner,
    pub(crate) engine: Arc<Engine>,
}

/// The threads of a repository, and how it uses them.
pub(crate) struct Engine {
    pub(crate) runtime: IoThreads,
    pub(crate) cpu: CpuThreads,
    pub(crate) options: Options,
}

/// The runtime. Dropping it waits for nothing: a call that was stopped may have left a request behind that hangs.
pub(crate) struct IoThreads(Option<Runtime>);

impl Deref for IoThreads {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("only dropping takes it")
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// What a repository needs of the outside world.
pub(crate) type Outside = (Arc<dyn Store>, Arc<dyn World>);

impl Engine {
    pub(crate) fn new(options: &Options) -> Result<Self, Error> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores.max(2))
            .thread_name("everstep-io")
            .enable_all()
            .build()
            .map_err(|e| Error::invalid(format!("cannot start the I/O threads: {e}")))?;
        let cpu = CpuThreads::new(options, cores)?;
        Ok(Self { runtime: IoThreads(Some(runtime)), cpu, options: options.clone() })
    }

    /// Clock and randomness of this machine.
    pub(crate) fn world() -> Arc<dyn World> {
        Arc::new(SystemWorld::new())
    }

    /// Drives `work` on the calling thread until it ends, or until the token in scope is cancelled: then `work` is dropped,
    /// so that it has let go of all memory when this returns.
    pub(crate) fn wait<T, E>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, Error>
    where
        Error: From<E>,
    {
        // Behind a pointer, or the compiler would make all that drives it anew for every future there is.
        let work: Pin<&mut dyn Future<Output = Result<T, E>>> = pin!(work);
        let Some(cancel) = Cancel::in_scope() else { return Ok(self.runtime.block_on(work)?) };
        if cancel.is_cancelled() {
            return Err(Error::interrupted());
        }
        self.runtime.block_on(async {
            match select(work, pin!(cancel.cancelled())).await {
                Either::Left((result, _)) => Ok(result?),
                Either::Right(_) => Err(Error::interrupted()),
            }
        })
    }

    pub(crate) fn open_store(&self, address: &str) -> Result<Outside, Error> {
        let world = Self::world();
        let store = self.wait(everstep_store::open(address, &self.options.store, world.clone()))?;
        Ok((store, world))
    }
}

impl Repository {
    /// Makes a repository at `address` (`file:///path`, a plain path, `s3://bucket/prefix`, `gs://bucket/prefix`,
    /// `az://container/prefix`, `memory://name`). The store
    /// is probed first: its put-if-absent must be atomic, or `init.single_writer` be asked for.
    ///
    /// # Errors
    /// `Conflict` when one is there or the store cannot be trusted; `PermissionDenied`, `Unreachable`.
    pub fn init(address: &str, options: &Options, init: InitOptions) -> Result<Self, Error> {
        let engine = Arc::new(Engine::new(options)?);
        let (store, world) = engine.open_store(address)?;
        let inner = engine.wait(Inner::init(store, world, init))?;
        Ok(Self { inner, engine })
    }

    /// Opens the repository at `address`.
    ///
    /// # Errors
    /// `NotFound` when there is none; `UnsupportedVersion`, `Corrupt`, `PermissionDenied`, `Unreachable`.
    pub fn open(address: &str, options: &Options) -> Result<Self, Error> {
        let engine = Arc::new(Engine::new(options)?);
        let (store, world) = engine.open_store(address)?;
        let inner = engine.wait(Inner::open(store, world))?;
        Ok(Self { inner, engine })
    }

    /// The address, without secrets.
    pub fn address(&self) -> String {
        self.inner.store().describe()
    }

    /// Requests and bytes so far, of every repository opened with (a clone of) the same options.
    pub fn traffic(&self) -> Snapshot {
        self.engine.options.store.counts.snapshot()
    }

    /// What `everstep.json` says: id, format version, chunking, writers.
    pub fn config(&self) -> &everstep_format::repository::RepositoryConfig {
        self.inner.config()
    }

    /// The runs, in name order.
    ///
    /// # Errors
    /// `Unreachable`, `PermissionDenied`.
    pub fn runs(&self) -> Result<Vec<RunName>, Error> {
        self.engine.wait(self.inner.runs())
    }

    /// The run `name`, which need not exist yet.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that cannot be a run's.
    pub fn run(&self, name: &str) -> Result<Run, Error> {
        Ok(Run { repository: self.clone(), name: RunName::new(name)? })
    }

    /// The checkpoint that `reference` means, with the ordinals of others that it fits as well.
    ///
    /// # Errors
    /// `NotFound`, `Incomplete`, `Expired`.
    pub fn resolve(&self, reference: &CheckpointRef) -> Result<(Checkpoint, Vec<crate::Ordinal>), Error> {
        let resolved = self.engine.wait(self.inner.resolve(reference))?;
        Ok((Checkpoint::new(self.clone(), resolved.checkpoint), resolved.also))
    }

    /// The way in which ranks find each other by default, over the store, but looking after the first of `pauses`, then less
    /// and less often, at last after the second; otherwise these are 1 s and 10 s.
    pub fn rendezvous(&self, pauses: Range<Duration>) -> Arc<dyn Rendezvous> {
        Arc::new(StoreRendezvous::with_pauses(self.inner.store().clone(), pauses))
    }

    /// Judges every invariant, reading only: of the whole repository, or of the checkpoint `only`. `deep` re-hashes
    /// every chunk.
    ///
    /// # Errors
    /// Only when the store itself fails; damage is in the report.
    pub fn check(
        &self,
        deep: bool,
        only: Option<&Checkpoint>,
        progress: &dyn Progress,
    ) -> Result<Report, Error> {
        let options = CheckOptions { deep, only: only.map(|checkpoint| checkpoint.inner().clone()) };
        let settings = &self.engine.options.check;
        let tools = Tools { pool: self.engine.cpu.pool(), settings, progress: &Watched(progress) };
        self.engine.wait(everstep_check::check(&self.inner, &options, &tools))
    }
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Repository").field(&self.address()).finish()
    }
}
