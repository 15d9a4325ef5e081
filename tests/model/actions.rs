//! What can happen: sessions, ranks, readers and collectors step, requests and deletes arrive late, retention expires, what
//! looks idle is given up.

use stateright::{Model, Property};

use crate::configs::Config;
use crate::state::{
    ATTEMPTS, Collector, Decision, Event, Index, Intent, Lessee, Objects, PAST, Parents, Place, Request,
    Resolver, Session, Set, Slot, Stage, State, Store, pack, packs_of,
};
use crate::variants::Weakness;
use crate::{collector, properties, reader, session, writer};

/// The protocol under one configuration, whole or weakened in one point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    pub(crate) config: Config,
    pub(crate) weakness: Weakness,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Luck {
    /// Carried out and answered.
    Fine,
    /// Carried out; the answer is lost.
    LostReply,
    /// Not answered; carried out at any later time, or never.
    Late,
    /// Carried out and answered, and once more at any later time.
    Twice,
}

const ALL_LUCK: [Luck; 3] = [Luck::LostReply, Luck::Late, Luck::Twice];

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A session takes its next step.
    Step(u8, Luck),
    /// The other rank of a session's attempt puts its pack and hands in.
    HandIn(u8, Luck),
    /// A session starts an attempt to save, on top of these.
    Save(u8, Parents),
    /// A session starts a deliberate rollback, or a pin.
    Copy(u8, Place),
    /// A session that cannot read the decision back, or waits for a rank, goes on without.
    GiveUp(u8),
    /// A reader wants a lease.
    Choose(u8, Place),
    /// A reader with a lease takes its next step.
    Read(u8, Luck),
    /// The reader that resolves `latest` takes its next step.
    Resolve,
    /// The next step of a collection pass.
    Collect(u8),
    /// A late request is carried out.
    Arrive(Request),
    /// Deletes are carried out.
    Delete(Objects),
    /// Retention expires a checkpoint that is not the newest COMMIT of its run.
    Expire(Place),
    /// Somebody takes an undecided attempt for dead: clocks are not trusted, so at any time.
    AbortIdle(Place),
    /// Somebody takes the reader of a lease for dead.
    EndIdle(u8),
    /// An ended lease is removed, or the end of a removed one.
    TidyUp(u8),
    /// Somebody puts a swept mark.
    Hint(u8),
    /// Weakened: the last that is left of a dead attempt goes.
    Forget(Place),
}

/// The store's answer to a put-if-absent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer<T> {
    Stored,
    Exists(T),
    Unknown,
}

impl Protocol {
    /// Whether the protocol is weakened in this point.
    pub(crate) fn lacks(&self, weakness: Weakness) -> bool {
        self.weakness == weakness
    }

    pub(crate) fn run_of(&self, session: u8) -> u8 {
        self.config.sessions[usize::from(session)]
    }

    /// Whether a process carries on a session that another one opened.
    pub(crate) fn is_heir(&self, process: u8) -> bool {
        self.config.heir && usize::from(process) + 1 == self.config.sessions.len()
    }

    /// The session that a process is of.
    pub(crate) fn session_of(&self, process: u8) -> u8 {
        if self.is_heir(process) { 0 } else { process }
    }

    /// Whether an attempt is one of this very process.
    pub(crate) fn has_begun(&self, process: u8, attempt: u8) -> bool {
        let first = self.config.history + process * self.config.attempts;
        (first..first + self.config.attempts).contains(&attempt)
    }

    /// Whether a session only pins.
    pub(crate) fn is_pinning(&self, session: u8) -> bool {
        self.config.pins && self.run_of(session) == 1
    }

    /// The collector that sweeps an attempt, where they share.
    pub(crate) fn shard_of(&self, attempt: u8) -> u8 {
        attempt % self.config.collectors
    }

    /// Whether collectors know all features that an attempt needs.
    pub(crate) fn understands(&self, place: Place) -> bool {
        !(self.config.newer && place.run == 1)
    }

    /// Where an attempt stores what never changes.
    pub(crate) fn frozen_pack(&self, attempt: u8) -> u8 {
        if self.lacks(Weakness::ContentKeys) { pack(0, 0) } else { pack(attempt, 0) }
    }

