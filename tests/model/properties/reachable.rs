//! What must be possible, or the rules would hold for nothing.

use stateright::Property;

use super::honest::is_committed;
use crate::actions::Protocol;
use crate::configs::Config;
use crate::state::{Event, Lessee, Report, Set, Slot, Stage, State, packs_of};

type Check = fn(&Protocol, &State) -> bool;

/// The examples that a search through `config` must meet.
pub(crate) fn promised(config: &Config) -> Vec<Property<Protocol>> {
    let sessions = config.sessions.len() - usize::from(config.heir);
    let same_run = sessions > 1 && config.sessions.iter().all(|run| *run == config.sessions[0]);
    let collects = config.passes > 0 && !config.newer;
    let examples: [(bool, &'static str, Check); 14] = [
        (true, "a save commits", |_, state| state.reports.contains(&Report::Committed)),
        (same_run, "a session meets a newer fence", |_, state| {
            state.sessions.iter().any(|session| session.stage == Stage::Stopped)
        }),
        (
            config.heir,
            "a process goes on from what another one of its session committed",
            |protocol, state| any_save(state, |slot| goes_on(protocol, state, slot)),
        ),
        (
            config.faults > 0 && config.ranks == 1 && config.lessees == 0,
            "a lost reply is cleared up",
            |_, state| state.event == Some(Event::ClearedUp),
        ),
        (config.faults > 0, "an unknown outcome turns out committed", |_, state| {
            (0..).zip(state.reports).any(|(a, report)| report == Report::Unknown && is_committed(state, a))
        }),
        (collects, "a pack is collected", |_, state| any_save(state, |slot| is_collected(state, slot))),
        (
            collects && config.retention && config.sessions.len() > 1 && !config.pins,
            "a parent is dropped",
            |_, state| any_save(state, |slot| has_dropped_its_parent(state, slot)),
        ),
        (collects && config.collectors > 1 && config.sessions == [0], "a pass is thrown away", |_, state| {
            state.event == Some(Event::PassRestarted)
        }),
        (config.rollback, "a rollback commits", |_, state| {
            state.sessions.iter().any(|session| session.rolled_back.is_some())
        }),
        (config.pins && collects, "a pin outlives what it pins", |_, state| {
            any_save(state, |slot| outlives_a_parent(state, slot))
        }),
        (config.deltas && config.attempts > 1, "a delta of a delta counts", |_, state| {
            any_save(state, |slot| {
                let index = slot.attempt().and_then(|attempt| state.store.index(attempt));
                slot.counts() && index.is_some_and(|index| index.bases.each().count() > 1)
            })
        }),
        (config.parents > 1, "an attempt of two parents counts", |_, state| {
            any_save(state, |slot| slot.counts() && slot.parents().count() > 1)
        }),
        (config.lessees > 0, "a lease holds what has expired", |_, state| {
            state.lessees.iter().any(|lessee| match *lessee {
                Lessee::Holding(place) => state.store.slot(place).expired,
                _ => false,
            })
        }),
        (config.ranks > 1 && config.impatience, "a rank comes late", |_, state| {
            state.event == Some(Event::LatePack)
        }),
    ];
    let promised = examples.into_iter().filter(|(wanted, ..)| *wanted);
    promised.map(|(_, name, check)| Property::sometimes(name, check)).collect()
}

fn any_save(state: &State, check: impl Fn(&Slot) -> bool) -> bool {
    state.store.everywhere().any(|(_, slot)| slot.attempt().is_some() && check(slot))
}

fn goes_on(protocol: &Protocol, state: &State, slot: &Slot) -> bool {
    let heir = (0..).take(state.sessions.len()).find(|s| protocol.is_heir(*s)).expect("there is one");
    let by_heir = |slot: &Slot| slot.attempt().map(|attempt| protocol.has_begun(heir, attempt));
    let parent = slot.parents().next().map(|parent| state.store.slot(parent));
    let first = |slot: &Slot| slot.attempt().is_some_and(|attempt| protocol.has_begun(0, attempt));
    let turns = |parent: &Slot| first(parent) && by_heir(slot) == Some(true);
    let back = |parent: &Slot| by_heir(parent) == Some(true) && first(slot);
    slot.is_commit() && parent.is_some_and(|parent| turns(parent) || back(parent))
}

fn is_collected(state: &State, slot: &Slot) -> bool {
    let attempt = slot.attempt().filter(|attempt| state.store.index(*attempt).is_some());
    attempt.is_some_and(|attempt| packs_of(Set::one(attempt)).each().all(|pack| !state.store.packs.has(pack)))
}

fn has_dropped_its_parent(state: &State, slot: &Slot) -> bool {
    let index = slot.attempt().and_then(|attempt| Some((attempt, state.store.index(attempt)?)));
    slot.parents().next().is_some()
        && index.is_some_and(|(attempt, index)| index.needs().within(packs_of(Set::one(attempt))))
}

fn outlives_a_parent(state: &State, slot: &Slot) -> bool {
    let gone = |attempt| !state.store.tables.has(attempt);
    slot.counts() && slot.parents().any(|parent| state.store.slot(parent).attempt().is_some_and(gone))
}
