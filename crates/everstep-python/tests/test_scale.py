"""C33 a: very many very small tensors. A million of them in the long suite (EVERSTEP_LONG=1)."""

import os

import numpy as np

import everstep

#: A tenth of it is still too many for an index of 4 MiB, up to which one is read at once.
COUNT = 1_290_000 if os.environ.get("EVERSTEP_LONG") else 129_000


def test_c33_very_many_tensors_are_saved_listed_and_read_alone(folder):
    values = np.arange(COUNT, dtype="int64").reshape(COUNT, 1)
    run = everstep.Repository(str(folder)).run("gpt")
    with run.writer() as writer:
        stats = writer.save(1, {"t": list(values)}).stats
    assert stats.raw_bytes == 8 * COUNT
    stored = [path for path in folder.rglob("*") if path.is_file()]
    assert len(stored) < 20

    fresh = everstep.Repository(str(folder))
    latest = fresh.run("gpt").latest()
    before = fresh.traffic()["bytes_received"]
    assert latest.read(f"t.{COUNT - 7}", library="numpy").tolist() == [COUNT - 7]
    index = max(path.stat().st_size for path in (folder / "index").rglob("*.parquet"))
    assert fresh.traffic()["bytes_received"] - before < index / 2, "reading one tensor parsed the whole index"

    entries = latest.entries()
    assert len(entries) == COUNT and {tuple(entry["shape"]) for entry in entries} == {(1,)}
    into = {"t": list(np.zeros((COUNT, 1), "int64"))}
    assert latest.load(into).tensors == COUNT
    assert (np.concatenate(into["t"]) == values[:, 0]).all()
