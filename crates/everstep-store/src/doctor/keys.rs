//! What can be found out by keys below `probe/`: permissions, clocks, atomic creates, leftovers of earlier probes.

use std::time::{Duration, SystemTime};

use everstep_format::id::SessionId;
use everstep_format::key::{Key, Prefix};

use super::{Check, Health};
use crate::probe::{ProbeSettings, Verdict, probe};
use crate::store::list_all;
use crate::{Create, Listed, Span, Store, StoreError, StoreErrorKind, World};

/// Clocks may differ by this: beyond it, signatures are close to being refused.
const SKEW: Duration = Duration::from_secs(5 * 60);
/// Listings tell whole seconds.
const ROUNDING: Duration = Duration::from_secs(2);
/// A key of a probe that is older was left by one that crashed, or by somebody who may not delete.
const LEFT_AFTER: Duration = Duration::from_secs(3600);
/// Less room than this is no room.
const ROOM: u64 = 1 << 30;

/// Looks at everything that keys can show.
pub(super) async fn examine(store: &dyn Store, world: &dyn World, checks: &mut Vec<Check>) {
    let key = Key::probe(SessionId(world.random_id()), 0);
    let before = world.now();
    let written = store.create(&key, b"doctor".to_vec().into()).await;
    let after = world.now();
    let may_write = matches!(&written, Ok(Create::Created));
    checks.push(write(written));
    checks.push(read(store, &key, may_write).await);
    let listed = list_all(store, &Prefix::probes()).await;
    let ours = listed.iter().flatten().find(|listed| listed.key == key);
    let stored_at = ours.map(|listed| listed.modified);
    checks.push(clock(stored_at, (before, after)));
    let may_delete = delete(store, &key, may_write, checks).await;
    if may_write && listed.is_ok() {
        checks.push(race(store, world).await);
    } else {
        checks.push(Check::new("create", Health::Unknown, "needs permission to write and to list"));
    }
    if let Ok(listed) = listed {
        checks.extend(leftovers(store, listed, (stored_at.unwrap_or(after), may_delete)).await);
    }
    checks.extend(room(store).await);
}

fn write(written: Result<Create, StoreError>) -> Check {
    match written {
        Ok(Create::Created) => Check::new("write", Health::Sound, "allowed"),
        Ok(Create::Exists) => {
            Check::new("write", Health::Refused, "a key that was never used is there already")
                .advise("do not use this store: it would lose commits")
        }
        Ok(Create::Unknown(error)) => Check::failed("write", &error),
        Err(error) if error.kind == StoreErrorKind::Denied => {
            Check::new("write", Health::Warning, format!("not allowed: {}", error.detail))
                .advise("enough for reading; a trainer needs it (docs/permissions.md)")
        }
        Err(error) => Check::failed("write", &error),
    }
}

async fn read(store: &dyn Store, key: &Key, is_there: bool) -> Check {
    match store.get(key, Span::AtMost(ROOM)).await {
        Ok(object) if object.bytes == b"doctor"[..] => Check::new("read", Health::Sound, "allowed"),
        Ok(_) => Check::new("read", Health::Refused, "other bytes came back than were written")
            .advise("do not use this store"),
        Err(error) if error.kind == StoreErrorKind::NotFound && !is_there => {
            Check::new("read", Health::Sound, "allowed")
        }
        Err(error) if error.kind == StoreErrorKind::NotFound => {
            Check::new("read", Health::Refused, "an object that was just written is not there")
                .advise("do not use this store: it shows objects late")
        }
        Err(error) => Check::failed("read", &error),
    }
}

