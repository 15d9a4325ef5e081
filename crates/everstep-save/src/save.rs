//! The whole of a save, by the one process that leads it.

use everstep_format::decision::{IndexRef, Totals, check_metadata};
use everstep_format::id::AttemptId;
use everstep_format::index;
use everstep_format::key::Key;
use everstep_format::refs::Refs;
use everstep_format::row::Row;
use everstep_repo::{Attempt, CommitOutcome, Draft, Parents, Repository, Session};
use everstep_store::{Class, Payload, Store};
use futures::future::try_join;

use crate::group::LEADER;
use crate::item::object_bytes;
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
    let mut stopwatch = Stopwatch::start(session.repository().world());
    let mut muster = Muster::new(session, &options)?;
    let result = lead(session, (state, options), tools, &mut muster).await;
    let lead_took = stopwatch.lap();
    muster.conclude(&result).await;
    result.map(|report| SaveReport { phases: report.phases.out_of(lead_took), ..report })
}

async fn lead(
    session: &mut Session,
    (state, options): (&State<'_>, SaveOptions),
    tools: &Tools<'_>,
    muster: &mut Muster,
) -> Result<SaveReport, SaveError> {
    let SaveOptions { step, parents, metadata, group, counts } = options;
    let requests = || counts.as_ref().map(|counts| counts.snapshot().requests());
    let (requests_before, mut stopwatch) = (requests(), Stopwatch::start(session.repository().world()));
    check_metadata(&metadata)?;
    let repository = session.repository().clone();
    let objects = object_bytes(&state.objects)?;
    let plan = cpu::run(tools.pool, || share::plan(&repository, state, &objects, muster.seat))?;
    tools.progress.planned(plan.sums.raw_bytes);
    let kept = parents_to_keep(&parents);
    let attempt = session.begin(step, group.world_size, parents).await?;
    match gather(&repository, &attempt, (plan, tools), muster).await {
        Ok(mut stored) => {
            stored.draft.metadata = metadata;
            let phases = stored.phases.out_of(stopwatch.lap());
            let asked = requests().zip(requests_before).map(|(now, before)| now.saturating_sub(before));
            stored.draft.stats = Some(stats(&phases, &stored.slowest, asked));
            commit(session, attempt, stored, Commit { tools, kept }).await
        }
        Err(error) => {
            session.abandon(attempt, &error.to_string()).await;
            Err(error)
        }
    }
}

/// Parents that the caller names may be named again by the next save; the latest is followed by the new checkpoint.
fn parents_to_keep(parents: &Parents) -> Vec<AttemptId> {
    match parents {
        Parents::Latest => Vec::new(),
        Parents::These(these) => these.iter().map(|parent| parent.manifest.attempt).collect(),
    }
}

/// Everything uploaded and durable, ready for the decision.
struct Uploaded {
    draft: Draft,
    chunks: Chunks,
    phases: Phases,
    slowest: Vec<LateRank>,
}

/// The own share and those of all others, stored as one.
async fn gather(
    repository: &Repository,
    attempt: &Attempt,
    (plan, tools): (Plan<'_>, &Tools<'_>),
    muster: &mut Muster,
) -> Result<Uploaded, SaveError> {
    let store = repository.store();
    let errand = Errand::of_leader(attempt, muster.seat);
    muster.call(errand.called(attempt)).await?;
    let own = async {
        let mut stopwatch = Stopwatch::start(repository.world());
        let known = Known::read(store, &errand.parents, (tools.cache, true)).await?;
        let reading = stopwatch.lap();
        let mut share = share::write(repository, (&errand, &known), plan, tools).await?;
        share.spent.hash += reading;
        muster.arrived(LEADER, Some(share.spent));
        Ok((share, known, Stopwatch::start(repository.world())))
    };
    let ((share, known, mut waiting), others) = try_join(own, muster.parts(tools)).await?;
    let phases = Phases::of_share(share.spent, waiting.lap());
    let made = cpu::run(tools.pool, || tables(joined(share, others, &known, attempt)?, attempt, &known));
    let tables = match made {
        Ok(tables) => tables,
        Err(error) => return Err(muster.with_holders(error, tools).await),
    };
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

/// What the commit needs beside the attempt.
struct Commit<'c> {
    tools: &'c Tools<'c>,
    /// Checkpoints whose chunks stay in the cache.
    kept: Vec<AttemptId>,
}

async fn commit(
    session: &mut Session,
    attempt: Attempt,
    uploaded: Uploaded,
    with: Commit<'_>,
) -> Result<SaveReport, SaveError> {
    let Uploaded { draft, chunks, phases, slowest } = uploaded;
    let (ordinal, totals, index_bytes) = (attempt.ordinal, draft.totals.clone(), draft.index.len);
    let outcome = match session.commit(attempt.clone(), draft).await {
        Ok(outcome) => outcome,
        Err(error) => {
            session.abandon(attempt, &error.to_string()).await;
            return Err(error.into());
        }
    };
    let checkpoint = match outcome {
        CommitOutcome::Committed(checkpoint) => checkpoint,
        CommitOutcome::Conflict(error) => return Err(SaveError::Conflict(error)),
        CommitOutcome::Unknown(cause) => {
            let (run, cause) = (session.run().clone(), cause.to_string());
            return Err(SaveError::Unknown { run, ordinal, cause });
        }
    };
    let (packs, bytes_uploaded) = whole::packs(&chunks, attempt.id);
    with.tools.cache.keep(attempt.id, chunks, &with.kept);
    tracing::debug!(run = %session.run(), %ordinal, ?totals, "saved");
    let report = SaveReport { packs, bytes_uploaded, index_bytes, ..SaveReport::of(checkpoint, &totals) };
    Ok(SaveReport { phases, slowest, ..report })
}
