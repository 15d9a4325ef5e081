//! What can happen: writers step, requests arrive late, retention expires, idle attempts are aborted, garbage is collected.

use stateright::{Model, Property};

use crate::collector::collect;
use crate::properties;
use crate::state::{
    Decision, Intent, ORDINALS, PAST, Place, Request, Set, Slot, Stage, State, Store, Writer,
};
use crate::variants::{Config, Weakness};
use crate::writer;

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

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A writer takes its next step.
    Step(u8, Luck),
    /// A writer starts an attempt to save on top of what it stands on.
    Save(u8),
    /// A writer starts an attempt to save of which nothing was stored before.
    SaveAnew(u8),
    /// A writer starts a deliberate rollback to an ordinal.
    RollBack(u8, u8),
    /// A writer that cannot read the decision back reports Unknown and goes on.
    GiveUp(u8),
    /// A late request is carried out.
    Arrive(Request),
    /// Retention expires a checkpoint that is not the newest COMMIT of its run.
    Expire(Place),
    /// Somebody takes an undecided attempt for dead: clocks are not trusted, so at any time.
    AbortIdle(Place),
    /// The next step of a collection pass.
    Collect,
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

    pub(crate) fn run_of(&self, writer: u8) -> u8 {
        self.config.writers[usize::from(writer)]
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
            state.faults -= 1;
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
                state.overwritten |= overwrite && slot.decision.is_some_and(|old| old != decision);
                slot.decision = if overwrite { Some(decision) } else { slot.decision.or(Some(decision)) };
            }
            Request::Pack(attempt) => state.store.packs = state.store.packs.with(Set::one(attempt)),
        }
    }

    /// Forgets late requests that can change nothing any more, so that equal futures are equal states.
    fn settle(&self, state: &mut State) {
        let store = &state.store;
        let overwrite = self.lacks(Weakness::DecisionOverwritten);
        state.flight.retain(|request| match *request {
            Request::Claim(at, _) => store.slot(at).intent.is_none(),
            Request::Decide(at, _) => overwrite || store.slot(at).decision.is_none(),
            Request::Pack(_) => true,
        });
    }

    fn writer_actions(&self, state: &State, writer: u8, actions: &mut Vec<Action>) {
        let now = &state.writers[usize::from(writer)];
        match now.stage {
            Stage::Stopped => {}
            Stage::Ready if now.used < self.config.attempts => {
                actions.push(Action::Save(writer));
                if self.config.retention {
                    actions.push(Action::SaveAnew(writer));
                }
                if self.config.rollback && now.used == 0 && now.rolled_back.is_none() {
                    let targets = (1..=ORDINALS).filter(|n| now.seen.has(*n));
                    let others = targets.filter(|n| now.standing.is_some_and(|place| place.ordinal != *n));
                    actions.extend(others.map(|n| Action::RollBack(writer, n)));
                }
            }
            Stage::Ready => {}
            _ => self.steps(state, writer, actions),
        }
    }

    fn steps(&self, state: &State, writer: u8, actions: &mut Vec<Action>) {
        let now = &state.writers[usize::from(writer)];
        actions.push(Action::Step(writer, Luck::Fine));
        if now.stage == Stage::Unsure {
            actions.push(Action::GiveUp(writer));
        }
        if state.faults == 0 {
            return;
        }
        match now.stage {
            Stage::Opening | Stage::Clearing | Stage::Claiming | Stage::Committing => {
                actions.extend(
                    [Luck::LostReply, Luck::Late, Luck::Twice].map(|luck| Action::Step(writer, luck)),
                );
            }
            Stage::Uploading => actions.push(Action::Step(writer, Luck::Twice)),
            _ => {}
        }
    }

    fn environment(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.flight.iter().map(|request| Action::Arrive(*request)));
        for (place, slot) in state.store.everywhere() {
            if self.config.retention && may_expire(&state.store, place, slot) {
                actions.push(Action::Expire(place));
            }
            if self.config.idle_aborts && slot.is_undecided_save() {
                actions.push(Action::AbortIdle(place));
            }
        }
        if state.passes > 0 {
            actions.push(Action::Collect);
        }
    }
}

/// "Never the newest COMMIT of a run." Once true it stays true, so that reading and marking may lie far apart.
fn may_expire(store: &Store, place: Place, slot: &Slot) -> bool {
    slot.is_commit() && !slot.expired && store.has_commit_above(place)
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut store = Store::default();
        history(&mut store, self.config.history);
        vec![State {
            store,
            flight: Vec::new(),
            writers: vec![Writer::default(); self.config.writers.len()],
            pass: Default::default(),
            passes: self.config.passes,
            faults: self.config.faults,
            reports: Default::default(),
            overwritten: false,
            unreadable_parent: false,
            forgotten_rollback: false,
            cleared_up: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for writer in (0u8..).take(state.writers.len()) {
            self.writer_actions(state, writer, actions);
        }
        self.environment(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Step(writer, luck) => writer::step(self, &mut state, writer, luck),
            Action::Save(writer) => writer::save(self, &mut state, writer),
            Action::SaveAnew(writer) => writer::start(self, &mut state, writer, None),
            Action::RollBack(writer, to) => writer::roll_back(self, &mut state, writer, to),
            Action::GiveUp(writer) => writer::give_up(&mut state, writer),
            Action::Arrive(request) => {
                self.carry_out(&mut state, request);
                state.flight.retain(|other| *other != request);
            }
            Action::Expire(place) => state.store.slot_mut(place).expired = true,
            Action::AbortIdle(place) => {
                self.decide(&mut state, place, Decision::Abort, Luck::Fine);
            }
            Action::Collect => collect(self, &mut state),
        }
        self.settle(&mut state);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(&self.config)
    }
}

/// Run 0 starts with a fence and `commits` checkpoints of a session long gone, each of which uses all packs before it.
fn history(store: &mut Store, commits: u8) {
    if commits == 0 {
        return;
    }
    let at = |ordinal| Place { run: 0, ordinal };
    store.slot_mut(at(1)).intent = Some(Intent::Fence { session: PAST });
    for attempt in 0..commits {
        let refs = store.packs.with(Set::one(attempt));
        let parent = (attempt > 0).then(|| at(attempt + 1));
        store.packs = refs;
        store.indexes = refs;
        store.refs[usize::from(attempt)] = refs;
        let intent = Some(Intent::Save { session: PAST, attempt, parent });
        let decision = Some(Decision::Commit { attempt, refs, content: 0 });
        *store.slot_mut(at(attempt + 2)) = Slot { intent, decision, expired: false };
    }
}
