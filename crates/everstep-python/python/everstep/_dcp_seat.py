"""Under whose session a save of torch.distributed.checkpoint is made: that of a writer in this process, or that of a writer
in the process that sent the save here."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from . import _everstep
from ._jobs import Event, Job, wait_all
from ._repository import Repository
from ._team import Team, team
from ._visits import Visit
from ._writer import Writer, _fill
from .errors import InvalidArgument, SetupError

_REPORT = "report/"
#: What a report says of a share that is handed in; that of a failure says other things.
_DONE = {"blake3", "len", "seconds"}

#: Reports on their way: (key on the board, value).
Reports = list[tuple[str, bytes]]


class HandedOver:
    """The board of one save. Calls and failures go over the board of the job; reports of shares that are handed in are kept
    here: they go to the leader with the results that torch gathers anyway."""

    def __init__(self, board: Any):
        self._board, self._reports = board, {}

    def set(self, key: str, value: bytes) -> None:
        if key.startswith(_REPORT):
            self._reports[key] = bytes(value)
            if _is_done(value):
                return
        self._board.set(key, value)

    def get(self, key: str) -> bytes | None:
        return self._reports.get(key) or self._board.get(key)

    def taken(self) -> Reports:
        """What this rank has to say."""
        return list(self._reports.items())


def _is_done(value: bytes) -> bool:
    try:
        return json.loads(value).keys() <= _DONE
    except (ValueError, AttributeError):
        return False


@dataclass
class Share:
    """What one rank hands in, as the compiled half takes it."""

    step: int
    shards: list[tuple] = field(default_factory=list)
    objects: list[tuple] = field(default_factory=list)
    #: Whether a training goes on meanwhile.
    background: bool = False


class Seat(Protocol):
    """What a save asks for."""

    team: Team

    def enter(self, step: int) -> Visit: ...

    def hand_in(self, share: Share) -> Reports: ...

    def commit(self, step: int, described: str, reports: Iterable[tuple[str, bytes]]) -> int: ...

    def give_up(self, step: int, error: BaseException) -> None: ...


class _Seat:
    """What both kinds have in common: `team`, and `_native`, the compiled half's writer or member."""

    team: Team
    _native: Any
    _board: HandedOver | None = None

    def _group(self, board: Any) -> _everstep.Group | None:
        ranks = self.team
        return None if ranks.alone else _everstep.Group(ranks.rank, ranks.world_size, ranks.deadline, board)

    def _hand_in(self, share: Share, progress: Any) -> dict[str, Any]:
        self._board = None if self.team.alone else HandedOver(self.team.board)
        return self._native.hand_in(share.step, share.shards, share.objects, self._group(self._board), progress)

    def _taken(self) -> Reports:
        return self._board.taken() if self._board else []

    def _conclude(self, described: str, reports: Iterable[tuple[str, bytes]], progress: Any) -> dict[str, Any]:
        for key, value in reports:
            self._board.set(key, value)
        return self._native.commit(described, [], self._group(self._board), progress)

    def give_up(self, step: int, error: BaseException) -> None:
        """Tells the other ranks that there is nothing to wait for; best effort, since `error` is about to be raised."""
        if self.team.alone:  # the next save, or the end of the session, ends what is open
            return
        board = self._board or self.team.board
        group = _everstep.Group(self.team.rank, self.team.world_size, self.team.deadline, board)
        try:
            self._native.give_up(step, f"{type(error).__name__}: {error}", group)
        except Exception as other:
            error.add_note(f"and the other ranks were not told: {other}")


