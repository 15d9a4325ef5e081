//! G0: attempts and leases of which nothing was heard for too long.

use std::sync::Arc;
use std::time::Duration;

use everstep_format::id::AttemptId;
use everstep_format::intent::{Intent, IntentKind};

use crate::clock::Signs;
use crate::learning::Known;
use crate::listing::Listing;
use crate::settings::Settings;

/// Undecided attempts of this shard that were silent for too long, with how long.
pub(crate) fn attempts(
    listing: &Listing,
    known: &Known,
    signs: &Signs,
    settings: &Settings,
) -> Vec<(Arc<Intent>, Duration)> {
    let open = listing.attempts.iter().filter(|(place, entry)| {
        entry.decision.is_none() && entry.expired.is_none() && known.outcome(place).is_none()
    });
    let silent = open.filter_map(|(place, entry)| {
        let intent = known.intent(place).filter(|intent| intent.kind == IntentKind::Save)?;
        let silence = signs.silence(intent.attempt, entry.intent?);
        Some((intent.clone(), silence))
    });
    silent
        .filter(|(intent, silence)| settings.shard.has(intent.attempt) && *silence >= settings.idle)
        .collect()
}

/// Leases of this shard whose readers were silent for their time to live.
pub(crate) fn leases(listing: &Listing, known: &Known, signs: &Signs, settings: &Settings) -> Vec<AttemptId> {
    let open = listing.leases.iter().filter(|(id, entry)| !entry.ended && settings.shard.has(**id));
    let silent = open.filter(|(id, entry)| {
        let (Some(lease), Some(taken)) = (known.lease(**id), entry.lease) else { return false };
        signs.silence(**id, taken) >= Duration::from_secs(lease.ttl)
    });
    silent.map(|(id, _)| *id).collect()
}
