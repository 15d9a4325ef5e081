"""Fixtures: repositories in a temporary directory, or in an S3 double with scripted faults."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import everstep
import pytest

from nursery import Nursery
from s3_double import S3Double

os.environ.update(
    AWS_ACCESS_KEY_ID="AKIDTEST", AWS_SECRET_ACCESS_KEY="secret", AWS_EC2_METADATA_DISABLED="true"
)
for name in ("EVERSTEP_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "AWS_PROFILE"):
    os.environ.pop(name, None)


@pytest.fixture(scope="session")
def empty_repository(tmp_path_factory) -> Path:
    """A repository that was made once; tests work on copies of it, without testing the store anew."""
    folder = tmp_path_factory.mktemp("empty") / "repo"
    everstep.Repository(str(folder), create=True)
    return folder


@pytest.fixture
def folder(empty_repository, tmp_path) -> Path:
    """The folder of an empty repository."""
    return Path(shutil.copytree(empty_repository, tmp_path / "repo"))


@pytest.fixture
def repo(folder) -> everstep.Repository:
    return everstep.Repository(str(folder))


@pytest.fixture
def run(repo) -> everstep.Run:
    return repo.run("gpt")


@pytest.fixture
def save(run):
    """Saves a state as the next step, and gives its checkpoint."""

    def saved(state, step: int = 1, **options) -> everstep.Checkpoint:
        with run.writer(takeover="now", **options) as writer:
            writer.save(step, state)
        return run.latest()

    return saved


@pytest.fixture
def double(empty_repository):
    """An S3 that has an empty repository at s3://bucket/r."""
    server = S3Double()
    server.objects["bucket/r/everstep.json"] = ((empty_repository / "everstep.json").read_bytes(), 0.0)
    yield server
    server.close()


@pytest.fixture
def remote(double) -> everstep.Repository:
    return everstep.Repository("s3://bucket/r", **double.options)


@pytest.fixture(scope="session")
def nursery():
    """For the frameworks that stand on torch: started by the first test that needs it."""
    with Nursery() as ready:
        yield ready