class HomeSeat(_Seat):
    """In the process that opened the writer."""

    def __init__(self, writer: Writer):
        self.writer, self.team = writer, writer._team
        self._job: Job | None = None

    @property
    def _native(self) -> Any:
        return self.writer._native

    def enter(self, step: int) -> Visit:
        """Returns once nothing else of the writer is on its way."""
        writer = self.writer
        writer._check_usable()
        writer._visits.wait(self.team.deadline)
        wait_all(writer._running(), None)
        if writer._retention is not None:  # what another process has committed counts for it
            writer._catch_up_if_possible()
        return writer._visits.begin(step)

    def hand_in(self, share: Share) -> Reports:
        """Stores this rank's share. What it has to say of it is for the leader."""
        self._job, repository = Job(share.step, share.background), self.writer.run.repository
        job, before = self._job, repository.traffic()
        self.writer._announcer.watch(job)
        try:
            report = self._hand_in(share, job.progress)
        finally:
            job.committed.set_result(None)
        _fill(job.stats, report, before, repository.traffic())
        return self._taken()

    def commit(self, step: int, described: str, reports: Iterable[tuple[str, bytes]]) -> int:
        """Commits what all ranks handed in: the ordinal of the checkpoint."""
        job = self._job or Job(step)
        before = self.writer.run.repository.traffic()
        report = self._conclude(described, reports, job.progress)
        _fill(job.stats, report, before, self.writer.run.repository.traffic())
        self.writer._visit_committed(job)
        return report["checkpoint"].ordinal

    def away(self) -> Away:
        """What another process needs to sit here."""
        repository, ranks = self.writer.run.repository, self.team
        options = tuple(sorted(repository._options.items()))
        place = (ranks.rank, ranks.world_size, ranks.deadline)
        return Away(repository._url, options, self.writer.run.name, self.writer._ticket, place)

    def is_left(self, visit: Visit) -> None:
        """The save goes to another process, by way of this thread."""
        self.writer._visits.elsewhere = True
        visit.is_carried_by(threading.current_thread())


@dataclass(frozen=True)
class Away:
    """Where a save belongs: all that is sent of a writer. Nothing of it is secret: credentials come from where each process
    takes them."""

    url: str
    options: tuple[tuple[str, Any], ...]
    run: str
    ticket: str
    #: rank, world size, seconds to wait for each other
    place: tuple[int, int, float]


class AwaySeat(_Seat):
    """In another process, such as torch's checkpointing daemon: the same session, without a fence."""

    def __init__(self, away: Away):
        rank, world_size, deadline = away.place
        self._away, self.team = away, team(away.run, deadline, None)
        if (self.team.rank, self.team.world_size) != (rank, world_size):
            raise SetupError(
                f"run {away.run} is saved by {world_size} ranks, of which this one is {rank}; the processes that save in "
                f"the background are {self.team.world_size}, and this one is {self.team.rank} of them"
            )

    @property
    def _native(self) -> Any:
        return _carried_on(self._away)

    def enter(self, step: int) -> Visit:
        """Carries the session on; later saves find it here."""
        _carried_on(self._away)
        return Visit(step)

    def hand_in(self, share: Share) -> Reports:
        self._hand_in(share, _everstep.Progress(True))
        return self._taken()

    def commit(self, step: int, described: str, reports: Iterable[tuple[str, bytes]]) -> int:
        return self._conclude(described, reports, None)["checkpoint"].ordinal


@lru_cache(maxsize=8)
def _carried_on(away: Away) -> Any:
    """The compiled half's writer or member of a session, once for this process: it knows what the last save stored."""
    native = _repository(away.url, away.options)._native
    return native.member(away.ticket) if away.place[0] else native.adopt(away.ticket)


@lru_cache(maxsize=8)
def _repository(url: str, options: tuple[tuple[str, Any], ...]) -> Repository:
    return Repository(url, **dict(options))


def checked_place(seat: Seat, is_coordinator: bool, kwargs: dict[str, Any]) -> None:
    """Whether torch and everstep mean the same ranks."""
    ranks = seat.team
    if not kwargs.get("use_collectives", True) and not ranks.alone:
        raise InvalidArgument("use_collectives=False lets each rank commit for itself; a checkpoint is committed once, for all")
    rank = kwargs.get("rank", ranks.rank)
    if (rank, is_coordinator) != (ranks.rank, ranks.leads):
        raise InvalidArgument(
            f"this is rank {ranks.rank} of the {ranks.world_size} that save run together, and rank {rank} of those that "
            "torch.distributed.checkpoint was called with: give the writer the same ranks as group=, and not no_dist=True"
        )


def announced(writer: Writer, step: int) -> None:
    """The state may change again."""
    writer._announcer.tell(Event("staged", step))
