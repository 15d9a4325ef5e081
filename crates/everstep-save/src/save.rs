//! The whole of a save, by the one process that leads it, and the steps that it has in common with one in two halves.

use std::sync::Arc;
use std::time::Duration;

use everstep_format::card::CalledAttempt;
use everstep_format::decision::{IndexRef, Totals, check_metadata};
use everstep_format::id::AttemptId;
use everstep_format::index;
use everstep_format::key::Key;
use everstep_format::refs::Refs;
use everstep_format::row::Row;
use everstep_repo::{Attempt, CommitOutcome, Draft, Parents, Repository, Session};
use everstep_store::{Class, Counts, Payload, Store};
use futures::future::try_join;

use crate::group::{LEADER, Seat};
use crate::item::{ObjectBytes, object_bytes};
use crate::known::{Chunks, Known, chunks_of};
use crate::merge::{Part, merge};
use crate::muster::Muster;
use crate::phases::{LateRank, Phases, Stopwatch, stats};
use crate::plan::Plan;
use crate::share::{self, Errand, Share};
use crate::{SaveError, SaveOptions, SaveReport, State, Tools, cpu, whole};

/// Saves `state`, and what the other ranks of the group hand in, as a new checkpoint of the session's run.
///
/// What is wrong with the state itself is found before an ordinal is claimed. From then on a failure gives the attempt
/// up; what was uploaded is left to garbage collection. The other ranks are told of it in any case.
///
/// # Errors
/// [`SaveError`]; only [`SaveError::Unknown`] leaves open whether the checkpoint exists.
pub async fn save(
    session: &mut Session,
    state: &State<'_>,
    options: SaveOptions,
    tools: &Tools<'_>,
) -> Result<SaveReport, SaveError> {
    let mut muster = Muster::new(session, &options)?;
    let result = lead(session, (state, options), tools, &mut muster).await;
    muster.conclude(result.as_ref().map(|_| ())).await;
    result
}

