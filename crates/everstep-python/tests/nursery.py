"""A process that has imported what is slow to import and forks a child for each part of a test: parts that die, and parts
that begin in a new process, without importing anything again.

    python nursery.py    reads calls (a JSON list of module, function and arguments) from its input, a line each, and answers
                         each with a line: {"status": ..., "result": ..., "complaint": ...}
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from children import environment, fork

#: Seconds within which a call must be answered, importing included.
_PATIENCE = 200.0


class Nursery:
    """For calls of functions of modules beside this one, each in a child of its own: `nursery("jax_program.meshes", path)`.
    What the modules import is imported once. Ends with the `with` block."""

    def __init__(self, **more: str):
        command = [sys.executable, str(Path(__file__))]
        self._folder = tempfile.TemporaryDirectory()
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            command, env=environment(NURSERY=self._folder.name, **more), text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True,
        )  # fmt: skip

    def __call__(self, function: str, *arguments: Any) -> Any:
        """What the function returns, through JSON; it must not fail."""
        answer = self.attempt(function, *arguments)
        assert answer["status"] == 0, answer["complaint"]
        return answer["result"]

    def attempt(self, function: str, *arguments: Any) -> dict[str, Any]:
        """How the child ended: exit status (negative: the signal), its result, or what it complained of."""
        self._process.stdin.write(json.dumps([*function.split("."), *arguments], default=str) + "\n")
        self._process.stdin.flush()
        answered, _, _ = select.select([self._process.stdout], [], [], _PATIENCE)
        line = self._process.stdout.readline() if answered else ""
        if not line:
            self._end()
            self._errors.seek(0)
            raise AssertionError(f"{function} was not answered: {self._errors.read()[-4000:]}")
        return json.loads(line)

    def _end(self) -> None:
        """Ends the process and all that it forked."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._process.communicate()
        self._errors.close()
        self._folder.cleanup()


def needs(*packages: str) -> Any:
    """Skips tests, and says why, where a package is not installed. It is not imported here: that would take seconds."""
    import pytest

    gone = [package for package in packages if importlib.util.find_spec(package) is None]
    return pytest.mark.skipif(bool(gone), reason=f"not installed: {', '.join(gone)}")


def raises(error: type, words: str, act: Any) -> None:
    """What is called there has no pytest."""
    try:
        act()
    except error as found:
        assert words in str(found), found
    else:
        raise AssertionError(f"{error.__name__} was not raised")


def ranks(act: Any, count: int = 2) -> Any:
    """What rank 0 returns of `act`, which every rank calls, as torchrun would have started it: this process and forked ones."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    others = []
    for rank in range(count - 1, -1, -1):
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}
        os.environ |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        if rank == 0:
            break
        others.append(fork())
        if others[-1] == 0:
            try:
                act()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
    result = act()
    assert all(os.waitpid(other, 0)[1] == 0 for other in others), "another rank failed"
    return result


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed is a complaint
    folder = Path(os.environ["NURSERY"])
    for number, line in enumerate(sys.stdin):
        module, name, *arguments = json.loads(line)
        act = getattr(importlib.import_module(module), name)
        gc.freeze()  # or each child would walk through all that was imported
        result, complaint = folder / f"result-{number}", folder / f"complaint-{number}"
        child = fork()
        if child == 0:
            _be_child(lambda: act(*arguments), result, complaint)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answer = {
            "status": status,
            "result": json.loads(result.read_text()) if result.exists() else None,
            "complaint": complaint.read_text()[-8000:],
        }
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _be_child(act: Any, result: Path, complaint: Path) -> None:
    """Ends as a process of its own would: with what it owes at its end, but without reading the calls of others."""
    said = os.open(complaint, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    status = 0
    try:
        result.write_text(json.dumps(act()))
    except BaseException:
        traceback.print_exc()
        status = 1
    import atexit

    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _serve()
