//! A session's steps: R1-R3, the walk, W1-W4.

use crate::actions::{Answer, Luck, Protocol};
use crate::state::{
    Current, Decision, Intent, ORDINALS, Place, Report, Request, Set, Slot, Stage, State, Writer,
};
use crate::variants::Weakness;

/// The next call of `w` to the store.
pub(crate) fn step(protocol: &Protocol, state: &mut State, w: u8, luck: Luck) {
    match state.writers[usize::from(w)].stage {
        Stage::Opening => open(protocol, state, w, luck),
        Stage::Clearing => clear(protocol, state, w, luck),
        Stage::Claiming => claim(protocol, state, w, luck),
        Stage::Confirming => confirm(protocol, state, w),
        Stage::Uploading => upload(protocol, state, w, luck),
        Stage::Committing | Stage::Unsure => commit(protocol, state, w, luck),
        Stage::Ready | Stage::Stopped => {}
    }
}

fn writer(state: &mut State, w: u8) -> &mut Writer {
    &mut state.writers[usize::from(w)]
}

fn current(state: &State, w: u8) -> Current {
    state.writers[usize::from(w)].current.expect("a writer past Ready has an attempt")
}

/// R1. A fence whose answer was lost is found again by reading its ordinal back.
fn open(protocol: &Protocol, state: &mut State, w: u8, luck: Luck) {
    let run = protocol.run_of(w);
    let fence = Intent::Fence { session: w };
    let top = state.store.top(run);
    if protocol.lacks(Weakness::NoFence) {
        return opened(state, w, top);
    }
    let own =
        state.store.claimed(run).find(|(_, slot)| slot.intent == Some(fence)).map(|(place, _)| place.ordinal);
    let ordinal = own.unwrap_or(top + 1);
    if ordinal > ORDINALS {
        return;
    }
    match protocol.claim(state, Place { run, ordinal }, fence, luck) {
        Answer::Stored | Answer::Exists(_) => opened(state, w, ordinal),
        Answer::Unknown => {}
    }
}

fn opened(state: &mut State, w: u8, fence: u8) {
    let writer = writer(state, w);
    writer.fence = fence;
    writer.next = fence + 1;
    writer.stage = Stage::Clearing;
}

/// R2 on the lowest undecided ordinal below the fence; R3 once there is none.
fn clear(protocol: &Protocol, state: &mut State, w: u8, luck: Luck) {
    let run = protocol.run_of(w);
    let fence = state.writers[usize::from(w)].fence;
    let is_left = |(place, slot): &(Place, &Slot)| place.ordinal <= fence && slot.is_undecided_save();
    let left = state.store.claimed(run).find(is_left).map(|(place, _)| place);
    match left {
        Some(place) if !protocol.lacks(Weakness::NoAbortBelow) => {
            protocol.decide(state, place, Decision::Abort, luck);
        }
        _ => resolve(state, w, run),
    }
}

/// R3.
fn resolve(state: &mut State, w: u8, run: u8) {
    let latest = state.store.latest(run);
    let fence = state.writers[usize::from(w)].fence;
    let forgets = |other: &Writer| {
        let target = other.rolled_back.filter(|_| other.fence < fence);
        target
            .is_some_and(|to| !latest.is_some_and(|place| place.ordinal > other.fence || place.ordinal == to))
    };
    let forgotten = state.writers.iter().any(forgets);
    state.forgotten_rollback |= forgotten;
    let seen = state.store.commits(run);
    let writer = writer(state, w);
    writer.seen = seen;
    writer.standing = latest;
    writer.stage = Stage::Ready;
}

/// Starts a save with the checkpoint as parent that training stands on. A run without checkpoints starts from the other
/// run's newest.
pub(crate) fn save(protocol: &Protocol, state: &mut State, w: u8) {
    let run = protocol.run_of(w);
    let foreign = if run > 0 { state.store.latest(0) } else { None };
    let own = undecided_parent(protocol, state, run).or(state.writers[usize::from(w)].standing);
    start(protocol, state, w, own.or(foreign));
}

