"""Programs of their own, for what cannot be shown within the process of the tests: how one ends, forks, is
interrupted."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = Path(__import__("everstep").__file__).parent.parent


def environment(**more: str) -> dict[str, str]:
    """That of a child: it finds the package and the helpers of these tests, and joins no other job."""
    path = os.pathsep.join([str(PACKAGE), str(HERE)])
    # Importing torch anew takes several times as long where compiled Python may not be kept.
    own = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    return {**os.environ, **own, **more}


def fork() -> int:
    """As os.fork. In a child, torch makes its pool of threads anew when it is next asked for it, and ends the process if
    two threads, such as gloo's, ask at once: so it is asked here."""
    child = os.fork()
    torch = sys.modules.get("torch")
    if child == 0 and torch is not None:
        torch.set_num_threads(torch.get_num_threads())
    return child


class Child:
    """A running Python program. It is ended when the `with` block is."""

    def __init__(self, code: str, *arguments: object, **more: str):
        command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
        self.process = subprocess.Popen(
            command, env=environment(**more), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def line(self) -> str:
        """The next line that it prints."""
        line = self.process.stdout.readline().strip()
        if not line:
            self.process.kill()
            raise AssertionError(f"the child ended without a line: {self.process.communicate()[1]}")
        return line

    def end(self, limit: float = 60.0) -> tuple[int, str, str]:
        """Waits for its end: exit status, what it printed since, what it complained of."""
        out, complaints = self.process.communicate(timeout=limit)
        return self.process.returncode, out, complaints

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def run_child(code: str, *arguments: object, **more: str) -> str:
    """What a program prints that must end well."""
    with Child(code, *arguments, **more) as child:
        status, out, complaints = child.end()
    assert status == 0, complaints
    return out
