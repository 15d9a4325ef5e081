"""Loading through torch.distributed.checkpoint (DCP): its planner says which boxes a rank needs, everstep reads just these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.distributed.checkpoint import StorageReader
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

from . import _torch_tensors
from ._dcp_values import as_bytes
from ._place import _BESIDE_BYTES, LoadOptions
from ._quiet import quiet
from ._repository import Checkpoint, Repository, Run
from ._stored import PLANNER_DATA
from ._team import rank_and_world_size, team
from .errors import InvalidArgument, NotFound, SchemaMismatch

Source = Checkpoint | Run | Repository


class EverstepReader(StorageReader):
    """What `dcp.load` reads, as `storage_reader=`.

    source    a checkpoint; or a run, of which `step` or else the newest is read; or a repository, with a reference such as
              `RUN@step=N` as the `checkpoint_id` of `dcp.load`. Of runs and references rank 0 finds the checkpoint, so that
              all ranks load the same.
    cast      True, or patterns of names: element types may differ from those stored. Otherwise that is an error.
    allow_pickle  whether values may be unpickled that `w.save` pickled.
    group     (rank, world size, torch Store): without torch.distributed, or beside it.
    deadline  seconds that ranks wait for rank 0."""

    def __init__(
        self,
        source: Source,
        step: int | None = None,
        *,
        cast: bool | str | Sequence[str] = False,
        allow_pickle: bool = False,
        group: tuple[int, int, Any] | None = None,
        deadline: float = 600.0,
    ):
        if not isinstance(source, (Checkpoint, Run, Repository)) or (step is not None and not isinstance(source, Run)):
            raise InvalidArgument(f"a reader takes a checkpoint, a run and perhaps a step, or a repository, not {source!r}")
        self._source, self._step, self._options = source, step, LoadOptions(cast=cast, allow_pickle=allow_pickle)
        self._group, self._deadline = group, deadline
        self._given: str | None = None
        self._found: Checkpoint | None = None
        self._failure: Exception | None = None
        self._entries: dict[str, dict[str, Any]] = {}

    @property
    def checkpoint_id(self) -> str | None:
        return str(self._found) if self._found else self._given

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint that is read, once its metadata was."""
        if self._found is None:
            raise InvalidArgument("no checkpoint was looked up yet")
        return self._found

    # As a StorageReader, in the order of the calls.

    def reset(self, checkpoint_id: Any = None) -> None:
        self._given, self._found = None if checkpoint_id is None else str(checkpoint_id), None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Names, shapes and element types, without any data. Raises NotFound if there is no such checkpoint, Unreachable if
        the store cannot be asked, Expired, Corrupt ...

        torch takes every failure for absence and asks again for metadata of this rank alone (`rank=`). There is none: what
        it gets raises the failure as soon as it is used, before any rank goes a way of its own."""
        if "rank" in kwargs and self._failure is not None:
            return _Unreadable(self._failure)
        try:
            self._failure, self._found = None, self._look_up()
            self._entries = {entry["name"]: entry for entry in self._found.entries()}
            return self._metadata()
        except Exception as error:
            self._failure = error
            raise

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        _ = metadata.state_dict_metadata  # raises what could not be read

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Says which checkpoint it is for."""
        return replace(plan, storage_data=self._identity())

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """All ranks load one checkpoint."""
        others = [f"rank {rank}: {plan.storage_data[0]}" for rank, plan in enumerate(plans)
                  if plan.storage_data != self._identity()]
        if others:
            raise InvalidArgument(f"the ranks load different checkpoints: rank 0: {self._found}, {', '.join(others[:10])}")
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """All boxes in one go, into place where that is possible. Before the first byte, everything is compared."""
        wanted, problems = [], []
        with quiet():
            for item in plan.items:
                if item.type != LoadItemType.BYTE_IO:
                    self._want(item, planner, (wanted, problems))
        if problems:
            raise SchemaMismatch(f"{self._found}: " + "; ".join(problems[:20]))
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, self._bytes(item.storage_index.fqn))
        for batch in _batches(wanted):
            self._load(batch, planner)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return "@" in str(checkpoint_id) or str(checkpoint_id).startswith("pin:")

    # Which checkpoint.

    def _look_up(self) -> Checkpoint:
        if isinstance(self._source, Checkpoint):
            return self._fits(self._source)
        repository = self._source.repository if isinstance(self._source, Run) else self._source
        about = self._source.name if isinstance(self._source, Run) else self._given or ""
        ranks = team(about, self._deadline, self._group)
        where = ranks.together(self._choose, "looking for the checkpoint to load")
        return repository.run(where[0]).checkpoint(where[1])

    def _choose(self) -> tuple[str, int]:
        """Rank 0: run and ordinal."""
        if isinstance(self._source, Run) and self._step is None:
            found = self._source.latest()
            if found is None:
                raise NotFound(f"run {self._source.name} has no checkpoint")
        elif isinstance(self._source, Run):
            found = self._source.repository.checkpoint(f"{self._source.name}@step={self._step}")
        elif self._given is None:
            raise InvalidArgument("a reader of a repository needs a reference such as RUN@step=N as checkpoint_id")
        else:
            found = self._source.checkpoint(self._given)
        found = self._fits(found)
        return found.run, found.ordinal

    def _fits(self, found: Checkpoint) -> Checkpoint:
        """`checkpoint_id`, where it is not the only one to say what is read, says the same."""
        if self._given is None or isinstance(self._source, Repository):
            return found
        same = {f"{found.run}@step={found.step}", f"{found.run}@ordinal={found.ordinal}"}
        if found.pin is not None:
            same.add(f"pin:{found.pin.name}")
        if self._given not in same:
            raise InvalidArgument(f"the checkpoint_id is {self._given!r}, but the reader was given {found}")
        return found

    def _identity(self) -> tuple[str, str]:
        return str(self._found), self._found.manifest["attempt"]

    # What is in it.

    def _metadata(self) -> Metadata:
        entries = [(name, entry) for name, entry in self._entries.items() if name != PLANNER_DATA]
        described = {name: found for name, entry in entries if (found := _described(entry)) is not None}
        data = self._found.native.object(PLANNER_DATA, None, None) if PLANNER_DATA in self._entries else None
        if not data:  # names are all there is
            data = {name: (name,) for name in described}
        meta = StorageMeta(checkpoint_id=f"{self._found.run}@ordinal={self._found.ordinal}")
        return Metadata(described, planner_data=data, storage_meta=meta)

    def _entry(self, name: str) -> dict[str, Any]:
        entry = self._entries.get(name)
        if entry is None:
            raise NotFound(f"{self._found} has no {name!r}")
        return entry

    def _bytes(self, name: str) -> Any:
        entry = self._entry(name)
        rank, world_size = self._own_place() if entry["ranks"] else (None, None)
        stored = self._found.native.object(name, rank, world_size)
        return as_bytes(name, stored, self._options.allow_pickle)

    def _own_place(self) -> tuple[int, int]:
        return (self._group[0], self._group[1]) if self._group else rank_and_world_size()

    def _want(self, item: ReadItem, planner: LoadPlanner, into: tuple[list[_Wanted], list[str]]) -> None:
        wanted, problems = into
        entry = self._entry(item.storage_index.fqn)
        name, local = entry["name"], planner.resolve_tensor(item)
        piece = _torch_tensors.own_memory(name, local.detach())
        if piece.dtype != entry["dtype"] and not self._options.casts(name):
            problems.append(f"{name} is stored as {entry['dtype']}, the state has {piece.dtype} (cast=True converts)")
        elif (why := piece.kind.locked(piece.local)) is not None:
            problems.append(f"{name} cannot be loaded in place: {why}")
        elif tuple(local.shape) != tuple(item.lengths):
            problems.append(f"{name}: {list(item.lengths)} elements are planned to go to {list(local.shape)}")
        else:
            region = piece.kind.direct(piece.local, piece.dtype, True) if piece.dtype == entry["dtype"] else None
            wanted.append(_Wanted(item, entry, local, region))

    def _load(self, batch: list[_Wanted], planner: LoadPlanner) -> None:
        self._found.native.load([wanted.target() for wanted in batch], None, False, None)
        for wanted in batch:
            wanted.put()
            planner.commit_tensor(wanted.item, wanted.local)


