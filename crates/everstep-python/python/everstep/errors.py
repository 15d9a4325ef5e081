"""Errors, grouped by what a caller would do about them.

    EverstepError
    ├── InvalidArgument      correct the call
    │   └── SchemaMismatch   correct the model, the selection or the renaming: names, shapes, dtypes do not fit
    ├── NotFound             nothing of that name
    ├── Unusable             choose another checkpoint
    │   ├── Corrupt          stored bytes are not what they must be
    │   ├── Expired          retention dropped it
    │   └── Incomplete       it was never committed
    ├── Conflict             stop: another job writes this run
    ├── TryAgain             nothing is lost; save or load again
    │   ├── Unreachable      the store does not answer
    │   ├── RankFailed       a rank of the job failed or was not heard of; the message names it
    │   └── OutcomeUnknown   the checkpoint may be committed; ask again, delete nothing
    ├── Interrupted          this call was stopped by its caller
    └── SetupError           correct the surroundings
        ├── PermissionDenied
        ├── StorageFull
        ├── Untrusted        something in the store leads out of it, such as a link
        └── UnsupportedVersion
"""

from __future__ import annotations

from . import _everstep


class EverstepError(Exception):
    """Any failure of a call; the message says which object, what was expected and found, and what to do."""

    kind = "error"


class InvalidArgument(EverstepError, ValueError):
    kind = "invalid-argument"


class SchemaMismatch(InvalidArgument):
    """What is asked for does not fit what is stored. Nothing was changed."""

    kind = "schema-mismatch"

    def __init__(self, message: str, missing: tuple[str, ...] = (), unexpected: tuple[str, ...] = ()):
        super().__init__(message)
        #: Names asked for that are not stored.
        self.missing = missing
        #: Names stored that were not asked for.
        self.unexpected = unexpected


class NotFound(EverstepError, LookupError):
    kind = "not-found"


class Unusable(EverstepError):
    """This checkpoint cannot be restored; another one may."""


class Corrupt(Unusable):
    kind = "corrupt"


class Expired(Unusable):
    kind = "expired"


class Incomplete(Unusable):
    kind = "incomplete"


class Conflict(EverstepError):
    kind = "conflict"


class TryAgain(EverstepError):
    """Nothing that was committed is lost."""


class Unreachable(TryAgain, ConnectionError):
    kind = "unreachable"


class RankFailed(TryAgain):
    kind = "rank-failed"


class OutcomeUnknown(TryAgain):
    kind = "outcome-unknown"


class Interrupted(EverstepError):
    kind = "interrupted"


class SetupError(EverstepError):
    """Something around the job has to be put right first."""


class PermissionDenied(SetupError, PermissionError):
    kind = "permission-denied"


class StorageFull(SetupError):
    kind = "storage-full"


class Untrusted(SetupError):
    kind = "untrusted"


class UnsupportedVersion(SetupError):
    kind = "unsupported-version"


def _leaves(of: type[EverstepError]) -> list[type[EverstepError]]:
    return [of] + [leaf for child in of.__subclasses__() for leaf in _leaves(child)]


#: Classes by the kinds that the compiled half and other ranks name.
BY_KIND: dict[str, type[EverstepError]] = {cls.kind: cls for cls in _leaves(EverstepError) if "kind" in vars(cls)}
BY_KIND["source"] = InvalidArgument
_everstep.set_error_types(BY_KIND)


def of_kind(kind: str, message: str) -> EverstepError:
    """The error that another rank had."""
    return BY_KIND.get(kind, EverstepError)(message)
