//! What there is: the store, the requests still under way, the writers, the collector, and what was reported to whom.

/// Runs of the model.
pub(crate) const RUNS: u8 = 2;
/// Ordinals of a run, from 1.
pub(crate) const ORDINALS: u8 = 9;
/// Attempts that can save, over all runs.
pub(crate) const ATTEMPTS: usize = 8;
/// The session that wrote the history which a configuration starts from.
pub(crate) const PAST: u8 = 15;

/// A set of attempts or of ordinals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Set(pub(crate) u16);

impl Set {
    pub(crate) fn one(n: u8) -> Self {
        Self(1 << n)
    }
    pub(crate) fn has(self, n: u8) -> bool {
        self.0 & (1 << n) != 0
    }
    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
    pub(crate) fn within(self, other: Self) -> bool {
        self.without(other).0 == 0
    }
}

/// An ordinal of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) run: u8,
    pub(crate) ordinal: u8,
}

/// The claim of an ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Intent {
    Fence { session: u8 },
    Save { session: u8, attempt: u8, parent: Option<Place> },
}

/// The decision of an attempt. `refs` are the attempts whose packs its index uses; `content` tells two states apart that
/// were written under one attempt, which only a broken writer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Decision {
    Commit { attempt: u8, refs: Set, content: u8 },
    Abort,
}

/// The three registers of one ordinal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) intent: Option<Intent>,
    pub(crate) decision: Option<Decision>,
    pub(crate) expired: bool,
}

impl Slot {
    pub(crate) fn is_commit(&self) -> bool {
        matches!(self.decision, Some(Decision::Commit { .. }))
    }
    /// The attempt that saves here.
    pub(crate) fn attempt(&self) -> Option<u8> {
        match self.intent {
            Some(Intent::Save { attempt, .. }) => Some(attempt),
            _ => None,
        }
    }
    pub(crate) fn is_undecided_save(&self) -> bool {
        self.attempt().is_some() && self.decision.is_none()
    }
}

/// The objects. An attempt has one pack (its new chunks; those of its parents are referenced) and one index with refs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    pub(crate) slots: [[Slot; ORDINALS as usize]; RUNS as usize],
    pub(crate) packs: Set,
    /// Packs whose bytes were replaced by other ones.
    pub(crate) rewritten: Set,
    pub(crate) indexes: Set,
    /// What each index says, kept also when the index is gone.
    pub(crate) refs: [Set; ATTEMPTS],
}

impl Store {
    pub(crate) fn slot(&self, place: Place) -> &Slot {
        &self.slots[usize::from(place.run)][usize::from(place.ordinal) - 1]
    }
    pub(crate) fn slot_mut(&mut self, place: Place) -> &mut Slot {
        &mut self.slots[usize::from(place.run)][usize::from(place.ordinal) - 1]
    }
    /// Every ordinal of `run` that is claimed.
    pub(crate) fn claimed(&self, run: u8) -> impl DoubleEndedIterator<Item = (Place, &Slot)> {
        let slots = (1..=ORDINALS).zip(&self.slots[usize::from(run)]);
        slots
            .map(move |(ordinal, slot)| (Place { run, ordinal }, slot))
            .filter(|(_, slot)| slot.intent.is_some())
    }
    pub(crate) fn everywhere(&self) -> impl Iterator<Item = (Place, &Slot)> {
        (0..RUNS).flat_map(|run| self.claimed(run))
    }
    /// The highest claimed ordinal, 0 for none.
    pub(crate) fn top(&self, run: u8) -> u8 {
        self.claimed(run).next_back().map_or(0, |(place, _)| place.ordinal)
    }
    /// The highest ordinal that is COMMIT and not expired.
    pub(crate) fn latest(&self, run: u8) -> Option<Place> {
        self.claimed(run).rev().find(|(_, slot)| slot.is_commit() && !slot.expired).map(|(place, _)| place)
    }
    /// The ordinals that are COMMIT.
    pub(crate) fn commits(&self, run: u8) -> Set {
        let commits = self.claimed(run).filter(|(_, slot)| slot.is_commit());
        commits.fold(Set::default(), |set, (place, _)| set.with(Set::one(place.ordinal)))
    }
    pub(crate) fn has_commit_above(&self, place: Place) -> bool {
        self.claimed(place.run).any(|(other, slot)| other.ordinal > place.ordinal && slot.is_commit())
    }
}

/// A request that the store will carry out later, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Request {
    Claim(Place, Intent),
    Decide(Place, Decision),
    Pack(u8),
}

/// Where a writer stands. Each step but `Ready` is one call to the store (or two whose answers cannot change).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// R1 comes next.
    #[default]
    Opening,
    /// R2, then R3.
    Clearing,
    /// Between attempts.
    Ready,
    /// W1.
    Claiming,
    /// W2.
    Confirming,
    /// W3.
    Uploading,
    /// W4.
    Committing,
    /// W4 after an answer that was lost.
    Unsure,
    /// Met another session's fence.
    Stopped,
}

/// The attempt that a writer is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Current {
    pub(crate) attempt: u8,
    pub(crate) ordinal: u8,
    pub(crate) parent: Option<Place>,
    pub(crate) confirmed: bool,
    /// A deliberate rollback to the parent: its index is copied and nothing else is written.
    pub(crate) rollback: bool,
    pub(crate) content: u8,
}

/// One session. A writer that takes no further step has crashed; one that pauses and goes on is a zombie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Writer {
    pub(crate) stage: Stage,
    pub(crate) fence: u8,
    /// Ordinals that were COMMIT at R3.
    pub(crate) seen: Set,
    /// The checkpoint that training goes on from.
    pub(crate) standing: Option<Place>,
    /// The target of a finished rollback.
    pub(crate) rolled_back: Option<u8>,
    /// The ordinal that the walk tries next.
    pub(crate) next: u8,
    pub(crate) used: u8,
    pub(crate) current: Option<Current>,
}

impl Writer {
    /// Whether R3 is behind it.
    pub(crate) fn has_resolved(&self) -> bool {
        !matches!(self.stage, Stage::Opening | Stage::Clearing)
    }
}

/// What a session told its trainer about an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Report {
    #[default]
    None,
    Committed,
    Failed,
    Unknown,
}

/// Packs and indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Marks {
    pub(crate) packs: Set,
    pub(crate) indexes: Set,
}

/// How far a collection pass is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Pass {
    #[default]
    Idle,
    /// After G1: the dead (for the variant that marks first: what is kept).
    Half(Set, Marks),
    /// After G3: what will be deleted, whatever happens meanwhile.
    Doomed(Marks),
}

/// Everything. The last fields are ghosts: nobody in the model can read them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) flight: Vec<Request>,
    pub(crate) writers: Vec<Writer>,
    pub(crate) pass: Pass,
    pub(crate) passes: u8,
    /// Lost, late and doubled requests still allowed.
    pub(crate) faults: u8,
    pub(crate) reports: [Report; ATTEMPTS],
    /// A decision was replaced by another one.
    pub(crate) overwritten: bool,
    /// A live attempt could not read the index of a parent that it had confirmed.
    pub(crate) unreadable_parent: bool,
    /// A later session resolved `latest` as if a finished rollback had never been.
    pub(crate) forgotten_rollback: bool,
    /// A lost COMMIT answer was cleared up by reading back.
    pub(crate) cleared_up: bool,
}
