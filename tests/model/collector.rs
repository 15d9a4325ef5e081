//! The least garbage collector that makes the writers' rules matter: G1, then G2 and G3, then G4 and G5, with any pause in
//! between. It deletes all that the rules allow. One pass runs at a time: what two of them do to each other is no matter
//! of the writers' rules.

use crate::actions::Protocol;
use crate::state::{Decision, Intent, Marks, Pass, Set, State, Store};
use crate::variants::Weakness;

/// The next step of a pass.
pub(crate) fn collect(protocol: &Protocol, state: &mut State) {
    let marks_first = protocol.lacks(Weakness::IntentsBeforeDead);
    let store = &mut state.store;
    state.pass = match state.pass {
        Pass::Idle if marks_first => Pass::Half(Set::default(), mark(protocol, store, Set::default())),
        Pass::Idle => Pass::Half(dead(store), Marks::default()),
        Pass::Half(_, kept) if marks_first => doomed(dead(store), kept),
        Pass::Half(dead, _) => doomed(dead, mark(protocol, store, dead)),
        Pass::Doomed(doomed) => {
            store.packs = store.packs.without(doomed.packs);
            store.indexes = store.indexes.without(doomed.indexes);
            state.passes -= 1;
            Pass::Idle
        }
    };
}

/// Only the dead lose anything, and only what nobody keeps.
fn doomed(dead: Set, kept: Marks) -> Pass {
    Pass::Doomed(Marks { packs: dead.without(kept.packs), indexes: dead.without(kept.indexes) })
}

/// G1.
fn dead(store: &Store) -> Set {
    let dead = store.everywhere().filter(|(_, slot)| slot.decision == Some(Decision::Abort) || slot.expired);
    dead.filter_map(|(_, slot)| slot.attempt())
        .fold(Set::default(), |set, attempt| set.with(Set::one(attempt)))
}

/// G2 and G3.
fn mark(protocol: &Protocol, store: &Store, dead: Set) -> Marks {
    let mut marks = Marks::default();
    for (_, slot) in store.everywhere() {
        let Some(Intent::Save { attempt, parent, .. }) = slot.intent else { continue };
        if dead.has(attempt) {
            continue;
        }
        match slot.decision {
            Some(Decision::Commit { attempt, refs, .. }) => {
                marks.packs = marks.packs.with(refs);
                marks.indexes = marks.indexes.with(Set::one(attempt));
            }
            None if !protocol.lacks(Weakness::NoPins) => {
                let pinned = parent.and_then(|parent| store.slot(parent).attempt());
                pin(protocol, store, &mut marks, pinned);
            }
            _ => {}
        }
    }
    marks
}

/// An undecided child keeps what its parent refers to, and the parent's index.
fn pin(protocol: &Protocol, store: &Store, marks: &mut Marks, parent: Option<u8>) {
    let Some(parent) = parent.filter(|parent| store.indexes.has(*parent)) else { return };
    marks.packs = marks.packs.with(store.refs[usize::from(parent)]);
    if !protocol.lacks(Weakness::IndexDroppedAtOnce) {
        marks.indexes = marks.indexes.with(Set::one(parent));
    }
}
