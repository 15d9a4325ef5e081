//! Sizes of the search: several small worlds, each about one part of the protocol.

/// How much there is of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// The run that each session writes.
    pub(crate) sessions: &'static [u8],
    /// Whether the last of them is no session of its own, but a second process of the first one.
    pub(crate) heir: bool,
    /// Whether the sessions stand past R3 already; then at most one to a run.
    pub(crate) opened: bool,
    /// Attempts of each session.
    pub(crate) attempts: u8,
    /// Checkpoints that run 0 starts with.
    pub(crate) history: u8,
    /// Ranks of an attempt, 1 or 2.
    pub(crate) ranks: u8,
    /// Parents of an attempt, 1 or 2.
    pub(crate) parents: u8,
    /// Whether the changing tensor is stored as a delta wherever there is a base.
    pub(crate) deltas: bool,
    /// Requests that get lost, come late or come twice.
    pub(crate) faults: u8,
    /// Whether sessions may start with a deliberate rollback.
    pub(crate) rollback: bool,
    /// Whether the second run is `_pins`, and each of its attempts a pin of any checkpoint.
    pub(crate) pins: bool,
    /// Readers with a lease.
    pub(crate) lessees: u8,
    /// Whether somebody resolves `latest` without a fence.
    pub(crate) resolver: bool,
    /// Whether checkpoints expire.
    pub(crate) retention: bool,
    /// Whether undecided attempts and leases are ended by a collector that takes them for dead.
    pub(crate) impatience: bool,
    /// Collectors, at the same time.
    pub(crate) collectors: u8,
    /// Passes of each.
    pub(crate) passes: u8,
    /// Whether G2 and G3, and the deletes of a pass, happen at one time.
    pub(crate) coarse: bool,
    /// Whether the collectors share the attempts out.
    pub(crate) shards: bool,
    /// Swept marks that are put for no reason.
    pub(crate) hints: u8,
    /// Whether the sessions of the second run are of a version that the collectors do not understand.
    pub(crate) newer: bool,
}

/// Nothing but one session that saves once.
const PLAIN: Config = Config {
    sessions: &[0],
    heir: false,
    opened: false,
    attempts: 1,
    history: 0,
    ranks: 1,
    parents: 1,
    deltas: false,
    faults: 0,
    rollback: false,
    pins: false,
    lessees: 0,
    resolver: false,
    retention: false,
    impatience: false,
    collectors: 1,
    passes: 0,
    coarse: true,
    shards: false,
    hints: 0,
    newer: false,
};

/// Restarts: three sessions of one run, old ones going on as zombies, two faulty requests.
pub(crate) const RESTARTS: Config = Config { sessions: &[0, 0, 0], faults: 2, ..PLAIN };
/// Two sessions with two attempts each, with faulty requests and impatient aborts.
pub(crate) const ATTEMPTS: Config =
    Config { sessions: &[0, 0], attempts: 2, history: 1, faults: 2, impatience: true, ..PLAIN };
/// A session that another process carries on, with faulty requests and impatient aborts.
pub(crate) const TURNS: Config = Config { heir: true, ..ATTEMPTS };
/// The same, with a session that fences both, and expiry.
pub(crate) const FENCED_TURNS: Config =
    Config { sessions: &[0, 0, 0], heir: true, history: 1, faults: 1, retention: true, ..PLAIN };
/// Fences, expiry and collection under two sessions that deduplicate.
pub(crate) const FENCED_COLLECTION: Config =
    Config { sessions: &[0, 0], attempts: 2, history: 2, retention: true, passes: 2, ..PLAIN };