/// Starts a deliberate rollback: an attempt whose parent is the target. Weakened: a note, no attempt.
pub(crate) fn roll_back(protocol: &Protocol, state: &mut State, w: u8, to: u8) {
    let target = Some(Place { run: protocol.run_of(w), ordinal: to });
    if protocol.lacks(Weakness::RollbackByPointer) {
        let writer = writer(state, w);
        writer.standing = target;
        writer.rolled_back = Some(to);
        return;
    }
    start(protocol, state, w, target);
    writer(state, w).current.as_mut().expect("an attempt").rollback = true;
}

/// Starts an attempt.
pub(crate) fn start(protocol: &Protocol, state: &mut State, w: u8, parent: Option<Place>) {
    let writer = &mut state.writers[usize::from(w)];
    let attempt = protocol.config.history + w * protocol.config.attempts + writer.used;
    writer.used += 1;
    writer.current =
        Some(Current { attempt, ordinal: 0, parent, confirmed: false, rollback: false, content: 0 });
    let check_first = protocol.lacks(Weakness::MarkerBeforeIntent);
    writer.stage = if check_first { Stage::Confirming } else { Stage::Claiming };
}

/// Weakened: the newest attempt of any kind as parent, decided or not.
fn undecided_parent(protocol: &Protocol, state: &State, run: u8) -> Option<Place> {
    let mut newest = state.store.claimed(run).rev().filter(|(_, slot)| slot.attempt().is_some());
    newest.next().map(|(place, _)| place).filter(|_| protocol.lacks(Weakness::UndecidedParent))
}

/// W1 at the next ordinal of the walk.
fn claim(protocol: &Protocol, state: &mut State, w: u8, luck: Luck) {
    let run = protocol.run_of(w);
    let now = current(state, w);
    let intent = Intent::Save { session: w, attempt: now.attempt, parent: now.parent };
    let ordinal = next_ordinal(protocol, state, w, intent);
    if ordinal > ORDINALS {
        return;
    }
    match protocol.claim(state, Place { run, ordinal }, intent, luck) {
        Answer::Stored => claimed(protocol, state, w, ordinal),
        Answer::Exists(there) if there == intent => claimed(protocol, state, w, ordinal),
        Answer::Exists(Intent::Fence { session }) if !is_own(protocol, session, w) => stop(state, w),
        Answer::Exists(_) => writer(state, w).next = ordinal + 1,
        Answer::Unknown => {}
    }
}

fn next_ordinal(protocol: &Protocol, state: &State, w: u8, own: Intent) -> u8 {
    if !protocol.lacks(Weakness::OrdinalsByList) {
        return state.writers[usize::from(w)].next;
    }
    let run = protocol.run_of(w);
    let found = state.store.claimed(run).find(|(_, slot)| slot.intent == Some(own));
    found.map_or(state.store.top(run) + 1, |(place, _)| place.ordinal)
}

/// Whether a fence is one's own; all writers of the model carry one job label.
fn is_own(protocol: &Protocol, session: u8, w: u8) -> bool {
    session == w || protocol.lacks(Weakness::SessionFromJobName)
}

fn stop(state: &mut State, w: u8) {
    let writer = writer(state, w);
    writer.stage = Stage::Stopped;
    writer.current = None;
}

fn claimed(protocol: &Protocol, state: &mut State, w: u8, ordinal: u8) {
    let writer = writer(state, w);
    writer.next = ordinal + 1;
    writer.current.as_mut().expect("an attempt").ordinal = ordinal;
    writer.stage = match protocol.weakness {
        Weakness::MarkerBeforeIntent | Weakness::UnconfirmedParent => Stage::Uploading,
        _ => Stage::Confirming,
    };
}

/// W2.
fn confirm(protocol: &Protocol, state: &mut State, w: u8) {
    let now = current(state, w);
    let stands = now.parent.is_some_and(|parent| {
        let slot = state.store.slot(parent);
        let committed = slot.is_commit() || protocol.lacks(Weakness::UndecidedParent);
        committed && !slot.expired || protocol.lacks(Weakness::NoConfirm)
    });
    if now.rollback && !stands {
        return end(state, w, Report::Failed);
    }
    let writer = writer(state, w);
    writer.current.as_mut().expect("an attempt").confirmed = stands;
    writer.stage = match protocol.weakness {
        Weakness::MarkerBeforeIntent => Stage::Claiming,
        Weakness::UnconfirmedParent => Stage::Committing,
        _ => Stage::Uploading,
    };
}