    /// "Never the newest COMMIT of a run", pins apart. Once true it stays true, so that reading and marking may lie far apart.
    pub(crate) fn may_expire(&self, store: &Store, place: Place) -> bool {
        let newest_may = self.config.pins && place.run == 1 || self.lacks(Weakness::NewestExpires);
        store.slot(place).counts() && (newest_may || store.has_commit_above(place))
    }

    /// Put-if-absent of an intent.
    pub(crate) fn claim(&self, state: &mut State, at: Place, intent: Intent, luck: Luck) -> Answer<Intent> {
        if let Some(there) = state.store.slot(at).intent {
            return Answer::Exists(there);
        }
        self.send(state, Request::Claim(at, intent), luck)
    }

    /// Put-if-absent of a decision; a plain put where the protocol is weakened so.
    pub(crate) fn decide(
        &self,
        state: &mut State,
        at: Place,
        decision: Decision,
        luck: Luck,
    ) -> Answer<Decision> {
        match state.store.slot(at).decision {
            Some(there) if !self.lacks(Weakness::DecisionOverwritten) => Answer::Exists(there),
            _ => self.send(state, Request::Decide(at, decision), luck),
        }
    }

    /// Carries a request out now, later, or both.
    pub(crate) fn send<T>(&self, state: &mut State, request: Request, luck: Luck) -> Answer<T> {
        if luck != Luck::Late {
            self.carry_out(state, request);
        }
        if matches!(luck, Luck::Late | Luck::Twice) && !state.flight.contains(&request) {
            state.flight.push(request);
            state.flight.sort_unstable();
        }
        if luck != Luck::Fine {
            state.faults = state.faults.saturating_sub(1);
        }
        if matches!(luck, Luck::Fine | Luck::Twice) { Answer::Stored } else { Answer::Unknown }
    }

    fn carry_out(&self, state: &mut State, request: Request) {
        let overwrite = self.lacks(Weakness::DecisionOverwritten);
        match request {
            Request::Claim(at, intent) => {
                let slot = state.store.slot_mut(at);
                slot.intent = slot.intent.or(Some(intent));
            }
            Request::Decide(at, decision) => {
                let slot = state.store.slot_mut(at);
                if overwrite && slot.decision.is_some_and(|old| old != decision) {
                    state.event = Some(Event::DecisionReplaced);
                }
                slot.decision = if overwrite { Some(decision) } else { slot.decision.or(Some(decision)) };
            }
            Request::Pack(pack) => state.store.packs = state.store.packs.with(Set::one(pack)),
            Request::Lease(lease) => state.store.leases[usize::from(lease)].there = true,
        }
    }

    fn arrive(&self, state: &mut State, request: Request) {
        self.carry_out(state, request);
        state.flight.retain(|other| *other != request);
        let aborted =
            |(_, slot): (Place, &Slot)| slot.attempt().filter(|_| slot.decision == Some(Decision::Abort));
        let dead: Set = state.store.everywhere().filter_map(aborted).collect();
        if matches!(request, Request::Pack(pack) if packs_of(dead).has(pack)) {
            state.event = Some(Event::LatePack);
        }
    }

    /// Forgets requests that can change nothing any more, so that equal futures are equal states.
    fn settle(&self, state: &mut State) {
        let store = &state.store;
        let (overwrite, reused) =
            (self.lacks(Weakness::DecisionOverwritten), self.lacks(Weakness::IntentsDeleted));
        state.flight.retain(|request| match *request {
            Request::Claim(at, _) => reused || store.slot(at).intent.is_none(),
            Request::Decide(at, _) => overwrite || reused || store.slot(at).decision.is_none(),
            Request::Pack(_) | Request::Lease(_) => true,
        });
        if self.lacks(Weakness::ContentKeys) {
            return;
        }
        state.deletes = state.deletes.both(Objects { packs: store.packs, tables: store.tables });
    }

    fn session_actions(&self, state: &State, s: u8, actions: &mut Vec<Action>) {
        let now = &state.sessions[usize::from(s)];
        match now.stage {
            Stage::Stopped => {}
            // It needs the ticket.
            Stage::Opening if self.is_heir(s) && !state.sessions[0].has_resolved() => {}
            Stage::Ready if now.used < self.config.attempts => {
                if !self.is_pinning(s) {
                    actions
                        .extend(session::choices(self, state, s).into_iter().map(|on| Action::Save(s, on)));
                }
                actions.extend(session::targets(self, state, s).into_iter().map(|to| Action::Copy(s, to)));
            }
            Stage::Ready => {}
            _ => self.steps(state, s, actions),
        }
    }

