//! Reading one checkpoint: what is in it, and any box of it.

use std::sync::Arc;

use bytes::Bytes;
use everstep_format::bounds::Bounds;
use everstep_format::key::Key;
use everstep_format::limits;
use everstep_format::name::Rank;
use everstep_format::row::{ElementType, Kind, Piece, Row};
use everstep_repo::{Checkpoint, IndexReader, RepoError, Repository};
use everstep_store::StoreErrorKind;
use tokio::sync::OnceCell;

use crate::entry::{by_name, rows_of};
use crate::error::RestoreError;
use crate::fetch::{self, Failure};
use crate::place::Placer;
use crate::plan::{NoPlan, Plan, Read, Wish};
use crate::{Content, Entry, Selection, StoredObject, Tools, object};

/// Names that an error suggests.
const SUGGESTED: usize = 3;
/// From here on an allocation is tried before it is made, so that a size from an index cannot end the process.
const LARGE: usize = 1 << 30;

/// Reads one checkpoint. Cheap to clone; clones share the index once it is read.
#[derive(Debug, Clone)]
pub struct CheckpointReader {
    repository: Repository,
    checkpoint: Checkpoint,
    index: IndexReader,
    rows: Arc<OnceCell<Arc<Vec<Row>>>>,
}

/// A plan on its way to being carried out.
#[derive(Clone, Copy)]
pub(crate) struct Pull<'p> {
    pub(crate) plan: &'p Plan<'p>,
    pub(crate) verify: bool,
    pub(crate) tools: &'p Tools<'p>,
}

