"""The ranks of a job, and how they come to act alike: small facts on a board, looked at and never waited on together.
There are no collectives here, so none can be left hanging by a rank that died."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from . import _everstep
from ._tensors import library
from .errors import EverstepError, InvalidArgument, RankFailed, of_kind

#: Shortest and longest pause between two looks, in seconds.
_PAUSES = (0.0005, 0.05)


class Board(Protocol):
    """Where ranks leave facts for each other: looking never waits. Each key is written once, but for those by which ranks
    that open a run find each other."""

    def set(self, key: str, value: bytes) -> None: ...

    def get(self, key: str) -> bytes | None: ...


class StoreBoard:
    """A board on a torch.distributed Store."""

    def __init__(self, store: Any):
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> bytes | None:
        return bytes(self._store.get(key)) if self._store.check([key]) else None


@dataclass
class Team:
    """This rank among those that save together."""

    rank: int
    world_size: int
    board: Board | None
    #: Seconds that anybody waits for anybody else.
    deadline: float

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def alone(self) -> bool:
        return self.world_size == 1

    def native(self) -> _everstep.Group | None:
        """For the compiled half; None alone."""
        if self.alone:
            return None
        return _everstep.Group(self.rank, self.world_size, self.deadline, self.board)

    def tell(self, key: str, fact: Any) -> None:
        """Leaves a fact (JSON) for the others."""
        if not self.alone:
            self.board.set(key, json.dumps(fact).encode())

    def hear(self, key: str, who: int, doing: str) -> Any:
        """The fact that rank `who` leaves under `key`. Raises RankFailed when it is not there within the deadline."""
        found = self._await({who: key}, doing)
        return found[who]

    def hear_all(self, key: Callable[[int], str], doing: str) -> dict[int, Any]:
        """The facts of all ranks. Raises RankFailed naming those that left none within the deadline."""
        return self._await({rank: key(rank) for rank in range(self.world_size)}, doing)

    def _await(self, keys: dict[int, str], doing: str) -> dict[int, Any]:
        until, pause, found = time.monotonic() + self.deadline, _PAUSES[0], {}
        while True:
            for rank in [rank for rank in keys if rank not in found]:
                value = self.board.get(keys[rank])
                if value is not None:
                    found[rank] = json.loads(value)
            if len(found) == len(keys):
                return found
            if time.monotonic() > until:
                missing = [rank for rank in keys if rank not in found]
                raise RankFailed(f"{doing}: rank {_ranks(missing)} was not heard of within {self.deadline:.0f} s")
            time.sleep(pause)
            pause = min(pause * 1.5, _PAUSES[1])

    def from_leader(self, key: str, act: Callable[[], Any], doing: str) -> Any:
        """What `act` gives on the leader, on every rank; or its error, on every rank."""
        if self.alone:
            return act()
        if not self.leads:
            return _unpacked(self.hear(key, 0, doing), doing)
        try:
            result = act()
        except BaseException as error:
            self.tell(key, packed(error))
            raise
        self.tell(key, {"ok": result})
        return result


    def together(self, act: Callable[[], Any], doing: str) -> Any:
        """What `act` gives on the leader, on every rank, once all are there. A board may still show what earlier processes
        left: so the leader and each rank make up a word, and only an answer to these counts."""
        if self.alone:
            return act()
        own = secrets.token_hex(8)
        return self._summon(own, act, doing) if self.leads else self._join(own, doing)

    def _summon(self, own: str, act: Callable[[], Any], doing: str) -> Any:
        self.tell("leader", own)
        keys = {rank: f"join/{own}/{rank}" for rank in range(1, self.world_size)}

        def answer(joined: dict[int, str], result: dict[str, Any]) -> None:
            self.tell(f"open/{own}", {"to": joined, **result})

        try:
            joined = self._await(keys, doing)
        except RankFailed as error:
            answer({rank: self._look(key) for rank, key in keys.items()}, packed(error))
            raise
        try:
            result = act()
        except BaseException as error:
            answer(joined, packed(error))
            raise
        answer(joined, {"ok": result})
        return result

    def _join(self, own: str, doing: str) -> Any:
        leader, until, pause = None, time.monotonic() + self.deadline, _PAUSES[0]
        while True:
            fact = self._look(f"open/{leader}") if leader else None
            if fact is not None and fact["to"].get(str(self.rank)) == own:
                return _unpacked(fact, doing)
            if (seen := self._look("leader")) not in (None, leader):
                leader = seen
                self.tell(f"join/{leader}/{self.rank}", own)
            if time.monotonic() > until:
                raise RankFailed(f"{doing}: rank 0 was not heard of within {self.deadline:.0f} s")
            time.sleep(pause)
            pause = min(pause * 1.5, _PAUSES[1])

    def _look(self, key: str) -> Any:
        value = self.board.get(key)
        return None if value is None else json.loads(value)


def packed(error: BaseException) -> dict[str, str]:
    """An error as a fact."""
    return {"kind": getattr(error, "kind", "error"), "message": str(error) or type(error).__name__}


def unpacked(fact: dict[str, str], prefix: str = "") -> EverstepError:
    """The error of a fact."""
    return of_kind(fact["kind"], prefix + fact["message"])


def _unpacked(fact: dict[str, Any], doing: str) -> Any:
    if "ok" in fact:
        return fact["ok"]
    raise unpacked(fact, f"{doing}: rank 0: ")


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:16]))
    return shown if len(ranks) <= 16 else f"{shown} and {len(ranks) - 16} more"


def _distributed() -> Any:
    torch = library("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed


def rank_and_world_size() -> tuple[int, int]:
    """Of the job that torch.distributed knows, else (0, 1)."""
    distributed = _distributed()
    return (distributed.get_rank(), distributed.get_world_size()) if distributed else (0, 1)


def team(run: str, deadline: float, given: tuple[int, int, Any] | None) -> Team:
    """The ranks of torch.distributed; or `given`: (rank, world size, torch Store or board); or this process alone."""
    if given is None:
        distributed = _distributed()
        if distributed is None or distributed.get_world_size() == 1:
            return Team(0, 1, None, deadline)
        from torch.distributed.distributed_c10d import _get_default_store

        given = (distributed.get_rank(), distributed.get_world_size(), _get_default_store())
    rank, world_size, board = given
    if not 0 <= rank < world_size:
        raise InvalidArgument(f"rank {rank} is not below the world size {world_size}")
    if world_size == 1:
        return Team(rank, world_size, None, deadline)
    torch = library("torch")
    if torch is not None and isinstance(board, torch.distributed.Store):
        board = StoreBoard(torch.distributed.PrefixStore(f"everstep/{run}", board))
    if not (callable(getattr(board, "set", None)) and callable(getattr(board, "get", None))):
        raise InvalidArgument(f"ranks meet on a torch Store, or on something with set(key, value) and get(key), not {board!r}")
    return Team(rank, world_size, board, deadline)
