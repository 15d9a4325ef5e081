"""Programs on many ranks. Each scenario of a program runs on all of them, one scenario after the other; what each rank
returned, or its traceback, ends in a file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from children import environment, fork

#: Seconds that a whole program may take, on a machine with much else to do.
LIMIT = 400.0
#: Seconds that ranks wait for each other where nobody should be missing, and in which everything is over that does not wait
#: for so long.
DEADLINE, SOON = 120.0, 60.0


class FileBoard:
    """A board in a folder: the ranks of a job without torch."""

    def __init__(self, folder: Path):
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / hashlib.sha256(key.encode()).hexdigest()

    def set(self, key: str, value: bytes) -> None:
        path = self._path(key)
        fresh = path.with_name(f".{os.getpid()}-{threading.get_ident()}-{path.name}")
        fresh.write_bytes(value)
        fresh.rename(path)

    def get(self, key: str) -> bytes | None:
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError:
            return None


class Place:
    """Where a rank finds itself, and how it meets the others beside the library that is tested."""

    def __init__(self, rank: int, world: int, folder: Path, settings: dict[str, Any]):
        self.rank, self.world, self.folder, self.settings = rank, world, folder, settings
        self._notes = FileBoard(folder / "notes")

    def board(self, name: str) -> FileBoard:
        return FileBoard(self.folder / "boards" / name)

    def meet(self, name: str, limit: float = DEADLINE) -> None:
        """Returns once all ranks have come here."""
        self._notes.set(f"{name}.{self.rank}", b"here")
        for rank in range(self.world):
            self.hear(f"{name}.{rank}", limit)

    def tell(self, name: str, fact: Any) -> None:
        self._notes.set(name, json.dumps(fact).encode())

    def hear(self, name: str, limit: float = DEADLINE) -> Any:
        until = time.monotonic() + limit
        while (found := self._notes.get(name)) is None:
            if time.monotonic() > until:
                raise TimeoutError(f"rank {self.rank} waited {limit:.0f} s for {name}")
            time.sleep(0.002)
        return None if found == b"here" else json.loads(found)


def act(scenarios: dict[str, Callable[[Place], Any]]) -> None:
    """The main function of a program: what one rank does."""
    rank, world, folder, settings = json.loads(sys.argv[1])
    if rank is None:
        rank = _forked(world, Path(folder))
    place = Place(rank, world, Path(folder), settings)
    for name, scenario in scenarios.items():
        try:
            place.meet(f"begin-{name}")
            said = {"ok": scenario(place)}
        except BaseException:
            said = {"error": traceback.format_exc()}
        FileBoard(place.folder / "said").set(f"{name}.{rank}", json.dumps(said).encode())
    sys.stdout.flush()
    os._exit(0)  # a process group that lost a rank may not end by itself


def _forked(world: int, folder: Path) -> int:
    """In as many copies of this process: which of them this one is. The process itself ends with them."""
    for rank in range(world):
        if fork() == 0:
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
            os.dup2(os.open(folder / f"stderr.{rank}", os.O_WRONLY | os.O_CREAT, 0o600), 2)
            return rank
    for _ in range(world):
        os.wait()
    os._exit(0)


class Ranks:
    """A program that runs, or ran, on `world` processes."""

    _is_forked = False

    def __init__(self, program: str, world: int, folder: Path, **settings: Any):
        self.world, self._folder = world, folder
        self._board = FileBoard(folder / "said")
        path, more = Path(__file__).with_name(program), _meeting_point()
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(path), json.dumps([rank, world, str(folder), settings])],
                env=environment(RANK=str(rank), WORLD_SIZE=str(world), **more),
                stderr=(folder / f"stderr.{rank}").open("w"),
            )
            for rank in range(world)
        ]

    @classmethod
    def forked(cls, program: str, world: int, folder: Path, **settings: Any) -> Ranks:
        """As one process that imports what the program needs once, and then becomes all of them."""
        self = cls.__new__(cls)
        self.world, self._folder, self._board, self._is_forked = world, folder, FileBoard(folder / "said"), True
        path = Path(__file__).with_name(program)
        command = [sys.executable, str(path), json.dumps([None, world, str(folder), settings])]
        self._processes = [subprocess.Popen(command, env=environment(**_meeting_point()), start_new_session=True)]
        return self

    def wait(self) -> Ranks:
        until = time.monotonic() + LIMIT
        for process in self._processes:
            try:
                process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                break
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        if self._is_forked:  # whatever is left of the session of that one process
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._processes[0].pid, signal.SIGKILL)
        return self

    def said(self, scenario: str, silent: tuple[int, ...] = ()) -> list[Any]:
        """What the ranks returned, those but that are `silent` because they were killed."""
        found = {
            rank: self._board.get(f"{scenario}.{rank}") for rank in range(self.world) if rank not in silent
        }
        told = {rank: json.loads(said) for rank, said in found.items() if said is not None}
        failed = {rank: said["error"] for rank, said in told.items() if "error" in said}
        quiet = [rank for rank in found if rank not in told]
        assert not failed, "\n".join(f"rank {rank}: {error}" for rank, error in failed.items())
        assert not quiet, "\n".join(f"rank {rank} ended early: {self._stderr(rank)}" for rank in quiet)
        return [told[rank]["ok"] for rank in sorted(told)]

    def was_killed(self, rank: int) -> bool:
        return self._processes[rank].returncode == -signal.SIGKILL

    def _stderr(self, rank: int) -> str:
        path = self._folder / f"stderr.{rank}"
        return path.read_text()[-3000:] if path.exists() else "it was not begun"


def _meeting_point() -> dict[str, str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
