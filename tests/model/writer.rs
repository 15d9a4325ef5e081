//! A session's attempt: the walk and W1 to W4.

use crate::actions::{Answer, Luck, Protocol};
use crate::session;
use crate::state::{
    Current, Decision, Event, Index, Intent, ORDINALS, Place, Report, Request, Session, Set, Stage, State,
    pack, packs_of,
};
use crate::variants::Weakness;

/// The next call of session `s` to the store.
pub(crate) fn step(protocol: &Protocol, state: &mut State, s: u8, luck: Luck) {
    match state.session(s).stage {
        Stage::Opening => session::open(protocol, state, s, luck),
        Stage::Clearing => session::clear(protocol, state, s, luck),
        Stage::Claiming => claim(protocol, state, s, luck),
        Stage::Confirming => confirm(protocol, state, s),
        Stage::Uploading => upload(protocol, state, s, luck),
        Stage::Merging => merge(state, s),
        Stage::Committing | Stage::Unsure => commit(protocol, state, s, luck),
        Stage::Ready | Stage::Stopped => {}
    }
}

impl State {
    pub(crate) fn session(&mut self, s: u8) -> &mut Session {
        &mut self.sessions[usize::from(s)]
    }
    pub(crate) fn current(&mut self, s: u8) -> &mut Current {
        self.session(s).current.as_mut().expect("a session past Ready has an attempt")
    }
}

/// W1 at the next ordinal of the walk.
fn claim(protocol: &Protocol, state: &mut State, s: u8, luck: Luck) {
    let run = protocol.run_of(s);
    let Current { attempt, parents, .. } = *state.current(s);
    let own = protocol.session_of(s);
    let intent = Intent::Save { session: own, attempt, parents };
    let ordinal = next_ordinal(protocol, state, s, intent);
    if ordinal > ORDINALS {
        return;
    }
    match protocol.claim(state, Place { run, ordinal }, intent, luck) {
        Answer::Stored => claimed(protocol, state, s, ordinal),
        Answer::Exists(there) if there == intent => claimed(protocol, state, s, ordinal),
        Answer::Exists(Intent::Fence { session }) if !is_own(protocol, session, s) => stop(state, s),
        Answer::Exists(Intent::Save { session, .. })
            if session == own && !protocol.lacks(Weakness::NothingLearned) =>
        {
            learn(protocol, state, s, (Place { run, ordinal }, luck));
        }
        Answer::Exists(_) => state.session(s).next = ordinal + 1,
        Answer::Unknown => {}
    }
}

/// An attempt of another process of the session, which will not go on with it.
fn learn(protocol: &Protocol, state: &mut State, s: u8, (place, luck): (Place, Luck)) {
    let decision = state.store.slot(place).decision;
    if decision.is_none() && !protocol.lacks(Weakness::NoAbortOfLeft) {
        protocol.decide(state, place, Decision::Abort, luck);
        return;
    }
    let session = state.session(s);
    session.next = place.ordinal + 1;
    if matches!(decision, Some(Decision::Commit { .. })) {
        session.standing = Some(place);
        session.seen = session.seen.with(Set::one(place.ordinal));
        let current = state.current(s);
        current.parents = if current.copy { current.parents } else { [Some(place), None] };
    }
}

fn next_ordinal(protocol: &Protocol, state: &mut State, s: u8, own: Intent) -> u8 {
    if !protocol.lacks(Weakness::OrdinalsByList) {
        return state.session(s).next;
    }
    let run = protocol.run_of(s);
    let found = state.store.claimed(run).find(|(_, slot)| slot.intent == Some(own));
    found.map_or(state.store.top(run) + 1, |(place, _)| place.ordinal)
}

/// Whether a fence is one's own; all sessions of the model carry one job label.
fn is_own(protocol: &Protocol, session: u8, s: u8) -> bool {
    session == protocol.session_of(s) || protocol.lacks(Weakness::SessionFromJobName)
}

fn stop(state: &mut State, s: u8) {
    let session = state.session(s);
    session.stage = Stage::Stopped;
    session.current = None;
}

