"""Lightning's checkpoints in a run of Everstep.

    import everstep
    from everstep.lightning import EverstepCheckpointIO

    run = everstep.Repository("s3://bucket/checkpoints", create=True).run("gpt")
    io = EverstepCheckpointIO(run, background=True)
    trainer = lightning.Trainer(plugins=[io], callbacks=[ModelCheckpoint(every_n_train_steps=100)])
    trainer.fit(model, ckpt_path=io.latest())

It works with the package `lightning` and with `pytorch-lightning`, whichever the program imports. Strategies that shard the
model (FSDP, ModelParallel) do not ask a CheckpointIO by themselves; with `ShardedCheckpoints` they do:

    class Strategy(ShardedCheckpoints, ModelParallelStrategy): ...

    trainer = lightning.Trainer(strategy=Strategy(), plugins=[io])
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from . import _arrays, _nested
from ._everstep import decode
from ._repository import Checkpoint, Run
from ._saver import Saver, log
from ._values import Plain
from .errors import Conflict, Corrupt, EverstepError, InvalidArgument, NotFound, Unusable


def _base() -> Any:
    """CheckpointIO of the package that the program uses: two classes that know nothing of each other."""
    if "lightning" not in sys.modules and ("pytorch_lightning" in sys.modules or "lightning_fabric" in sys.modules):
        from lightning_fabric.plugins import CheckpointIO
    else:
        from lightning.fabric.plugins import CheckpointIO
    return CheckpointIO


#: What a checkpoint calls the plain values among its state, and where its tensors belong.
_SKELETON = "lightning:skeleton"


class EverstepCheckpointIO(_base()):
    """Keeps Lightning's checkpoints in `run`. What Lightning calls a path is kept with the checkpoint and found by it again;
    nothing is written there.

    background    saves copy the state and return; what one fails with is raised by the next, or by `teardown`. That is
                  cheaper than `AsyncCheckpointIO` around this plug-in, which works as well.
    allow_pickle  values that are not plain are pickled when saved and unpickled when loaded; otherwise they are refused.

    The other options are those of `everstep.Run.writer`."""

    def __init__(self, run: Run, *, background: bool = False, allow_pickle: bool = False, **options: Any):
        super().__init__()
        self.run, self._allow_pickle = run, allow_pickle
        self._saver, self._made = Saver(run, background, options), (run, background, options)
        #: The other saver, of what all ranks save together.
        self._shards: Any = None
        #: By ordinal, the path that a checkpoint was saved as; None if Lightning did not save it.
        self._paths: dict[int, str | None] = {}
        #: Ordinals of checkpoints that Lightning has removed and that could not go yet.
        self._unwanted: set[int] = set()
        self._turn = threading.Lock()

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Saves as the next checkpoint of the run, of the step that the state says."""
        _refuse(storage_options)
        parts = _nested.Split(checkpoint, self._allow_pickle)
        state = {**parts.tensors, _SKELETON: Plain(parts.skeleton)}
        self._saver.save(_step(checkpoint), state, _metadata(checkpoint, path))
        self._expire(set())

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """The state that was saved as `path`: of the newest checkpoint of that path, or else of that file name. What ranks saved
        in parts is put together.

        map_location  as for torch.load; None leaves tensors in host memory.
        weights_only  True: nothing is unpickled, whatever `allow_pickle` says.

        Raises NotFound, Corrupt, Unreachable."""
        found = self._find(path)
        skeleton = _skeleton(found)
        tensors = _read(found, _nested.libraries(skeleton))
        if map_location is not None:
            tensors = {name: _moved(tensor, map_location) for name, tensor in tensors.items()}
        return _nested.joined(skeleton, tensors, self._allow_pickle and weights_only is not True)

    def remove_checkpoint(self, path: Any) -> None:
        """Expires what was saved as `path`; its data goes with the next garbage collection. The newest checkpoint of a run is
        never expired: it goes once a newer one is committed. What is pinned stays, and what is still being saved."""
        wanted = _absolute(path)
        found = {ordinal for ordinal in self._ordinals() if self._path(ordinal) == wanted}
        if not found:
            log.info("run %s: nothing of %s is committed, so nothing is removed", self.run.name, wanted)
        self._expire(found)

    def teardown(self) -> None:
        """Waits for saves on their way and ends the session. Raises what the last of them failed with."""
        self._saver.close()
        if self._shards is not None:
            self._shards.close()
        self._expire(set())

    def latest(self) -> str | None:
        """The path of the newest checkpoint, for `ckpt_path`; None if there is none. `ckpt_path="last"` looks for files, and
        finds none.

        Raises Unreachable, PermissionDenied: that the store does not answer is not taken for "there is nothing"."""
        return next((path for ordinal in self._ordinals() if (path := self._path(ordinal)) is not None), None)

    def checkpoint(self, path: Any) -> Checkpoint:
        """What `load_checkpoint` would load. Raises NotFound."""
        return self._find(path)

    # For `ShardedCheckpoints`: every rank calls these.

    def _together(self) -> Any:
        """The saver of all ranks."""
        if self._shards is None:
            from ._lightning_shards import ShardSaver

            self._shards = ShardSaver(*self._made)
        return self._shards

    def _save_shards(self, checkpoint: dict[str, Any], path: Any, storage_options: Any) -> None:
        from ._lightning_shards import handed_in

        _refuse(storage_options)
        parts = _nested.Split(checkpoint, self._allow_pickle, parts=True)
        self._together().save(_step(checkpoint), handed_in(parts, _SKELETON), _metadata(checkpoint, path))
        self._expire(set())

    def _load_shards(self, path: Any, target: Any, weights_only: bool | None) -> dict[str, Any]:
        """Fills `target`; the rest of the state is returned."""
        from ._lightning_shards import HELD_IN_PARTS

        saver, allow_pickle = self._together(), self._allow_pickle and weights_only is not True
        found = saver.find(lambda: self._find(path).ordinal)
        saved = dict(_nested.items(_skeleton(found)))
        target.load(saver, found, saved, allow_pickle)
        rest = {key: mark for key, mark in saved.items() if key not in HELD_IN_PARTS}
        tensors = _read(found, _nested.libraries(list(rest.values())))
        return {key: _nested.joined(mark, tensors, allow_pickle) for key, mark in rest.items()}

    # What there is.

    def _ordinals(self) -> list[int]:
        """Of the checkpoints that count, newest first."""
        try:
            return [ordinal for ordinal, _ in reversed(self.run.checkpoints())]
        except NotFound:  # not even the run
            return []

    def _path(self, ordinal: int) -> str | None:
        if ordinal not in self._paths:
            try:
                metadata = self.run.checkpoint(ordinal).metadata
            except Unusable:  # expired meanwhile, or damaged
                return None
            kept = metadata.get("lightning")
            self._paths[ordinal] = kept.get("path") if isinstance(kept, dict) else None
        return self._paths[ordinal]

    def _find(self, path: Any) -> Checkpoint:
        wanted, alike = _absolute(path), None
        for ordinal in self._ordinals():
            kept = self._path(ordinal)
            if kept == wanted:
                return self.run.checkpoint(ordinal)
            if alike is None and kept is not None and os.path.basename(kept) == os.path.basename(wanted):
                alike = ordinal
        if alike is None:
            raise NotFound(f"run {self.run.name} has no checkpoint that was saved as {wanted}, nor one of that file name")
        return self.run.checkpoint(alike)

    def _expire(self, more: set[int]) -> None:
        """Expires what is not wanted, as far as it may go."""
        with self._turn:
            self._unwanted |= more
            if not self._unwanted or not self._spared():
                return
            for ordinal in sorted(self._unwanted):
                try:
                    self.run.expire(ordinal, "removed by Lightning")
                except Conflict:
                    log.info("run %s: ordinal %d is the newest, and stays until a newer one is there", self.run.name, ordinal)
                    continue
                except (NotFound, Unusable):  # somebody else was faster
                    pass
                except EverstepError as error:  # no reason to end a training; the next time may do
                    log.warning("run %s: ordinal %d was not removed: %s", self.run.name, ordinal, error)
                    continue
                self._unwanted.discard(ordinal)

    def _spared(self) -> bool:
        """Whether it is known what is pinned; that is no longer unwanted."""
        try:
            pinned = {pin.ordinal for pin in self.run.repository.pins() if pin.run == self.run.name}
        except EverstepError as error:
            log.warning("run %s: nothing was removed, for it is not known what is pinned: %s", self.run.name, error)
            return False
        for ordinal in sorted(self._unwanted & pinned):
            log.info("run %s: ordinal %d is pinned, and stays", self.run.name, ordinal)
        self._unwanted -= pinned
        return True


