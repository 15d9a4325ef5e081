"""The compiled half of the package: what is done on native threads. Everything here is private; `everstep` is public.

Memory is passed as `Region`: an address that stays valid as long as `owner` lives. Whoever makes one promises that.
All calls give the GIL up while they work, honour Ctrl-C, and never let a panic through.
"""

from collections.abc import Mapping, Sequence
from typing import Any, final

#: name, dtype as the format names it, global shape, offset, extent, alias_of, replicas, region.
#: replicas: None = this rank alone, "all" = every rank, or the ranks, ascending.
Shard = tuple[str, str, Sequence[int], Sequence[int], Sequence[int], str | None, str | Sequence[int] | None, "Region"]
#: name, owner, plain value (see `encode`) or opaque bytes wrapped in `Opaque`.
#: owner: a rank whose own it is; None = the whole job, rank 0 stores it; "here" = the whole job, this rank stores it.
Object = tuple[str, int | str | None, Any]
#: name, dtype, global shape, offset, extent, region to fill.
Target = tuple[str, str, Sequence[int], Sequence[int], Sequence[int], "Region"]

@final
class Region:
    """`length` bytes at `address`, kept alive by `owner`."""
    def __new__(cls, owner: object, address: int, length: int) -> Region: ...
    @staticmethod
    def of_buffer(buffer: object, writable: bool) -> Region:
        """Of anything with a C-contiguous buffer (numpy array, bytearray, memoryview). BufferError otherwise."""

@final
class Opaque:
    """Bytes to be kept as they are, not as a value."""
    def __new__(cls, data: bytes) -> Opaque: ...
    @property
    def data(self) -> bytes: ...

@final
class Arena:
    """Host memory that staging copies into, kept between saves. Pages are touched once, when it grows."""
    def __new__(cls, threads: int) -> Arena: ...
    def reserve(self, length: int) -> int:
        """At least so many bytes; the address (multiple of 4096). Whoever holds regions of it keeps the old memory."""
    def region(self, offset: int, length: int) -> Region: ...
    def copy(self, pieces: Sequence[tuple[int, Region]]) -> None:
        """Copies regions to offsets, on native threads, without the GIL."""
    @property
    def address(self) -> int: ...
    @property
    def length(self) -> int: ...

@final
class Progress:
    """Counters that a running call moves; may be read from any thread. For one call: once cancelled, it stays so."""
    def __new__(cls, background: bool = False) -> Progress:
        """background: of a call that nobody waits for, whose threads give way."""
    planned: int
    done: int