/// W3: reads the confirmed parent's index, writes a pack with what is new, then index and refs.
fn upload(protocol: &Protocol, state: &mut State, w: u8, luck: Luck) {
    let now = current(state, w);
    let trusted = now.confirmed || protocol.lacks(Weakness::UnconfirmedParent);
    let parent = now.parent.filter(|_| trusted).and_then(|parent| state.store.slot(parent).attempt());
    if let Some(parent) = parent.filter(|parent| !state.store.indexes.has(*parent)) {
        return miss(protocol, state, w, parent);
    }
    let inherited = parent.map_or(Set::default(), |parent| state.store.refs[usize::from(parent)]);
    let own = Set::one(now.attempt);
    state.store.indexes = state.store.indexes.with(own);
    state.store.refs[usize::from(now.attempt)] = if now.rollback { inherited } else { inherited.with(own) };
    if !now.rollback {
        protocol.send::<()>(state, Request::Pack(now.attempt), luck);
    }
    let last = protocol.lacks(Weakness::UnconfirmedParent);
    writer(state, w).stage = if last { Stage::Confirming } else { Stage::Committing };
}

/// The parent's index is gone. That is a clean failure, and must not happen to an attempt that is still alive.
fn miss(protocol: &Protocol, state: &mut State, w: u8, parent: u8) {
    let place = Place { run: protocol.run_of(w), ordinal: current(state, w).ordinal };
    let alive = state.store.slot(place).decision.is_none();
    // An undecided parent may have no index yet; that weakness is judged by what gets committed.
    let was_there = state.store.refs[usize::from(parent)] != Set::default();
    state.unreadable_parent |= alive && was_there;
    end(state, w, Report::Failed);
}

/// W4, and its repetition after a lost answer, which is reading back and trying again in one.
fn commit(protocol: &Protocol, state: &mut State, w: u8, luck: Luck) {
    let now = current(state, w);
    let place = Place { run: protocol.run_of(w), ordinal: now.ordinal };
    let refs = state.store.refs[usize::from(now.attempt)];
    let unsure = state.writers[usize::from(w)].stage == Stage::Unsure;
    let decision = Decision::Commit { attempt: now.attempt, refs, content: now.content };
    match protocol.decide(state, place, decision, luck) {
        Answer::Exists(Decision::Abort) => end(state, w, Report::Failed),
        Answer::Stored => committed(state, w, place),
        Answer::Exists(Decision::Commit { .. }) => {
            state.cleared_up |= unsure;
            committed(state, w, place);
        }
        Answer::Unknown => unsure_of(protocol, state, w),
    }
}

fn committed(state: &mut State, w: u8, place: Place) {
    let now = current(state, w);
    let writer = writer(state, w);
    writer.standing = Some(place);
    if now.rollback {
        writer.rolled_back = now.parent.map(|parent| parent.ordinal);
    }
    end(state, w, Report::Committed);
}

/// What a writer does that got no answer to its COMMIT.
fn unsure_of(protocol: &Protocol, state: &mut State, w: u8) {
    let own = Set::one(current(state, w).attempt);
    match protocol.weakness {
        Weakness::LostReplyIsFailure => {
            state.store.rewritten = state.store.rewritten.with(own);
            writer(state, w).current.as_mut().expect("an attempt").content = 1;
        }
        Weakness::UnknownDeletes => {
            state.store.packs = state.store.packs.without(own);
            end(state, w, Report::Failed);
        }
        _ => writer(state, w).stage = Stage::Unsure,
    }
}

/// The decision cannot be read: Unknown, reported as such. Nothing is deleted; training goes on from where it stood.
pub(crate) fn give_up(state: &mut State, w: u8) {
    end(state, w, Report::Unknown);
}

fn end(state: &mut State, w: u8, report: Report) {
    let attempt = current(state, w).attempt;
    state.reports[usize::from(attempt)] = report;
    let writer = writer(state, w);
    writer.current = None;
    writer.stage = Stage::Ready;
}
