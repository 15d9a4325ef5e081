"""Saves that others carry out under a writer's session: those of torch.distributed.checkpoint, one at a time."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

from .errors import TryAgain

#: Shortest and longest pause between two looks, in seconds.
_PAUSES = (0.001, 0.05)


class Visit:
    """One such save. Nobody tells when it is over: it is once the thread that carries it out has ended, or once nobody
    holds the copy of the state that was made for it."""

    def __init__(self, step: int):
        self.step = step
        self._carrier: threading.Thread | None = None
        self._staged: weakref.ref[Any] | None = None
        self._ended = False

    def end(self) -> None:
        """It did not even begin."""
        self._ended = True

    def is_carried_by(self, thread: threading.Thread) -> None:
        self._carrier = thread

    def stands_on(self, staged: Any) -> None:
        """`staged` is what the save is given, and is given to nobody else."""
        self._staged = weakref.ref(staged)

    @property
    def over(self) -> bool:
        if self._ended or (self._staged is not None and self._staged() is None):
            return True
        # Whoever asks from the very thread that carried it out has come back from there.
        here = threading.current_thread()
        return self._carrier is not None and (self._carrier is here or not self._carrier.is_alive())


class Visits:
    """Those of one writer."""

    def __init__(self) -> None:
        self._last: Visit | None = None
        #: Whether another process has saved under this session: what is newest, only the store can tell then.
        self.elsewhere = False

    def begin(self, step: int) -> Visit:
        """A new one; the one before is over."""
        self._last = Visit(step)
        return self._last

    def left(self, deadline: float) -> list[int]:
        """Waits for the one on its way; its step, if it is not over within `deadline` seconds."""
        until, pause = time.monotonic() + deadline, _PAUSES[0]
        while self._last is not None and not self._last.over:
            if time.monotonic() > until:
                return [self._last.step]
            time.sleep(pause)
            pause = min(pause * 1.5, _PAUSES[1])
        return []

    def wait(self, deadline: float) -> None:
        """Raises TryAgain when the one on its way is not over within `deadline` seconds."""
        for step in self.left(deadline):
            raise TryAgain(
                f"the save of step {step} by torch.distributed.checkpoint has not ended within {deadline:.0f} s: wait for "
                "the future that async_save returned"
            )
