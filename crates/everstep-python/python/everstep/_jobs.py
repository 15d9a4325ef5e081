"""Saves on their way: what the trainer holds of one, and the thread that carries them out one after the other."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from . import _everstep
from .errors import EverstepError

log = logging.getLogger("everstep")


@dataclass
class Stats:
    """What a save took, on this rank: seconds and bytes."""

    #: Seconds that the trainer was blocked by the call.
    blocked: float = 0.0
    #: Seconds of copying the state into host buffers.
    staging: float = 0.0
    #: Seconds of each phase of the work in the background, by name: hash, encode, upload, ranks, commit, total.
    seconds: dict[str, float] = field(default_factory=dict)
    raw_bytes: int = 0
    #: Raw bytes of chunks that no parent had (leader: of all ranks).
    new_raw_bytes: int = 0
    #: Bytes of packs stored.
    stored_bytes: int = 0
    requests: int = 0
    retries: int = 0
    #: Slowest ranks first: {"rank", "late": seconds after the first, "seconds": {phases}} (leader only).
    slowest: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Saved:
    """A committed save."""

    step: int
    ordinal: int
    stats: Stats


class Job:
    """One save. `staged` is done when the state may change again, `committed` when the checkpoint is durable: it holds a
    `Saved`, or the error. A save that the overlap rule skipped has `skipped` and ends with None."""

    def __init__(self, step: int, background: bool = False):
        self.step = step
        self.staged: Future[None] = Future()
        self.committed: Future[Saved | None] = Future()
        self.skipped = False
        self.stats = Stats()
        self.progress = _everstep.Progress(background)

    @property
    def outcome(self) -> str:
        """`running`, `committed`, `skipped` or `failed`."""
        if self.skipped:
            return "skipped"
        if not self.committed.done():
            return "running"
        return "failed" if self.committed.exception() else "committed"

    def result(self, timeout: float | None = None) -> Saved | None:
        """Waits for the commit."""
        return self.committed.result(timeout)

    def __repr__(self) -> str:
        return f"everstep.Job(step {self.step}, {self.outcome})"


@dataclass(frozen=True)
class Event:
    """Something that happened to a save: `staged`, `progress`, `committed`, `failed`, `skipped`; or after it, on rank 0:
    `expired`, `retention_failed`. Or how far a load is: `loading`."""

    kind: str
    step: int
    #: Raw bytes done, and to be done (of a load: as far as is known yet).
    done: int = 0
    planned: int = 0
    stats: Stats | None = None
    error: BaseException | None = None
    #: Ordinals of the checkpoints that have expired.
    expired: tuple[int, ...] = ()


class Announcer:
    """Tells `on_event` and the log what happens. Its own failures never reach a save."""

    def __init__(self, on_event: Callable[[Event], None] | None, every: float):
        self.on_event, self.every = on_event, every
        #: One event at a time, though several threads have some to tell.
        self._turn = threading.RLock()

    def tell(self, event: Event) -> None:
        if self.on_event is None:
            return
        try:
            with self._turn:
                self.on_event(event)
        except Exception:
            log.warning("on_event failed for %s of step %d", event.kind, event.step, exc_info=True)

    def watch(self, job: Job) -> None:
        """Reports progress until `job` ends."""
        self._beat("progress", job.step, job.progress, job.committed)

    @contextmanager
    def loading(self, step: int) -> Iterator[_everstep.Progress]:
        """Reports the progress that is given while the block lasts: that of a load."""
        progress, ended = _everstep.Progress(), Future[None]()
        self._beat("loading", step, progress, ended)
        try:
            yield progress
        finally:
            ended.set_result(None)

    def _beat(self, kind: str, step: int, progress: _everstep.Progress, ended: Future[Any]) -> None:
        if self.on_event is None:
            return

        def beat() -> None:
            while not _waited(ended, self.every):
                with self._turn:  # of what has ended, nothing is told but how
                    if not ended.done():
                        self.tell(Event(kind, step, progress.done, progress.planned))

        threading.Thread(target=beat, name="everstep-progress", daemon=True).start()


def _waited(future: Future, seconds: float) -> bool:
    try:
        future.exception(seconds)
    except TimeoutError:
        return False
    return True


class Worker:
    """One thread that carries out work in order, as a daemon: what it owes at the end of the process is waited for by
    `_exit`. It holds the GIL only between native calls."""

    def __init__(self, name: str):
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Callable[[], None]) -> None:
        self._queue.put(work)

    def stop(self, limit: float) -> None:
        """Ends the thread after what is queued, and waits for that for at most `limit` seconds."""
        self._queue.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(limit)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            del work


def settle(future: Future, work: Callable[[], Any]) -> None:
    """Puts what `work` gives, or its error, whatever it is, into `future`."""
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def wait_all(jobs: list[Job], deadline: float | None) -> list[Job]:
    """Those of `jobs` that have not ended within `deadline` seconds."""
    until = None if deadline is None else time.monotonic() + deadline
    return [job for job in jobs if not _waited(job.committed, _left(until))]


def _left(until: float | None) -> float | None:
    return None if until is None else max(until - time.monotonic(), 0.0)


def is_fatal(error: BaseException) -> bool:
    """Whether nothing will be saved any more, so that going on would be pointless."""
    return getattr(error, "kind", "") == "conflict" or not isinstance(error, EverstepError)
