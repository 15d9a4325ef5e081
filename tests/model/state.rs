//! What there is: the store, the requests still under way, the sessions, the readers, the collectors, and what was reported
//! to whom.

/// Runs of the model. Where there are pins, the second is `_pins`.
pub(crate) const RUNS: u8 = 2;
/// Ordinals of a run, from 1.
pub(crate) const ORDINALS: u8 = 9;
/// Attempts that can save, over all runs.
pub(crate) const ATTEMPTS: u8 = 8;
/// Ranks of an attempt, each of which has a pack at most.
pub(crate) const RANKS: u8 = 2;
/// Leases that can be taken.
pub(crate) const LEASES: u8 = 1;
/// The session that wrote the history which a configuration starts from.
pub(crate) const PAST: u8 = 15;

/// A set of attempts, of ordinals, of packs, ...
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Set(u32);

impl Set {
    pub(crate) fn one(n: u8) -> Self {
        Self(1 << n)
    }
    pub(crate) fn has(self, n: u8) -> bool {
        self.0 & (1 << n) != 0
    }
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
    pub(crate) fn within(self, other: Self) -> bool {
        self.without(other).is_empty()
    }
    pub(crate) fn each(self) -> impl Iterator<Item = u8> {
        (0..32).filter(move |n| self.has(*n))
    }
}

impl FromIterator<u8> for Set {
    fn from_iter<I: IntoIterator<Item = u8>>(numbers: I) -> Self {
        numbers.into_iter().fold(Self::default(), |set, n| set.with(Self::one(n)))
    }
}

/// An ordinal of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) run: u8,
    pub(crate) ordinal: u8,
}

/// What an intent names; those that are there come first.
pub(crate) type Parents = [Option<Place>; 2];

/// The claim of an ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Intent {
    Fence { session: u8 },
    Save { session: u8, attempt: u8, parents: Parents },
}

/// The decision of an attempt. `content` tells two states apart that were written under one attempt, which only a broken
/// writer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Decision {
    Commit { attempt: u8, content: u8 },
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
    /// COMMIT and not expired.
    pub(crate) fn counts(&self) -> bool {
        self.is_commit() && !self.expired
    }
    /// The attempt that saves here.
    pub(crate) fn attempt(&self) -> Option<u8> {
        match self.intent {
            Some(Intent::Save { attempt, .. }) => Some(attempt),
            _ => None,
        }
    }
    pub(crate) fn parents(&self) -> impl Iterator<Item = Place> {
        let parents = match self.intent {
            Some(Intent::Save { parents, .. }) => parents,
            _ => Parents::default(),
        };
        parents.into_iter().flatten()
    }
    pub(crate) fn is_undecided_save(&self) -> bool {
        self.attempt().is_some() && self.decision.is_none()
    }
}

/// The pack that `rank` writes for `attempt`.
pub(crate) fn pack(attempt: u8, rank: u8) -> u8 {
    attempt * RANKS + rank
}

/// All packs of `attempts`.
pub(crate) fn packs_of(attempts: Set) -> Set {
    attempts.each().flat_map(|attempt| (0..RANKS).map(move |rank| pack(attempt, rank))).collect()
}

/// A checkpoint has two tensors: one that never changes, and one that every save changes and that may be a delta. What an
/// index says of them are packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Index {
    pub(crate) frozen: u8,
    pub(crate) changing: u8,
    /// What the changing one is a delta of, and what that is a delta of, ...
    pub(crate) bases: Set,
    /// What the refs beside the index list.
    pub(crate) refs: Set,
}

impl Index {
    /// What a restore reads.
    pub(crate) fn needs(&self) -> Set {
        self.bases.with(Set::one(self.frozen)).with(Set::one(self.changing))
    }
}

/// A lease and its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    /// What it names, if it is there.
    pub(crate) of: Option<Place>,
    pub(crate) there: bool,
    pub(crate) ended: bool,
    /// For the rules to judge: somebody took its reader for dead.
    pub(crate) revoked: bool,
}

