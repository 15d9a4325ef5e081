//! G4 and G5: packs of the dead that nobody uses, then their indexes.

use std::collections::BTreeSet;

use everstep_format::id::AttemptId;
use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_format::name::Rank;
use everstep_format::swept::Swept;
use everstep_repo::Repository;
use everstep_store::{Class, Listed};
use futures::{StreamExt, TryStreamExt, stream};

use crate::GcError;
use crate::candidates::{Candidates, Dead};
use crate::clock::Signs;
use crate::marks::Marks;
use crate::report::Collected;
use crate::settings::{Progress, Settings};
use crate::throttle::Throttle;

/// Ranks that are equal modulo this share a prefix.
const PREFIXES: u32 = 16;

/// The prefixes under which an attempt of so many writers has its packs.
pub(crate) fn prefixes(attempt: AttemptId, world_size: Option<u32>) -> BTreeSet<Prefix> {
    let ranks = world_size.unwrap_or(PREFIXES).clamp(1, PREFIXES);
    (0..ranks).map(|rank| Prefix::packs_of(attempt, Rank(rank))).collect()
}

/// One sweep over the candidates.
pub(crate) struct Sweep<'s> {
    pub(crate) repository: &'s Repository,
    pub(crate) settings: &'s Settings,
    pub(crate) candidates: &'s Candidates,
    pub(crate) marks: &'s Marks,
    pub(crate) signs: &'s Signs,
    pub(crate) progress: &'s dyn Progress,
    pub(crate) throttle: Throttle,
    /// In a plan, which deletes nothing: the checkpoints that would be expired.
    pub(crate) planned: Option<BTreeSet<AttemptId>>,
}

/// What objects are, for the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Packs,
    Tables,
    Records,
}