/// By the time that the store's listing gives to an object that was written between `before` and `after`.
fn clock(stored_at: Option<SystemTime>, (before, after): (SystemTime, SystemTime)) -> Check {
    let Some(stored_at) = stored_at else {
        return Check::new("clock", Health::Unknown, "needs permission to write and to list");
    };
    let ahead = stored_at.duration_since(after + ROUNDING).unwrap_or_default();
    let behind = (before - ROUNDING).duration_since(stored_at).unwrap_or_default();
    let apart = ahead.max(behind);
    let whose = if ahead > behind { "behind" } else { "ahead of" };
    match apart {
        Duration::ZERO => Check::new("clock", Health::Sound, "agrees with the store's"),
        apart if apart <= SKEW => {
            Check::new("clock", Health::Sound, format!("{} s {whose} the store's", apart.as_secs()))
        }
        apart => {
            let found = format!("this machine's clock is {} min {whose} the store's", apart.as_secs() / 60);
            let advice = "set the clock: beyond 15 minutes stores refuse signatures";
            Check::new("clock", Health::Warning, found).advise(advice)
        }
    }
}

/// Deletes `key`, if it is there; answers whether that is allowed.
async fn delete(store: &dyn Store, key: &Key, is_there: bool, checks: &mut Vec<Check>) -> bool {
    if !is_there {
        checks.push(Check::new("delete", Health::Unknown, "nothing could be written to be deleted"));
        return false;
    }
    let deleted = store.delete(std::slice::from_ref(key)).await;
    let result = deleted.and_then(|mut results| results.pop().map_or(Ok(()), |deleted| deleted.result));
    let check = match &result {
        Ok(()) => Check::new("delete", Health::Sound, "allowed"),
        Err(error) if error.kind == StoreErrorKind::Denied => {
            Check::new("delete", Health::Warning, format!("not allowed: {}", error.detail)).advise(
                "enough for training; garbage collection needs it (docs/permissions.md). One small key stays",
            )
        }
        Err(error) => Check::failed("delete", error),
    };
    checks.push(check);
    result.is_ok()
}

/// The contended creates.
async fn race(store: &dyn Store, world: &dyn World) -> Check {
    let report = match probe(store, world, ProbeSettings::default()).await {
        Ok(report) => report,
        Err(error) => return Check::failed("create", &error),
    };
    let found = report.verdict.to_string();
    match report.verdict {
        Verdict::Atomic => Check::new("create", Health::Sound, found),
        Verdict::NotAtomic { .. } => Check::new("create", Health::Refused, found)
            .advise("two jobs could destroy each other's checkpoints here: use another store"),
        Verdict::Unproven { .. } => {
            Check::new("create", Health::Failed, found).advise("try again when the store answers reliably")
        }
    }
}

/// Removes what earlier probes left; keys that may belong to a running one stay.
async fn leftovers(
    store: &dyn Store,
    listed: Vec<Listed>,
    (now, may_delete): (SystemTime, bool),
) -> Option<Check> {
    let is_old = |listed: &Listed| now.duration_since(listed.modified).is_ok_and(|age| age > LEFT_AFTER);
    let old: Vec<Key> = listed.into_iter().filter(is_old).map(|listed| listed.key).collect();
    if old.is_empty() {
        return None;
    }
    let found = format!("{} keys that earlier probes left", old.len());
    if !may_delete {
        let advice = "whoever may delete removes them by running this command";
        return Some(Check::new("leftovers", Health::Warning, found).advise(advice));
    }
    let removed = store.delete(&old).await;
    let failed = removed.map(|results| results.into_iter().find_map(|deleted| deleted.result.err()));
    Some(match failed {
        Ok(None) => Check::new("leftovers", Health::Sound, format!("{found}: removed")),
        Ok(Some(error)) | Err(error) => Check::failed("leftovers", &error),
    })
}

async fn room(store: &dyn Store) -> Option<Check> {
    match store.free_space().await {
        Ok(None) => None,
        Ok(Some(bytes)) if bytes < ROOM => Some(
            Check::new("room", Health::Warning, format!("only {} MB free", bytes / 1_000_000))
                .advise("make room"),
        ),
        Ok(Some(bytes)) => {
            Some(Check::new("room", Health::Sound, format!("{} GB free", bytes / 1_000_000_000)))
        }
        Err(error) => Some(Check::failed("room", &error)),
    }
}
