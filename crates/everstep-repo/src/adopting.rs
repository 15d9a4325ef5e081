//! Carrying a session on in another process of the same job, without a fence: the session stays the one it is.
//!
//! Its processes may take turns, but do not save at the same time. Whoever takes over puts ABORT on what the other one left
//! undecided, as R2 does, before it resolves `latest`; so a commit of the other one that comes late fails cleanly.

use std::collections::BTreeMap;

use everstep_format::decision::Abort;
use everstep_format::feature::Operation;
use everstep_format::id::SessionId;
use everstep_format::intent::{Intent, IntentKind};
use everstep_format::key::Key;
use everstep_format::name::{Ordinal, RunName};
use everstep_format::session::SessionMark;
use futures::{StreamExt, stream};

use crate::beat::Beat;
use crate::listing::Listing;
use crate::opening::IN_FLIGHT;
use crate::reading::{Fate, parse_decision};
use crate::register::Registered;
use crate::session::{Claim, put_abort};
use crate::{Checkpoint, OpenOptions, RepoError, Repository, Session, Ticket};

/// Why an attempt is aborted that a process of the session left undecided.
const LEFT: &str = "another process of its session has gone on without it";

/// The newest fence of a run, and the attempts above it.
struct Newest {
    fence: Intent,
    above: BTreeMap<Ordinal, Intent>,
}

impl Repository {
    /// Carries on the session of `ticket` in this process, with the save that the ticket names as the next one. All intents
    /// from its fence on are read, what it left undecided is aborted, and then its latest checkpoint is resolved.
    ///
    /// # Errors
    /// [`RepoError::Conflict`] when the session was fenced or closed; [`RepoError::NotFound`] for an unknown run.
    pub async fn adopt(&self, ticket: &Ticket) -> Result<Session, RepoError> {
        self.config().requires.check(Operation::Write).map_err(RepoError::object(Key::repository()))?;
        let Ticket { run, next } = ticket;
        let mut listing = self.listing_of_known(run).await?;
        let newest = self.newest_fence(run, &listing).await?;
        self.check_open(&newest.fence, (next.session, &listing)).await?;
        for intent in newest.above.values() {
            if listing.decisions.contains(&intent.ordinal) {
                continue;
            }
            let claim = Claim { ordinal: intent.ordinal, attempt: intent.attempt };
            self.settled(run, (claim, next.session)).await?;
            listing.decisions.insert(claim.ordinal);
        }
        let seen = newest.above.last_key_value().map_or(newest.fence.ordinal, |(ordinal, _)| *ordinal);
        let beat = self.beat_for(&newest.fence)?;
        Ok(Session {
            latest: self.latest_from(run, listing).await?,
            repository: self.clone(),
            run: run.clone(),
            id: next.session,
            job: newest.fence.job,
            fence: Claim { ordinal: newest.fence.ordinal, attempt: newest.fence.attempt },
            seen,
            undecided: BTreeMap::new(),
            calls: next.save,
            adopted: true,
            shared: true,
            beat: Some(beat),
        })
    }

    /// Reads the intents from the highest one down to a fence.
    async fn newest_fence(&self, run: &RunName, listing: &Listing) -> Result<Newest, RepoError> {
        let descending = listing.intents.iter().rev().copied();
        let read = |ordinal| async move { (ordinal, self.intent(run, ordinal, Operation::Write).await) };
        let mut intents = stream::iter(descending.map(read)).buffered(IN_FLIGHT);
        let mut above = BTreeMap::new();
        while let Some((ordinal, intent)) = intents.next().await {
            let missing = || {
                let because = "a listing showed it and intents are never deleted".to_owned();
                RepoError::Missing { key: Key::intent(run, ordinal), because }
            };
            let intent = intent?.ok_or_else(missing)?;
            if intent.kind == IntentKind::Fence {
                return Ok(Newest { fence: intent, above });
            }
            above.insert(ordinal, intent);
        }
        let because = "every run begins with the fence of a session".to_owned();
        Err(RepoError::Missing { key: Key::intent(run, Ordinal::FIRST), because })
    }

    /// `Ok` when `fence`, the newest one, is that of `session`, which has not ended.
    async fn check_open(
        &self,
        fence: &Intent,
        (session, listing): (SessionId, &Listing),
    ) -> Result<(), RepoError> {
        if fence.session != session {
            return Err(fenced_by(fence));
        }
        if !listing.decisions.contains(&fence.ordinal) {
            return Ok(());
        }
        let decided = self.decision(&fence.run, fence.ordinal, Operation::Write).await?;
        let reason = match decided.map(|decided| decided.fate.clone()) {
            Some(Fate::Abort(Abort { reason, .. })) => reason,
            _ => "decided".to_owned(),
        };
        let why = format!("session {session} has ended ({reason}), so nobody can carry it on");
        Err(RepoError::Conflict { run: fence.run.clone(), why })
    }

    /// The checkpoint that came of an attempt of `session` on which nobody works any more. One that is undecided is aborted.
    pub(crate) async fn settled(
        &self,
        run: &RunName,
        (claim, session): (Claim, SessionId),
    ) -> Result<Option<Checkpoint>, RepoError> {
        // Asked first: where an ABORT needs a marker beside it, that would beat a COMMIT.
        if let Some(decided) = self.decision(run, claim.ordinal, Operation::Write).await? {
            return Ok(decided.committed());
        }
        let abort = Abort { reason: "failed".to_owned(), detail: LEFT.to_owned(), by: Some(session) };
        match put_abort(self, run, claim, abort).await? {
            Registered::Theirs(bytes) => {
                Ok(parse_decision(&bytes, (run, claim.ordinal), Operation::Write)?.committed())
            }
            _ => Ok(None),
        }
    }

    /// The sign of life that the session gives anyway; it goes on if the process that opened it ends first.
    fn beat_for(&self, fence: &Intent) -> Result<Beat, RepoError> {
        let mark = SessionMark::new(fence.session, fence.run.clone(), fence.ordinal, fence.job.clone());
        let key = Key::session(fence.session);
        let body = mark.to_bytes().map_err(RepoError::object(key.clone()))?;
        Ok(Beat::start(self, key, body.into(), OpenOptions::default().takeover_after / 4))
    }
}

pub(crate) fn fenced_by(fence: &Intent) -> RepoError {
    let job = fence.job.as_ref().map(|job| format!(" (job {job})")).unwrap_or_default();
    let why = format!("fenced by session {}{job}, which opened the run after this one", fence.session);
    RepoError::Conflict { run: fence.run.clone(), why }
}
