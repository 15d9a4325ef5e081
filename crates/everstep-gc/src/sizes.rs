//! What checkpoints take together, shared packs counted once.

use std::collections::HashMap;

use everstep_format::id::AttemptId;
use everstep_format::key::StoredKind;
use everstep_repo::{Checkpoint, RepoError};

use crate::GcError;
use crate::judge::Fit;
use crate::learning::Reading;
use crate::listing::each;
use crate::marks::print_of;
use crate::sweep::prefixes;

/// The bytes of the first, the first two, ... of the checkpoints in the order of `fit`, until they are beyond its limit.
pub(crate) async fn measure(
    reading: Reading<'_>,
    checkpoints: &[Checkpoint],
    fit: &Fit,
) -> Result<Vec<u64>, GcError> {
    // What was not counted yet, by owner.
    let mut packs: HashMap<AttemptId, HashMap<u64, u64>> = HashMap::new();
    let (mut sizes, mut total) = (Vec::new(), 0_u64);
    for at in &fit.order {
        let refs = reading.repository.refs(&checkpoints[*at]).await.map_err(|error| match error {
            RepoError::Expired { .. } => GcError::Changed,
            other => other.into(),
        })?;
        for owner in refs.owners() {
            if let std::collections::hash_map::Entry::Vacant(unknown) = packs.entry(owner) {
                unknown.insert(packs_of(reading, owner).await?);
            }
        }
        for pack in refs.packs() {
            let uncounted = packs.get_mut(&pack.attempt).and_then(|packs| packs.remove(&print_of(pack)));
            total = total.saturating_add(uncounted.unwrap_or_default());
        }
        sizes.push(total);
        if total > fit.limit {
            break;
        }
    }
    Ok(sizes)
}

async fn packs_of(reading: Reading<'_>, attempt: AttemptId) -> Result<HashMap<u64, u64>, GcError> {
    let mut packs = HashMap::new();
    for prefix in prefixes(attempt, None) {
        each(reading.repository.store().as_ref(), &prefix, |object| {
            if let Some(StoredKind::Pack(pack)) = object.key.kind() {
                packs.insert(print_of(&pack), object.size);
            }
            Ok(())
        })
        .await?;
    }
    Ok(packs)
}