/// Both halves at once: the others hand in while the leader works.
async fn lead(
    session: &mut Session,
    (state, options): (&State<'_>, SaveOptions),
    tools: &Tools<'_>,
    muster: &mut Muster,
) -> Result<SaveReport, SaveError> {
    let objects = object_bytes(&state.objects)?;
    let (begun, plan) = begin(session, (state, &objects), options, (tools, muster)).await?;
    let repository = session.repository().clone();
    let stored = async {
        muster.call(begun.called(muster.seat)).await?;
        let own = own_share(&repository, (&begun, plan), (tools, muster));
        let (own, others) = try_join(own, muster.parts(tools)).await?;
        unite(&repository, &begun, (own, others), (tools, muster)).await
    };
    let stored = stored.await;
    decide(session, begun, stored, tools).await
}

/// An attempt on its way to its commit.
pub(crate) struct Begun {
    pub(crate) attempt: Attempt,
    pub(crate) metadata: serde_json::Map<String, serde_json::Value>,
    /// Checkpoints whose chunks stay in the cache.
    kept: Vec<AttemptId>,
    stopwatch: Stopwatch,
    counts: Option<Arc<Counts>>,
    requests_before: u64,
}

impl Begun {
    /// What the other ranks are told.
    pub(crate) fn called(&self, seat: Seat) -> CalledAttempt {
        Errand::of_leader(&self.attempt, seat).called(&self.attempt)
    }

    /// Time since it began.
    pub(crate) fn took(&self) -> Duration {
        self.stopwatch.so_far()
    }

    fn stats(&self, phases: Phases, slowest: &[LateRank]) -> serde_json::Value {
        let requests =
            |counts: &Arc<Counts>| counts.snapshot().requests().saturating_sub(self.requests_before);
        stats(&phases.out_of(self.took()), slowest, self.counts.as_ref().map(requests))
    }
}

/// Plans the own share and claims an ordinal.
pub(crate) async fn begin<'a>(
    session: &mut Session,
    (state, objects): (&'a State<'_>, &'a [ObjectBytes]),
    options: SaveOptions,
    (tools, muster): (&Tools<'_>, &mut Muster),
) -> Result<(Begun, Plan<'a>), SaveError> {
    let SaveOptions { step, parents, metadata, group, counts } = options;
    let requests_before = counts.as_ref().map_or(0, |counts| counts.snapshot().requests());
    let (repository, kept) = (session.repository().clone(), parents_to_keep(&parents));
    let stopwatch = Stopwatch::start(repository.world());
    check_metadata(&metadata)?;
    let plan = cpu::run(tools.pool, || share::plan(&repository, state, objects, muster.seat))?;
    tools.progress.planned(plan.sums.raw_bytes);
    let attempt = session.begin(step, group.world_size, parents).await?;
    let begun = Begun { attempt, metadata, kept, stopwatch, counts, requests_before };
    if let Err(error) = muster.pass_used_names(session).await {
        session.abandon(begun.attempt, &error.to_string()).await;
        return Err(error);
    }
    Ok((begun, plan))
}

/// Parents that the caller names may be named again by the next save; the latest is followed by the new checkpoint.
fn parents_to_keep(parents: &Parents) -> Vec<AttemptId> {
    match parents {
        Parents::Latest => Vec::new(),
        Parents::Also(these) | Parents::These(these) => {
            these.iter().map(|parent| parent.manifest.attempt).collect()
        }
    }
}

/// Everything uploaded and durable, ready for the decision.
pub(crate) struct Uploaded {
    draft: Draft,
    chunks: Chunks,
    phases: Phases,
    slowest: Vec<LateRank>,
}

/// The leader's own share, stored.
pub(crate) struct Own {
    pub(crate) share: Share,
    known: Known,
    /// Since then it waits for the others.
    waiting: Stopwatch,
}

/// Stores the leader's own share.
pub(crate) async fn own_share(
    repository: &Repository,
    (begun, plan): (&Begun, Plan<'_>),
    (tools, muster): (&Tools<'_>, &Muster),
) -> Result<Own, SaveError> {
    let mut stopwatch = Stopwatch::start(repository.world());
    let errand = Errand::of_leader(&begun.attempt, muster.seat);
    let known = Known::read(repository.store(), &errand.parents, (tools.cache, true)).await?;
    let reading = stopwatch.lap();
    let mut share = share::write(repository, (&errand, &known), plan, tools).await?;
    share.spent.hash += reading;
    muster.arrived(LEADER, Some(share.spent));
    Ok(Own { share, known, waiting: Stopwatch::start(repository.world()) })
}

/// The own share and those of all others, stored as one.
pub(crate) async fn unite(
    repository: &Repository,
    begun: &Begun,
    (own, others): (Own, Vec<Part>),
    (tools, muster): (&Tools<'_>, &Muster),
) -> Result<Uploaded, SaveError> {
    let (Own { share, known, mut waiting }, attempt) = (own, &begun.attempt);
    let phases = Phases::of_share(share.spent, waiting.lap());
    let made = cpu::run(tools.pool, || tables(joined(share, others, &known, attempt)?, attempt, &known));
    let tables = match made {
        Ok(tables) => tables,
        Err(error) => return Err(muster.with_holders(error, tools).await),
    };
    let store = repository.store();
    let (draft, chunks) = upload_tables(store.as_ref(), attempt, tables).await?;
    store.sync().await.map_err(|cause| SaveError::Repo(cause.into()))?;
    Ok(Uploaded { draft, chunks, phases, slowest: muster.slowest() })
}

/// The rows of all shares.
fn joined(own: Share, others: Vec<Part>, known: &Known, attempt: &Attempt) -> Result<Vec<Row>, SaveError> {
    // A rank alone has no replicas elsewhere, and its chunks have one place each.
    if attempt.world_size == 1 {
        return Ok(own.rows);
    }
    let mut parts = others;
    parts.push(Part { rank: LEADER, rows: own.into_part() });
    let mut rows = merge(parts)?;
    whole::settle(&mut rows, known, attempt.id);
    Ok(rows)
}

/// Index and refs as they are to be stored, and what they add up to.
struct Tables {
    index: index::EncodedIndex,
    refs: Refs,
    chunks: Chunks,
    totals: Totals,
}

/// Checks the rows as any reader may, and makes index and refs of them.
fn tables(rows: Vec<Row>, attempt: &Attempt, known: &Known) -> Result<Tables, SaveError> {
    let rows = whole::check(&rows, known, attempt.id)?;
    let chunks = chunks_of(&rows);
    let totals =
        Totals::of(&rows, chunks.values().map(|stored| (stored.raw_len, stored.location)), attempt.id);
    Ok(Tables { index: index::write(rows)?, refs: Refs::of(&rows), chunks, totals })
}

async fn upload_tables(
    store: &dyn Store,
    attempt: &Attempt,
    tables: Tables,
) -> Result<(Draft, Chunks), SaveError> {
    let (refs_bytes, refs) = tables.refs.to_bytes()?;
    let index: IndexRef = tables.index.reference;
    let index_key = Key::index(attempt.id, index.blake3);
    let refs_key = Key::refs(attempt.id, refs.blake3);
    try_join(
        put(store, index_key, tables.index.bytes.into(), "the index"),
        put(store, refs_key, refs_bytes.into(), "the list of packs"),
    )
    .await?;
    let owners = tables.refs.owners();
    let draft =
        Draft { index, refs, owners, totals: tables.totals, metadata: serde_json::Map::new(), stats: None };
    Ok((draft, tables.chunks))
}

pub(crate) async fn put(store: &dyn Store, key: Key, body: Payload, holds: &str) -> Result<(), SaveError> {
    match store.put(&key, body, Class::Bulk).await {
        Ok(()) => Ok(()),
        Err(cause) => Err(SaveError::Upload { key, holds: holds.to_owned(), cause: Box::new(cause) }),
    }
}

/// Commits what was stored, or gives the attempt up.
pub(crate) async fn decide(
    session: &mut Session,
    begun: Begun,
    stored: Result<Uploaded, SaveError>,
    tools: &Tools<'_>,
) -> Result<SaveReport, SaveError> {
    let attempt = begun.attempt.clone();
    let committed = match stored {
        Ok(uploaded) => commit(session, begun, uploaded, tools).await,
        Err(error) => Err(error),
    };
    if let Err(error) = &committed {
        // Nothing happens to one that is decided, or whose commit nobody knows the outcome of.
        session.abandon(attempt, &error.to_string()).await;
    }
    committed
}

async fn commit(
    session: &mut Session,
    begun: Begun,
    uploaded: Uploaded,
    tools: &Tools<'_>,
) -> Result<SaveReport, SaveError> {
    let Uploaded { mut draft, chunks, phases, slowest } = uploaded;
    draft.stats = Some(begun.stats(phases, &slowest));
    let Begun { attempt, metadata, kept, stopwatch, .. } = begun;
    draft.metadata = metadata;
    let (id, ordinal) = (attempt.id, attempt.ordinal);
    let (totals, index_bytes) = (draft.totals.clone(), draft.index.len);
    let checkpoint = match session.commit(attempt, draft).await? {
        CommitOutcome::Committed(checkpoint) => checkpoint,
        CommitOutcome::Conflict(error) => return Err(SaveError::Conflict(error)),
        CommitOutcome::Unknown(cause) => {
            let (run, cause) = (session.run().clone(), cause.to_string());
            return Err(SaveError::Unknown { run, ordinal, cause });
        }
    };
    let (packs, bytes_uploaded) = whole::packs(&chunks, id);
    tools.cache.keep(id, chunks, &kept);
    tracing::debug!(run = %session.run(), %ordinal, ?totals, "saved");
    let phases = phases.out_of(stopwatch.so_far());
    let report = SaveReport { packs, bytes_uploaded, index_bytes, ..SaveReport::of(checkpoint, &totals) };
    Ok(SaveReport { phases, slowest, ..report })
}