fn claimed(protocol: &Protocol, state: &mut State, s: u8, ordinal: u8) {
    state.current(s).ordinal = ordinal;
    let session = state.session(s);
    session.next = ordinal + 1;
    session.stage = match protocol.weakness {
        Weakness::MarkerBeforeIntent | Weakness::UnconfirmedParent => Stage::Uploading,
        _ => Stage::Confirming,
    };
}

/// W2.
fn confirm(protocol: &Protocol, state: &mut State, s: u8) {
    let now = *state.current(s);
    let stands = |n: usize, parent: Place| {
        let slot = state.store.slot(parent);
        let trusted =
            protocol.lacks(Weakness::NoConfirm) || n > 0 && protocol.lacks(Weakness::FirstParentConfirmed);
        (slot.is_commit() || protocol.lacks(Weakness::UndecidedParent)) && (trusted || !slot.expired)
    };
    let parents = now.parents.into_iter().enumerate();
    let confirmed: Set = parents
        .filter(|(n, parent)| parent.is_some_and(|parent| stands(*n, parent)))
        .filter_map(|(n, _)| u8::try_from(n).ok())
        .collect();
    if now.copy && confirmed.is_empty() {
        return end(state, s, Report::Failed);
    }
    state.current(s).confirmed = confirmed;
    state.session(s).stage = match protocol.weakness {
        Weakness::MarkerBeforeIntent => Stage::Claiming,
        Weakness::UnconfirmedParent => Stage::Committing,
        _ => Stage::Uploading,
    };
}

/// The parents that an attempt may refer to.
fn trusted(protocol: &Protocol, state: &State, now: &Current) -> Vec<u8> {
    let confirmed = (0..)
        .zip(now.parents)
        .filter(|(n, _)| now.confirmed.has(*n) || protocol.lacks(Weakness::UnconfirmedParent));
    confirmed.filter_map(|(_, parent)| state.store.slot(parent?).attempt()).collect()
}

/// W3 of the leader: reads the indexes of the confirmed parents and writes a pack with what is new. An attempt of one rank
/// writes index and refs at the same time.
fn upload(protocol: &Protocol, state: &mut State, s: u8, luck: Luck) {
    let now = *state.current(s);
    let parents = trusted(protocol, state, &now);
    if let Some(gone) = parents.iter().find(|parent| !state.store.tables.has(**parent)) {
        return miss(protocol, state, s, *gone);
    }
    let index = plan(protocol, state, &now, &parents);
    state.current(s).index = Some(index);
    if !now.copy {
        let frozen = Some(index.frozen).filter(|pack| *pack == protocol.frozen_pack(now.attempt));
        let changing = Some(index.changing).filter(|_| protocol.config.ranks == 1);
        let own: Set = frozen.into_iter().chain(changing).collect();
        own.each().for_each(|pack| _ = protocol.send::<()>(state, Request::Pack(pack), luck));
    }
    if protocol.config.ranks == 1 || now.copy {
        merge(state, s)
    } else {
        state.session(s).stage = Stage::Merging
    }
    if protocol.lacks(Weakness::UnconfirmedParent) {
        state.session(s).stage = Stage::Confirming;
    }
}

/// What the index will say: what does not change is referenced where a parent has it, what changes is stored anew, whole or as
/// a delta.
fn plan(protocol: &Protocol, state: &State, now: &Current, parents: &[u8]) -> Index {
    let indexes: Vec<Index> = parents.iter().filter_map(|parent| state.store.index(*parent)).collect();
    if let (true, [target, ..]) = (now.copy, &indexes[..]) {
        return *target;
    }
    let known = indexes.first().map(|first| first.frozen).or_else(|| by_head(protocol, state));
    let frozen = known.unwrap_or(protocol.frozen_pack(now.attempt));
    let changing = pack(now.attempt, protocol.config.ranks - 1);
    let base = on_host(protocol, state, now).or(indexes.last().copied());
    let base = base.filter(|_| protocol.config.deltas);
    let nearest = base.map_or(Set::default(), |base| Set::one(base.changing));
    let bases = base.map_or(nearest, |base| base.bases.with(nearest));
    let index = Index { frozen, changing, bases, refs: Set::default() };
    let left_out = match protocol.weakness {
        Weakness::RefsWithoutBases => bases,
        Weakness::RefsWithoutBasesOfBases => bases.without(nearest),
        _ => Set::default(),
    };
    Index { refs: index.needs().without(left_out), ..index }
}

