//! Small objects that serve nobody any more: ended leases, signs of life of what is over.

use std::collections::BTreeSet;

use everstep_format::id::AttemptId;
use everstep_format::key::Key;
use everstep_repo::Repository;

use crate::GcError;
use crate::clock::Signs;
use crate::listing::Listing;
use crate::settings::Settings;

/// Removes the ended leases of this shard, each before its end; how many there were.
pub(crate) async fn remove_leases(
    repository: &Repository,
    listing: &Listing,
    settings: &Settings,
) -> Result<u64, GcError> {
    let ended = listing.leases.iter().filter(|(id, lease)| lease.ended && settings.shard.has(**id));
    let ids: Vec<AttemptId> = ended.map(|(id, _)| *id).collect();
    if ids.is_empty() {
        return Ok(0);
    }
    let leases: Vec<Key> = ids.iter().map(|id| Key::lease(*id)).collect();
    let mut gone = BTreeSet::new();
    for deleted in repository.store().delete(&leases).await? {
        if deleted.result.is_ok() {
            gone.insert(deleted.key);
        }
    }
    // The end of a lease that is still there must stay, or that would count again.
    let ends: Vec<Key> =
        ids.iter().filter(|id| gone.contains(&Key::lease(**id))).map(|id| Key::lease_end(*id)).collect();
    if !ends.is_empty() {
        repository.store().delete(&ends).await?;
    }
    Ok(ends.len() as u64)
}

/// Removes signs of life of `over`, as well as the store allows.
pub(crate) async fn remove_signs(repository: &Repository, signs: &Signs, over: &BTreeSet<AttemptId>) {
    let keys: Vec<Key> = signs.ids().filter(|id| over.contains(id)).map(Key::alive).collect();
    if keys.is_empty() {
        return;
    }
    if let Err(error) = repository.store().delete(&keys).await {
        tracing::debug!(%error, "signs of life of what is over stay; they are never read");
    }
}
