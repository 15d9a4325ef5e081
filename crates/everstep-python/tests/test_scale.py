"""C33 a: very many very small tensors. A million of them in the long suite (EVERSTEP_LONG=1)."""

import os
import shutil

import everstep
import numpy as np
import pytest

#: A tenth of it is still too many for an index of 4 MiB, up to which one is read at once.
COUNT = 1_290_000 if os.environ.get("EVERSTEP_LONG") else 129_000


@pytest.fixture(scope="module")
def many(empty_repository, tmp_path_factory):
    """The folder of a repository with so many tensors, and its values."""
    folder = tmp_path_factory.mktemp("many") / "repo"
    shutil.copytree(empty_repository, folder)
    values = np.arange(COUNT, dtype="int64").reshape(COUNT, 1)
    with everstep.Repository(str(folder)).run("gpt").writer() as writer:
        stats = writer.save(1, {"t": list(values)}).stats
    assert stats.raw_bytes == 8 * COUNT
    return folder, values


def test_c33_very_many_tensors_are_few_objects_and_all_come_back(many):
    folder, values = many
    assert len([path for path in folder.rglob("*") if path.is_file()]) < 20
    latest = everstep.Repository(str(folder)).run("gpt").latest()
    entries = latest.entries()
    assert len(entries) == COUNT and {tuple(entry["shape"]) for entry in entries} == {(1,)}
    into = {"t": list(np.zeros((COUNT, 1), "int64"))}
    assert latest.load(into).tensors == COUNT
    assert (np.concatenate(into["t"]) == values[:, 0]).all()


def test_c33_one_of_very_many_tensors_is_read_without_the_whole_index(many):
    folder, _ = many
    fresh = everstep.Repository(str(folder))
    latest = fresh.run("gpt").latest()
    before = fresh.traffic()["bytes_received"]
    assert latest.read(f"t.{COUNT - 7}", library="numpy").tolist() == [COUNT - 7]
    index = max(path.stat().st_size for path in (folder / "index").rglob("*.parquet"))
    assert fresh.traffic()["bytes_received"] - before < index / 2