@final
class Repository:
    @staticmethod
    def open(url: str, options: Mapping[str, Any]) -> Repository:
        """options: profile, region, endpoint_url, allow_http, network_file_system, threads, background_threads, background_nice,
        bytes_in_flight, uploads, compress (each optional; None means default)."""
    @staticmethod
    def create(url: str, options: Mapping[str, Any]) -> Repository: ...
    @property
    def address(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def pid(self) -> int:
        """Of the process that opened it; calls from another (after a fork) raise RuntimeError."""
    def runs(self) -> list[str]: ...
    def latest(self, run: str) -> Checkpoint | None: ...
    def wait(self, run: str, after: Checkpoint | None, timeout: float) -> Checkpoint | None: ...
    def checkpoint(self, run: str, ordinal: int) -> Checkpoint: ...
    def resolve(self, reference: str) -> Checkpoint: ...
    def checkpoints(self, run: str) -> list[tuple[int, int]]:
        """(ordinal, step) of those that count, oldest first."""
    def expire(self, run: str, ordinal: int, reason: str) -> None: ...
    def expirer(self, run: str, policy: str) -> Expirer:
        """policy: TOML, or the same tables in JSON. InvalidArgument when it is wrong, or no table is for the run."""
    def pin(self, name: str, checkpoint: Checkpoint) -> None: ...
    def unpin(self, name: str, reason: str) -> None: ...
    def pins(self) -> tuple[list[tuple[str, str, int, int]], list[str]]:
        """(name, run and ordinal of what was pinned, its step) of those that count, in the order of their names; and in
        words, what cannot be read among them."""
    def open_writer(self, run: str, job: str | None, takeover: str | float, takeover_after: float | None) -> Writer:
        """takeover: "refuse" (default of the format's rules), "now", or seconds to wait."""
    def adopt(self, ticket: str) -> Writer:
        """Carries on the session of the writer that gave `ticket`, in another process of the same job: without a fence,
        from the save on that the ticket names. The two may take turns, but not save at the same time. What the other one
        left unfinished is aborted; what it committed is `latest`. Closing this one leaves the session open. Conflict once
        the session was fenced or closed."""
    def member(self, ticket: str) -> Member: ...
    def traffic(self) -> dict[str, int]:
        """requests, retries, bytes_sent, bytes_received: since it was opened."""

@final
class Expirer:
    """Expires what a policy does not keep of one run. One call at a time; another one meanwhile raises RuntimeError."""
    def expire(self) -> list[int]:
        """What is to be expired by now is; its ordinals. Nothing is deleted. Reads what is new since the time before."""

@final
class Checkpoint:
    run: str
    ordinal: int
    step: int
    world_size: int
    def manifest(self) -> dict[str, Any]:
        """As it is stored, parsed: totals, metadata, parents, created, stats ..."""
    def entries(self) -> list[dict[str, Any]]:
        """name, kind ("tensor" / "object"), dtype, shape, alias_of, ranks ([] when the job has one), raw_bytes."""
    def entry(self, name: str) -> dict[str, Any] | None: ...
    def load(self, targets: Sequence[Target], scope: Sequence[str] | None, strict: bool, progress: Progress | None) -> dict[str, Any]:
        """In place. scope: names that strictness covers (None: all). Targets may overlap or repeat in memory: those are
        loaded beside and copied. Report: tensors, bytes, chunks, requests, missing, unexpected."""
    def read(self, name: str, offset: Sequence[int] | None, extent: Sequence[int] | None) -> tuple[str, list[int], bytearray]:
        """dtype, shape of the box, row-major little-endian bytes."""
    def object(self, name: str, rank: int | None, world_size: int | None) -> Any:
        """A plain value, or Opaque. With rank and world_size: of exactly these ranks, else SchemaMismatch."""
    def lease(self, ttl: float) -> Lease: ...
    def index_file(self) -> bytes: ...
    def with_index_file(self, data: bytes) -> Checkpoint: ...

@final
class Lease:
    id: str
    def end(self) -> None: ...

@final
class Group:
    """rank, world_size, deadline (seconds), and a board through which ranks meet (None: over the store)."""
    def __new__(cls, rank: int, world_size: int, deadline: float, board: Any | None) -> Group: ...
    # board has: set(key: str, value: bytes) -> None; get(key: str) -> bytes | None (never waits). Called from native
    # threads, which take the GIL for it.

@final
class Writer:
    """A session: the leader's. One call at a time; another one meanwhile raises RuntimeError."""
    @property
    def ticket(self) -> str: ...
    @property
    def session(self) -> str: ...
    def latest(self) -> Checkpoint | None: ...
    def save(self, step: int, shards: Sequence[Shard], objects: Sequence[Object], metadata: str, parents: Sequence[Checkpoint],
             group: Group | None, progress: Progress | None) -> dict[str, Any]:
        """metadata: JSON text of an object. Report: checkpoint, tensors, objects, raw_bytes, new_raw_bytes,
        reused_raw_bytes, bytes_uploaded, packs, chunks_uploaded, chunks_reused, index_bytes, and seconds: {hash, encode,
        upload, ranks, commit, total}; ranks: the last few, the last one first, each {rank, late, seconds}."""
    def hand_in(self, step: int, shards: Sequence[Shard], objects: Sequence[Object], group: Group | None,
                progress: Progress | None, parents: Sequence[Checkpoint] = ...) -> dict[str, Any]:
        """The first half of a save: calls the other ranks and stores this one's share, without waiting for theirs. Nothing
        is saved before `commit`; any other save, `rollback` and `close` give it up. Report: as Member.save's."""
    def commit(self, metadata: str, parents: Sequence[Checkpoint], group: Group | None, progress: Progress | None) -> dict[str, Any]:
        """The second half: gathers the reports of all ranks (`report/<attempt>/<rank>` of the board; one that is missing
        after the deadline of the group, from now on, is RankFailed) and commits. In any case the attempt has ended.
        parents: [] (they are named by hand_in). Report: as save's. InvalidArgument when nothing was handed in, or it was
        given up."""
    def give_up(self, step: int, why: str, group: Group) -> None:
        """Tells the other ranks, who are about to save `step`, that there will be no attempt, and why. If a save of that
        step was handed in, it is given up, and ranks that wait for its outcome are told."""
    def rollback(self, target: Checkpoint) -> Checkpoint: ...
    def take_index(self, checkpoint: Checkpoint) -> None: ...
    def close(self) -> None: ...

@final
class Member:
    """A rank whose saves another process leads."""
    def save(self, step: int, shards: Sequence[Shard], objects: Sequence[Object], group: Group, progress: Progress | None) -> dict[str, Any]:
        """Returns once the leader has committed. Report: attempt, ordinal, raw_bytes, bytes_uploaded, packs,
        chunks_uploaded, chunks_reused, seconds."""
    def hand_in(self, step: int, shards: Sequence[Shard], objects: Sequence[Object], group: Group, progress: Progress | None) -> dict[str, Any]:
        """As `save`, but does not wait for the outcome: the share is stored and reported on the board, nothing is saved
        yet."""
    def give_up(self, step: int, why: str, group: Group) -> None:
        """Answers the call to the save of `step` by saying that this rank cannot take part, and why."""
    def take_index(self, checkpoint: Checkpoint) -> None: ...

def cancel(progress: Progress) -> None:
    """Lets the call that has this progress end with Interrupted as soon as it can: nothing is committed, or it is unknown."""

def encode(value: Any) -> bytes:
    """Canonical bytes of a plain value: None, bool, int, float, str, bytes, list, tuple, dict. TypeError names the path."""

def decode(data: bytes) -> Any: ...

def set_error_types(types: Mapping[str, type[BaseException]]) -> None:
    """Which class is raised for which kind (`ErrorKind::name()`), given once by the package."""
