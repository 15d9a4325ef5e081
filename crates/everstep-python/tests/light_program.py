"""What ranks do that have numpy alone, and meet on a board of files. Run by `ranks.Ranks`."""

import logging
import math
import os
import signal
import threading
import time
from pathlib import Path

import everstep
import numpy as np

from ranks import DEADLINE, Place, act
from s3_double import PACK, control

SHAPES = {"A": (50, 3), "B": (10,), "C": (4,), "D": (1, 3), "F": (0, 2)}


def whole(name: str) -> np.ndarray:
    shape = SHAPES[name]
    return np.arange(math.prod(shape), dtype="float32").reshape(shape)


def part(name: str, rank: int, world: int) -> everstep.Shard:
    """Rows of a rank by the rule ceil(n / world); the last ranks may have none."""
    rows = -(-SHAPES[name][0] // world)
    begin = min(rank * rows, SHAPES[name][0])
    tensor = whole(name)[begin : begin + rows]
    return everstep.Shard(tensor, SHAPES[name], (begin,) + (0,) * (len(SHAPES[name]) - 1))


def repository(place: Place) -> everstep.Repository:
    return everstep.Repository(place.settings["repository"])


def remote(place: Place) -> everstep.Repository:
    return everstep.Repository(
        "s3://bucket/r", endpoint_url=place.settings["double"], allow_http=True, region="us-east-1"
    )


def writer(place: Place, run: everstep.Run, **options: object) -> everstep.Writer:
    group = (place.rank, place.world, place.board(run.name))
    return run.writer(**{"group": group, "takeover": "now", "deadline": DEADLINE, **options})


def attempt(call) -> list:
    """What a call raises, and how long it took."""
    began = time.monotonic()
    try:
        call()
    except BaseException as error:
        return [type(error).__name__, str(error), time.monotonic() - began]
    return [None, "", time.monotonic() - began]


def uneven(place: Place) -> dict:
    state = {name: part(name, place.rank, place.world) for name in SHAPES}
    if place.rank == 7:
        state["E"] = everstep.Shard(np.arange(5, dtype="float32"), (5,), (0,))
    with writer(place, repository(place).run("uneven")) as w:
        return {"ordinal": w.save(1, state).ordinal}


def loaders(place: Place) -> int:
    """Each rank's own state."""
    state = {"dl": everstep.PerRank({"rank": place.rank, "seen": np.arange(place.rank)}), "w": np.ones(4)}
    with writer(place, repository(place).run("loaders")) as w:
        w.save(1, state)
        into = {"dl": everstep.PerRank(None), "w": np.zeros(4)}
        assert w.resume(into) == 1
    assert into["dl"].value["seen"].tolist() == list(range(place.rank))
    return into["dl"].value["rank"]


def resume_loaders(place: Place) -> dict:
    """Of another number of ranks."""
    into = {"dl": everstep.PerRank("own"), "w": np.zeros(4)}
    with writer(place, repository(place).run("loaders")) as w:
        refused = attempt(lambda: w.resume(into))
        untouched = into["dl"].value == "own" and not into["w"].any()
        w.resume(
            into,
            per_rank=lambda saved, rank, world: sorted(value["rank"] for value in saved.values())[
                rank % len(saved)
            ],
        )
    return {"refused": refused, "untouched": untouched, "value": into["dl"].value}


def differing_replicas(place: Place) -> dict:
    """Plain tensors count as the same everywhere; here they are not."""
    run = repository(place).run("differing")
    with writer(place, run) as w:
        refused = attempt(
            lambda: w.save(1, {"good": np.ones(3), "bad": np.full(1000, 1.0 + (place.rank == 2))})
        )
        saved = w.save(2, {"good": np.ones(3)})
    return {"refused": refused, "step": saved.step, "steps": [step for _, step in run.checkpoints()]}


def quiet_ranks(place: Place) -> list[str]:
    """What this rank logs at info or above."""
    lines: list[str] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.INFO)
    with writer(place, repository(place).run("quiet")) as w:
        w.save(1, {"w": np.ones(1000)})
        w.save_async(2, {"w": np.ones(1000)})
    logging.getLogger().removeHandler(handler)
    return lines


def metadata_of_one(place: Place) -> dict:
    """Metadata that is no JSON on one rank: on another one it does not count, on the leader it ends all ranks' save."""
    with writer(place, repository(place).run("metadata")) as w:
        w.save(1, {"w": np.ones(3)}, metadata={"loss": math.nan if place.rank == 2 else 1.0})
        refused = attempt(
            lambda: w.save(2, {"w": np.ones(3)}, metadata={"loss": math.nan if place.rank == 0 else 1.0})
        )
        w.save_async(3, {"w": np.ones(3)}, metadata={"loss": math.nan if place.rank == 0 else 1.0})
        later = attempt(lambda: w.save_async(4, {"w": np.ones(3)}))
        w.save(5, {"w": np.ones(3)})
        return {"refused": refused, "later": later, "step": w.latest.step}


