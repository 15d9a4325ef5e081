"""What the end of the process owes: saves on their way may end, within a limit; what is not committed is said, and shows
in the exit status."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Any

_open: weakref.WeakSet[Any] = weakref.WeakSet()


def register(writer: Any) -> None:
    _open.add(writer)


def forget(writer: Any) -> None:
    _open.discard(writer)


class _Unfinished:
    """The standard error, which the interpreter fails to flush at its very end: then its exit status is 120, whatever it
    would have been. There is no other way to that which lets everybody else's handlers run."""

    closed = False

    def __init__(self, stream: Any):
        self._stream = stream

    def flush(self) -> None:
        self._stream.flush()
        if sys._getframe().f_back is None:  # the interpreter itself, not a handler of Python
            raise OSError("a save was not committed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _at_exit() -> None:
    finished = True
    for writer in list(_open):
        if writer._pid != os.getpid():
            continue
        done = writer.finish(writer.options.exit_limit)
        finished &= bool(done)
        for step in done.pending:
            _say(writer, step, f"it was still on its way after {writer.options.exit_limit:.0f} s")
        for step, error in done.failed.items():
            _say(writer, step, str(error))
        if not done.pending:
            _close(writer)
    if not finished and sys.stderr is not None:
        sys.stderr = _Unfinished(sys.stderr)


def _close(writer: Any) -> None:
    # The session would fall silent by itself; nothing that goes wrong now is worth hiding how the program ended.
    try:
        writer._end()
    except Exception as error:
        print(f"everstep: run {writer.run.name}: its session could not be closed: {error}", file=sys.stderr)


def _say(writer: Any, step: int, why: str) -> None:
    print(f"everstep: run {writer.run.name}: step {step} not committed: {why}", file=sys.stderr, flush=True)


atexit.register(_at_exit)
