//! The store's clock, and signs of life by it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use everstep_format::id::AttemptId;
use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_repo::Repository;
use everstep_store::Class;

use crate::GcError;
use crate::listing::each;

/// What the object says that is written to learn the time; nobody reads it.
const TICK: &[u8] = b"garbage collection\n";

/// Signs of life, and the time at which they were looked at. Neither decides what is safe.
#[derive(Debug)]
pub(crate) struct Signs {
    /// By the clock that also dated the signs.
    pub(crate) now: SystemTime,
    /// When each attempt or lease last showed life, beside its first object.
    alive: BTreeMap<AttemptId, SystemTime>,
}

impl Signs {
    /// Writes an object to learn the time of the store, lists, and removes it.
    pub(crate) async fn read(repository: &Repository) -> Result<Self, GcError> {
        let store = repository.store();
        let own = AttemptId(repository.world().random_id());
        store.put(&Key::alive(own), TICK.to_vec().into(), Class::Control).await?;
        let mut alive = listed(repository).await?;
        if let Err(error) = store.delete(&[Key::alive(own)]).await {
            tracing::debug!(%error, "a sign of life of a collector stays; it is never read");
        }
        // Where the own object is not shown, nothing is old.
        let now = alive.remove(&own).unwrap_or(SystemTime::UNIX_EPOCH);
        Ok(Self { now, alive })
    }

    /// Changes nothing: by the clock of this machine.
    pub(crate) async fn look(repository: &Repository) -> Result<Self, GcError> {
        Ok(Self { now: repository.world().now(), alive: listed(repository).await? })
    }

    /// How long nothing was heard of `id`, whose first object was written at `since`.
    pub(crate) fn silence(&self, id: AttemptId, since: SystemTime) -> Duration {
        let last = self.alive.get(&id).map_or(since, |sign| since.max(*sign));
        self.age(last)
    }

    /// The time since `then`.
    pub(crate) fn age(&self, then: SystemTime) -> Duration {
        self.now.duration_since(then).unwrap_or_default()
    }

    /// Everything that showed life.
    pub(crate) fn ids(&self) -> impl Iterator<Item = AttemptId> {
        self.alive.keys().copied()
    }
}

async fn listed(repository: &Repository) -> Result<BTreeMap<AttemptId, SystemTime>, GcError> {
    let mut alive = BTreeMap::new();
    let add = |object: everstep_store::Listed| {
        if let Some(StoredKind::Alive(id)) = object.key.kind() {
            alive.insert(id, object.modified);
        }
        Ok(())
    };
    each(repository.store().as_ref(), &Prefix::alive(), add).await?;
    Ok(alive)
}
