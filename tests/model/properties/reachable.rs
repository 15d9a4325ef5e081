//! What must be possible, or the rules would hold for nothing.

use stateright::Property;

use super::honest::is_committed;
use crate::actions::Protocol;
use crate::state::{Intent, Report, Set, Stage, State};
use crate::variants::Config;

/// The examples that a search through `config` must meet.
pub(crate) fn promised(config: &Config) -> Vec<Property<Protocol>> {
    let mut examples = vec![Property::sometimes("a save commits", |_, state: &State| {
        state.reports.contains(&Report::Committed)
    })];
    if config.writers.len() > 1 && config.writers.iter().all(|run| *run == config.writers[0]) {
        examples.push(Property::sometimes("a session meets a newer fence", |_, state: &State| {
            state.writers.iter().any(|writer| writer.stage == Stage::Stopped)
        }));
    }
    if config.faults > 0 {
        examples.push(Property::sometimes("a lost reply is cleared up", |_, state: &State| state.cleared_up));
        examples.push(Property::sometimes("an unknown outcome turns out committed", |_, state: &State| {
            (0u8..).zip(state.reports).any(|(a, report)| report == Report::Unknown && is_committed(state, a))
        }));
    }
    if config.passes > 0 {
        examples
            .push(Property::sometimes("a pack is collected", |_, state| any_attempt(state, is_collected)));
        if config.retention {
            examples.push(Property::sometimes("a parent is dropped", |_, state| any_parent_dropped(state)));
        }
    }
    if config.rollback {
        examples.push(Property::sometimes("a rollback commits", |_, state: &State| {
            state.writers.iter().any(|writer| writer.rolled_back.is_some())
        }));
    }
    examples
}

fn any_attempt(state: &State, check: fn(&State, u8) -> bool) -> bool {
    state.store.everywhere().filter_map(|(_, slot)| slot.attempt()).any(|attempt| check(state, attempt))
}

fn is_collected(state: &State, attempt: u8) -> bool {
    state.store.refs[usize::from(attempt)].has(attempt) && !state.store.packs.has(attempt)
}

fn any_parent_dropped(state: &State) -> bool {
    state.store.everywhere().any(|(_, slot)| match slot.intent {
        Some(Intent::Save { attempt, parent: Some(_), .. }) => {
            state.store.refs[usize::from(attempt)] == Set::one(attempt)
        }
        _ => false,
    })
}