def skipping_alike(place: Place) -> list[bool]:
    """Rank 3 alone is held up; all ranks skip the same steps."""
    run = remote(place).run("skipping")
    with writer(place, run, overlap="skip") as w:
        if place.rank == 0:
            control(place.settings["double"], fault={"method": "PUT", "match": PACK + ".*/3-", "hold": True})
        place.meet("skipping")
        state = {
            "w": everstep.Shard(
                np.random.default_rng(place.rank).random(5000), (20000,), (5000 * place.rank,)
            )
        }
        jobs = [w.save_async(1, state)]
        if place.rank == 3:
            control(place.settings["double"], arrival=True)
        jobs += [w.save_async(step, state) for step in (2, 3)]
        place.meet("skipped")
        if place.rank == 0:
            control(place.settings["double"], release=True)
        jobs[0].result(60)
        place.meet("committed")
        jobs.append(w.save_async(4, state))
    return [job.skipped for job in jobs]


def warned_alike(place: Place) -> dict:
    """Rank 1 cannot upload. Twice that is only warned of, the third time all ranks raise; then it works again."""
    run, url = remote(place).run("warned"), place.settings["double"]
    with writer(place, run, on_failure="warn", max_failures=2) as w:
        if place.rank == 0:
            control(url, fault={"method": "PUT", "match": PACKS_OF.format(1), "status": 403})
        place.meet("warned")
        values = np.random.default_rng(place.rank).random(5000)
        state = {"w": everstep.Shard(values, (20000,), (5000 * place.rank,))}
        told = [attempt(lambda step=step: w.save_async(step, state)) for step in (1, 2, 3, 4)]
        place.meet("warned-enough")
        if place.rank == 0:
            control(url, release=True)
        place.meet("warned-no-more")
        w.save_async(5, state)
    return {"told": told, "steps": [step for _, step in run.checkpoints()]}


