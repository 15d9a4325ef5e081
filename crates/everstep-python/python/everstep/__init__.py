"""Everstep: how a training run survives. Checkpoints in an object store: deduplicated, compressed, committed by one atomic
write, restored whole, in part, or under another sharding, every byte verified.

    import everstep

    repo = everstep.Repository("s3://bucket/ckpts")
    run = repo.run("gpt")
    state = {"model": model, "optim": optimizer, "loss": 0.0}
    with run.writer(takeover="wait") as w:
        start = w.resume(into=state) or 0
        for step in range(start + 1, 1001):
            ...
            if step % 100 == 0:
                w.save_async(step, state, metadata={"loss": loss})

Neither torch nor numpy is needed to import it. A state is nested dicts and lists of torch tensors (DTensor and ShardedTensor
as well), numpy and jax arrays, plain values, and whatever has `state_dict` and `load_state_dict`. A tensor's name is the keys that
lead to it, joined by dots. In a job of many ranks, plain tensors count as the same on all of them; `Shard` declares a part of
a tensor, `PerRank` what each rank has its own of. `everstep.lightning`, `everstep.transformers` and `everstep.folders` are for
frameworks with checkpoints of their own.
"""

from ._jobs import Event, Job, Saved, Stats
from ._place import LoadReport
from ._repository import Checkpoint, Lease, Pin, Repository, Run
from ._tensors import PerRank, Shard
from ._writer import Finished, Writer, WriterOptions
from .errors import (
    Conflict,
    Corrupt,
    EverstepError,
    Expired,
    Incomplete,
    Interrupted,
    InvalidArgument,
    NotFound,
    OutcomeUnknown,
    PermissionDenied,
    RankFailed,
    SchemaMismatch,
    SetupError,
    StorageFull,
    TryAgain,
    Unreachable,
    UnsupportedVersion,
    Untrusted,
    Unusable,
)

__all__ = [
    "Checkpoint",
    "Conflict",
    "Corrupt",
    "Event",
    "EverstepError",
    "Expired",
    "Finished",
    "Incomplete",
    "Interrupted",
    "InvalidArgument",
    "Job",
    "Lease",
    "LoadReport",
    "NotFound",
    "OutcomeUnknown",
    "PerRank",
    "PermissionDenied",
    "Pin",
    "RankFailed",
    "Repository",
    "Run",
    "Saved",
    "SchemaMismatch",
    "SetupError",
    "Shard",
    "Stats",
    "StorageFull",
    "TryAgain",
    "Unreachable",
    "UnsupportedVersion",
    "Untrusted",
    "Unusable",
    "Writer",
    "WriterOptions",
]