impl Lease {
    pub(crate) fn is_open(&self) -> bool {
        self.there && !self.ended
    }
}

/// The objects. Index and refs of an attempt are one: its tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    pub(crate) slots: [[Slot; ORDINALS as usize]; RUNS as usize],
    pub(crate) packs: Set,
    /// Attempts whose packs were replaced by ones with other bytes.
    pub(crate) rewritten: Set,
    /// Attempts whose tables are there.
    pub(crate) tables: Set,
    /// What the tables say, or said.
    pub(crate) indexes: [Option<Index>; ATTEMPTS as usize],
    pub(crate) leases: [Lease; LEASES as usize],
    /// Attempts with a swept mark, true or not.
    pub(crate) swept: Set,
}

impl Store {
    pub(crate) fn slot(&self, place: Place) -> &Slot {
        &self.slots[usize::from(place.run)][usize::from(place.ordinal) - 1]
    }
    pub(crate) fn slot_mut(&mut self, place: Place) -> &mut Slot {
        &mut self.slots[usize::from(place.run)][usize::from(place.ordinal) - 1]
    }
    pub(crate) fn index(&self, attempt: u8) -> Option<Index> {
        self.indexes[usize::from(attempt)]
    }
    pub(crate) fn lease(&self, lease: u8) -> &Lease {
        &self.leases[usize::from(lease)]
    }
    pub(crate) fn put_tables(&mut self, attempt: u8, index: Index) {
        self.indexes[usize::from(attempt)] = Some(index);
        self.tables = self.tables.with(Set::one(attempt));
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
        self.claimed(run).rev().find(|(_, slot)| slot.counts()).map(|(place, _)| place)
    }
    /// The ordinals that are COMMIT.
    pub(crate) fn commits(&self, run: u8) -> Set {
        self.claimed(run).filter(|(_, slot)| slot.is_commit()).map(|(place, _)| place.ordinal).collect()
    }
    pub(crate) fn has_commit_above(&self, place: Place) -> bool {
        self.claimed(place.run).any(|(other, slot)| other.ordinal > place.ordinal && slot.is_commit())
    }
}

/// A request that the store will carry out later, or never. Deletes are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Request {
    Claim(Place, Intent),
    Decide(Place, Decision),
    Pack(u8),
    Lease(u8),
}

/// Where a session stands. Each step but `Ready` is one call to the store (or several whose order shows nowhere).
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
    /// W3: the leader's own pack.
    Uploading,
    /// W3: index and refs, once all parts are in.
    Merging,
    /// W4.
    Committing,
    /// W4 after an answer that was lost.
    Unsure,
    /// Met another session's fence.
    Stopped,
}

/// The attempt that a session is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Current {
    pub(crate) attempt: u8,
    pub(crate) ordinal: u8,
    pub(crate) parents: Parents,
    /// Which of the parents W2 has confirmed.
    pub(crate) confirmed: Set,
    /// A rollback or a pin: the parent's index is copied and nothing else is written.
    pub(crate) copy: bool,
    /// What the index will say.
    pub(crate) index: Option<Index>,
    /// Ranks besides the leader that have handed in.
    pub(crate) parts: Set,
    pub(crate) content: u8,
}

/// One session. One that takes no further step has crashed; one that pauses and goes on is a zombie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Session {
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

impl Session {
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

/// A reader that takes a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Lessee {
    #[default]
    Away,
    /// L1 on this checkpoint comes next.
    Taking(Place),
    /// L2.
    Checking(Place),
    /// Reads, and trusts the lease.
    Holding(Place),
    /// Puts the end.
    Leaving,
    Gone,
}

