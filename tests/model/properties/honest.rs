//! What a session reports is true, for good.

use stateright::Property;

use crate::actions::Protocol;
use crate::state::{Report, State};

/// Committed, Failed and Unknown mean what they say.
pub(crate) const HONEST: &str = "a report of Committed or Failed stays true";

pub(crate) fn rules() -> Vec<Property<Protocol>> {
    vec![Property::always(HONEST, |_, state: &State| {
        (0u8..).zip(state.reports).all(|(attempt, report)| match report {
            Report::Committed => is_committed(state, attempt),
            Report::Failed => !is_committed(state, attempt),
            Report::Unknown | Report::None => true,
        })
    })]
}

/// Whether `attempt` is COMMIT, expired or not.
pub(crate) fn is_committed(state: &State, attempt: u8) -> bool {
    state.store.everywhere().any(|(_, slot)| slot.attempt() == Some(attempt) && slot.is_commit())
}
