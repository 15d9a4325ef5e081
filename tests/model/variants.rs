//! The points in which the protocol can be weakened.

/// A point in which the protocol is weakened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weakness {
    /// Not weakened.
    None,

    // Opening a run.
    /// R1 is left out.
    NoFence,
    /// R2 is left out.
    NoAbortBelow,
    /// The next ordinal comes from a LIST, not from the walk.
    OrdinalsByList,
    /// A fence of the same job counts as one's own.
    SessionFromJobName,
    /// A2 is left out, also on the walk: what another process of the session left undecided stays so.
    NoAbortOfLeft,
    /// The walk passes what another process of the session committed without a look.
    NothingLearned,
    /// A rollback is a note ("restored from k"), not an attempt.
    RollbackByPointer,

    // Writing.
    /// W2 is left out.
    NoConfirm,
    /// W2's marker is read before W1 is durable.
    MarkerBeforeIntent,
    /// W2 looks at the first parent only.
    FirstParentConfirmed,
    /// Ranks deduplicate against parents before W2 has confirmed them.
    UnconfirmedParent,
    /// Deduplication against an attempt that is not decided.
    UndecidedParent,
    /// Deduplication against whatever a HEAD finds.
    DedupByHead,
    /// All writers store the same contents under one key.
    ContentKeys,
    /// The base of a delta is what the host still has, whatever became of the parent.
    BaseFromHost,
    /// Refs leave out the bases.
    RefsWithoutBases,
    /// Refs leave out the bases of bases.
    RefsWithoutBasesOfBases,
    /// W4 does not wait for the ranks.
    CommitBeforeParts,
    /// A decision is a plain PUT.
    DecisionOverwritten,
    /// A COMMIT without answer counts as failed, and its attempt is used again for another state.
    LostReplyIsFailure,
    /// A COMMIT without answer counts as failed, and its packs are cleaned up.
    UnknownDeletes,

    // Reading.
    /// L2 is left out.
    NoLeaseCheck,
    /// L2 before L1.
    MarkerBeforeLease,
    /// `latest` passes what has expired without listing again.
    NoListingAgain,

    // Collecting.
    /// G0 expires the newest COMMIT of a run.
    NewestExpires,
    /// Packs of a checkpoint go before its marker is durable.
    MarkerAfterDelete,
    /// G2 and G3 before G1.
    IntentsBeforeDead,
    /// G2 looks at no run that G1 did not see.
    RunsNotListedAnew,
    /// G2 looks at no lease that G1 did not see.
    LeasesNotListedAnew,
    /// G2 leaves out the run of the pins.
    PinsNotListed,
    /// Undecided attempts keep nothing of their parents; or only while they are young, which is as much when one pauses.
    NoPins,
    /// Undecided attempts keep what their first parent has.
    FirstParentPinned,
    /// Leases keep nothing.
    NoLeases,
    /// G3 reads a decision before the parents' refs.
    DecisionBeforeParents,
    /// G3 marks nothing for a COMMIT whose refs are gone, and goes on.
    VanishedRefsIgnored,
    /// G3 passes over what needs an unknown feature.
    UnknownPassedOver,
    /// G3 passes over what has a swept mark, without having learned that it is dead.
    SweptMarkTrusted,
    /// A shard marks for its own attempts only.
    ShardMarksItsOwn,
    /// G4 deletes whatever is not marked.
    FreshUploadsSwept,
    /// G5 deletes tables that an undecided child still has to read.
    TablesDroppedAtOnce,
    /// The decision of an attempt goes with its last object.
    DecisionsDeleted,
    /// The intent of an attempt goes with its last object, and the decision with it.
    IntentsDeleted,
}