impl Sweep<'_> {
    pub(crate) async fn run(&self) -> Result<Collected, GcError> {
        let attempts: Vec<AttemptId> = self.candidates.with_data().map(|(attempt, _)| attempt).collect();
        self.progress.planned(attempts.len() as u64);
        let sweep = |attempt| self.attempt(attempt);
        let mut swept = stream::iter(attempts).map(sweep).buffer_unordered(self.settings.in_flight.max(1));
        let mut sum = Collected::default();
        while let Some(done) = swept.try_next().await? {
            sum.add(done);
            self.progress.swept();
        }
        Ok(sum)
    }

    async fn attempt(&self, attempt: AttemptId) -> Result<Collected, GcError> {
        let mut done = Collected::default();
        let Some(dead) = self.candidates.attempts.get(&attempt) else { return Ok(done) };
        let world_size = dead.world_size.filter(|_| !self.settings.thorough);
        for prefix in prefixes(attempt, world_size) {
            self.below(&prefix, attempt, &mut done).await?;
        }
        // Packs go first: what is left to find them by must not go before them.
        if done.failed.tally.objects == 0 {
            self.below(&Prefix::index_of(attempt), attempt, &mut done).await?;
        }
        if done.freed().objects + done.shared.objects + done.failed.tally.objects == 0 {
            done.marked_swept += u64::from(self.mark_swept(attempt, dead).await?);
        }
        Ok(done)
    }

    async fn below(&self, prefix: &Prefix, attempt: AttemptId, done: &mut Collected) -> Result<(), GcError> {
        let mut token = None;
        loop {
            let page = self.repository.store().list(prefix, token).await?;
            for kind in [Kind::Packs, Kind::Tables] {
                let objects =
                    page.objects.iter().filter(|object| kind_of(&object.key, attempt) == Some(kind));
                let (doomed, shared): (Vec<&Listed>, Vec<&Listed>) =
                    objects.partition(|object| !self.is_used(&object.key, attempt));
                shared.iter().for_each(|object| done.shared.count(object.size));
                self.delete(kind, &doomed, (attempt, &mut *done)).await;
            }
            match page.next {
                None => return Ok(()),
                next => token = next,
            }
        }
    }

    fn is_used(&self, key: &Key, attempt: AttemptId) -> bool {
        match key.kind() {
            Some(StoredKind::Pack(pack)) => self.marks.has(&pack),
            _ => self.marks.is_parent(attempt),
        }
    }

    async fn delete(&self, kind: Kind, doomed: &[&Listed], (attempt, done): (AttemptId, &mut Collected)) {
        if let Some(planned) = &self.planned {
            for object in doomed {
                let cause = self.cause(&object.key, attempt, planned);
                done.by_cause.entry(cause).or_default().count(object.size);
            }
        }
        self.remove(kind, doomed, done).await;
    }

    /// Deletes, or counts what would be deleted.
    pub(crate) async fn remove(&self, kind: Kind, doomed: &[&Listed], done: &mut Collected) {
        for object in doomed {
            self.progress.doomed(&object.key, object.size);
        }
        if self.planned.is_some() {
            doomed.iter().for_each(|object| tally_of(kind, done).count(object.size));
            return;
        }
        for batch in doomed.chunks(self.throttle.batch()) {
            self.throttle.admit(self.repository.world().as_ref(), batch.len()).await;
            self.delete_batch(kind, batch, done).await;
        }
    }

    /// Every key has its own result; a request that failed as a whole failed for each.
    async fn delete_batch(&self, kind: Kind, batch: &[&Listed], done: &mut Collected) {
        let keys: Vec<Key> = batch.iter().map(|object| object.key.clone()).collect();
        match self.repository.store().delete(&keys).await {
            Err(error) => batch.iter().for_each(|o| done.failed.count(o.key.clone(), o.size, &error)),
            Ok(results) => {
                for (object, deleted) in batch.iter().zip(results) {
                    match deleted.result {
                        Ok(()) => tally_of(kind, done).count(object.size),
                        Err(error) => done.failed.count(deleted.key, object.size, &error),
                    }
                }
            }
        }
    }

    /// The checkpoint whose expiry frees the object; `None` when it was garbage before.
    fn cause(&self, key: &Key, attempt: AttemptId, planned: &BTreeSet<AttemptId>) -> Option<AttemptId> {
        let user = match key.kind() {
            Some(StoredKind::Pack(pack)) => self.marks.user_of(&pack),
            _ => None,
        };
        user.or_else(|| planned.contains(&attempt).then_some(attempt))
    }

    /// Marks an attempt of which nothing was found, long after it died. Whether it did; the mark is only a convenience.
    pub(crate) async fn mark_swept(&self, attempt: AttemptId, dead: &Dead) -> Result<bool, GcError> {
        let old = dead.since.is_some_and(|since| self.signs.age(since) >= self.settings.swept_after);
        if !old || self.planned.is_some() {
            return Ok(false);
        }
        let (run, ordinal) = &dead.place;
        let created = jiff::Timestamp::try_from(self.repository.world().now()).unwrap_or_default();
        let key = Key::swept(run, *ordinal);
        let mark = Swept::new(run.clone(), *ordinal, attempt, created.to_string());
        let body = mark.to_bytes().map_err(GcError::object(key.clone()))?;
        match self.repository.store().put(&key, body.into(), Class::Control).await {
            Ok(()) => Ok(true),
            Err(error) => {
                tracing::debug!(%key, %error, "a mark was not put; the next pass looks again");
                Ok(false)
            }
        }
    }
}

/// What the object is, if it is one of `attempt` that garbage collection knows; strays are nobody's.
fn kind_of(key: &Key, attempt: AttemptId) -> Option<Kind> {
    let (owner, kind) = match key.kind()? {
        StoredKind::Pack(pack) => (pack.attempt, Kind::Packs),
        StoredKind::Index(owner, _)
        | StoredKind::Refs(owner, _)
        | StoredKind::Part(owner, ..)
        | StoredKind::Failed(owner, _) => (owner, Kind::Tables),
        _ => return None,
    };
    (owner == attempt).then_some(kind)
}

fn tally_of(kind: Kind, done: &mut Collected) -> &mut crate::Tally {
    match kind {
        Kind::Packs => &mut done.packs,
        Kind::Tables => &mut done.tables,
        Kind::Records => &mut done.records,
    }
}