class ShardedCheckpoints:
    """Goes before `FSDPStrategy` or `ModelParallelStrategy` of Lightning's Trainer:

        class Strategy(ShardedCheckpoints, ModelParallelStrategy): ...

    Every rank saves its part through `everstep.torch`, into the run of the `EverstepCheckpointIO` that the Trainer has among
    its plugins, and loads its part, on any number of ranks. Whether these strategies would save whole states
    (`state_dict_type`, `save_distributed_checkpoint`) does not matter then."""

    # What the strategy has.
    model: Any
    lightning_module: Any

    # As a strategy.

    def setup(self, trainer: Any) -> None:
        self._own_io()
        super().setup(trainer)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        from ._lightning_shards import model_state

        return model_state(self.model)

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        from ._lightning_shards import optimizer_state

        return optimizer_state(self.model, getattr(optimizer, "_optimizer", optimizer))

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        self._own_io()._save_shards(checkpoint, filepath, storage_options)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        from ._lightning_shards import Target

        module = self.lightning_module
        optimizers = self.optimizers if module.trainer.state.fn == "fit" else ()
        target = Target(self.model, optimizers, module.strict_loading)
        return self._own_io()._load_shards(checkpoint_path, target, weights_only)

    def teardown(self) -> None:
        super().teardown()
        self.checkpoint_io.teardown()

    def _own_io(self) -> EverstepCheckpointIO:
        io = self.checkpoint_io
        if not isinstance(io, EverstepCheckpointIO):
            raise InvalidArgument(
                "a strategy with ShardedCheckpoints saves into the run of an EverstepCheckpointIO: give the Trainer "
                f"plugins=[EverstepCheckpointIO(run)], with background=True if you like, not a {type(io).__name__}"
            )
        return io


