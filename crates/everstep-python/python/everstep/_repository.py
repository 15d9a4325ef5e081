"""Repositories, runs and checkpoints, for reading: that needs no fence, and permission to get and list alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _arrays, _values
from ._everstep import Checkpoint as NativeCheckpoint
from ._everstep import Repository as NativeRepository
from ._jobs import Announcer, Event, log
from ._place import LoadOptions, LoadReport, PerRankPolicy, Placing
from ._stored import Rename, Select
from .errors import Conflict, InvalidArgument, NotFound

#: Seconds between two looks for a run that does not exist yet.
_RUN_APPEARS = 1.0


class Repository:
    """One prefix in one store.

    `url`: `file:///path` or a plain path, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`,
    `memory://name`. `profile`, `region`, `endpoint_url`, `allow_http` are those of S3. `threads` is how many CPU threads
    hashing and coding may use (default: all cores); `background_threads` and `background_nice` (0 to 19, on Linux) are how
    many and how far they give way while a save runs in the background.
    `create=True` makes the repository if there is none.

    Raises NotFound, PermissionDenied, Unreachable, UnsupportedVersion, InvalidArgument.
    """

    def __init__(
        self,
        url: str,
        *,
        profile: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        allow_http: bool = False,
        network_file_system: bool = False,
        threads: int | None = None,
        background_threads: int | None = None,
        background_nice: int | None = None,
        bytes_in_flight: int | None = None,
        compress: bool = True,
        create: bool = False,
    ):
        self._options = {
            "profile": profile,
            "region": region,
            "endpoint_url": endpoint_url,
            "allow_http": allow_http,
            "network_file_system": network_file_system,
            "threads": threads,
            "background_threads": background_threads,
            "background_nice": background_nice,
            "bytes_in_flight": bytes_in_flight,
            "compress": compress,
        }
        self._url = str(url)
        self._native = _open(self._url, self._options, create)

    @property
    def address(self) -> str:
        """Where it is, without secrets."""
        return self._native.address

    @property
    def id(self) -> str:
        """Its own id, in hexadecimal."""
        return self._native.id

    def run(self, name: str) -> Run:
        """The run `name`, which need not exist yet."""
        return Run(self, name)

    def runs(self) -> list[str]:
        """Names of the runs there are."""
        return self._native.runs()

    def checkpoint(self, reference: str) -> Checkpoint:
        """What a reference means: `RUN`, `RUN@step=N`, `RUN@ordinal=N`, `RUN@min=METRIC`, `pin:NAME`."""
        return Checkpoint(self, self._native.resolve(reference))

    def pin(self, name: str, checkpoint: Checkpoint) -> None:
        """Keeps a checkpoint under a name, whatever becomes of its run. Raises Conflict when the name is taken."""
        self._native.pin(name, checkpoint.native)

    def unpin(self, name: str, reason: str = "") -> None:
        """Gives a pin up."""
        self._native.unpin(name, reason)

    def pins(self) -> list[Pin]:
        """The pins there are, in the order of their names. What cannot be read among them is left out, with a warning in the
        log. Raises Unreachable, PermissionDenied."""
        found, unreadable = self._native.pins()
        for what in unreadable:
            log.warning("%s: this may be a pin, and cannot be read: %s", self.address, what)
        return [Pin(*pin) for pin in found]

    def traffic(self) -> dict[str, int]:
        """Requests, retries and bytes since it was opened."""
        return self._native.traffic()

    def __repr__(self) -> str:
        return f"everstep.Repository({self.address!r})"


@dataclass(frozen=True)
class Pin:
    """A checkpoint that is kept by name, for good: `repository.checkpoint("pin:NAME")`."""

    name: str
    #: What was pinned. It may have expired in its run since.
    run: str
    ordinal: int
    step: int


def _open(url: str, options: Mapping[str, Any], create: bool) -> NativeRepository:
    if not create:
        return NativeRepository.open(url, options)
    try:
        return NativeRepository.open(url, options)
    except NotFound:
        pass
    try:
        return NativeRepository.create(url, options)
    except Conflict:  # another rank was faster
        return NativeRepository.open(url, options)


class Run:
    """A line of training."""

    def __init__(self, repository: Repository, name: str):
        self.repository, self.name = repository, name

    @property
    def _native(self) -> NativeRepository:
        return self.repository._native

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint: None only if the store answered and nothing is committed, not even a run of this name;
        otherwise it raises (Unreachable, PermissionDenied, Corrupt)."""
        try:
            found = self._native.latest(self.name)
        except NotFound:
            return None
        return found and Checkpoint(self.repository, found)

    def wait(self, after: Checkpoint | None = None, timeout: float = 600.0) -> Checkpoint | None:
        """Waits up to `timeout` seconds for a checkpoint newer than `after` and gives the newest; None when time is over.
        The run need not exist yet."""
        until = time.monotonic() + timeout
        while True:
            left = max(until - time.monotonic(), 0.0)
            try:
                found = self._native.wait(self.name, after.native if after else None, left)
            except NotFound:
                if after is not None:
                    raise
                if left == 0.0:
                    return None
                time.sleep(min(left, _RUN_APPEARS))
            else:
                return found and Checkpoint(self.repository, found)

    def checkpoint(self, ordinal: int) -> Checkpoint:
        """The checkpoint of this ordinal. Raises Incomplete, Expired, NotFound."""
        return Checkpoint(self.repository, self._native.checkpoint(self.name, ordinal))

    def checkpoints(self) -> list[tuple[int, int]]:
        """(ordinal, step) of those that count, oldest first."""
        return self._native.checkpoints(self.name)

    def expire(self, ordinal: int, reason: str = "") -> None:
        """Drops a checkpoint; its data goes with the next garbage collection. Raises Conflict for the newest one."""
        self._native.expire(self.name, ordinal, reason)

    def writer(self, **options: Any) -> Any:
        """Opens the run for writing: see `everstep.Writer` for the options."""
        from ._writer import open_writer

        return open_writer(self, **options)

    def __repr__(self) -> str:
        return f"everstep.Run({self.name!r} in {self.repository.address!r})"


