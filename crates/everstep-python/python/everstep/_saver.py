"""What plug-ins of frameworks share in which one process saves all there is: a writer that is opened when it is first needed,
and what to say when nobody asked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from ._repository import Run
from ._tensors import library
from ._writer import Writer
from .errors import InvalidArgument

log = logging.getLogger("everstep")


class Saver:
    """Saves for the whole job, whichever thread asks, one save after the other.

    background  a save copies the state and returns, and what it fails with is raised by the next one or by `close`; otherwise
                it returns when the checkpoint is committed.
    options     those of `Run.writer`."""

    def __init__(self, run: Run, background: bool, options: Mapping[str, Any]):
        if not isinstance(run, Run):
            raise InvalidArgument(f"a run is given, such as everstep.Repository(url).run(name), not {run!r}")
        if "group" in options:
            raise InvalidArgument("one process saves for its whole job here: there is no group")
        self.run, self._background, self._options = run, background, dict(options)
        self._writer: Writer | None = None
        self._turn = threading.Lock()

    def save(self, step: int, state: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        """Saves `state` as `step`."""
        with self._turn:
            if self._writer is None:
                self._writer = self._open()
            self._carry_out(self._writer, step, state, metadata)

    def _open(self) -> Writer:
        return self.run.writer(group=(0, 1, None), **self._options)

    def _carry_out(self, writer: Writer, step: int, state: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        if self._background:
            writer.save_async(step, state, metadata)
        else:
            writer.save(step, state, metadata)

    def close(self) -> None:
        """Waits for what is on its way, and ends the session; the next save opens another one."""
        with self._turn:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()


def distributed() -> Any:
    """torch.distributed, if this process is one of several that it knows."""
    torch = library("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed if torch.distributed.get_world_size() > 1 else None
