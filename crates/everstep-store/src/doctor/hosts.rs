//! Two hosts, one store: does a listing on one show at once what the other has created? Without this no reader finds a new
//! checkpoint, and a directory whose listings are cached does not keep it.
//!
//! The two take turns. Whoever waits asks for the next key by its name; once it can be read, a listing must have it.

use std::sync::Arc;
use std::time::Duration;

use everstep_format::id::{ContentHash, SessionId};
use everstep_format::key::{Key, Prefix};

use crate::store::list_all;
use crate::{Create, Span, Store, StoreError, StoreErrorKind, World};

/// Keys that each side creates.
const ROUNDS: u32 = 20;
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Who begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Waits for the other's first key.
    Listen,
    /// Creates the first key.
    Echo,
}

/// What one side saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Keys of the other side that were waited for.
    pub keys: u32,
    /// Keys that the first listing after they could be read did not have.
    pub late: u32,
    /// The longest time from reading a key to listing it.
    pub longest_delay: Duration,
    /// Keys that stay because deleting is not allowed.
    pub left: usize,
}

/// Meets the other side under `name`, waiting for each of its keys at most `patience`.
///
/// # Errors
/// Unreachable when the other side does not answer, Invalid for a name that was used before, and the store's.
pub async fn meet(
    store: &Arc<dyn Store>,
    world: &dyn World,
    (name, side): (&str, Side),
    patience: Duration,
) -> Result<Seen, StoreError> {
    let meeting = Meeting { store: store.as_ref(), world, id: meeting_id(name), patience };
    meeting.refuse_a_used_name(name, side).await?;
    let mut seen = Seen { keys: 0, late: 0, longest_delay: Duration::ZERO, left: 0 };
    for round in 0..ROUNDS {
        match side {
            Side::Echo => {
                meeting.create(2 * round).await?;
                meeting.wait_for(2 * round + 1, &mut seen).await?;
            }
            Side::Listen => {
                meeting.wait_for(2 * round, &mut seen).await?;
                meeting.create(2 * round + 1).await?;
            }
        }
    }
    // The echoing side has the last word, so it may take everything away.
    if side == Side::Echo {
        seen.left = meeting.clean_up().await?;
    }
    Ok(seen)
}

/// Both sides must find the same keys, so the name alone decides.
fn meeting_id(name: &str) -> SessionId {
    let mut id = [0; 16];
    id.copy_from_slice(&ContentHash::of(name.as_bytes()).0[..16]);
    SessionId(id)
}

struct Meeting<'a> {
    store: &'a dyn Store,
    world: &'a dyn World,
    id: SessionId,
    patience: Duration,
}

impl Meeting<'_> {
    fn key(&self, number: u32) -> Key {
        Key::probe(self.id, number)
    }

    /// Keys of an earlier meeting would be taken for answers.
    async fn refuse_a_used_name(&self, name: &str, side: Side) -> Result<(), StoreError> {
        let own_first = self.key(if side == Side::Echo { 0 } else { 1 });
        match self.get(&own_first).await? {
            false => Ok(()),
            true => {
                let detail = format!("the name {name:?} has been used: choose another on both sides");
                Err(StoreError::new(StoreErrorKind::Invalid, "meet", &own_first, detail))
            }
        }
    }

    async fn create(&self, number: u32) -> Result<(), StoreError> {
        match self.store.create(&self.key(number), b"here".to_vec().into()).await? {
            Create::Created | Create::Exists => Ok(()),
            Create::Unknown(error) => Err(error),
        }
    }

    async fn get(&self, key: &Key) -> Result<bool, StoreError> {
        match self.store.get(key, Span::AtMost(1024)).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn lists(&self, key: &Key) -> Result<bool, StoreError> {
        let listed = list_all(self.store, &Prefix::probes()).await?;
        Ok(listed.iter().any(|listed| listed.key == *key))
    }

    async fn wait_for(&self, number: u32, seen: &mut Seen) -> Result<(), StoreError> {
        let key = self.key(number);
        self.until(&key, async || self.get(&key).await).await?;
        seen.keys += 1;
        let readable = self.world.elapsed();
        if self.lists(&key).await? {
            return Ok(());
        }
        seen.late += 1;
        self.until(&key, async || self.lists(&key).await).await?;
        let delay = self.world.elapsed().saturating_sub(readable);
        seen.longest_delay = seen.longest_delay.max(delay);
        Ok(())
    }

    async fn until(
        &self,
        key: &Key,
        is_there: impl AsyncFn() -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let started = self.world.elapsed();
        while !is_there().await? {
            if self.world.elapsed().saturating_sub(started) > self.patience {
                let detail = format!("the other side has shown nothing for {} s", self.patience.as_secs());
                return Err(StoreError::new(StoreErrorKind::Unreachable, "meet", key, detail));
            }
            self.world.sleep(LOOK).await;
        }
        Ok(())
    }

    async fn clean_up(&self) -> Result<usize, StoreError> {
        let keys: Vec<Key> = (0..2 * ROUNDS).map(|number| self.key(number)).collect();
        let results = match self.store.delete(&keys).await {
            Err(error) if error.kind == StoreErrorKind::Denied => return Ok(keys.len()),
            results => results?,
        };
        Ok(results.into_iter().filter(|deleted| deleted.result.is_err()).count())
    }
}
