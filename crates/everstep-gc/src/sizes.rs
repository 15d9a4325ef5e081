//! What checkpoints take together, shared packs counted once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use everstep_format::id::AttemptId;
use everstep_format::key::{PackAddress, StoredKind};
use everstep_repo::{Checkpoint, RepoError};

use crate::GcError;
use crate::judge::{Filling, Fit};
use crate::learning::Reading;
use crate::listing::each;
use crate::marks::print_of;
use crate::sweep::prefixes;

/// Packs of an attempt, with their bytes.
type Packs = HashMap<u64, u64>;

/// Whether each of the checkpoints in the order of `fit` stays.
pub(crate) async fn measure(
    reading: Reading<'_>,
    checkpoints: &[Checkpoint],
    fit: &Fit,
) -> Result<Vec<bool>, GcError> {
    // What was not counted yet, by owner.
    let mut uncounted: HashMap<AttemptId, Packs> = HashMap::new();
    let (mut filling, mut stays) = (Filling::new(fit), Vec::new());
    for at in &fit.order {
        let refs = reading.repository.refs(&checkpoints[*at]).await.map_err(|error| match error {
            RepoError::Expired { .. } => GcError::Changed,
            other => other.into(),
        })?;
        for owner in refs.owners() {
            if let Entry::Vacant(unknown) = uncounted.entry(owner) {
                unknown.insert(packs_of(reading, owner).await?);
            }
        }
        let size = |pack: &PackAddress| uncounted.get(&pack.attempt)?.get(&print_of(pack)).copied();
        let admitted = filling.admit(refs.packs().iter().filter_map(size).fold(0, u64::saturating_add));
        if admitted {
            for pack in refs.packs() {
                uncounted.get_mut(&pack.attempt).and_then(|packs| packs.remove(&print_of(pack)));
            }
        }
        stays.push(admitted);
    }
    Ok(stays)
}

async fn packs_of(reading: Reading<'_>, attempt: AttemptId) -> Result<Packs, GcError> {
    let mut packs = Packs::new();
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
