//! The write-once register: put-if-absent plus read-back. Intents, decisions, markers and `everstep.json` all
//! go through here, so there is one place that says what a lost reply means.

use std::time::Duration;

use bytes::Bytes;
use everstep_format::key::Key;
use everstep_store::{Create, Store, StoreError, StoreErrorKind, World};

use crate::reading::fetch;

/// Creates per register before the outcome is called unknown. The store layer below retries on its own as
/// well.
const TRIES: u32 = 8;
/// Wait after the first try; doubled after each.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// What a register holds after a write to it.
#[derive(Debug)]
pub(crate) enum Registered {
    /// Our bytes, whether the answer said so or only reading back did.
    Ours,
    /// Somebody else's bytes.
    Theirs(Bytes),
    /// Nobody knows: our bytes may be there, or land later, or never. Nothing is ever deleted because of
    /// this.
    Unknown(StoreError),
}

/// What one try taught.
enum Lesson {
    Settled(Registered),
    /// The store surely did nothing.
    Refused(StoreError),
    /// Nothing is there now; an earlier create of ours may or may not still land.
    Again(StoreError),
    /// Asking again cannot help.
    Hopeless(StoreError),
}

/// Writes `body` to the register `key` unless it is taken. Each `body` must be unique to its writer (it
/// carries a random id), so that equal bytes mean our own write; that makes repeating the create harmless.
///
/// # Errors
/// Only when the store surely stored nothing.
pub(crate) async fn register(
    store: &dyn Store,
    world: &dyn World,
    key: &Key,
    body: &Bytes,
) -> Result<Registered, StoreError> {
    let mut doubt = None;
    let mut wait = FIRST_WAIT;
    for attempt in 1..=TRIES {
        match try_once(store, key, body).await {
            Lesson::Settled(outcome) => return Ok(outcome),
            Lesson::Refused(error) => match doubt {
                None => return Err(error),
                // An earlier try may have stored it, so a refusal of this one proves nothing.
                Some(_) => return Ok(Registered::Unknown(error)),
            },
            Lesson::Hopeless(error) => return Ok(Registered::Unknown(error)),
            Lesson::Again(error) => doubt = Some(error),
        }
        if attempt < TRIES {
            world.sleep(wait.mul_f64(0.5 + 0.5 * world.random_fraction())).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }
    let none = || StoreError::new(StoreErrorKind::Unreachable, "create", key, "no try was made");
    Ok(Registered::Unknown(doubt.unwrap_or_else(none)))
}

async fn try_once(store: &dyn Store, key: &Key, body: &Bytes) -> Lesson {
    let answer = match store.create(key, body.clone().into()).await {
        Ok(Create::Created) => return Lesson::Settled(Registered::Ours),
        Ok(answer) => answer,
        Err(error) => return Lesson::Refused(error),
    };
    match (fetch(store, key).await, answer) {
        (Ok(Some(found)), _) if found == *body => Lesson::Settled(Registered::Ours),
        (Ok(Some(found)), _) => Lesson::Settled(Registered::Theirs(found)),
        (Ok(None), Create::Unknown(error)) => Lesson::Again(error),
        // A transient 409 that stored nothing: the key is free after all.
        (Ok(None), _) => {
            let detail = "the store says that the object exists, yet does not show it";
            Lesson::Again(StoreError::new(StoreErrorKind::Server, "create", key, detail))
        }
        (Err(error), _) if error.is_transient() => Lesson::Again(error),
        (Err(error), _) => Lesson::Hopeless(error),
    }
}
