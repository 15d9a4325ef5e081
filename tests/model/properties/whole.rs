//! Committed data stays.

use stateright::Property;

use crate::actions::Protocol;
use crate::state::{Decision, Event, Set, State, Store, packs_of};

/// Name of the rule that everything else serves.
pub(crate) const WHOLE: &str = "every committed, unexpired checkpoint has its index and all its chunks";
/// What W2 and the pins promise a writer.
pub(crate) const READABLE: &str = "a live attempt can read the index of the parent that it confirmed";
/// What G3 relies on.
pub(crate) const EXPLAINED: &str = "a collection never meets something missing that nothing explains";

pub(crate) fn rules() -> Vec<Property<Protocol>> {
    vec![
        Property::always(WHOLE, |_, state: &State| checkpoints_are_whole(&state.store)),
        Property::always(READABLE, |_, state: &State| state.event != Some(Event::ParentUnreadable)),
        Property::always(EXPLAINED, |_, state: &State| state.event != Some(Event::PassStopped)),
    ]
}

fn checkpoints_are_whole(store: &Store) -> bool {
    store.everywhere().filter(|(_, slot)| !slot.expired).all(|(_, slot)| match slot.decision {
        Some(Decision::Commit { attempt, content }) => {
            let as_written = (content == 1) == store.rewritten.has(attempt);
            let lost = if as_written { Set::default() } else { packs_of(Set::one(attempt)) };
            is_whole(store, attempt, lost)
        }
        _ => true,
    })
}

/// Whether the tables and all that they need are there, but `lost`.
pub(crate) fn is_whole(store: &Store, attempt: u8, lost: Set) -> bool {
    let index = store.index(attempt).filter(|_| store.tables.has(attempt));
    index.is_some_and(|index| index.needs().within(store.packs.without(lost)))
}
