//! One committed checkpoint: look, read, restore.

use bytes::Bytes;
use everstep_format::bounds::Bounds;
use everstep_format::decision::Manifest;
use everstep_format::name::Rank;
use everstep_repo::{Checkpoint as Inner, IndexReader};
use everstep_restore::{CheckpointReader, Tools};

use crate::progress::Watched;
use crate::{
    Entry, Error, Estimate, Progress, Repository, RestoreOptions, RestoreReport, Selection, StoredContent,
    Target,
};

/// A checkpoint that was read as committed and not expired.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    repository: Repository,
    reader: CheckpointReader,
    inner: Inner,
}

impl Checkpoint {
    pub(crate) fn new(repository: Repository, inner: Inner) -> Self {
        let reader = CheckpointReader::new(&repository.inner, inner.clone());
        Self { repository, reader, inner }
    }

    pub(crate) fn repository(&self) -> &Repository {
        &self.repository
    }

    pub(crate) fn index(&self) -> IndexReader {
        self.reader.index().clone()
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// What it says of itself: run, ordinal, step, parents, totals, metadata.
    pub fn manifest(&self) -> &Manifest {
        &self.inner.manifest
    }

    /// Tensors and objects, in name order, without reading any of their data.
    ///
    /// # Errors
    /// `Corrupt`, `Expired`, `Unreachable`.
    pub fn entries(&self, selection: &Selection) -> Result<Vec<Entry>, Error> {
        self.repository.engine.wait(self.reader.entries(selection))
    }

    /// One entry by name, by at most two ranged reads.
    ///
    /// # Errors
    /// `Corrupt`, `Expired`, `Unreachable`.
    pub fn entry(&self, name: &str) -> Result<Option<Entry>, Error> {
        self.repository.engine.wait(self.reader.entry(name))
    }

    /// The index as it is stored, verified, for the other processes of this machine: one reads it and hands it on (in
    /// shared memory, say), and the rest, which open the same checkpoint, give it to [`Checkpoint::with_index_file`]. So
    /// its bytes cross the network once a machine, not once a rank.
    ///
    /// # Errors
    /// `Corrupt`, `Expired`, `Unreachable`.
    pub fn index_file(&self) -> Result<Bytes, Error> {
        self.repository.engine.wait(self.reader.index_file())
    }

    /// This checkpoint with its index at hand, as [`Checkpoint::index_file`] gave it in another process: nothing that is
    /// planned or read through it makes a request for the index. The file is checked, so it need not be trusted.
    ///
    /// # Errors
    /// `InvalidArgument`, with what was expected and found, when it is not this checkpoint's index, bit for bit.
    pub fn with_index_file(&self, file: impl Into<Bytes>) -> Result<Self, Error> {
        Ok(Self { reader: self.reader.with_index_file(file.into())?, ..self.clone() })
    }

    /// What loading `boxes`, each of a tensor in its global coordinates, would read beside the index: requests, bytes.
    /// Reads the whole index, once.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument` for a box outside the shape; `Corrupt`, `Expired`, `Unreachable`.
    pub fn estimate(&self, boxes: &[(String, Bounds)]) -> Result<Estimate, Error> {
        let estimated = |tools: &Tools<'_>| self.repository.engine.wait(self.reader.estimate(boxes, tools));
        self.with_tools(&(), estimated)
    }

    /// Restores boxes of tensors into the caller's memory, every chunk verified. Schema errors leave it untouched;
    /// after any other error its contents are unspecified.
    ///
    /// # Errors
    /// `SchemaMismatch` (missing, unexpected, shape, dtype), `Corrupt`, `Expired`, `Unreachable`.
    pub fn load(&self, targets: Vec<Target<'_>>, options: &RestoreOptions) -> Result<RestoreReport, Error> {
        self.load_with(targets, options, &())
    }

    /// [`Checkpoint::load`], reporting progress.
    ///
    /// # Errors
    /// Those of [`Checkpoint::load`].
    pub fn load_with(
        &self,
        targets: Vec<Target<'_>>,
        options: &RestoreOptions,
        progress: &dyn Progress,
    ) -> Result<RestoreReport, Error> {
        let restored = |tools: &Tools<'_>| {
            self.repository.engine.wait(everstep_restore::restore(&self.reader, targets, options, tools))
        };
        self.with_tools(progress, restored)
    }

    /// Reads one tensor, or a box of it, as row-major little-endian bytes.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument` for a box outside the shape; those of [`Checkpoint::load`].
    pub fn read(&self, name: &str, bounds: Option<Bounds>) -> Result<Vec<u8>, Error> {
        let read = |tools: &Tools<'_>| self.repository.engine.wait(self.reader.read_box(name, bounds, tools));
        self.with_tools(&(), read)
    }

    /// Reads one object; `rank` for rank-scoped state.
    ///
    /// # Errors
    /// `NotFound`; those of [`Checkpoint::load`].
    pub fn object(&self, name: &str, rank: Option<Rank>) -> Result<StoredContent, Error> {
        let read = |tools: &Tools<'_>| self.repository.engine.wait(self.reader.object(name, rank, tools));
        self.with_tools(&(), read)
    }

    /// Reads the object of `rank`, for a job of `world_size` ranks that each take their own.
    ///
    /// # Errors
    /// `SchemaMismatch` when it is kept per rank and was not saved by exactly these ranks; those of [`Checkpoint::object`].
    pub fn object_of_rank(&self, name: &str, rank: Rank, world_size: u32) -> Result<StoredContent, Error> {
        let read = |tools: &Tools<'_>| {
            self.repository.engine.wait(self.reader.object_of_rank(name, (rank, world_size), tools))
        };
        self.with_tools(&(), read)
    }

    fn with_tools<T>(
        &self,
        progress: &dyn Progress,
        act: impl FnOnce(&Tools<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let engine = &self.repository.engine;
        let tools = Tools {
            pool: engine.cpu.pool(),
            settings: &engine.options.restore,
            progress: &Watched(progress),
        };
        act(&tools)
    }
}
