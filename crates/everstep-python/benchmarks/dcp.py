"""Saves in the background through torch.distributed.checkpoint: python dcp.py FOLDER [--ranks N] [--rounds N] [--mb N].

Torch's own writer and everstep's, each by a thread and by a process of torch's, with and without cached plans, and everstep
without DCP beside them. All ranks run all ways, one after the other, round by round, so that what else the machine does meets
all of them; the first round only warms up (it starts torch's process, makes buffers and plans). A training step is a product of
two matrices on one thread. Printed, as medians over rounds of the slowest rank: how long the call kept the trainer, how much
longer the steps took while the save ran, and until when it was durable, in seconds and as multiples of DCP's thread without
cached plans. Every state differs from the one before, in all of its bytes or in one tensor of twenty.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAYS = (
    "dcp thread",
    "dcp thread, cached",
    "dcp process",
    "dcp process, cached",
    "everstep thread, cached",
    "everstep process, cached",
    "everstep, no dcp",
)
MEASURES = ("kept", "lost", "done")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--ranks", type=int, default=4)
    arguments.add_argument("--rounds", type=int, default=4)
    arguments.add_argument("--mb", type=int, default=32, help="of one rank")
    arguments.add_argument("--tensors", type=int, default=1000)
    arguments.add_argument("--all", action="store_true", help="change all of the state between saves, not a part")
    given = arguments.parse_args()
    if "RANK" in os.environ:
        return rank(given)
    place = Path(tempfile.mkdtemp(dir=given.folder))
    try:
        report(given, run_ranks(given, place))
    finally:
        shutil.rmtree(place)


def run_ranks(given: argparse.Namespace, place: Path) -> list[dict]:
    """Of each rank: {way: [{measure: seconds}, ... for each round]}."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, __file__, str(place), *sys.argv[2:]]
    processes = [
        subprocess.Popen(
            command,
            env={**os.environ, **meeting, "RANK": str(number), "WORLD_SIZE": str(given.ranks)},
            stderr=(place / f"stderr.{number}").open("w"),
        )
        for number in range(given.ranks)
    ]
    for number, process in enumerate(processes):
        if process.wait():
            sys.exit(f"rank {number}: {(place / f'stderr.{number}').read_text()[-3000:]}")
    return [json.loads((place / f"said.{number}").read_text()) for number in range(given.ranks)]


def report(given: argparse.Namespace, ranks: list[dict]) -> None:
    changed = "all" if given.all else "5 %"
    print(
        f"{given.ranks} ranks of {given.mb} MB in {given.tensors} tensors, {changed} changed; {given.rounds} rounds, "
        f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
    )
    middles = {way: {measure: middle(ranks, way, measure) for measure in MEASURES} for way in WAYS}
    print(f"{'':26}" + "".join(f"{measure + ', s':>10}{'x':>7}" for measure in MEASURES))
    for way, found in middles.items():
        first = middles[WAYS[0]]
        print(f"{way:26}" + "".join(f"{found[m]:10.3f}{found[m] / max(first[m], 1e-6):7.2f}" for m in MEASURES))


def middle(ranks: list[dict], way: str, measure: str) -> float:
    rounds = zip(*(said[way] for said in ranks), strict=True)
    return statistics.median(max(found[measure] for found in of_round) for of_round in rounds)


def rank(given: argparse.Namespace) -> None:
    """One rank: all ways, in turns."""
    import torch
    import torch.distributed as dist

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    state, starts = sharded_state(given), starters(given)
    one = torch.randn(300, 300)
    step = min(timed(lambda: one @ one) for _ in range(200))
    found: dict[str, list[dict]] = {way: [] for way in WAYS}
    for number in range(given.rounds + 1):
        for way in WAYS:
            for tensor in list(state.values())[:: 1 if given.all else 20]:
                tensor.to_local().add_(0.5)
            dist.barrier()
            said = one_save(lambda: starts[way](1 + number, state), lambda: one @ one, step)
            if number:
                found[way].append(said)
    Path(given.folder, f"said.{os.environ['RANK']}").write_text(json.dumps(found))
    starts["close"]()
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def sharded_state(given: argparse.Namespace) -> dict[str, Any]:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (given.ranks,))
    rows = max(given.mb * 250_000 // given.tensors // 64, 1)
    make = lambda: DTensor.from_local(torch.randn(rows, 64), mesh, [Shard(0)], run_check=False)  # noqa: E731
    return {f"layers.{number}.weight": make() for number in range(given.tensors)}


def starters(given: argparse.Namespace) -> dict[str, Callable[..., Any]]:
    """What starts a save and gives what tells whether it is done, by way."""
    import everstep
    import torch.distributed.checkpoint as dcp
    from everstep.torch import EverstepWriter
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    repository = everstep.Repository(given.folder / "repository", create=True)
    writers = {way: repository.run(way.replace(" ", "-").replace(",", "")).writer() for way in WAYS if "everstep" in way}

    def through_dcp(way: str) -> Callable[[int, dict], Callable[[], bool]]:
        # A class of its own for each way: torch keeps cached plans by the name of the class.
        planner = type("Planner" + "".join(filter(str.isalpha, way)), (dcp.DefaultSavePlanner,), {"__module__": __name__})
        globals()[planner.__name__] = planner
        kind = AsyncCheckpointerType.PROCESS if "process" in way else AsyncCheckpointerType.THREAD

        def start(step: int, state: dict) -> Callable[[], bool]:
            if way in writers:
                to: dict[str, Any] = {"storage_writer": EverstepWriter(writers[way], step=step)}
            else:
                to = {"checkpoint_id": given.folder / way / str(step)}
            future = dcp.async_save(
                state, planner=planner(enable_plan_caching="cached" in way), async_checkpointer_type=kind, **to
            )
            return lambda: future.done() and future.result() is not None

        return start

    def directly(step: int, state: dict) -> Callable[[], bool]:
        job = writers["everstep, no dcp"].save_async(step, state)
        return lambda: job.committed.done() and job.committed.result() is not None

    starts: dict[str, Callable[..., Any]] = {way: through_dcp(way) for way in WAYS if "no dcp" not in way}
    starts["everstep, no dcp"] = directly
    starts["close"] = lambda: [writer.close() for writer in writers.values()]
    return starts


def one_save(start: Callable[[], Callable[[], bool]], train: Callable[[], object], step: float) -> dict[str, float]:
    began = time.perf_counter()
    done = start()
    kept, lost = time.perf_counter() - began, 0.0
    while not done():
        lost += max(timed(train) - step, 0.0)
    return {"kept": kept, "lost": lost, "done": time.perf_counter() - began}


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
else:
    # In torch's checkpointing process, which imports this file under another name: the planners it will be sent.
    import torch.distributed.checkpoint as _dcp

    for _way in WAYS:
        _name = "Planner" + "".join(filter(str.isalpha, _way))
        globals()[_name] = type(_name, (_dcp.DefaultSavePlanner,), {"__module__": __name__})