def fall_back(place: Place) -> dict:
    """The newest checkpoint is damaged; the one before is not."""
    folder = Path(place.settings["repository"])
    run = repository(place).run("falling")

    def state(step):
        values = np.random.default_rng([step, place.rank]).random(3000)
        return {"w": everstep.Shard(values, (3000 * place.world,), (3000 * place.rank,)), "step": step}

    with writer(place, run) as w:
        w.save(1, state(1))
        place.meet("falling-1")
        before = set(folder.glob("packs/**/*-*"))
        place.meet("falling-2")
        w.save(2, state(2))
    place.meet("falling-3")
    if place.rank == 0:
        hurt = next(path for path in set(folder.glob("packs/**/*-*")) - before if path.name.startswith("2-"))
        data = bytearray(hurt.read_bytes())
        data[len(data) // 2] ^= 1
        hurt.write_bytes(data)
    place.meet("falling-4")
    into = state(0)
    with writer(place, repository(place).run("falling")) as w:
        refused = attempt(lambda: w.resume(into, fallback=0))
        step = w.resume(into, fallback=1)
        equal = bool((into["w"].tensor == state(1)["w"].tensor).all())
        w.save(2, state(2))
    return {"refused": refused, "step": step, "equal": equal, "steps": [s for _, s in run.checkpoints()][-2:]}


class Unloadable:
    """Fails in the state's own code, with an exception that cannot be pickled."""

    def state_dict(self):
        return {"x": 1}

    def load_state_dict(self, _):
        class Strange(Exception):
            pass

        raise Strange("rank 1 cannot load this")


class Fine(Unloadable):
    def load_state_dict(self, _):
        pass


def loads_that_fail_on_one(place: Place) -> dict:
    run = repository(place).run("loading")
    with writer(place, run) as w:
        w.save(1, {"w": np.ones(3), "s": Fine()})
        shape = attempt(lambda: w.resume({"w": np.zeros(3 + (place.rank == 2)), "s": Fine()}, fallback=3))
        own = attempt(lambda: w.resume({"w": np.zeros(3), "s": Unloadable() if place.rank == 1 else Fine()}))
        step = w.resume({"w": np.zeros(3), "s": Fine()})
    return {"shape": shape, "own": own, "step": step}


def fenced(place: Place) -> dict:
    """Another job takes the run over; every rank of the older one is told."""
    run = repository(place).run("fenced")
    w = writer(place, run, job="old")
    w.save(1, {"w": np.ones(3)})
    place.meet("fenced-1")
    if place.rank == 1:
        with repository(place).run("fenced").writer(job="new", takeover="now") as other:
            other.save(10, {"w": np.zeros(3)})
    place.meet("fenced-2")
    refused = attempt(lambda: w.save(2, {"w": np.ones(3)}))
    return {"refused": refused, "latest": run.latest().step}


class Broken:
    """A state that cannot be had, and an error that cannot be pickled."""

    def state_dict(self):
        class Unpicklable(Exception):
            def __reduce__(self):
                raise TypeError("no")

        raise Unpicklable("the loader is out of shape")

    def load_state_dict(self, _):
        pass


class Whole(Broken):
    def state_dict(self):
        return {"x": 1}


PACKS_OF, PART_OF = PACK + ".*/{}-", "/index/.*/part-{}-"


def one_failure(place: Place, w: everstep.Writer, how: str, background: bool, bad: int = 2) -> dict:
    """C04: rank `bad` fails while it collects its state ("collect"), in its upload ("upload"), or just before the commit
    ("commit"). Then the next save succeeds."""
    url, mark = place.settings["double"], w.run.name
    if how != "collect" and place.rank == 0:
        match = {"upload": PACKS_OF, "commit": PART_OF}[how].format(bad)
        control(url, fault={"method": "PUT", "match": match, "status": 403})
    place.meet(f"{mark}-begin")
    state = {
        "w": everstep.Shard(np.random.default_rng(place.rank).random(5000), (20000,), (5000 * place.rank,)),
        "loader": Whole(),
    }
    given = {**state, "loader": Broken()} if how == "collect" and place.rank == bad else state
    if background:
        w.save_async(1, given)
        error = attempt(lambda: w.save_async(2, state))
    else:
        error = attempt(lambda: w.save(1, given))
    before = w.run.latest()
    place.meet(f"{mark}-end")
    if place.rank == 0:
        control(url, release=True)
    place.meet(f"{mark}-next")
    saved = w.save(3, state)
    return {
        "error": error,
        "before": before and before.step,
        "after": [step for _, step in w.run.checkpoints()],
        "ordinal": saved.ordinal,
    }


def failures_of_the_leader(place: Place) -> dict:
    found = {}
    for how in ("collect", "upload"):
        for mode in ("save", "async"):
            with writer(place, remote(place).run(f"leader-{how}-{mode}")) as w:
                found[f"{how}-{mode}"] = one_failure(place, w, how, mode == "async", bad=0)
    return found


def refused_opening(place: Place) -> dict:
    """Another job's session is alive: no rank opens the run."""
    run = repository(place).run("refused")
    other = repository(place).run("refused").writer(job="theirs") if place.rank == 1 else None
    place.meet("refused")
    refused = attempt(lambda: writer(place, run, job="ours", takeover="refuse"))
    place.meet("refused-end")
    if other is not None:
        other.close()
    place.meet("refused-again")
    with writer(place, run, job="ours", takeover="refuse") as w:
        return {"refused": refused, "step": w.save(1, {"x": 1}).step}


def killed_in_the_background(place: Place) -> dict:
    """C04 d, asynchronous: rank 2 is killed while it uploads."""
    run = remote(place).run("killed")
    w = writer(place, run, deadline=6.0)
    w.save(1, {"w": np.ones(3)})
    if place.rank == 0:
        control(place.settings["double"], fault={"method": "PUT", "match": PACKS_OF.format(2), "hold": True})
    place.meet("killed")
    state = {
        "w": everstep.Shard(np.random.default_rng(place.rank).random(5000), (20000,), (5000 * place.rank,))
    }
    if place.rank == 2:
        threading.Thread(
            target=lambda: (
                control(place.settings["double"], arrival=True),
                os.kill(os.getpid(), signal.SIGKILL),
            )
        ).start()
    job = w.save_async(2, state)
    own = attempt(lambda: job.result(60))
    following = attempt(lambda: w.save_async(3, state))
    return {"own": own, "following": following, "latest": run.latest().step}


def killed_leader(place: Place) -> dict:
    """The leader is killed while it uploads: the other ranks name it in time."""
    run = remote(place).run("headless")
    w = writer(place, run, deadline=6.0)
    w.save(1, {"w": np.ones(3)})
    if place.rank == 0:
        control(place.settings["double"], fault={"method": "PUT", "match": PACKS_OF.format(0), "hold": True})
        threading.Thread(
            target=lambda: (
                control(place.settings["double"], arrival=True),
                os.kill(os.getpid(), signal.SIGKILL),
            )
        ).start()
    place.meet("headless")
    state = {
        "w": everstep.Shard(np.random.default_rng(place.rank).random(5000), (10000,), (5000 * place.rank,))
    }
    job = w.save_async(2, state)
    own = attempt(lambda: job.result(60))
    following = attempt(lambda: w.save_async(3, state))
    return {"own": own, "following": following, "latest": run.latest().step}


if __name__ == "__main__":
    _, _, _, settings = __import__("json").loads(__import__("sys").argv[1])
    act({name: globals()[name] for name in settings["scenarios"]})