/// A reader that resolves `latest` of the first run without a fence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Resolver {
    #[default]
    Away,
    /// Will look at this ordinal; the expired ones that it has met; what was `latest` when it began.
    At { ordinal: u8, expired: Set, floor: u8 },
    /// What it found, 0 for none.
    Answered { found: u8, floor: u8 },
}

/// Packs, and attempts with their tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Objects {
    pub(crate) packs: Set,
    pub(crate) tables: Set,
}

impl Objects {
    pub(crate) const NONE: Self = Self { packs: Set(0), tables: Set(0) };

    pub(crate) fn is_empty(self) -> bool {
        self.packs.is_empty() && self.tables.is_empty()
    }
    pub(crate) fn with(self, other: Self) -> Self {
        Self { packs: self.packs.with(other.packs), tables: self.tables.with(other.tables) }
    }
    pub(crate) fn without(self, other: Self) -> Self {
        Self { packs: self.packs.without(other.packs), tables: self.tables.without(other.tables) }
    }
    pub(crate) fn both(self, other: Self) -> Self {
        self.without(self.without(other))
    }
    pub(crate) fn each(self) -> impl Iterator<Item = Self> {
        let packs = self.packs.each().map(|pack| Self { packs: Set::one(pack), tables: Set::default() });
        packs.chain(self.tables.each().map(|of| Self { packs: Set::default(), tables: Set::one(of) }))
    }
}

/// What a collector lists: attempts by their places, and leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Attempt(Place),
    Lease(u8),
}

impl Item {
    /// As a member of a set.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Attempt(place) => place.run * ORDINALS + place.ordinal - 1,
            Self::Lease(lease) => RUNS * ORDINALS + lease,
        }
    }
    pub(crate) fn of(number: u8) -> Self {
        match number.checked_sub(RUNS * ORDINALS) {
            Some(lease) => Self::Lease(lease),
            None => Self::Attempt(Place { run: number / ORDINALS, ordinal: number % ORDINALS + 1 }),
        }
    }
    pub(crate) fn run(self) -> Option<u8> {
        match self {
            Self::Attempt(place) => Some(place.run),
            Self::Lease(_) => None,
        }
    }
}

/// How far a collection pass is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Pass {
    #[default]
    Idle,
    /// Weakened: in G1, what there is that G2 will look at.
    Enumerated { listed: Set },
    /// After G1: the dead.
    Known { dead: Set, listed: Set },
    /// In G3: what is left to look at, what the parents of the first of these keep if it turns out to be undecided, and what
    /// is marked.
    Marking { dead: Set, todo: Set, half: Option<Objects>, marks: Objects },
    /// It ended without a sweep.
    Over,
}

/// A collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Collector {
    pub(crate) pass: Pass,
    /// Passes that it has left.
    pub(crate) passes: u8,
}

/// What has just happened, for the rules to judge. Nobody in the model can read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// A decision was replaced by another one.
    DecisionReplaced,
    /// A live attempt could not read the index of a parent that it had confirmed.
    ParentUnreadable,
    /// A session resolved `latest` as if a finished rollback had never been.
    RollbackForgotten,
    /// A pass met something missing that nothing explains.
    PassStopped,
    /// A pass was thrown away, because another had been faster.
    PassRestarted,
    /// A lost COMMIT answer was cleared up by reading back.
    ClearedUp,
    /// A pack came after its attempt was dead.
    LatePack,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) flight: Vec<Request>,
    /// Deletes that were sent. Each is carried out at any time, or never.
    pub(crate) deletes: Objects,
    pub(crate) sessions: Vec<Session>,
    pub(crate) lessees: Vec<Lessee>,
    pub(crate) resolver: Resolver,
    pub(crate) collectors: Vec<Collector>,
    /// Lost, late and doubled requests still allowed.
    pub(crate) faults: u8,
    /// False swept marks still allowed.
    pub(crate) hints: u8,
    pub(crate) reports: [Report; ATTEMPTS as usize],
    pub(crate) event: Option<Event>,
}