def _refuse(storage_options: Any) -> None:
    if storage_options is not None:
        raise InvalidArgument("storage_options mean nothing here: options of the store are those of Repository")


def _metadata(checkpoint: Mapping[str, Any], path: Any) -> dict[str, Any]:
    return {**_scores(checkpoint), "lightning": {"path": _absolute(path)}}


def _skeleton(found: Checkpoint) -> Any:
    """DCP keeps it as bytes: it has no values that are containers."""
    kept = found.value(_SKELETON)
    return decode(kept) if isinstance(kept, bytes) else kept


def _absolute(path: Any) -> str:
    name = os.fspath(path)
    return name if "://" in name else os.path.abspath(name)


def _step(checkpoint: Mapping[str, Any]) -> int:
    """Of a Trainer's state; Fabric's are what the program makes of them."""
    for name in ("global_step", "step", "iteration"):
        if type(step := checkpoint.get(name)) is int and step >= 0:
            return step
    return 0


def _scores(checkpoint: Mapping[str, Any]) -> dict[str, float]:
    """What ModelCheckpoint watches, so that `RUN@min=val_loss` finds the best."""
    found = {}
    callbacks = checkpoint.get("callbacks")
    for state in callbacks.values() if isinstance(callbacks, Mapping) else ():
        if isinstance(state, Mapping) and isinstance(name := state.get("monitor"), str):
            score = state.get("current_score")
            if score is not None and math.isfinite(score := float(score)):
                found[name] = score
    return found


def _read(checkpoint: Checkpoint, libraries: Mapping[str, str]) -> dict[str, Any]:
    """The tensors of these names, each of its library."""
    entries = {entry["name"]: entry for entry in checkpoint.entries()}
    gone = [name for name in libraries if name not in entries]
    if gone:
        raise Corrupt(f"{checkpoint} says that it has the tensors {gone[:10]}, and has not")
    tensors = {name: _arrays.empty(entries[name]["dtype"], entries[name]["shape"], kind) for name, kind in libraries.items()}
    if tensors:
        checkpoint.load(tensors, strict=False)
    return tensors


def _moved(tensor: Any, location: Any) -> Any:
    """Where `map_location` says; what is saved lies in host memory."""
    if not hasattr(tensor, "untyped_storage"):
        return tensor
    if isinstance(location, Mapping):
        location = location.get("cpu", "cpu")
    if callable(location) and not isinstance(location, type(tensor.device)):
        moved = location(tensor.untyped_storage(), "cpu")
        location = "cpu" if moved is None else moved.device
    return tensor.to(location)
