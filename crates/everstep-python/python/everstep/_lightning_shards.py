"""The state of models that Lightning's strategies shard: every rank has a part of it, and saves and loads that through
torch.distributed.checkpoint (DCP)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel

from . import _arrays, _nested, _tensors, _values
from ._everstep import encode
from ._repository import Checkpoint
from ._saver import Saver
from ._team import team
from ._writer import Writer
from .errors import SchemaMismatch
from .torch import EverstepReader, EverstepWriter

#: What Lightning calls the parts of a checkpoint of which every rank has a part.
MODEL, OPTIMIZERS = "state_dict", "optimizer_states"
HELD_IN_PARTS = (MODEL, OPTIMIZERS)


class ShardSaver(Saver):
    """As `Saver`, but all ranks save together: each of them makes the same calls."""

    _group: Any = None
    #: The save on its way.
    _future: Any = None

    def find(self, choose: Callable[[], int]) -> Checkpoint:
        """The checkpoint of the ordinal that `choose` gives on rank 0, or its error, on every rank."""
        ranks = team(self.run.name, self._options.get("deadline", 600.0), None)
        return self.run.checkpoint(ranks.together(choose, "looking for the checkpoint to load"))

    def load(self, checkpoint: Checkpoint, into: dict[str, Any]) -> None:
        """Fills tensors by name."""
        with _own_errors():
            dcp.load(into, storage_reader=EverstepReader(checkpoint), process_group=self._ranks())

    def close(self) -> None:
        try:
            self._settle()
        finally:
            super().close()

    def _open(self) -> Writer:
        return self.run.writer(**self._options)

    def _carry_out(self, writer: Writer, step: int, state: dict[str, Any], metadata: Mapping[str, Any]) -> None:
        self._settle()
        one = EverstepWriter(writer, step, metadata)
        with _own_errors():
            if self._background:
                self._future = dcp.async_save(state, storage_writer=one, process_group=self._ranks())
            else:
                dcp.save(state, storage_writer=one, process_group=self._ranks())

    def _settle(self) -> None:
        """Waits for the save on its way. Raises what it failed with."""
        future, self._future = self._future, None
        if future is not None:
            with _own_errors():
                future.result()

    def _ranks(self) -> Any:
        """A group of its own: what a save in the background says to other ranks must not get in between what the training
        says to them. Of gloo, which needs no memory of a device."""
        if self._group is None:
            self._group = dist.new_group(backend="gloo")
        return self._group


@contextmanager
def _own_errors() -> Iterator[None]:
    """Raises what happened on the first rank that failed, in place of torch's exception, which is no `Exception`."""
    try:
        yield
    except dcp.CheckpointException as error:
        failures = error.failures
        cause = failures[min(failures)][0]
        cause.add_note(f"on rank {min(failures)}; of {dist.get_world_size()} ranks, {len(failures)} failed")
        raise cause from error


def handed_in(state: _nested.Split, skeleton: str) -> dict[str, Any]:
    """What this rank gives to DCP of a checkpoint that was taken apart: of what is no part of the model, all ranks have
    some, and that of the first one counts. It keeps the skeleton as well, under that name."""
    others = _nested.libraries([mark for key, mark in _nested.items(state.skeleton).items() if key not in HELD_IN_PARTS])
    if dist.get_rank() != 0:
        return {name: tensor for name, tensor in state.tensors.items() if name not in others}
    tensors = {name: _of_torch(name, tensor) for name, tensor in state.tensors.items()}
    return {**tensors, skeleton: encode(state.skeleton)}


def _of_torch(name: str, value: Any) -> torch.Tensor:
    """DCP knows no other tensors."""
    if isinstance(value, torch.Tensor):
        return value
    (piece,) = _tensors.pieces(name, value)
    return _arrays.from_bytes(piece.dtype, piece.extent, bytearray(_values._bytes_of(piece)), "torch")


def model_state(model: torch.nn.Module) -> dict[str, Any]:
    """By name, this rank's part of it."""
    return dict(get_model_state_dict(model, options=_options(model)))


def optimizer_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """By the names of parameters, this rank's part of it."""
    return dict(get_optimizer_state_dict(model, optimizer, options=_options(model)))


def _options(model: torch.nn.Module) -> StateDictOptions:
    """The older FSDP gives copies, which had better not fill the memory of a device; the newer one gives what is there."""
    return StateDictOptions(cpu_offload=bool(FullyShardedDataParallel.fsdp_modules(model)))


@dataclass(frozen=True)
class Target:
    """What is loaded into."""

    model: torch.nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    #: Whether the model must have just the names that are stored.
    strict: bool = True

    def load(self, saver: ShardSaver, checkpoint: Checkpoint, saved: Mapping[str, Any], allow_pickle: bool) -> None:
        """`saved` is what stands in the skeleton of `checkpoint`, by key. Raises SchemaMismatch, before anything changed."""
        own = {MODEL: model_state(self.model)}
        if self.optimizers and OPTIMIZERS in saved:
            own[OPTIMIZERS] = [optimizer_state(self.model, optimizer) for optimizer in self.optimizers]
        tensors = _nested.Split(own, allow_pickle, parts=True).tensors
        stored = _nested.libraries([saved.get(key) for key in own])
        self._compare(checkpoint, tensors.keys(), stored.keys())
        saver.load(checkpoint, {name: tensor for name, tensor in tensors.items() if name in stored})
        weights = {key: mark for key, mark in _nested.items(saved.get(MODEL, {})).items() if key in own[MODEL]}
        found = {key: _nested.joined(mark, tensors, allow_pickle) for key, mark in weights.items()}
        set_model_state_dict(self.model, found, options=StateDictOptions(strict=self.strict))
        for optimizer, mark in zip(self.optimizers, saved[OPTIMIZERS] if OPTIMIZERS in own else ()):
            state = _nested.joined(mark, tensors, allow_pickle)
            set_optimizer_state_dict(self.model, optimizer, optim_state_dict=state, options=_options(self.model))

    def _compare(self, checkpoint: Checkpoint, wanted: Sequence[str], stored: Sequence[str]) -> None:
        def matters(name: str) -> bool:
            return self.strict or not name.startswith(f"{MODEL}.")

        missing = tuple(name for name in wanted if name not in stored and matters(name))
        unexpected = tuple(name for name in stored if name not in wanted and matters(name))
        if missing or unexpected:
            raise SchemaMismatch(
                f"{checkpoint} does not fit: not stored: {_some(missing)}; not in the model or its optimizers: "
                f"{_some(unexpected)}. strict_loading=False of the module leaves such weights as they are; optimizers go on "
                "only from what a strategy with ShardedCheckpoints saved",
                missing,
                unexpected,
            )


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return (", ".join(names[:10]) or "none") + more
