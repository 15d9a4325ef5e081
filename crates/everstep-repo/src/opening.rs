//! Opening a run for writing: R1 (fence), R2 (abort what lies below), R3 (latest).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use everstep_format::FormatError;
use everstep_format::decision::Abort;
use everstep_format::feature::Operation;
use everstep_format::id::{AttemptId, SessionId};
use everstep_format::intent::Intent;
use everstep_format::key::Key;
use everstep_format::limits;
use everstep_format::name::{Ordinal, RunName};
use futures::{StreamExt, TryStreamExt, stream};

use crate::beat::Beat;
use crate::listing::Listing;
use crate::reading::parse_intent;
use crate::register::Registered;
use crate::session::{Claim, OpenOptions, Session, put_abort};
use crate::takeover::{Life, Newcomer};
use crate::{RepoError, Repository};

/// Fences lost to other openings of the same run before giving up.
const FENCE_TRIES: u32 = 64;
/// Intents read at once.
pub(crate) const IN_FLIGHT: usize = 8;
/// Shortest time between two signs of life.
const SHORTEST_BEAT: Duration = Duration::from_millis(50);

pub(crate) async fn open(
    repository: Repository,
    run: &RunName,
    options: OpenOptions,
) -> Result<Session, RepoError> {
    let label = options.job.as_ref().map_or(0, String::len);
    FormatError::within("label of a job", label as u64, limits::LABEL_BYTES as u64)?;
    let id = SessionId(repository.world().random_id());
    let newcomer = Newcomer { repository, run: run.clone(), id, options };
    let fence = match raise_fence(&newcomer).await {
        Ok(fence) => fence,
        Err(error) => {
            if matches!(error, RepoError::Conflict { .. }) {
                newcomer.withdraw().await;
            }
            return Err(error);
        }
    };
    let settled = settle(&newcomer, fence).await;
    if settled.is_err() {
        // The fence stands, but nobody writes: the next opening need not wait for this one.
        newcomer.show(fence.ordinal, Life::Closed).await;
    }
    settled
}

/// R2 and R3 above a fence that stands.
async fn settle(newcomer: &Newcomer, fence: Claim) -> Result<Session, RepoError> {
    let beat = start_beat(newcomer, fence.ordinal)?;
    let listing = settle_below(newcomer, fence.ordinal).await?;
    let Newcomer { repository, run, id, options } = newcomer.clone();
    Ok(Session {
        latest: repository.latest_from(&run, listing).await?,
        repository,
        run,
        id,
        job: options.job,
        fence,
        seen: fence.ordinal,
        undecided: BTreeMap::new(),
        calls: 0,
        adopted: false,
        shared: false,
        beat: Some(beat),
    })
}

/// R1: put-if-absent a FENCE at the highest ordinal + 1. Whoever got there first is looked at like any other
/// session.
async fn raise_fence(newcomer: &Newcomer) -> Result<Claim, RepoError> {
    for _ in 0..FENCE_TRIES {
        let listing = newcomer.clear_way().await?;
        let ordinal = following(newcomer, listing.intents.last().copied())?;
        // Before the fence, so that nobody who meets the fence finds its session without a sign of life.
        newcomer.show(ordinal, Life::Open).await;
        if let Some(fence) = try_fence(newcomer, ordinal).await? {
            return Ok(fence);
        }
    }
    let why =
        format!("{FENCE_TRIES} other openings of this run came first; is a job being restarted in a loop?");
    Err(RepoError::Conflict { run: newcomer.run.clone(), why })
}

async fn try_fence(newcomer: &Newcomer, ordinal: Ordinal) -> Result<Option<Claim>, RepoError> {
    let Newcomer { repository, run, id, options } = newcomer;
    let attempt = AttemptId(repository.world().random_id());
    let mut intent = Intent::fence(run.clone(), ordinal, attempt, *id);
    intent.job.clone_from(&options.job);
    let key = Key::intent(run, ordinal);
    let body = Bytes::from(intent.to_bytes().map_err(RepoError::object(key.clone()))?);
    match repository.register(&key, &body).await? {
        Registered::Ours => Ok(Some(Claim { ordinal, attempt })),
        Registered::Theirs(bytes) => parse_intent(&bytes, (run, ordinal), Operation::Write).map(|_| None),
        Registered::Unknown(error) => Err(error.into()),
    }
}

/// The ordinal after `last`, which may come from a listing that anybody could have written.
fn following(newcomer: &Newcomer, last: Option<Ordinal>) -> Result<Ordinal, RepoError> {
    let Some(last) = last else { return Ok(Ordinal::FIRST) };
    let full = || FormatError::corrupt("intent", 0, "an ordinal with one after it", last.to_string());
    last.0
        .checked_add(1)
        .map(Ordinal)
        .ok_or_else(full)
        .map_err(RepoError::object(Key::intent(&newcomer.run, last)))
}

fn start_beat(newcomer: &Newcomer, fence: Ordinal) -> Result<Beat, RepoError> {
    let period = (newcomer.options.takeover_after / 4).max(SHORTEST_BEAT);
    let body = newcomer.mark(fence, Life::Open)?;
    Ok(Beat::start(&newcomer.repository, Key::session(newcomer.id), body, period))
}

/// R2: LIST again and ABORT every undecided lower ordinal, or an attempt of an older session could still
/// commit after `latest` was read. In ascending order, so that below a decided fence everything is decided,
/// wherever this stops.
async fn settle_below(newcomer: &Newcomer, fence: Ordinal) -> Result<Listing, RepoError> {
    let Newcomer { repository, run, id, .. } = newcomer;
    let mut listing = repository.listing(run).await?;
    let undecided = listing.undecided_below(fence);
    let claims: Vec<Claim> = stream::iter(undecided)
        .map(|ordinal| claim_of(repository, run, ordinal))
        .buffered(IN_FLIGHT)
        .try_collect()
        .await?;
    for claim in claims {
        let abort = Abort { reason: "superseded".to_owned(), detail: String::new(), by: Some(*id) };
        put_abort(repository, run, claim, abort).await?;
        listing.decisions.insert(claim.ordinal);
    }
    Ok(listing)
}

async fn claim_of(repository: &Repository, run: &RunName, ordinal: Ordinal) -> Result<Claim, RepoError> {
    let missing = || {
        let because = "a listing showed it and intents are never deleted".to_owned();
        RepoError::Missing { key: Key::intent(run, ordinal), because }
    };
    let intent = repository.intent(run, ordinal, Operation::Write).await?.ok_or_else(missing)?;
    Ok(Claim { ordinal, attempt: intent.attempt })
}