/// Weakened: any pack that is there and has the contents.
fn by_head(protocol: &Protocol, state: &State) -> Option<u8> {
    let mut there = state.store.packs.each();
    there.next().filter(|_| protocol.lacks(Weakness::DedupByHead))
}

/// Weakened: a state that is still in memory, whatever W2 said of its checkpoint.
fn on_host(protocol: &Protocol, state: &State, now: &Current) -> Option<Index> {
    let mut named = now.parents.into_iter().flatten().filter(|_| protocol.lacks(Weakness::BaseFromHost));
    state.store.index(state.store.slot(named.next_back()?).attempt()?)
}

/// A parent's tables are gone. That is a clean failure, and must not happen to an attempt that is still alive.
fn miss(protocol: &Protocol, state: &mut State, s: u8, parent: u8) {
    let place = Place { run: protocol.run_of(s), ordinal: state.current(s).ordinal };
    let alive = state.store.slot(place).decision.is_none();
    // An undecided parent may have no index yet; that weakness is judged by what gets committed.
    if alive && state.store.index(parent).is_some() {
        state.event = Some(Event::ParentUnreadable);
    }
    end(state, s, Report::Failed);
}

/// W3 of the other rank: its pack, then its part. It was told the confirmed parents, and may come at any time after that.
pub(crate) fn hand_in(protocol: &Protocol, state: &mut State, s: u8, luck: Luck) {
    let attempt = state.current(s).attempt;
    if luck != Luck::Late {
        state.current(s).parts = Set::one(1);
    }
    protocol.send::<()>(state, Request::Pack(pack(attempt, 1)), luck);
}

/// W3, when all parts are in: index and refs.
fn merge(state: &mut State, s: u8) {
    let now = *state.current(s);
    state.store.put_tables(now.attempt, now.index.expect("the leader has planned it"));
    state.session(s).stage = Stage::Committing;
}

/// W4, and its repetition after a lost answer, which is reading back and trying again in one.
fn commit(protocol: &Protocol, state: &mut State, s: u8, luck: Luck) {
    let now = *state.current(s);
    let place = Place { run: protocol.run_of(s), ordinal: now.ordinal };
    let unsure = state.session(s).stage == Stage::Unsure;
    let decision = Decision::Commit { attempt: now.attempt, content: now.content };
    match protocol.decide(state, place, decision, luck) {
        Answer::Exists(Decision::Abort) => end(state, s, Report::Failed),
        Answer::Stored => committed(state, s, place),
        Answer::Exists(Decision::Commit { .. }) => {
            state.event = unsure.then_some(Event::ClearedUp).or(state.event);
            committed(state, s, place);
        }
        Answer::Unknown => unsure_of(protocol, state, s),
    }
}

fn committed(state: &mut State, s: u8, place: Place) {
    let now = *state.current(s);
    let session = state.session(s);
    session.standing = Some(place);
    if now.copy {
        session.rolled_back = now.parents[0].map(|parent| parent.ordinal);
    }
    end(state, s, Report::Committed);
}

/// What a leader does that got no answer to its COMMIT.
fn unsure_of(protocol: &Protocol, state: &mut State, s: u8) {
    let own = Set::one(state.current(s).attempt);
    match protocol.weakness {
        Weakness::LostReplyIsFailure => {
            state.store.rewritten = state.store.rewritten.with(own);
            state.current(s).content = 1;
        }
        Weakness::UnknownDeletes => {
            state.store.packs = state.store.packs.without(packs_of(own));
            end(state, s, Report::Failed);
        }
        _ => state.session(s).stage = Stage::Unsure,
    }
}

/// The decision cannot be read: Unknown, reported as such. Nothing is deleted; training goes on from where it stood.
pub(crate) fn give_up(state: &mut State, s: u8) {
    let unsure = state.session(s).stage == Stage::Unsure;
    end(state, s, if unsure { Report::Unknown } else { Report::Failed });
}

fn end(state: &mut State, s: u8, report: Report) {
    let attempt = state.current(s).attempt;
    state.reports[usize::from(attempt)] = report;
    let session = state.session(s);
    session.current = None;
    session.stage = Stage::Ready;
}