impl CheckpointReader {
    /// A reader of `checkpoint` in `repository`; reads nothing yet.
    pub fn new(repository: &Repository, checkpoint: Checkpoint) -> Self {
        let index = IndexReader::new(Arc::clone(repository.store()), checkpoint.clone());
        Self { repository: repository.clone(), checkpoint, index, rows: Arc::default() }
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The reader of its index, which shares what was read.
    pub fn index(&self) -> &IndexReader {
        &self.index
    }

    /// The index as it is stored, verified: for the other processes of a machine, so that one of them reads it for all.
    /// They look at it through [`CheckpointReader::with_index_file`].
    ///
    /// # Errors
    /// [`RestoreError::Repo`].
    pub async fn index_file(&self) -> Result<Bytes, RestoreError> {
        Ok(self.index.file().await?)
    }

    /// A reader of the same checkpoint that has its index already, as [`CheckpointReader::index_file`] of another process
    /// gave it: whatever it plans or reads, it makes no request for the index.
    ///
    /// # Errors
    /// [`RestoreError::Repo`] with what was expected and found, when it is not this checkpoint's index, bit for bit.
    pub fn with_index_file(&self, file: Bytes) -> Result<Self, RestoreError> {
        Ok(Self { index: self.index.with_file(file)?, ..self.clone() })
    }

    /// What is in the checkpoint, in name order. Reads the whole index.
    ///
    /// # Errors
    /// [`RestoreError::Repo`].
    pub async fn entries(&self, selection: &Selection) -> Result<Vec<Entry>, RestoreError> {
        let rows = self.rows().await?;
        Ok(by_name(&rows).filter(|rows| selection.matches(&rows[0].name)).map(Entry::of).collect())
    }

    /// What the checkpoint has under `name`, without reading the whole index.
    ///
    /// # Errors
    /// [`RestoreError::Repo`].
    pub async fn entry(&self, name: &str) -> Result<Option<Entry>, RestoreError> {
        let rows = self.named(name).await?;
        Ok((!rows.is_empty()).then(|| Entry::of(&rows)))
    }

    /// The bytes of a box of tensor `name` (all of it when `bounds` is `None`), row-major and little-endian.
    ///
    /// # Errors
    /// [`RestoreError::NotFound`], [`RestoreError::Invalid`] for a box that does not fit, [`RestoreError::UnknownDtype`],
    /// [`RestoreError::Corrupt`], [`RestoreError::Repo`].
    pub async fn read_box(
        &self,
        name: &str,
        bounds: Option<Bounds>,
        tools: &Tools<'_>,
    ) -> Result<Vec<u8>, RestoreError> {
        let rows = self.named(name).await?;
        let Some(first) = rows.first() else { return Err(self.not_found(name).await?) };
        check_loadable(first)?;
        let bounds = bounds.unwrap_or_else(|| Bounds::whole(&first.shape));
        let invalid = |problem| RestoreError::Invalid { name: name.to_owned(), problem };
        bounds.check_inside(&first.shape).map_err(|e| invalid(e.to_string()))?;
        let wishes = [Wish { rows: &rows, bounds }];
        let mut filled = self.read_wishes(&wishes, tools).await?;
        filled.pop().ok_or_else(|| invalid("nothing was read".to_owned()))
    }

    /// The object `name`: the global one, or that of `rank`.
    ///
    /// # Errors
    /// [`RestoreError::NotFound`]; [`RestoreError::World`] when it is kept per rank and `rank` has none;
    /// [`RestoreError::Corrupt`], [`RestoreError::Repo`].
    pub async fn object(
        &self,
        name: &str,
        rank: Option<Rank>,
        tools: &Tools<'_>,
    ) -> Result<Content, RestoreError> {
        let rows = self.named(name).await?;
        if rows.is_empty() {
            return Err(self.not_found(name).await?);
        }
        let chosen = object::choose(&rows, name, rank)?;
        let mut objects = self.read_objects(&[chosen], tools).await?;
        let only = objects.pop().map(|object| object.content);
        only.ok_or_else(|| RestoreError::NotFound { name: name.to_owned(), similar: Vec::new() })
    }

    /// The object `name` of `rank`, for a job of `world_size` ranks each of which takes its own: state that is kept per rank
    /// must have been saved by exactly these ranks, or some of it would be dropped without a word.
    ///
    /// # Errors
    /// [`RestoreError::WorldSize`]; those of [`CheckpointReader::object`].
    pub async fn object_of_rank(
        &self,
        name: &str,
        (rank, world_size): (Rank, u32),
        tools: &Tools<'_>,
    ) -> Result<Content, RestoreError> {
        object::same_world(&self.named(name).await?, name, world_size)?;
        self.object(name, Some(rank), tools).await
    }

    /// Every selected object, in name order: global ones, and those of `rank` (of all ranks when it is `None`).
    ///
    /// # Errors
    /// [`RestoreError::Corrupt`], [`RestoreError::Repo`].
    pub async fn objects(
        &self,
        selection: &Selection,
        rank: Option<Rank>,
        tools: &Tools<'_>,
    ) -> Result<Vec<StoredObject>, RestoreError> {
        let rows = self.rows().await?;
        let wanted = object::wanted(&rows, rank).filter(|rows| selection.matches(&rows[0].name));
        self.read_objects(&wanted.collect::<Vec<_>>(), tools).await
    }

    /// All rows; read once.
    pub(crate) async fn rows(&self) -> Result<Arc<Vec<Row>>, RepoError> {
        let read = || async { self.index.all().await.map(Arc::new) };
        self.rows.get_or_try_init(read).await.cloned()
    }

    async fn named(&self, name: &str) -> Result<Vec<Row>, RepoError> {
        match self.rows.get() {
            Some(rows) => Ok(rows_of(rows, name).to_vec()),
            None => self.index.named(name).await,
        }
    }

    pub(crate) async fn not_found(&self, name: &str) -> Result<RestoreError, RestoreError> {
        let rows = self.rows().await?;
        let last = |name: &str| name.rsplit('.').next().map(str::to_lowercase);
        let alike = by_name(&rows)
            .map(|rows| &*rows[0].name)
            .filter(|stored| last(stored) == last(name) || stored.eq_ignore_ascii_case(name));
        let similar = alike.take(SUGGESTED).map(str::to_owned).collect();
        Ok(RestoreError::NotFound { name: name.to_owned(), similar })
    }

    async fn read_objects(
        &self,
        chosen: &[&[Row]],
        tools: &Tools<'_>,
    ) -> Result<Vec<StoredObject>, RestoreError> {
        let mut wishes = Vec::with_capacity(chosen.len());
        for rows in chosen {
            check_object(&rows[0])?;
            wishes.push(Wish { rows, bounds: Bounds::whole(&rows[0].shape) });
        }
        let filled = self.read_wishes(&wishes, tools).await?;
        let read = |(rows, bytes): (&&[Row], Vec<u8>)| {
            let Row { name, rank, element, .. } = &rows[0];
            let content = object::content(element, bytes).map_err(|detail| self.bad_index(name, detail))?;
            Ok(StoredObject { name: Arc::clone(name), rank: *rank, content })
        };
        chosen.iter().zip(filled).map(read).collect()
    }

    /// Fresh buffers, filled.
    async fn read_wishes(
        &self,
        wishes: &[Wish<'_>],
        tools: &Tools<'_>,
    ) -> Result<Vec<Vec<u8>>, RestoreError> {
        let plan = self.plan(wishes, tools)?;
        let mut buffers = Vec::with_capacity(wishes.len());
        for (wish, bands) in wishes.iter().zip(&plan.bands) {
            let name = wish.rows.first().map_or("", |row| &row.name);
            buffers.push(
                zeroed(bands.iter().sum())
                    .map_err(|problem| RestoreError::Invalid { name: name.to_owned(), problem })?,
            );
        }
        let into = buffers.iter_mut().map(Vec::as_mut_slice).collect();
        self.pull(Pull { plan: &plan, verify: true, tools }, into).await?;
        Ok(buffers)
    }

    /// What to read for `wishes`.
    pub(crate) fn plan<'r>(&self, wishes: &[Wish<'r>], tools: &Tools<'_>) -> Result<Plan<'r>, RestoreError> {
        Plan::new(wishes, tools.settings).map_err(|no_plan| match no_plan {
            NoPlan::Index { name, detail } => self.bad_index(&name, detail),
            NoPlan::Box { name, problem } => RestoreError::Invalid { name, problem },
        })
    }

    /// Carries a plan out; `into` has one buffer for each wish.
    pub(crate) async fn pull(&self, pull: Pull<'_>, into: Vec<&mut [u8]>) -> Result<(), RestoreError> {
        let Pull { plan, verify, tools } = pull;
        tools.progress.planned(plan.bytes);
        let world = (self.repository.store(), self.repository.world());
        let done = {
            let placer = Placer::new(plan, into, verify, tools.progress);
            fetch::carry_out(plan, &placer, world, tools).await
        };
        match done {
            Ok(()) => Ok(()),
            Err(failure) => Err(self.explain(plan, failure).await),
        }
    }

    fn bad_index(&self, name: &str, detail: String) -> RestoreError {
        let tensors = if name.is_empty() { Vec::new() } else { vec![name.to_owned()] };
        RestoreError::Corrupt { key: self.checkpoint.index_key(), detail, tensors }
    }

    /// Names the object, and everything in the checkpoint that needs it.
    async fn explain(&self, plan: &Plan<'_>, failure: Failure) -> RestoreError {
        match failure {
            Failure::Damaged(damage) => {
                let damaged = plan.chunk(damage.chunk);
                let tensors = self.users(|piece| piece.chunk == damaged.chunk).await;
                RestoreError::Corrupt {
                    key: Key::pack(&damaged.location.pack),
                    detail: damage.detail,
                    tensors,
                }
            }
            Failure::Store { read, error } => match error.kind {
                StoreErrorKind::NotFound => self.explain_missing(&plan.reads[read]).await,
                StoreErrorKind::Truncated => {
                    self.broken(&plan.reads[read], format!("it is too short: {}", error.detail)).await
                }
                _ => RepoError::Store(error).into(),
            },
        }
    }

    /// Gone because the checkpoint has expired meanwhile, or lost.
    async fn explain_missing(&self, read: &Read) -> RestoreError {
        match self.repository.explain_missing(&self.checkpoint, &Key::pack(&read.pack)).await {
            RepoError::Missing { because, .. } => {
                self.broken(read, format!("it is missing, although {because}")).await
            }
            error => error.into(),
        }
    }

    async fn broken(&self, read: &Read, detail: String) -> RestoreError {
        let tensors = self.users(|piece| piece.location.pack == read.pack).await;
        RestoreError::Corrupt { key: Key::pack(&read.pack), detail, tensors }
    }

    /// Everything with a piece for which `uses` holds. An index that can no longer be read names nothing: the damage
    /// itself is the better news.
    async fn users(&self, uses: impl Fn(&Piece) -> bool) -> Vec<String> {
        let Ok(rows) = self.rows().await else { return Vec::new() };
        let used = |rows: &&[Row]| rows.iter().filter_map(|row| row.piece.as_ref()).any(&uses);
        by_name(&rows).filter(used).map(|rows| rows[0].name.to_string()).collect()
    }
}

fn check_loadable(row: &Row) -> Result<(), RestoreError> {
    let name = || row.name.to_string();
    if row.kind == Kind::Object {
        return Err(RestoreError::Invalid {
            name: name(),
            problem: "it is an object; read it as one".to_owned(),
        });
    }
    if let ElementType::Unknown(dtype) = &row.element {
        return Err(RestoreError::UnknownDtype { name: name(), dtype: dtype.to_string() });
    }
    Ok(())
}

fn check_object(row: &Row) -> Result<(), RestoreError> {
    let invalid = |problem| RestoreError::Invalid { name: row.name.to_string(), problem };
    if let ElementType::Unknown(kind) = &row.element {
        return Err(invalid(format!("it is an object of kind {kind:?}, which this version cannot load")));
    }
    match row.shape[..] {
        [len] if len <= limits::VALUE_BYTES => Ok(()),
        _ => Err(invalid(format!("its length {:?} is beyond {} bytes", row.shape, limits::VALUE_BYTES))),
    }
}

fn zeroed(len: usize) -> Result<Vec<u8>, String> {
    if len >= LARGE {
        Vec::<u8>::new().try_reserve_exact(len).map_err(|e| format!("{len} bytes of memory: {e}"))?;
    }
    Ok(vec![0; len])
}
