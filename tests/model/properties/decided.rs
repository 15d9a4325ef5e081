//! Decisions are final.

use stateright::Property;

use crate::actions::Protocol;
use crate::state::{Decision, Event, State};

/// A decision is a write-once register.
pub(crate) const FINAL: &str = "a decision never changes";
/// An ordinal belongs to one attempt.
pub(crate) const MATCHING: &str = "a COMMIT is of the attempt that claimed its ordinal";

pub(crate) fn rules() -> Vec<Property<Protocol>> {
    vec![
        Property::always(FINAL, |_, state: &State| state.event != Some(Event::DecisionReplaced)),
        Property::always(MATCHING, |_, state: &State| {
            state.store.everywhere().all(|(_, slot)| match slot.decision {
                Some(Decision::Commit { attempt, .. }) => slot.attempt() == Some(attempt),
                _ => true,
            })
        }),
    ]
}
