//! Garbage collection: G1, G2, G3 (in `marking`), then the deletes of G4 and G5, with any pause in between. G0 is among the
//! actions: it may be done at any time. A pass deletes all that the rules allow; its deletes are carried out late, or never.

use crate::actions::Protocol;
use crate::marking;
use crate::state::{
    Collector, Decision, Item, LEASES, Objects, Pass, Place, Set, Slot, State, Store, packs_of,
};
use crate::variants::Weakness;

/// The next call of collector `c`; where calls are not told apart, all of G2 and G3.
pub(crate) fn step(protocol: &Protocol, state: &mut State, c: u8) {
    let pass = state.collector(c).pass;
    state.collector(c).pass = match pass {
        Pass::Idle if protocol.lists_once() => Pass::Enumerated { listed: list(protocol, &state.store) },
        Pass::Idle => learn(protocol, &state.store, Set::default()),
        Pass::Enumerated { listed } => learn(protocol, &state.store, listed),
        Pass::Known { dead, listed } => look_again(protocol, &state.store, (c, dead, listed)),
        Pass::Marking { .. } => marking::step(protocol, state, pass),
        Pass::Over => Pass::Over,
    };
    let now = state.collector(c).pass;
    match now {
        Pass::Marking { todo, .. } if !todo.is_empty() && protocol.config.coarse => step(protocol, state, c),
        // Weakened: the dead are learned at the next step, after any pause.
        Pass::Marking { .. } if protocol.lacks(Weakness::IntentsBeforeDead) && now != pass => {}
        Pass::Marking { todo, dead, marks, .. } if todo.is_empty() => {
            sweep(protocol, state, c, (dead, marks))
        }
        Pass::Over => finish(state, c),
        _ => {}
    }
}

impl State {
    fn collector(&mut self, c: u8) -> &mut Collector {
        &mut self.collectors[usize::from(c)]
    }
}

impl Protocol {
    /// Weakened: whether what G1 enumerates at its beginning is all that G2 looks at.
    fn lists_once(&self) -> bool {
        self.lacks(Weakness::RunsNotListedAnew) || self.lacks(Weakness::LeasesNotListedAnew)
    }
}

/// G1.
fn learn(protocol: &Protocol, store: &Store, listed: Set) -> Pass {
    let dead =
        if protocol.lacks(Weakness::IntentsBeforeDead) { Set::default() } else { dead(protocol, store) };
    Pass::Known { dead, listed }
}

/// Whoever is aborted or expired.
fn dead(protocol: &Protocol, store: &Store) -> Set {
    let doomed = |place| protocol.lacks(Weakness::MarkerAfterDelete) && protocol.may_expire(store, place);
    let is_dead = |(place, slot): &(Place, &Slot)| {
        slot.decision == Some(Decision::Abort) || slot.expired || doomed(*place)
    };
    store.everywhere().filter(is_dead).filter_map(|(_, slot)| slot.attempt()).collect()
}

/// Every attempt to save, and every lease that has not ended.
fn list(protocol: &Protocol, store: &Store) -> Set {
    let pins_too = !protocol.lacks(Weakness::PinsNotListed);
    let saves =
        store.everywhere().filter(|(place, slot)| slot.attempt().is_some() && (pins_too || place.run == 0));
    let leases = (0..LEASES).filter(|lease| store.lease(*lease).is_open());
    saves.map(|(place, _)| Item::Attempt(place)).chain(leases.map(Item::Lease)).map(Item::number).collect()
}

/// G2.
fn look_again(protocol: &Protocol, store: &Store, (c, dead, before): (u8, Set, Set)) -> Pass {
    let passed_over = |number: &u8| match Item::of(*number) {
        Item::Lease(lease) => match protocol.weakness {
            Weakness::NoLeases => true,
            Weakness::LeasesNotListedAnew => !before.has(Item::Lease(lease).number()),
            _ => false,
        },
        Item::Attempt(place) => match protocol.weakness {
            Weakness::RunsNotListedAnew => !before.each().any(|seen| Item::of(seen).run() == Some(place.run)),
            Weakness::SweptMarkTrusted => store.swept.has(attempt_at(store, place)),
            Weakness::UnknownPassedOver => !protocol.understands(place),
            Weakness::ShardMarksItsOwn => protocol.shard_of(attempt_at(store, place)) != c,
            _ => false,
        },
    };
    let todo: Set = list(protocol, store).each().filter(|number| !passed_over(number)).collect();
    let strange = |number| matches!(Item::of(number), Item::Attempt(place) if !protocol.understands(place));
    if todo.each().any(strange) {
        return Pass::Over;
    }
    let is_dead =
        |number: &u8| matches!(Item::of(*number), Item::Attempt(place) if dead.has(attempt_at(store, place)));
    let todo = todo.each().filter(|number| !is_dead(number)).collect();
    Pass::Marking { dead, todo, half: None, marks: Objects::default() }
}

fn attempt_at(store: &Store, place: Place) -> u8 {
    store.slot(place).attempt().expect("only saves are listed")
}

/// G4 and G5: only the dead lose anything, and only what nobody keeps.
fn sweep(protocol: &Protocol, state: &mut State, c: u8, (known, marks): (Set, Objects)) {
    let store = &state.store;
    let dead = if protocol.lacks(Weakness::IntentsBeforeDead) { dead(protocol, store) } else { known };
    let of_shard = |attempt: &u8| !protocol.config.shards || protocol.shard_of(*attempt) == c;
    let candidates: Set = dead.without(store.swept).each().filter(of_shard).collect();
    let packs = if protocol.lacks(Weakness::FreshUploadsSwept) { store.packs } else { packs_of(candidates) };
    let there = Objects { packs: store.packs, tables: store.tables };
    let doomed = Objects { packs, tables: candidates }.without(marks);
    state.deletes = state.deletes.with(doomed.both(there));
    finish(state, c);
}

/// One pass less.
fn finish(state: &mut State, c: u8) {
    let collector = state.collector(c);
    collector.passes -= 1;
    collector.pass = Pass::Idle;
}
