"""The examples in the documents do what is said of them."""

import signal

import pytest
from documents import run_examples
from nursery import needs


@pytest.mark.parametrize("document", ["docs/python.md", "README.md"])
def test_examples_of_a_document_run_in_order(document, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("prometheus_client")
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        run_examples(document)
    finally:
        signal.signal(signal.SIGTERM, handler)


@needs("torch", "lightning", "transformers", "accelerate", "jax")
def test_examples_of_frameworks_run_in_order(nursery, tmp_path):
    nursery("documents.run_examples", "docs/frameworks.md", tmp_path)
