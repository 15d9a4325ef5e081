"""Saving through torch.distributed.checkpoint (DCP): its planner says who writes what, everstep stores and commits it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future as Staged
from typing import Any

import torch
from torch.distributed.checkpoint import StorageWriter
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from . import _staging, _torch_tensors
from ._dcp_seat import AwaySeat, HomeSeat, Seat, Share, announced, checked_place
from ._dcp_staging import StagedState, TorchBuffer, plain
from ._dcp_values import kept, kept_planner_data
from ._jobs import settle
from ._quiet import quiet
from ._stored import PLANNER_DATA
from ._writer import Writer, _described, _step
from .errors import InvalidArgument

#: Stands for no item of the state: brings a rank's report to the leader.
_REPORT = MetadataIndex("everstep:report")


class EverstepWriter(StorageWriter):
    """The save of one step by `dcp.save` or `dcp.async_save`, as `storage_writer=`.

    writer    that of the run: `run.writer()`, which every rank has opened.
    step      the step; a checkpoint of it is committed when all ranks have written.
    metadata  what JSON can say, kept with the checkpoint; that of rank 0 counts.
    staging   "blocking": `async_save` returns once the state is copied; "overlap": at once, with futures (torch 2.9 on).

    A `checkpoint_id` is not needed; if one is given, it says the same: `RUN@step=STEP`."""

    def __init__(
        self,
        writer: Writer,
        step: int,
        metadata: Mapping[str, Any] | None = None,
        staging: str = "blocking",
    ):
        if staging not in ("blocking", "overlap"):
            raise InvalidArgument(f'staging is "blocking" or "overlap", not {staging!r}')
        self.step, self._described, self._staging = _step(step), _described(metadata), staging
        self._run, self._given = writer.run.name, None
        self._sent: Any = None
        self._seat: Seat | None = HomeSeat(writer)
        #: Staged, and to be carried out next.
        self._visit: Any = None
        self._background = False

    @property
    def checkpoint_id(self) -> str:
        return f"{self._run}@step={self.step}"

    # As a StorageWriter, in the order of the calls.

    def reset(self, checkpoint_id: Any = None) -> None:
        """What does not fit is said by all ranks together, in `set_up_storage_writer`."""
        self._given = checkpoint_id

    def storage_meta(self) -> StorageMeta:
        """The first call of a save, in the thread that carries it out."""
        if self._visit is not None:
            self._visit.is_carried_by(threading.current_thread())
        return StorageMeta(checkpoint_id=self.checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if self._given is not None and str(self._given) != self.checkpoint_id:
            raise InvalidArgument(f"the checkpoint_id is {str(self._given)!r}, but the writer saves {self.checkpoint_id}")
        if self._seat is None:
            self._seat = AwaySeat(self._sent)
        checked_place(self._seat, is_coordinator, kwargs)
        if self._visit is None:
            self._seat.enter(self.step).is_carried_by(threading.current_thread())
        self._background, self._visit = self._visit is not None, None

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Nothing of a step may be in a plan: it is used again for others."""
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        seat = self._seat
        try:
            share, results = _Resolving(planner, seat.team.leads).share(plan, Share(self.step, background=self._background))
        except BaseException as error:
            seat.give_up(self.step, error)
            raise
        report = seat.hand_in(share)
        future: Future[list[WriteResult]] = Future()
        future.set_result([WriteResult(_REPORT, 0, report), *results])
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        try:
            reports = _checked(metadata, results, self._seat.team.world_size)
        except InvalidArgument as error:
            self._seat.give_up(self.step, error)
            raise
        ordinal = self._seat.commit(self.step, self._described, reports)
        metadata.storage_data = None
        metadata.storage_meta = StorageMeta(checkpoint_id=f"{self._run}@ordinal={ordinal}")

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        run, at, step = str(checkpoint_id).partition("@step=")
        return bool(run and at and step.isdecimal())

    # As an AsyncStager.

    _synchronize_after_execute = False

    @property
    def should_synchronize_after_execute(self) -> bool:
        return False

    def stage(self, state_dict: Mapping[str, Any]) -> StagedState | Staged[StagedState]:
        """A copy of the state, in memory that is kept for the next save. Waits for the save before, which may still read it.
        It is the only one, but for the first that goes to torch's process: see `_dcp_staging`."""
        seat = self._home()
        visit = seat.enter(self.step)
        try:
            staged = self._staged(seat.writer, seat.writer._torch_buffer(TorchBuffer).stage(state_dict))
        except BaseException:
            visit.end()
            raise
        visit.stands_on(staged)
        self._visit = visit
        return staged

    def _staged(self, writer: Writer, copy: Callable[[], StagedState]) -> StagedState | Staged[StagedState]:
        def carry_out() -> StagedState:
            state = copy()
            announced(writer, self.step)
            return state

        if self._staging == "blocking":
            return carry_out()
        future: Staged[StagedState] = Staged()
        writer._stager.start(lambda: settle(future, carry_out))
        return future

    def synchronize_staging(self) -> None:
        """There is nothing to wait for."""

    def close(self) -> None:
        """The memory is the writer's, which goes on."""

    # On its way to torch's checkpointing process, in which nothing is opened anew but the repository.

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: vars(self)[name] for name in ("step", "_described", "_staging", "_run", "_given", "_background")}
        sent = self._sent
        if self._seat is not None:
            seat = self._home()
            sent = seat.away()
            seat.is_left(self._visit or seat.enter(self.step))
            self._visit = None
        return {**kept, "_sent": sent, "_seat": None, "_visit": None}

    def _home(self) -> HomeSeat:
        if not isinstance(self._seat, HomeSeat):
            raise InvalidArgument("a writer that was sent to another process saves there; it is staged where it was made")
        return self._seat


