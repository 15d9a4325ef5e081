//! Sizes of the search, and the points in which the protocol can be weakened.

/// How much there is of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// The run that each session writes.
    pub(crate) writers: &'static [u8],
    /// Attempts of each session.
    pub(crate) attempts: u8,
    /// Checkpoints that run 0 starts with.
    pub(crate) history: u8,
    /// Requests that get lost, come late or come twice.
    pub(crate) faults: u8,
    /// Whether sessions may start with a deliberate rollback.
    pub(crate) rollback: bool,
    /// Whether checkpoints expire.
    pub(crate) retention: bool,
    /// Whether undecided attempts are aborted by a collector that takes them for dead.
    pub(crate) idle_aborts: bool,
    /// Collection passes.
    pub(crate) passes: u8,
}

/// Nothing but one session that saves once.
pub(crate) const PLAIN: Config = Config {
    writers: &[0],
    attempts: 1,
    history: 0,
    faults: 0,
    rollback: false,
    retention: false,
    idle_aborts: false,
    passes: 0,
};

/// Restarts: three sessions of one run, old ones going on as zombies, two faulty requests.
pub(crate) const RESTARTS: Config = Config { writers: &[0, 0, 0], faults: 2, ..PLAIN };
/// Two sessions with two attempts each, with faulty requests and impatient aborts.
pub(crate) const ATTEMPTS: Config =
    Config { writers: &[0, 0], attempts: 2, history: 1, faults: 2, idle_aborts: true, ..PLAIN };
/// Expiry and collection under two sessions that deduplicate.
pub(crate) const COLLECTION: Config =
    Config { writers: &[0, 0], attempts: 2, history: 2, retention: true, passes: 2, ..PLAIN };
/// Expiry, collection, aborts and one faulty request.
pub(crate) const FAULTY_COLLECTION: Config = Config {
    writers: &[0, 0],
    history: 2,
    faults: 1,
    retention: true,
    idle_aborts: true,
    passes: 2,
    ..PLAIN
};
/// Deliberate rollbacks, restarts after them, expiry.
pub(crate) const ROLLBACK: Config =
    Config { writers: &[0, 0], attempts: 2, history: 2, rollback: true, retention: true, passes: 1, ..PLAIN };
/// A run that starts from a checkpoint of another run.
pub(crate) const TWO_RUNS: Config =
    Config { writers: &[0, 1], attempts: 2, history: 1, faults: 1, retention: true, passes: 2, ..PLAIN };
/// More of everything, for the long suite.
pub(crate) const LARGE: Config = Config {
    writers: &[0, 0, 1],
    history: 2,
    faults: 1,
    rollback: true,
    retention: true,
    passes: 2,
    ..PLAIN
};

/// A point in which the protocol is weakened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weakness {
    /// Not weakened.
    None,
    /// W2 is left out.
    NoConfirm,
    /// W2's marker is read before W1 is durable.
    MarkerBeforeIntent,
    /// R1 is left out.
    NoFence,
    /// R2 is left out.
    NoAbortBelow,
    /// The next ordinal comes from a LIST, not from the walk.
    OrdinalsByList,
    /// A fence of the same job counts as one's own.
    SessionFromJobName,
    /// Ranks deduplicate against parents before W2 has confirmed them.
    UnconfirmedParent,
    /// Deduplication against an attempt that is not decided.
    UndecidedParent,
    /// A decision is a plain PUT.
    DecisionOverwritten,
    /// A COMMIT without answer counts as failed, and its attempt is used again for another state.
    LostReplyIsFailure,
    /// A COMMIT without answer counts as failed, and its packs are cleaned up.
    UnknownDeletes,
    /// A rollback is a note ("restored from k"), not an attempt.
    RollbackByPointer,
    /// Undecided attempts keep nothing of their parents.
    NoPins,
    /// An expired checkpoint's index goes although an undecided child names it.
    IndexDroppedAtOnce,
    /// G2 and G3 before G1.
    IntentsBeforeDead,
}
