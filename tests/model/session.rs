//! Opening a run (R1-R3), and choosing what to save on top of what.

use crate::actions::{Answer, Luck, Protocol};
use crate::state::{
    Current, Decision, Event, Intent, ORDINALS, Parents, Place, Session, Set, Slot, Stage, State,
};
use crate::variants::Weakness;

/// R1. A fence whose answer was lost is found again by reading its ordinal back.
pub(crate) fn open(protocol: &Protocol, state: &mut State, s: u8, luck: Luck) {
    let run = protocol.run_of(s);
    let fence = Intent::Fence { session: s };
    let top = state.store.top(run);
    if protocol.is_heir(s) {
        return adopt(protocol, state, s);
    }
    if protocol.lacks(Weakness::NoFence) {
        return opened(state, s, top);
    }
    let own =
        state.store.claimed(run).find(|(_, slot)| slot.intent == Some(fence)).map(|(place, _)| place.ordinal);
    let ordinal = own.unwrap_or(top + 1);
    if ordinal > ORDINALS {
        return;
    }
    match protocol.claim(state, Place { run, ordinal }, fence, luck) {
        Answer::Stored | Answer::Exists(_) => opened(state, s, ordinal),
        Answer::Unknown => {}
    }
}

fn opened(state: &mut State, s: u8, fence: u8) {
    let session = state.session(s);
    session.fence = fence;
    session.next = fence + 1;
    session.stage = Stage::Clearing;
}

/// A1: the newest fence must be that of the session.
fn adopt(protocol: &Protocol, state: &mut State, s: u8) {
    let run = protocol.run_of(s);
    let fence = |(place, slot): (Place, &Slot)| match slot.intent {
        Some(Intent::Fence { session }) => Some((place.ordinal, session)),
        _ => None,
    };
    let (top, newest) = (state.store.top(run), state.store.claimed(run).rev().find_map(fence));
    let session = state.session(s);
    match newest {
        Some((fence, of)) if of == protocol.session_of(s) => {
            (session.fence, session.next) = (fence, top + 1);
            session.stage = Stage::Clearing;
        }
        _ => session.stage = Stage::Stopped,
    }
}

/// R2 on the lowest undecided ordinal below the fence; R3 once there is none. A2 and A3 are the same above it, as far as A1
/// has looked.
pub(crate) fn clear(protocol: &Protocol, state: &mut State, s: u8, luck: Luck) {
    let run = protocol.run_of(s);
    let Session { fence, next, .. } = *state.session(s);
    let heir = protocol.is_heir(s);
    let range = if heir { fence..next } else { 1..fence };
    let is_left = |(place, slot): &(Place, &Slot)| range.contains(&place.ordinal) && slot.is_undecided_save();
    let left = state.store.claimed(run).find(is_left).map(|(place, _)| place);
    match left {
        Some(place)
            if !protocol.lacks(if heir { Weakness::NoAbortOfLeft } else { Weakness::NoAbortBelow }) =>
        {
            protocol.decide(state, place, Decision::Abort, luck);
        }
        _ => resolve(state, s, run),
    }
}

/// R3.
fn resolve(state: &mut State, s: u8, run: u8) {
    let latest = state.store.latest(run);
    let fence = state.session(s).fence;
    let forgets = |other: &Session| {
        let target = other.rolled_back.filter(|_| other.fence < fence);
        target
            .is_some_and(|to| !latest.is_some_and(|place| place.ordinal > other.fence || place.ordinal == to))
    };
    if state.sessions.iter().any(forgets) {
        state.event = Some(Event::RollbackForgotten);
    }
    let seen = state.store.commits(run);
    let session = state.session(s);
    session.seen = seen;
    session.standing = latest;
    session.stage = Stage::Ready;
}

/// What a save may name: what training stands on, or what another run has; that and another checkpoint; or nothing.
pub(crate) fn choices(protocol: &Protocol, state: &State, s: u8) -> Vec<Parents> {
    let run = protocol.run_of(s);
    let foreign = if run > 0 { state.store.latest(0) } else { None };
    let own = undecided(protocol, state, run).or(state.sessions[usize::from(s)].standing);
    let first = own.or(foreign);
    let mut choices = vec![[first, None]];
    if protocol.config.parents > 1 && first.is_some() {
        choices.push([first, other_than(state, first)]);
    }
    if protocol.config.retention && protocol.config.coarse {
        choices.push(Parents::default());
    }
    choices
}

/// The newest checkpoint of the first run besides `first`.
fn other_than(state: &State, first: Option<Place>) -> Option<Place> {
    let others = state.store.claimed(0).rev().filter(|(place, slot)| slot.counts() && Some(*place) != first);
    others.map(|(place, _)| place).next()
}

/// Weakened: the newest attempt of any kind, decided or not.
fn undecided(protocol: &Protocol, state: &State, run: u8) -> Option<Place> {
    let mut newest = state.store.claimed(run).rev().filter(|(_, slot)| slot.attempt().is_some());
    newest.next().map(|(place, _)| place).filter(|_| protocol.lacks(Weakness::UndecidedParent))
}

/// Checkpoints that a session may copy: to roll back to, or to pin.
pub(crate) fn targets(protocol: &Protocol, state: &State, s: u8) -> Vec<Place> {
    let session = &state.sessions[usize::from(s)];
    if protocol.is_pinning(s) {
        return state.store.claimed(0).filter(|(_, slot)| slot.counts()).map(|(place, _)| place).collect();
    }
    if !protocol.config.rollback || session.used > 0 || session.rolled_back.is_some() {
        return Vec::new();
    }
    let run = protocol.run_of(s);
    let others = session.seen.each().filter(|n| session.standing.is_some_and(|place| place.ordinal != *n));
    others.map(|ordinal| Place { run, ordinal }).collect()
}

/// Starts a copy: an attempt whose parent is the target. Weakened: a note, no attempt.
pub(crate) fn copy(protocol: &Protocol, state: &mut State, s: u8, target: Place) {
    if protocol.lacks(Weakness::RollbackByPointer) {
        let session = state.session(s);
        session.standing = Some(target);
        session.rolled_back = Some(target.ordinal);
        return;
    }
    start(protocol, state, s, [Some(target), None]);
    state.current(s).copy = true;
}

/// Starts an attempt.
pub(crate) fn start(protocol: &Protocol, state: &mut State, s: u8, parents: Parents) {
    let config = &protocol.config;
    let session = state.session(s);
    session.used += 1;
    session.current = Some(Current {
        attempt: config.history + s * config.attempts + session.used - 1,
        ordinal: 0,
        parents,
        confirmed: Set::default(),
        copy: false,
        index: None,
        parts: Set::default(),
        content: 0,
    });
    let check_first = protocol.lacks(Weakness::MarkerBeforeIntent);
    session.stage = if check_first { Stage::Confirming } else { Stage::Claiming };
}
