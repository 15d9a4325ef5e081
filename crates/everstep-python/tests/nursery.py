"""A process that has imported what is slow to import and forks a child for each part of a test: parts that die, and parts
that begin in a new process, without importing anything again.

    python nursery.py    reads calls (a JSON list of module, function and arguments) from its input, a line each, and answers
                         each with a line: {"status": ..., "result": ..., "complaint": ...}
"""

from __future__ import annotations

import gc
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
    """For calls of functions of modules beside this one, each in a child of its own: `nursery("jax_program.meshes", path)`.
    What the modules import is imported once. Ends with the `with` block."""

    def __init__(self, **more: str):
        command = [sys.executable, str(Path(__file__))]
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
        self._process.stdin.write(json.dumps([*function.split("."), *arguments], default=str) + "\n")
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


def raises(error: type, words: str, act: Any) -> None:
    """What is called there has no pytest."""
    try:
        act()
    except error as found:
        assert words in str(found), found
    else:
        raise AssertionError(f"{error.__name__} was not raised")


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed is a complaint
    folder = Path(os.environ["NURSERY"])
    for number, line in enumerate(sys.stdin):
        module, name, *arguments = json.loads(line)
        act = getattr(importlib.import_module(module), name)
        gc.freeze()  # or each child would walk through all that was imported
        result, complaint = folder / f"result-{number}", folder / f"complaint-{number}"
        child = os.fork()
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