class Checkpoint:
    """A committed checkpoint."""

    def __init__(self, repository: Repository, native: NativeCheckpoint):
        self.repository, self.native = repository, native

    @property
    def run(self) -> str:
        return self.native.run

    @property
    def ordinal(self) -> int:
        return self.native.ordinal

    @property
    def step(self) -> int:
        return self.native.step

    @property
    def world_size(self) -> int:
        """Ranks that saved it."""
        return self.native.world_size

    @property
    def manifest(self) -> dict[str, Any]:
        """Everything it says of itself, as stored: totals, stats, parents, created ..."""
        return self.native.manifest()

    @property
    def metadata(self) -> dict[str, Any]:
        """What was given as metadata when it was saved."""
        return self.manifest["metadata"]

    @property
    def pin(self) -> Pin | None:
        """If it is a pin, which one, and of what."""
        if (said := self.manifest.get("pin")) is None:
            return None
        return Pin(said["name"], said["of"]["run"], said["of"]["ordinal"], self.step)

    def entries(self) -> list[dict[str, Any]]:
        """Every tensor and object: name, kind, dtype, shape, alias_of, ranks, raw_bytes."""
        return self.native.entries()

    def load(
        self,
        into: Mapping[str, Any],
        *,
        strict: bool = True,
        cast: bool | str | Sequence[str] = False,
        select: Select = None,
        rename: Rename = None,
        per_rank: PerRankPolicy = "strict",
        allow_pickle: bool = False,
        on_event: Callable[[Event], None] | None = None,
        progress_every: float = 10.0,
    ) -> LoadReport:
        """Loads into the state `into`, in place.

        strict   every name of the state is stored, and every stored name is in the state; otherwise both are reported.
        cast     True, or patterns of names: element types may differ; the report lists casts that can lose bits.
        select   patterns of names (`model.*`): nothing else is loaded, nor expected.
        rename   {name or prefix in the state: what it is called in the checkpoint}, or a function of names.
        per_rank what to do with state that each rank has its own of: "strict" wants exactly the ranks that saved it,
                 "skip" leaves it, a function gets ({rank: value}, rank, world_size) and returns this rank's value.
        on_event called with an `Event` that says how far the load is, every `progress_every` seconds, from another thread.

        Raises SchemaMismatch (nothing was changed), Corrupt, Expired, Unreachable.
        """
        rank, world_size = _place_in_job()
        options = LoadOptions(strict, cast, select, rename, per_rank, allow_pickle, rank, world_size)
        with Announcer(on_event, progress_every).loading(self.step) as progress:
            return Placing(self, into, options).run(progress)

    def read(self, name: str, index: Any = ..., library: str | None = None) -> Any:
        """One tensor, or a box of it: `read("w", (slice(0, 8), ...))`. What is read is what the box needs. As a torch
        tensor if the program uses torch, else as a numpy array; `library` ("torch", "numpy") chooses.

        Raises NotFound, InvalidArgument, Corrupt."""
        entry = self.native.entry(name)
        if entry is None:
            raise NotFound(f"{self} has no tensor {name!r}")
        if entry["kind"] != "tensor":
            raise InvalidArgument(f"{name} is a value, no tensor: read it with `value`")
        offset, extent, final = _arrays.box(entry["shape"], index, name)
        dtype, _, data = self.native.read(name, offset, extent)
        return _arrays.from_bytes(dtype, final, data, library)

    def value(self, name: str, rank: int | None = None, allow_pickle: bool = False) -> Any:
        """A plain value; of one rank, if each rank has its own."""
        return _values.restore(name, self.native.object(name, rank, None), allow_pickle)

    def lease(self, ttl: float = 3600.0) -> Lease:
        """Keeps its data readable, even if it expires, until the lease ends or is silent for `ttl` seconds."""
        return Lease(self.native.lease(ttl))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple:
        return self.repository.id, self.run, self.ordinal

    def __repr__(self) -> str:
        if (pin := self.pin) is not None:
            return f"pin:{pin.name}, which is {pin.run}@ordinal={pin.ordinal} (step {pin.step})"
        return f"{self.run}@ordinal={self.ordinal} (step {self.step})"


class Lease:
    """Ends with `end`, or with the `with` block."""

    def __init__(self, native: Any):
        self._native = native

    @property
    def id(self) -> str:
        return self._native.id

    def end(self) -> None:
        self._native.end()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _place_in_job() -> tuple[int, int]:
    from ._team import rank_and_world_size

    return rank_and_world_size()
