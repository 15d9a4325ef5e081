"""Checkpoints of the Trainer of transformers in a run of Everstep.

    import everstep
    from everstep.transformers import EverstepCallback

    run = everstep.Repository("s3://bucket/checkpoints", create=True).run("gpt")
    keep = EverstepCallback(run)
    trainer = transformers.Trainer(model, args, callbacks=[keep], ...)
    trainer.train(resume_from_checkpoint=keep.resume(args.output_dir))

The Trainer writes `checkpoint-N` as ever; the callback takes each one in as soon as it is complete. The folder may be lost with
its machine: `resume` writes the newest one back.
"""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

from transformers.trainer_callback import TrainerCallback

from ._repository import Run
from ._saver import Saver, distributed, log
from .errors import EverstepError, InvalidArgument, NotFound, Unusable, of_kind
from .folders import materialize, state_of

__all__ = ["EverstepCallback", "materialize"]

_FOLDER = re.compile(r"checkpoint-(\d+)")
#: What the Trainer puts into a folder as long as a checkpoint on a signal is being written.
_UNFINISHED = "checkpoint-is-incomplete.txt"


class EverstepCallback(TrainerCallback):
    """Saves every `checkpoint-N` that the Trainer writes into `run`, as the checkpoint of step N: by the first process of the
    job, once all of them have written their parts. Their folder is one that all of them see.

    background  the files are copied to memory and saved while the training goes on; what a save fails with is raised by the
                next one, or at the end of the training. Otherwise the training waits, and no memory is needed.

    The other options are those of `everstep.Run.writer`."""

    def __init__(self, run: Run, *, background: bool = True, **options: Any):
        self.run = run
        self._saver = Saver(run, background, options)
        #: The newest step that was taken in, and what lay in the folder when the training began.
        self._newest = -1
        self._before: dict[Path, int] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Looks what is there already."""
        self._newest, self._before = -1, _stamps(Path(args.output_dir))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Takes in what the Trainer has just written."""
        if self._leads(state):
            self._take(Path(args.output_dir, f"checkpoint-{state.global_step}"), state)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Takes in a checkpoint that was written on a signal, of which no callback is told; waits for all that is on its way."""
        if self._leads(state):
            now = _stamps(Path(args.output_dir))
            written = [folder for folder, stamp in now.items() if self._before.get(folder) != stamp]
            last = max(written, key=_number, default=None)
            if last is not None and _number(last) > self._newest:
                self._take(last, state)
            self._saver.close()

    def _leads(self, state: Any) -> bool:
        """Whether this process saves; all others have written their files when it goes on."""
        if (job := distributed()) is not None:
            job.barrier()
        return state.is_world_process_zero

    def _take(self, folder: Path, state: Any) -> None:
        if not folder.is_dir():
            log.warning("run %s: step %d is not saved: there is no %s", self.run.name, state.global_step, folder)
            return
        self.ingest(folder, _metrics(state))
        self._newest = _number(folder)

    def ingest(self, folder: str | os.PathLike, metadata: dict[str, Any] | None = None) -> None:
        """Saves a folder `checkpoint-N` that somebody has written.

        Raises InvalidArgument when it is not complete."""
        folder = Path(folder)
        step = _complete(folder)
        described = {**(metadata or {}), "transformers": {"folder": folder.name}}
        self._saver.save(step, state_of(folder), described)

    def resume(self, output_dir: str | os.PathLike, fallback: int = 1) -> str | None:
        """Writes the newest checkpoint of the run back as `checkpoint-N` in `output_dir`, in place of what may be there, and
        returns its path for `Trainer.train(resume_from_checkpoint=...)`; None if there is none. If it is damaged, up to
        `fallback` older ones are tried. Every process of a job calls it; the first writes.

        Raises Corrupt, Unreachable; what the first process raises, all do."""
        job = distributed()
        if job is None:
            return self._resume(Path(output_dir), fallback)
        told: list[Any] = [None]
        if job.get_rank() == 0:
            try:
                told = [{"path": self._resume(Path(output_dir), fallback)}]
            except EverstepError as error:
                told = [{"kind": error.kind, "message": str(error)}]
        job.broadcast_object_list(told, src=0)
        if "path" not in told[0]:
            raise of_kind(told[0]["kind"], told[0]["message"])
        return told[0]["path"]

    def _resume(self, output_dir: Path, fallback: int) -> str | None:
        try:
            ordinals = [ordinal for ordinal, _ in reversed(self.run.checkpoints())]
        except NotFound:  # not even the run
            return None
        for tried, ordinal in enumerate(ordinals):
            try:
                checkpoint = self.run.checkpoint(ordinal)
                return str(materialize(checkpoint, output_dir / f"checkpoint-{checkpoint.step}", replace=True))
            except Unusable as error:
                if tried >= fallback:
                    raise
                log.warning("run %s: %s; trying the one before", self.run.name, error)
        return None


def _number(folder: Path) -> int:
    named = _FOLDER.fullmatch(folder.name)
    return int(named[1]) if named else -1


def _stamps(output_dir: Path) -> dict[Path, int]:
    """Folders that the Trainer has finished, and when."""
    found = {}
    for state in output_dir.glob("checkpoint-*/trainer_state.json"):
        if _FOLDER.fullmatch(state.parent.name):
            found[state.parent] = state.stat().st_mtime_ns
    return found


def _complete(folder: Path) -> int:
    """The step of a folder that the Trainer has finished. It writes `trainer_state.json` last."""
    if _number(folder) < 0:
        raise InvalidArgument(f"{folder} is not called checkpoint-N")
    if (folder / _UNFINISHED).exists():
        raise InvalidArgument(f"{folder} is being written, or was left unfinished: {_UNFINISHED} is there")
    try:
        step = json.loads((folder / "trainer_state.json").read_bytes())["global_step"]
    except FileNotFoundError:
        raise InvalidArgument(f"{folder} is not complete: trainer_state.json, which comes last, is not there") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"{folder} is not complete: trainer_state.json cannot be read: {error}") from None
    if step != _number(folder):
        raise InvalidArgument(f"{folder} is not complete: trainer_state.json is of step {step}")
    _check_indices(folder)
    return step


def _check_indices(folder: Path) -> None:
    for index in folder.glob("*.index.json"):
        try:
            named = set(json.loads(index.read_bytes())["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidArgument(f"{index} cannot be read: {error}") from None
        gone = sorted(name for name in named if not (folder / name).is_file())
        if gone:
            raise InvalidArgument(f"{folder} is not complete: {index.name} names {gone[:10]}, which are not there")


def _metrics(state: Any) -> dict[str, float]:
    """What was logged at this step, so that `RUN@min=eval_loss` finds the best."""
    found = {}
    for line in state.log_history:
        if line.get("step") == state.global_step:
            found |= {name: value for name, value in line.items() if type(value) is float and math.isfinite(value)}
    return found