@dataclass
class _Wanted:
    """A box that goes to a tensor."""

    item: ReadItem
    entry: dict[str, Any]
    local: torch.Tensor
    #: The memory of `local`, if it can be filled as it is.
    region: Any
    #: What is filled instead.
    beside: torch.Tensor | None = None

    def target(self) -> tuple:
        """As the compiled half takes it."""
        dtype, shape = self.entry["dtype"], self.entry["shape"]
        starts = self.item.storage_index.offset or (0,) * len(shape)
        offset = [start + inside for start, inside in zip(starts, self.item.storage_offsets)]
        elements, extent = _torch_tensors.elements, tuple(self.item.lengths)
        region = self.region
        if region is None:
            self.beside = _torch_tensors.empty(dtype, elements(dtype, extent))
            region = _torch_tensors.KIND.direct(self.beside, dtype, True)
        return self.entry["name"], dtype, shape, elements(dtype, offset), elements(dtype, extent), region

    def put(self) -> None:
        """Copies what was filled instead."""
        if self.beside is not None:
            _torch_tensors.KIND.assign(self.local, self.beside)
            self.beside = None

    @property
    def bytes_beside(self) -> int:
        return 0 if self.region is not None else self.local.numel() * self.local.element_size()


def _batches(wanted: list[_Wanted]) -> list[list[_Wanted]]:
    """One, unless what is loaded beside would take too much memory."""
    batches, size = [[]], 0
    for one in wanted:
        if size + one.bytes_beside > _BESIDE_BYTES and batches[-1]:
            batches.append([])
            size = 0
        batches[-1].append(one)
        size += one.bytes_beside
    return [batch for batch in batches if batch]


def _described(entry: dict[str, Any]) -> TensorStorageMetadata | BytesStorageMetadata | None:
    """A tensor is one chunk, however it was saved: any box of it can be read. None for a type that this torch lacks."""
    if entry["kind"] != "tensor":
        return BytesStorageMetadata()
    known = _torch_tensors.of_stored(entry["dtype"], tuple(entry["shape"]))
    if known is None:
        return None
    dtype, size = known
    whole = ChunkStorageMetadata(offsets=torch.Size([0] * len(size)), sizes=size)
    return TensorStorageMetadata(TensorProperties(dtype=dtype), size, [whole])


class _Unreadable(Metadata):
    """Metadata that could not be read: says so whenever it is asked."""

    def __init__(self, error: Exception):
        self._error = error

    @property
    def state_dict_metadata(self) -> Any:
        raise self._error

    @property
    def planner_data(self) -> Any:
        raise self._error
