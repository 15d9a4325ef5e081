//! G3: of each attempt that is not dead and each lease, first the parents' refs, then the decision or the end.

use crate::actions::Protocol;
use crate::state::{Decision, Event, Item, Objects, Pass, Place, Set, State, Store};
use crate::variants::Weakness;

/// What a look at something says.
enum Look {
    /// This must stay.
    Keep(Objects),
    /// This must stay if the attempt turns out to be undecided, or the lease open.
    KeepIfOpen(Objects),
    /// The pass knows too little.
    BeginAgain,
    /// Something is missing that nothing explains.
    Stop,
}

const NOTHING: Look = Look::Keep(Objects::NONE);

/// The next read of a pass.
pub(crate) fn step(protocol: &Protocol, state: &mut State, pass: Pass) -> Pass {
    let Pass::Marking { dead, todo, half, marks } = pass else { return pass };
    let Some(number) = todo.each().next() else { return pass };
    let store = &state.store;
    let look = match (Item::of(number), half) {
        (Item::Attempt(place), None) => undecided(protocol, store, place),
        (Item::Attempt(place), Some(half)) => decision(protocol, store, (place, half)),
        (Item::Lease(lease), None) => keep_parents(protocol, store, store.lease(lease).of),
        (Item::Lease(lease), Some(half)) if store.lease(lease).is_open() => Look::Keep(half),
        (Item::Lease(_), Some(_)) => NOTHING,
    };
    match look {
        Look::Keep(more) => {
            Pass::Marking { dead, todo: todo.without(Set::one(number)), half: None, marks: marks.with(more) }
        }
        Look::KeepIfOpen(half) => Pass::Marking { dead, todo, half: Some(half), marks },
        Look::BeginAgain => {
            state.event = Some(Event::PassRestarted);
            Pass::Idle
        }
        Look::Stop => {
            state.event = Some(Event::PassStopped);
            Pass::Over
        }
    }
}

/// The first look at an attempt: at its parents, unless the decision is known, for then they do not matter any more.
fn undecided(protocol: &Protocol, store: &Store, place: Place) -> Look {
    match store.slot(place).decision {
        None if protocol.lacks(Weakness::NoPins) => NOTHING,
        None if protocol.lacks(Weakness::DecisionBeforeParents) => Look::KeepIfOpen(Objects::NONE),
        None => keep_parents(protocol, store, store.slot(place).parents()),
        Some(decision) => decided(protocol, store, (place, decision)),
    }
}

/// The second look, once the parents' refs are read.
fn decision(protocol: &Protocol, store: &Store, (place, parents): (Place, Objects)) -> Look {
    if protocol.lacks(Weakness::DecisionBeforeParents) {
        return match keep_parents(protocol, store, store.slot(place).parents()) {
            Look::KeepIfOpen(parents) => Look::Keep(parents),
            other => other,
        };
    }
    match store.slot(place).decision {
        None => Look::Keep(parents),
        Some(decision) => decided(protocol, store, (place, decision)),
    }
}

/// A COMMIT keeps what it refers to, expired or not; if its refs are gone, others have expired it and been faster.
fn decided(protocol: &Protocol, store: &Store, (place, decision): (Place, Decision)) -> Look {
    let Decision::Commit { attempt, .. } = decision else { return NOTHING };
    match store.index(attempt).filter(|_| store.tables.has(attempt)) {
        Some(index) => Look::Keep(Objects { packs: index.refs, tables: Set::one(attempt) }),
        None if protocol.lacks(Weakness::VanishedRefsIgnored) => NOTHING,
        None if store.slot(place).expired => Look::BeginAgain,
        None => Look::Stop,
    }
}

/// What is open keeps what its parents refer to, and their tables. Refs that are gone keep nothing, if the parent does not count.
fn keep_parents(protocol: &Protocol, store: &Store, parents: impl IntoIterator<Item = Place>) -> Look {
    let mut kept = Objects::NONE;
    for (n, parent) in parents.into_iter().enumerate() {
        let slot = store.slot(parent);
        let Some(attempt) = slot.attempt().filter(|_| n == 0 || !protocol.lacks(Weakness::FirstParentPinned))
        else {
            continue;
        };
        match store.index(attempt).filter(|_| store.tables.has(attempt)) {
            Some(index) => kept = kept.with(Objects { packs: index.refs, tables: Set::one(attempt) }),
            None if slot.counts() => return Look::Stop,
            None => {}
        }
    }
    if protocol.lacks(Weakness::TablesDroppedAtOnce) {
        kept.tables = Set::default();
    }
    Look::KeepIfOpen(kept)
}
