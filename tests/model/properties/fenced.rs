//! `latest` is what the newest session says it is.

use stateright::Property;

use crate::actions::Protocol;
use crate::state::{Intent, Slot, State, Writer};

/// R1 and R2.
pub(crate) const FENCED: &str = "once a session has resolved latest, no older session commits";
/// R3, retention and the rollback rule.
pub(crate) const STANDING: &str = "what an unfenced session stands on is not expired under it";
/// A rollback is an attempt.
pub(crate) const REMEMBERED: &str = "a finished rollback is what the next session starts from";

pub(crate) fn rules() -> Vec<Property<Protocol>> {
    vec![
        Property::always(FENCED, |protocol, state| {
            writers(protocol, state)
                .all(|(run, writer)| !writer.has_resolved() || is_stable(state, run, writer))
        }),
        Property::always(STANDING, |protocol, state| {
            writers(protocol, state).all(|(run, writer)| !writer.has_resolved() || stands(state, run, writer))
        }),
        Property::always(REMEMBERED, |_, state: &State| !state.forgotten_rollback),
    ]
}

fn writers<'a>(protocol: &'a Protocol, state: &'a State) -> impl Iterator<Item = (u8, &'a Writer)> {
    protocol.config.writers.iter().copied().zip(&state.writers)
}

/// Every COMMIT of an older session was there when `writer` resolved `latest`.
fn is_stable(state: &State, run: u8, writer: &Writer) -> bool {
    let is_older = |slot: &Slot| match slot.intent {
        Some(Intent::Save { session, .. }) => {
            state.writers.get(usize::from(session)).is_some_and(|other| other.fence < writer.fence)
        }
        _ => false,
    };
    let mut commits = state.store.claimed(run).filter(|(_, slot)| slot.is_commit());
    commits.all(|(place, slot)| writer.seen.has(place.ordinal) || !is_older(slot))
}

fn stands(state: &State, run: u8, writer: &Writer) -> bool {
    let Some(standing) = writer.standing else { return true };
    let newer = |slot: &Slot| matches!(slot.intent, Some(Intent::Fence { .. })) || slot.is_commit();
    let floor = writer.fence.max(standing.ordinal);
    let outdated = state.store.claimed(run).any(|(place, slot)| place.ordinal > floor && newer(slot));
    outdated || !state.store.slot(standing).expired
}
