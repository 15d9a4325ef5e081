"""The examples in docs/python.md and README.md do what is said of them."""

import re
import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document):
    """Code of a document, at the lines where it is, so that a traceback points there."""
    text = (ROOT / document).read_text()
    found = [(text.count("\n", 0, match.start(1)), match.group(1)) for match in BLOCK.finditer(text)]
    assert found, f"{document} has no examples"
    return ["\n" * lines + code for lines, code in found]


@pytest.mark.parametrize("document", ["docs/python.md", "README.md"])
def test_examples_of_a_document_run_in_order(document, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("prometheus_client")
    monkeypatch.chdir(tmp_path)
    handler, names = signal.getsignal(signal.SIGTERM), {}
    try:
        for code in blocks(document):
            exec(compile(code, str(ROOT / document), "exec"), names)
    finally:
        signal.signal(signal.SIGTERM, handler)
