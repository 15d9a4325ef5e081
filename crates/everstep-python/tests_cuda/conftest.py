"""Tests that need a GPU. Without one they fail, they are not skipped: nobody runs them by accident."""

import os

import pytest
import torch

import everstep

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # without it cuBLAS refuses to be deterministic


@pytest.fixture(scope="session", autouse=True)
def gpu():
    if not torch.cuda.is_available():
        pytest.exit("these tests need a GPU that torch can use", returncode=1)
    torch.use_deterministic_algorithms(True)


@pytest.fixture
def run(tmp_path):
    return everstep.Repository(str(tmp_path / "repository"), create=True).run("gpt")
