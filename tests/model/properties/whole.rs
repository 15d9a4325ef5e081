//! Committed data stays.

use stateright::Property;

use crate::actions::Protocol;
use crate::state::{Decision, Set, State, Store};

/// Name of the rule that everything else serves.
pub(crate) const WHOLE: &str = "every committed, unexpired checkpoint has its index and all its chunks";
/// What W2 and the pins promise a writer.
pub(crate) const READABLE: &str = "a live attempt can read the index of the parent that it confirmed";

pub(crate) fn rules() -> Vec<Property<Protocol>> {
    vec![
        Property::always(WHOLE, |_, state: &State| checkpoints_are_whole(&state.store)),
        Property::always(READABLE, |_, state: &State| !state.unreadable_parent),
    ]
}

fn checkpoints_are_whole(store: &Store) -> bool {
    store.everywhere().filter(|(_, slot)| !slot.expired).all(|(_, slot)| match slot.decision {
        Some(Decision::Commit { attempt, refs, content }) => {
            let as_written = (content == 1) == store.rewritten.has(attempt);
            let packs = store.packs.without(if as_written { Set::default() } else { Set::one(attempt) });
            refs.within(packs) && store.indexes.has(attempt)
        }
        _ => true,
    })
}
