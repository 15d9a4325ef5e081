"""A process that has imported what is slow to import and forks a child for each part of a test: parts that die, and parts
that begin in a new process, without importing anything again.

    python nursery.py MODULE          reads calls (a JSON list of a function's name and arguments) from its input, a line each,
                                      and answers each with a line: {"status": ..., "result": ..., "complaint": ...}
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from children import environment


class Nursery:
    """For calls of functions in one module, each in a child of its own. Ends with the `with` block."""

    def __init__(self, module: str, **more: str):
        command = [sys.executable, str(Path(__file__)), module]
        self._folder = tempfile.TemporaryDirectory()
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            command, env=environment(NURSERY=self._folder.name, **more), text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip

    def __call__(self, function: str, *arguments: Any) -> Any:
        """What the function returns, through JSON; it must not fail."""
        answer = self.attempt(function, *arguments)
        assert answer["status"] == 0, answer["complaint"]
        return answer["result"]

    def attempt(self, function: str, *arguments: Any) -> dict[str, Any]:
        """How the child ended: exit status (negative: the signal), its result, or what it complained of."""
        self._process.stdin.write(json.dumps([function, *arguments], default=str) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise AssertionError(f"the nursery is gone: {self._errors.read()[-4000:]}")
        return json.loads(line)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()
        self._folder.cleanup()


def _serve(module: Any) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed is a complaint
    folder = Path(os.environ["NURSERY"])
    for number, line in enumerate(sys.stdin):
        name, *arguments = json.loads(line)
        result, complaint = folder / f"result-{number}", folder / f"complaint-{number}"
        child = os.fork()
        if child == 0:
            _be_child(lambda: getattr(module, name)(*arguments), result, complaint)
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
    _serve(importlib.import_module(sys.argv[1]))
