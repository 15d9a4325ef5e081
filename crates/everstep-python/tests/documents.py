"""Examples in documents, as programs."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document: str) -> list[str]:
    """Code of a document, at the lines where it is, so that a traceback points there."""
    text = (ROOT / document).read_text()
    found = [(text.count("\n", 0, match.start(1)), match.group(1)) for match in BLOCK.finditer(text)]
    assert found, f"{document} has no examples"
    return ["\n" * lines + code for lines, code in found]


def run_examples(document: str, folder: str | None = None) -> None:
    """Runs the examples of a document one after the other, as one program, in `folder`."""
    if folder is not None:
        os.chdir(folder)
        os.environ |= {"EVERSTEP_JOB": "documents", "JAX_PLATFORMS": "cpu"}
    names: dict[str, object] = {}
    for code in blocks(document):
        exec(compile(code, str(ROOT / document), "exec"), names)
