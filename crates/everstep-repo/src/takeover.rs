//! Whether another job's session is alive, and what to do then. It spares people surprises; safety comes from
//! fences.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use everstep_format::feature::Operation;
use everstep_format::id::SessionId;
use everstep_format::intent::{Intent, IntentKind};
use everstep_format::key::{Key, Prefix};
use everstep_format::name::{Ordinal, RunName};
use everstep_format::session::SessionMark;
use everstep_store::StoreErrorKind;
use everstep_store::store::list_all;

use crate::listing::Listing;
use crate::reading::fetch;
use crate::session::{OpenOptions, Takeover};
use crate::{RepoError, Repository, beat};

/// Shortest and longest wait between two looks at a live session.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(15));

/// A session about to be opened.
#[derive(Debug, Clone)]
pub(crate) struct Newcomer {
    pub(crate) repository: Repository,
    pub(crate) run: RunName,
    pub(crate) id: SessionId,
    pub(crate) options: OpenOptions,
}

/// What a mark says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Open,
    Closed,
}

/// A session of another job that seems alive.
struct Rival {
    session: SessionId,
    job: Option<String>,
    silent_for: Duration,
}

impl Newcomer {
    /// Returns a LIST of the run taken when nobody, or nobody to be spared, was writing it.
    ///
    /// # Errors
    /// [`RepoError::Conflict`] naming the live session.
    pub(crate) async fn clear_way(&self) -> Result<Listing, RepoError> {
        let world = self.repository.world();
        let patience = if let Takeover::Wait(time) = self.options.takeover { time } else { Duration::ZERO };
        let deadline = world.elapsed().saturating_add(patience);
        loop {
            let listing = self.repository.listing(&self.run).await?;
            let Some(rival) = self.rival(&listing).await? else { return Ok(listing) };
            let left = deadline.saturating_sub(world.elapsed());
            if left.is_zero() {
                return Err(self.refusal(&rival));
            }
            tracing::info!(run = %self.run, session = %rival.session, "waiting for another job to end");
            let (shortest, longest) = LOOK_AGAIN;
            world.sleep((self.options.takeover_after / 8).clamp(shortest, longest).min(left)).await;
        }
    }

    fn refusal(&self, rival: &Rival) -> RepoError {
        let job = rival.job.as_ref().map_or_else(|| "without a label".to_owned(), |job| format!("job {job}"));
        let why = format!(
            "session {} ({job}) writes this run: its last sign of life is {} s old, and after {} s without one it \
             counts as ended. Take it over with `--takeover now`, or wait for it with `--takeover wait`",
            rival.session,
            rival.silent_for.as_secs(),
            self.options.takeover_after.as_secs(),
        );
        RepoError::Conflict { run: self.run.clone(), why }
    }

    /// The session of the newest intent, when it must be spared. Sessions walk past every fence, so the
    /// newest intent always belongs to the session of the newest fence.
    async fn rival(&self, listing: &Listing) -> Result<Option<Rival>, RepoError> {
        let Some(&newest) = listing.intents.last() else { return Ok(None) };
        if self.options.takeover == Takeover::Now {
            return Ok(None);
        }
        let Some(intent) = self.repository.intent(&self.run, newest, Operation::Write).await? else {
            return Ok(None);
        };
        let same_job = self.options.job.is_some() && self.options.job == intent.job;
        if same_job || self.has_ended(&intent, listing).await? {
            return Ok(None);
        }
        let silent_for = self.silence_of(intent.session, newest).await?;
        let alive = silent_for.filter(|&time| time < self.options.takeover_after);
        Ok(alive.map(|silent_for| Rival { session: intent.session, job: intent.job, silent_for }))
    }

    /// Whether the session of `intent` closed itself or lost its fence.
    async fn has_ended(&self, intent: &Intent, listing: &Listing) -> Result<bool, RepoError> {
        if intent.kind == IntentKind::Fence && listing.decisions.contains(&intent.ordinal) {
            return Ok(true);
        }
        let bytes = match fetch(self.repository.store().as_ref(), &Key::session(intent.session)).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(true),
            Err(error) if error.kind == StoreErrorKind::TooLarge => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        // A mark that cannot be read says nothing; when it was written still does.
        Ok(SessionMark::from_bytes(&bytes, intent.session)
            .is_ok_and(|mark| mark.closed || listing.decisions.contains(&mark.fence)))
    }

    /// How long ago `session` gave its last sign of life, by the store's clock: the age of its mark beside
    /// the age of our own, written just now. `None` when there is no mark of it.
    async fn silence_of(&self, session: SessionId, newest: Ordinal) -> Result<Option<Duration>, RepoError> {
        self.show(Ordinal(newest.0.saturating_add(1)), Life::Open).await;
        let marks = list_all(self.repository.store().as_ref(), &Prefix::sessions()).await?;
        let written = |id: SessionId| -> Option<SystemTime> {
            let key = Key::session(id);
            marks.iter().find(|mark| mark.key == key).map(|mark| mark.modified)
        };
        let Some(theirs) = written(session) else { return Ok(None) };
        // Without an own mark there is no clock to compare with, so the session counts as alive.
        let now = written(self.id).unwrap_or(theirs);
        Ok(Some(now.duration_since(theirs).unwrap_or_default()))
    }

    /// The body of our mark, for a fence at `fence`.
    pub(crate) fn mark(&self, fence: Ordinal, life: Life) -> Result<Bytes, RepoError> {
        let mut mark = SessionMark::new(self.id, self.run.clone(), fence, self.options.job.clone());
        mark.closed = life == Life::Closed;
        Ok(Bytes::from(mark.to_bytes().map_err(RepoError::object(Key::session(self.id)))?))
    }

    /// Writes our mark, as well as it can.
    pub(crate) async fn show(&self, fence: Ordinal, life: Life) {
        if let Ok(body) = self.mark(fence, life) {
            beat::write_once(self.repository.store().as_ref(), &Key::session(self.id), &body).await;
        }
    }

    /// Removes our mark after a refusal; it is advisory, so a failure does not matter.
    pub(crate) async fn withdraw(&self) {
        if let Err(error) = self.repository.store().delete(&[Key::session(self.id)]).await {
            tracing::debug!(session = %self.id, %error, "the mark of a session that was refused stays");
        }
    }
}