/// Fences, expiry, collection, aborts and one faulty request.
pub(crate) const FAULTY_COLLECTION: Config = Config {
    sessions: &[0, 0],
    history: 2,
    faults: 1,
    retention: true,
    impatience: true,
    passes: 2,
    ..PLAIN
};
/// Deliberate rollbacks, restarts after them, expiry.
pub(crate) const ROLLBACK: Config = Config {
    sessions: &[0, 0],
    attempts: 2,
    history: 2,
    rollback: true,
    retention: true,
    passes: 1,
    ..PLAIN
};
/// A run that starts from a checkpoint of another run.
pub(crate) const TWO_RUNS: Config =
    Config { sessions: &[0, 1], attempts: 2, history: 1, faults: 1, retention: true, passes: 2, ..PLAIN };

/// Any number of collectors at once, every call of theirs apart, and deletes that come late or never.
const COLLECTORS: Config =
    Config { opened: true, history: 2, retention: true, collectors: 2, passes: 1, coarse: false, ..PLAIN };
/// Two collectors beside a session that saves again and again.
pub(crate) const RIVALS: Config = Config { attempts: 3, ..COLLECTORS };
/// Two collectors beside sessions of two runs that are just being opened.
pub(crate) const FENCED_RIVALS: Config =
    Config { sessions: &[0, 1], opened: false, impatience: true, ..COLLECTORS };
/// A session whose first attempt is taken for dead, and which stores the same again.
pub(crate) const ANEW: Config =
    Config { history: 0, attempts: 2, impatience: true, collectors: 1, ..COLLECTORS };
/// A run that appears while two collectors work.
pub(crate) const NEW_RUN: Config = Config { sessions: &[0, 1], impatience: true, ..COLLECTORS };
/// Attempts of two parents: what never changes is one's, the base of a delta the other's.
pub(crate) const TWO_PARENTS: Config =
    Config { sessions: &[1], history: 3, parents: 2, deltas: true, impatience: true, ..COLLECTORS };
/// Deltas, of deltas too.
pub(crate) const DELTAS: Config = Config { deltas: true, ..RIVALS };
/// Ranks that come late, with a collector that takes their attempt for dead.
pub(crate) const RANKS: Config =
    Config { ranks: 2, attempts: 2, faults: 1, impatience: true, collectors: 1, passes: 2, ..COLLECTORS };
/// A pin of whatever there is, and its end.
pub(crate) const PINS: Config =
    Config { sessions: &[1], attempts: 2, pins: true, impatience: true, ..COLLECTORS };
/// A lease of whatever there is, by requests that may fail.
pub(crate) const LEASES: Config =
    Config { lessees: 1, faults: 1, impatience: true, collectors: 1, passes: 2, ..COLLECTORS };
/// A lease under two collectors.
pub(crate) const LEASES_OF_RIVALS: Config = Config { lessees: 1, ..COLLECTORS };
/// Two collectors that share the attempts out.
pub(crate) const SHARDS: Config = Config { shards: true, ..NEW_RUN };
/// Swept marks that are wrong.
pub(crate) const HINTS: Config = Config { attempts: 2, hints: 1, ..COLLECTORS };
/// A session of a later version, which pins.
pub(crate) const NEWER: Config = Config { newer: true, collectors: 1, ..PINS };
/// Readers without a fence, while checkpoints come and go.
pub(crate) const READERS: Config =
    Config { attempts: 3, history: 2, resolver: true, retention: true, opened: true, ..PLAIN };

/// More of everything at once, for the long suite.
pub(crate) const LARGE: Config = Config {
    sessions: &[0, 0, 1],
    history: 2,
    faults: 1,
    rollback: true,
    retention: true,
    passes: 2,
    ..PLAIN
};
/// A restart and two collectors, every call apart.
pub(crate) const LARGE_RIVALS: Config = Config { sessions: &[0, 0], ..FENCED_RIVALS };
/// A pin, a lease and two collectors.
pub(crate) const LARGE_KEEPERS: Config = Config { attempts: 1, lessees: 1, ..PINS };
/// Two sessions with two parents each, deltas and two collectors.
pub(crate) const LARGE_FAMILIES: Config = Config { sessions: &[0, 1], impatience: false, ..TWO_PARENTS };