class _Resolving:
    """Gets what one rank writes from its planner. Torch's planners let any one rank write what the whole job has."""

    def __init__(self, planner: SavePlanner, leads: bool):
        self._planner, self._leads = planner, leads

    def share(self, plan: SavePlan, into: Share) -> tuple[Share, list[WriteResult]]:
        with quiet():
            results = [WriteResult(item.index, self._add(item, into), None) for item in plan.items]
        if self._leads:
            into.objects.append((PLANNER_DATA, None, kept_planner_data(self._planner)))
        return into, results

    def _add(self, item: WriteItem, into: Share) -> int:
        """Bytes of it."""
        found: Any = self._planner.resolve_data(item)
        if item.type == WriteItemType.BYTE_IO:
            data = found.getvalue()
            into.objects.append((item.index.fqn, "here", kept(data)))
            return len(data)
        into.shards.append(_shard(item, found))
        return found.numel() * found.element_size()


def _shard(item: WriteItem, found: torch.Tensor) -> tuple:
    """What is saved of a tensor. Only where it belongs is taken from the item, which may be of an earlier save; what it is,
    the tensor itself says."""
    name, data = item.index.fqn, item.tensor_data
    piece = _torch_tensors.own_memory(name, plain(found.detach()))
    if tuple(found.shape) != tuple(data.chunk.sizes):
        raise InvalidArgument(f"{name}: planned as {list(data.chunk.sizes)}, the tensor has {list(found.shape)}")
    shape, offset = _torch_tensors.elements(piece.dtype, data.size), _torch_tensors.elements(piece.dtype, data.chunk.offsets)
    piece.shape, piece.replicas = shape, None
    piece.offset = tuple(map(min, offset, shape))  # an empty box has no place of its own
    region = piece.kind.direct(piece.local, piece.dtype, False)
    if region is None:
        region = piece.kind.direct(piece.kind.compact(piece.local), piece.dtype, False)
    return _staging.shard(name, None, piece, region)


def _checked(metadata: Metadata, results: list[list[WriteResult]], world_size: int) -> list[tuple[str, bytes]]:
    """The reports of all ranks, after each item of the plan was counted: what nobody has written is not committed."""
    if len(results) != world_size:
        raise InvalidArgument(f"{world_size} ranks save this run together, but torch gathered the results of {len(results)}")
    written: dict[str, Counter] = {}
    reports: list[tuple[str, bytes]] = []
    for result in (result for part in results for result in part):
        if result.index == _REPORT:
            reports += result.storage_data
        else:
            written.setdefault(result.index.fqn, Counter())[_place(result.index.offset)] += 1
    missing, twice = [], []
    for name, planned in metadata.state_dict_metadata.items():
        lacks, has = _compared(planned, written.pop(name, Counter()))
        missing += [f"{name} at {list(place)}" if place else name for place in lacks]
        twice += [f"{name} at {list(place)}" if place else name for place in has]
    twice += written
    if missing or twice:
        raise InvalidArgument("; ".join(_complaints(missing, twice)) + ": nothing is committed")
    return reports


def _place(offset: Iterable[int] | None) -> tuple[int, ...]:
    return tuple(offset or ())


def _compared(planned: Any, written: Counter) -> tuple[list[tuple], list[tuple]]:
    """Places that nobody wrote, and places written more often than planned."""
    places = [()] if isinstance(planned, BytesStorageMetadata) else [_place(chunk.offsets) for chunk in planned.chunks]
    if len(places) == 1 and written.total() == 1:
        return [], []  # some planners name no offset for what is in one piece
    wanted = Counter(places)
    return list((wanted - written).elements()), list((written - wanted).elements())


def _complaints(missing: list[str], twice: list[str]) -> Iterable[str]:
    for what, names in (("planned, but written by no rank", missing), ("written, but not planned so", twice)):
        if names:
            more = f" and {len(names) - 10} more" if len(names) > 10 else ""
            yield f"{what}: {', '.join(names[:10])}{more}"