    fn steps(&self, state: &State, s: u8, actions: &mut Vec<Action>) {
        let now = &state.sessions[usize::from(s)];
        let told = matches!(now.stage, Stage::Uploading | Stage::Merging);
        let missing = self.config.ranks > 1
            && now.current.is_some_and(|current| current.parts.is_empty() && !current.copy);
        let waits = now.stage == Stage::Merging && missing && !self.lacks(Weakness::CommitBeforeParts);
        let luck: &[Luck] = match now.stage {
            _ if state.faults == 0 => &[],
            Stage::Opening | Stage::Clearing | Stage::Claiming | Stage::Committing => &ALL_LUCK,
            Stage::Uploading => &[Luck::Twice],
            _ => &[],
        };
        if !waits {
            actions.push(Action::Step(s, Luck::Fine));
            actions.extend(luck.iter().map(|luck| Action::Step(s, *luck)));
        }
        if told && missing {
            actions.push(Action::HandIn(s, Luck::Fine));
            let late = [Luck::Late, Luck::Twice].into_iter().filter(|_| state.faults > 0);
            actions.extend(late.map(|luck| Action::HandIn(s, luck)));
        }
        if waits || now.stage == Stage::Unsure {
            actions.push(Action::GiveUp(s));
        }
    }

    fn reader_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (l, lessee) in (0..).zip(&state.lessees) {
            match lessee {
                Lessee::Away => {
                    let all = state.store.everywhere().filter(|(_, slot)| slot.counts());
                    actions.extend(all.map(|(place, _)| Action::Choose(l, place)));
                }
                Lessee::Gone => {}
                Lessee::Taking(_) if state.faults > 0 => {
                    actions.push(Action::Read(l, Luck::Fine));
                    actions.extend(ALL_LUCK.map(|luck| Action::Read(l, luck)));
                }
                _ => actions.push(Action::Read(l, Luck::Fine)),
            }
        }
        if self.config.resolver && !matches!(state.resolver, Resolver::Answered { .. }) {
            actions.push(Action::Resolve);
        }
    }

    fn collector_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let working = (0..).zip(&state.collectors).filter(|(_, collector)| collector.passes > 0);
        actions.extend(working.map(|(c, _)| Action::Collect(c)));
        if self.config.coarse {
            actions.extend(Some(state.deletes).filter(|all| !all.is_empty()).map(Action::Delete));
        } else {
            actions.extend(state.deletes.each().map(Action::Delete));
        }
        let leases = (0..).zip(&state.store.leases);
        for (l, lease) in leases.filter(|_| self.config.impatience && self.config.lessees > 0) {
            if lease.is_open() {
                actions.push(Action::EndIdle(l));
            }
            if lease.ended {
                actions.push(Action::TidyUp(l));
            }
        }
    }

    fn environment(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.flight.iter().map(|request| Action::Arrive(*request)));
        for (place, slot) in state.store.everywhere() {
            if self.config.retention && self.may_expire(&state.store, place) {
                actions.push(Action::Expire(place));
            }
            if self.config.impatience && slot.is_undecided_save() {
                actions.push(Action::AbortIdle(place));
            }
            if self.is_forgotten(state, place, slot) {
                actions.push(Action::Forget(place));
            }
        }
        if state.hints > 0 {
            actions.extend((0..ATTEMPTS).filter(|a| state.store.tables.has(*a)).map(Action::Hint));
        }
    }

    /// Weakened: whether nothing but its registers is left of a dead attempt.
    fn is_forgotten(&self, state: &State, place: Place, slot: &Slot) -> bool {
        let forgets = self.lacks(Weakness::DecisionsDeleted) || self.lacks(Weakness::IntentsDeleted);
        let attempt = slot.attempt().filter(|_| slot.decision == Some(Decision::Abort) || slot.expired);
        let left = |attempt| packs_of(Set::one(attempt)).each().any(|pack| state.store.packs.has(pack));
        forgets
            && place.run == 0
            && attempt.is_some_and(|attempt| !left(attempt) && !state.store.tables.has(attempt))
    }

    fn forget(&self, slot: &mut Slot) {
        match self.weakness {
            Weakness::IntentsDeleted => *slot = Slot::default(),
            _ => slot.decision = None,
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let config = &self.config;
        let mut state = State {
            store: Store::default(),
            flight: Vec::new(),
            deletes: Objects::NONE,
            sessions: vec![Session::default(); config.sessions.len()],
            lessees: vec![Lessee::default(); usize::from(config.lessees)],
            resolver: Resolver::default(),
            collectors: vec![
                Collector { passes: config.passes, ..Collector::default() };
                usize::from(config.collectors)
            ],
            faults: config.faults,
            hints: config.hints,
            reports: Default::default(),
            event: None,
        };
        history(&mut state.store, config.history);
        if config.opened {
            (0..).zip(config.sessions).for_each(|(s, run)| open(&mut state, s, *run));
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for session in (0u8..).take(state.sessions.len()) {
            self.session_actions(state, session, actions);
        }
        self.reader_actions(state, actions);
        self.collector_actions(state, actions);
        self.environment(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = State { event: None, ..last.clone() };
        match action {
            Action::Step(s, luck) => writer::step(self, &mut state, s, luck),
            Action::HandIn(s, luck) => writer::hand_in(self, &mut state, s, luck),
            Action::Save(s, parents) => session::start(self, &mut state, s, parents),
            Action::Copy(s, target) => session::copy(self, &mut state, s, target),
            Action::GiveUp(s) => writer::give_up(&mut state, s),
            Action::Choose(l, place) => reader::choose(self, &mut state, l, place),
            Action::Read(l, luck) => reader::step(self, &mut state, l, luck),
            Action::Resolve => reader::resolve(self, &mut state),
            Action::Collect(c) => collector::step(self, &mut state, c),
            Action::Arrive(request) => self.arrive(&mut state, request),
            Action::Delete(objects) => state.delete(objects),
            Action::Expire(place) => state.store.slot_mut(place).expired = true,
            Action::AbortIdle(place) => {
                self.decide(&mut state, place, Decision::Abort, Luck::Fine);
            }
            Action::EndIdle(l) => state.revoke(l),
            Action::TidyUp(l) => state.tidy_up(l),
            Action::Hint(attempt) => {
                state.hints -= 1;
                state.store.swept = Set::one(attempt);
            }
            Action::Forget(place) => self.forget(state.store.slot_mut(place)),
        }
        self.settle(&mut state);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(&self.config)
    }
}

impl State {
    fn delete(&mut self, objects: Objects) {
        self.store.packs = self.store.packs.without(objects.packs);
        self.store.tables = self.store.tables.without(objects.tables);
        self.deletes = self.deletes.without(objects);
    }

    fn revoke(&mut self, l: u8) {
        let lease = &mut self.store.leases[usize::from(l)];
        (lease.ended, lease.revoked) = (true, true);
    }

    /// Of an ended lease: the lease, then its end.
    fn tidy_up(&mut self, l: u8) {
        let lease = &mut self.store.leases[usize::from(l)];
        if lease.there {
            lease.there = false;
        } else {
            lease.ended = false;
        }
    }
}

/// Run 0 starts with a fence and `commits` checkpoints of a session long gone, of which the newest shares nothing with others.
fn history(store: &mut Store, commits: u8) {
    if commits == 0 {
        return;
    }
    let at = |ordinal| Place { run: 0, ordinal };
    store.slot_mut(at(1)).intent = Some(Intent::Fence { session: PAST });
    for attempt in 0..commits {
        let anew = attempt == 0 || attempt + 1 == commits;
        let parents = [(!anew).then(|| at(attempt + 1)), None];
        let (frozen, changing) = (pack(if anew { attempt } else { 0 }, 0), pack(attempt, 0));
        let refs = [frozen, changing].into_iter().collect();
        store.packs = store.packs.with(refs);
        store.put_tables(attempt, Index { frozen, changing, bases: Set::default(), refs });
        let intent = Some(Intent::Save { session: PAST, attempt, parents });
        let decision = Some(Decision::Commit { attempt, content: 0 });
        *store.slot_mut(at(attempt + 2)) = Slot { intent, decision, expired: false };
    }
}

/// A session that stands past R3.
fn open(state: &mut State, s: u8, run: u8) {
    let fence = state.store.top(run) + 1;
    state.store.slot_mut(Place { run, ordinal: fence }).intent = Some(Intent::Fence { session: s });
    let (seen, standing) = (state.store.commits(run), state.store.latest(run));
    *state.session(s) =
        Session { stage: Stage::Ready, fence, seen, standing, next: fence + 1, ..Session::default() };
}
