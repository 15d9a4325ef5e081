//! The whole of a save.

use everstep_format::decision::{IndexRef, Totals, check_metadata};
use everstep_format::id::AttemptId;
use everstep_format::key::Key;
use everstep_format::refs::Refs;
use everstep_format::row::{Piece, Row};
use everstep_format::{index, invariant};
use everstep_repo::{Attempt, Checkpoint, CommitOutcome, Draft, Parents, Repository, Session};
use everstep_store::{Class, Payload, Store};

use crate::item::{ObjectBytes, items, object_bytes};
use crate::known::{Known, Stored, chunks_of};
use crate::plan::Plan;
use crate::writer::{Tally, Target, Writer, Written};
use crate::{SaveError, SaveOptions, SaveReport, State, Tools, cpu, replica};

/// Saves `state` as a new checkpoint of the session's run.
///
/// What is wrong with the state itself is found before an ordinal is claimed. From then on a failure gives the attempt
/// up; what was uploaded is left to garbage collection.
///
/// # Errors
/// [`SaveError`]; only [`SaveError::Unknown`] leaves open whether the checkpoint exists.
pub async fn save(
    session: &mut Session,
    state: &State<'_>,
    options: SaveOptions,
    tools: &Tools<'_>,
) -> Result<SaveReport, SaveError> {
    check_metadata(&options.metadata)?;
    let repository = session.repository().clone();
    let objects = object_bytes(&state.objects)?;
    let plan = cpu::run(tools.pool, || plan(&repository, state, &objects))?;
    tools.progress.planned(plan.sums.raw_bytes);
    let SaveOptions { step, parents, metadata, world_size } = options;
    let kept = parents_to_keep(&parents);
    let attempt = session.begin(step, world_size, parents).await?;
    match write(&repository, &attempt, plan, tools).await {
        Ok(mut stored) => {
            stored.draft.metadata = metadata;
            commit(session, attempt, stored, Commit { tools, kept }).await
        }
        Err(error) => {
            session.abandon(attempt, &error.to_string()).await;
            Err(error)
        }
    }
}

fn plan<'a>(
    repository: &Repository,
    state: &'a State<'_>,
    objects: &'a [ObjectBytes],
) -> Result<Plan<'a>, SaveError> {
    let chunking = &repository.config().chunking;
    let items = items(state, objects)?;
    replica::compare(&items, chunking)?;
    Ok(Plan::new(&items, chunking))
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
    rows: Vec<Row>,
    tally: Tally,
}

async fn write(
    repository: &Repository,
    attempt: &Attempt,
    mut plan: Plan<'_>,
    tools: &Tools<'_>,
) -> Result<Uploaded, SaveError> {
    let store = repository.store();
    let known = Known::read(store, &attempt.confirmed, tools.cache).await?;
    let target = Target { store, world: repository.world(), attempt: attempt.id };
    let written = Writer::new(&plan, &known, tools, &target).run().await?;
    let rows = filled_in(&mut plan, &written, &known);
    let tally = written.tally;
    let tables = cpu::run(tools.pool, || tables(&rows, attempt, &known))?;
    let totals = totals(&plan, &tally);
    let draft = upload_tables(store.as_ref(), attempt, tables, totals).await?;
    store.sync().await.map_err(|cause| SaveError::Repo(cause.into()))?;
    Ok(Uploaded { draft, rows, tally })
}

/// The rows of `plan`, with where their bytes are.
fn filled_in(plan: &mut Plan<'_>, written: &Written, known: &Known) -> Vec<Row> {
    let mut rows = std::mem::take(&mut plan.rows);
    for (chunk, id) in plan.chunks.iter().zip(&written.ids) {
        let stored =
            written.placed.get(id).or_else(|| known.get(id)).expect("every chunk was stored or is known");
        let mut chunk_offset = 0;
        for &number in plan.members(chunk) {
            let row = &mut rows[number];
            let Stored { raw_len, location } = *stored;
            row.piece = Some(Piece { chunk: *id, chunk_offset, raw_len, location });
            chunk_offset += row.byte_len().expect("sizes were checked");
        }
    }
    rows
}

/// Index and refs as they are to be stored.
struct Tables {
    index: index::EncodedIndex,
    refs: Refs,
}

/// Checks the rows as any reader may, and makes index and refs of them.
fn tables(rows: &[Row], attempt: &Attempt, known: &Known) -> Result<Tables, SaveError> {
    invariant::rows_are_sound(rows)?;
    invariant::rows_refer_to(rows, attempt.id, |piece| known.confirms(piece))?;
    Ok(Tables { index: index::write(rows)?, refs: Refs::of(rows) })
}

fn totals(plan: &Plan<'_>, tally: &Tally) -> Totals {
    Totals {
        tensors: plan.sums.tensors,
        objects: plan.sums.objects,
        chunks: tally.new + tally.reused,
        chunks_new: tally.new,
        raw_bytes: plan.sums.raw_bytes,
        reused_raw_bytes: tally.reused_raw,
        new_raw_bytes: tally.new_raw,
        new_stored_bytes: tally.new_stored,
    }
}

async fn upload_tables(
    store: &dyn Store,
    attempt: &Attempt,
    tables: Tables,
    totals: Totals,
) -> Result<Draft, SaveError> {
    let (refs_bytes, refs) = tables.refs.to_bytes()?;
    let index: IndexRef = tables.index.reference;
    let index_key = Key::index(attempt.id, index.blake3);
    let refs_key = Key::refs(attempt.id, refs.blake3);
    futures::future::try_join(
        put(store, index_key, tables.index.bytes.into(), "the index"),
        put(store, refs_key, refs_bytes.into(), "the list of packs"),
    )
    .await?;
    Ok(Draft { index, refs, owners: tables.refs.owners(), totals, metadata: serde_json::Map::new() })
}

async fn put(store: &dyn Store, key: Key, body: Payload, holds: &str) -> Result<(), SaveError> {
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
    let Uploaded { draft, rows, tally } = uploaded;
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
            return Err(SaveError::Unknown { run: session.run().clone(), ordinal, cause: Box::new(cause) });
        }
    };
    with.tools.cache.keep(checkpoint.manifest.attempt, chunks_of(&rows), &with.kept);
    tracing::debug!(run = %session.run(), %ordinal, ?tally, "saved");
    Ok(report(checkpoint, &totals, &tally, index_bytes))
}

fn report(checkpoint: Checkpoint, totals: &Totals, tally: &Tally, index_bytes: u64) -> SaveReport {
    SaveReport {
        checkpoint,
        tensors: totals.tensors,
        objects: totals.objects,
        raw_bytes: totals.raw_bytes,
        chunks_uploaded: tally.new,
        chunks_reused: tally.reused,
        new_raw_bytes: tally.new_raw,
        reused_raw_bytes: tally.reused_raw,
        bytes_uploaded: tally.pack_bytes,
        packs: tally.packs,
        index_bytes,
    }
}
