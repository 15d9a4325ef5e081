"""What a save in the background costs a training, beside torch's own ways: python background.py FOLDER [--rounds N] [--mb N].

Each measurement is a process of its own, and the ways take turns, so that what else the machine does meets all of them. A
training step is a product of two matrices on one thread. Printed, as medians: how long the call kept the trainer (as a
multiple of one copy of the state, measured in the same process), how much longer the steps took while the save ran, the
memory beyond that of the state (at its peak, as a multiple of the state), for a first save and for one after it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

WAYS = ("everstep", "torch.save", "dcp")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--rounds", type=int, default=4)
    arguments.add_argument("--mb", type=int, default=400)
    arguments.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.way:
        print(json.dumps(measure(given.way, given.folder, given.mb)))
        return
    results: dict[str, list[dict]] = {way: [] for way in WAYS}
    for number in range(given.rounds):
        for way in WAYS[number % len(WAYS) :] + WAYS[: number % len(WAYS)]:
            results[way].append(in_own_process(way, given.folder, given.mb))
    print(f"{given.rounds} rounds, a state of {given.mb} MB, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    for save in (0, 1):
        print(f"\n{'a first save' if not save else 'the next save, 5 % of it changed'}")
        print(f"{'way':12} {'kept, x copy':>14} {'kept, ms':>10} {'lost, ms':>10} {'memory, x state':>16} {'done, s':>9}")
        for way, runs in results.items():
            middle = {key: statistics.median(run["saves"][save][key] for run in runs) for key in runs[0]["saves"][save]}
            copy = statistics.median(run["copy"] for run in runs)
            print(
                f"{way:12} {middle['kept'] / copy:14.2f} {middle['kept'] * 1e3:10.0f} {middle['lost'] * 1e3:10.0f} "
                f"{middle['memory']:16.2f} {middle['took']:9.2f}"
            )


def in_own_process(way: str, folder: Path, mb: int) -> dict:
    place = Path(tempfile.mkdtemp(dir=folder))
    try:
        command = [sys.executable, __file__, str(place), "--way", way, "--mb", str(mb)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    finally:
        shutil.rmtree(place)


def measure(way: str, place: Path, mb: int) -> dict:
    import torch

    torch.set_num_threads(1)
    tensors = 64
    state = {f"layer.{i}": torch.randn(mb * 250_000 // tensors) for i in range(tensors)}
    size = sum(tensor.nbytes for tensor in state.values())
    start = starter(way, place)
    copy = seconds_of_a_copy(state)
    one, step = torch.randn(400, 400), 0.0
    for _ in range(2):
        step = min(timed(lambda: one @ one) for _ in range(50))
    saves = []
    for number in range(2):
        for tensor in list(state.values())[:: 20 if number else len(state)]:
            tensor.add_(0.5)
        saves.append(one_save(lambda: start(number + 1, state), lambda: one @ one, (step, size)))
    return {"copy": copy, "saves": saves}


def one_save(start: Callable[[], Callable[[], bool]], train: Callable[[], object], known: tuple[float, int]) -> dict:
    step, size = known
    before, peak, over = resident(), [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.002):
            peak[0] = max(peak[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    done = start()
    kept, lost = time.perf_counter() - began, 0.0
    while not done():
        lost += max(timed(train) - step, 0.0)
    took = time.perf_counter() - began
    over.set()
    watcher.join()
    return {"kept": kept, "lost": lost, "took": took, "memory": max(peak[0] - before, 0) / size}


def starter(way: str, place: Path) -> Callable[[int, dict], Callable[[], bool]]:
    """Starts a save and gives what tells whether it is done. What it is saved with is made beforehand."""
    if way == "everstep":
        import everstep

        writer = everstep.Repository(place / "repository", create=True).run("bench").writer()

        def with_everstep(step: int, state: dict) -> Callable[[], bool]:
            job = writer.save_async(step, state)
            return lambda: job.committed.done() and job.committed.result() is not None

        return with_everstep
    import torch

    if way == "torch.save":

        def with_torch(step: int, state: dict) -> Callable[[], bool]:
            copies = {name: tensor.clone() for name, tensor in state.items()}
            thread = threading.Thread(target=write_and_sync, args=(copies, place / f"{step}.pt"))
            thread.start()
            return lambda: not thread.is_alive()

        return with_torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    def with_dcp(step: int, state: dict) -> Callable[[], bool]:
        future = dcp.async_save(state, checkpoint_id=place / str(step))
        return lambda: future.done() and future.result() is not None

    return with_dcp


def write_and_sync(state: dict, path: Path) -> None:
    import torch

    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def seconds_of_a_copy(state: dict) -> float:
    """One thread, into memory that was touched before."""
    copies = {name: tensor.clone() for name, tensor in state.items()}
    return min(timed(lambda: [copies[name].copy_(tensor) for name, tensor in state.items()]) for _ in range(3))


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
