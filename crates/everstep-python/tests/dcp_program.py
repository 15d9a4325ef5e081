"""What ranks do with torch.distributed.checkpoint and everstep. Run by `ranks.Ranks`; the scenarios are chosen by settings."""

import os
import signal
import sys
import time
import warnings
from dataclasses import replace

import everstep
import torch
import torch._dynamo  # noqa: F401 - FSDP would, on each rank by itself
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import CheckpointException, DefaultSavePlanner
from torch.distributed.checkpoint.planner import WriteItemType
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._shard_utils import _create_chunk_sharded_tensor
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from everstep._dcp_writer import EverstepWriter as Writer
from everstep.torch import EverstepReader, EverstepWriter
import meshes
from light_program import PACKS_OF
from ranks import DEADLINE, Place, act
from s3_double import control

torch.set_num_threads(1)
warnings.simplefilter("ignore")
MESHES: dict[str, DeviceMesh] = {}
GROUPS: dict[int, object] = {}
#: Torch 2.7 hangs when its checkpointing process dies, and refuses to save shards that are uneven in two dimensions.
NEW = hasattr(dcp.state_dict_saver, "AsyncSaveResponse")

WHOLE = {**meshes.WHOLE, "uneven": torch.arange(77.0).view(7, 11)}
ON_LINE = {**meshes.ON_LINE, "uneven": [Shard(0)]}
ON_GRID = {**meshes.ON_GRID, "uneven": [Shard(0), Shard(1)]}
if not NEW:
    ON_GRID = {name: ON_GRID[name] for name in ("columns", "same", "cube", "none")}


def begin(place: Place) -> None:
    dist.init_process_group("gloo")
    MESHES["line"] = init_device_mesh("cpu", (place.world,))
    MESHES["grid"] = init_device_mesh("cpu", (2, place.world // 2), mesh_dim_names=("a", "b"))
    for size in (2, 3, 4, 6):
        if size < place.world:
            GROUPS[size] = dist.new_group(list(range(size)))
            MESHES[str(size)] = DeviceMesh("cpu", list(range(size)))


def run_of(place: Place, name: str) -> everstep.Run:
    return everstep.Repository(place.settings["repository"]).run(name)


def on_double(place: Place, name: str) -> everstep.Run:
    url = place.settings["double"]
    return everstep.Repository("s3://bucket/r", endpoint_url=url, allow_http=True, region="us-east-1").run(name)


def spread(mesh: DeviceMesh, placements: dict, factor: float = 1) -> dict[str, DTensor]:
    return {
        name: distribute_tensor((WHOLE[name] * factor).to(WHOLE[name].dtype), mesh, on, src_data_rank=None)
        for name, on in placements.items()
    }


def legacy(place: Place, factor: float, group: object = None) -> dict[str, object]:
    """ShardedTensors as the older FSDP makes them: of uneven rows, and of fewer rows than there are ranks."""
    group = group or dist.distributed_c10d._get_default_group()
    world = dist.get_world_size(group)
    whole = {"shards": torch.arange(21.0).view(7, 3), "one row": torch.arange(5.0).view(1, 5).double()}
    return {
        name: _create_chunk_sharded_tensor(tensor * factor, place.rank, world, world, group) for name, tensor in whole.items()
    }


def fill(tensors: dict, value: float) -> None:
    for tensor in tensors.values():
        for shard in tensor.local_shards():
            shard.tensor.fill_(value)


def shards(tensors: dict) -> dict[str, list]:
    return {name: [shard.tensor.tolist() for shard in tensor.local_shards()] for name, tensor in tensors.items()}


def assert_alike(found: dict, wanted: dict) -> None:
    for name in wanted:
        one, other = found[name].to_local(), wanted[name].to_local()
        assert torch.equal(one, other), (name, one, other)


def failures(call) -> dict:
    """What torch raises for `call`: by rank the class and the message of what happened there, and how long it took."""
    began = time.monotonic()
    try:
        call()
    except CheckpointException as error:
        told = {rank: [type(cause).__name__, str(cause)] for rank, (cause, _) in error.failures.items()}
        return {"told": told, "seconds": time.monotonic() - began}
    return {"told": {}, "seconds": time.monotonic() - began}


def steps(run: everstep.Run) -> list[int]:
    return [step for _, step in run.checkpoints()]


# Saves and loads.


def nested(place: Place) -> dict:
    """A nested state of DTensors, plain tensors and values, under the default planners; then by the direct interface."""
    # Beside a ShardedTensor of which a rank has nothing, torch's load planner does not find nested values.
    sharded = lambda factor: {"shards": legacy(place, factor)["shards"]}  # noqa: E731
    run, state = run_of(place, "nested"), {"model": spread(MESHES["line"], ON_LINE), "legacy": sharded(1)}
    state |= {"plain": torch.arange(5.0), "train": {"step": 3, "lr": [0.1, 0.2], "odd": complex(0, 1)}}
    with run.writer(deadline=DEADLINE) as w:
        saved = dcp.save(state, storage_writer=EverstepWriter(w, step=3, metadata={"loss": 0.5}))
        newest = w.latest
        # Directly after it, and before another.
        direct = {"plain": torch.arange(4.0) + 1, "model": spread(MESHES["line"], ON_LINE, 2), "seen": 11}
        w.save(4, direct)
        dcp.save({"x": torch.ones(2)}, checkpoint_id="nested@step=5", storage_writer=EverstepWriter(w, step=5))
    into = {"model": spread(MESHES["line"], ON_LINE, 0), "plain": torch.zeros(5)}
    into["train"], into["legacy"] = {"step": 0, "lr": [0.0, 0.0], "odd": None}, sharded(0)
    dcp.load(into, storage_reader=EverstepReader(run, step=3))
    assert_alike(into["model"], state["model"])
    assert shards(into["legacy"]) == shards(state["legacy"])
    assert torch.equal(into["plain"], state["plain"]) and into["train"] == state["train"]
    again = {"model": spread(MESHES["line"], ON_LINE, 0), "plain": torch.zeros(5)}
    again["train"], again["legacy"] = {"step": 0, "lr": [0.0, 0.0], "odd": b""}, sharded(0)
    run.repository.checkpoint("nested@step=3").load(again)
    assert_alike(again["model"], state["model"])
    assert shards(again["legacy"]) == shards(state["legacy"])
    assert again["train"]["step"] == 3 and again["train"]["lr"] == [0.1, 0.2]
    other = {"model": spread(MESHES["line"], ON_LINE, 0), "plain": torch.zeros(4), "seen": 0}
    dcp.load(other, storage_reader=EverstepReader(run, step=4))
    assert_alike(other["model"], direct["model"])
    assert torch.equal(other["plain"], direct["plain"]) and other["seen"] == 11
    return {
        "newest": newest.step,
        "meta": saved.storage_meta.checkpoint_id,
        "data": saved.storage_data,
        "steps": steps(run),
        "loss": run.repository.checkpoint("nested@step=3").metadata,
    }


class ToTheLast(DefaultSavePlanner):
    """Gives all values to the last rank."""

    def create_global_plan(self, all_plans):
        plans, metadata = super().create_global_plan(all_plans)
        values = [item for plan in plans for item in plan.items if item.type == WriteItemType.BYTE_IO]
        plans = [replace(plan, items=[item for item in plan.items if item not in values]) for plan in plans]
        return [*plans[:-1], replace(plans[-1], items=plans[-1].items + values)], metadata


def values_elsewhere(place: Place) -> dict:
    """Values that another rank than the first writes are the whole job's: any rank loads them, through torch or not."""
    run, state = run_of(place, "values"), {"train": {"step": 3, "lr": [0.1, 0.2]}, "w": torch.arange(5.0)}
    with run.writer(deadline=DEADLINE) as w:
        writer = EverstepWriter(w, step=3)
        dcp.save(state | {"writer": place.rank, "odd": {place.rank}}, storage_writer=writer, planner=ToTheLast())
    checkpoint, found = run.latest(), []
    through_torch = lambda into: dcp.load(into, storage_reader=EverstepReader(checkpoint))  # noqa: E731
    for load in (through_torch, lambda into: checkpoint.load(into, strict=False)):
        into = {"train": {"step": 0, "lr": [0.0, 0.0]}, "w": torch.zeros(5), "writer": None}
        load(into)
        assert torch.equal(into["w"], state["w"]) and into["train"] == state["train"]
        found.append(into["writer"])
    return {
        "found": found + [checkpoint.value("writer")],
        "ranks": {entry["name"]: entry["ranks"] for entry in checkpoint.entries()},
        "unexpected": checkpoint.load({"w": torch.zeros(5)}, strict=False).unexpected,
    }


class Caching(DefaultSavePlanner):
    def __init__(self):
        super().__init__(enable_plan_caching=True)


def versions(step: int, factor: float) -> dict:
    """Of one step; from the third on, a type, a shape and a name are others."""
    changed = step >= 3
    state = {"line": spread(MESHES["line"], ON_LINE, factor), "step": step}
    state["typed"] = torch.full((4,), factor, dtype=torch.float64 if changed else torch.float32)
    state["shaped"] = torch.full((5 if changed else 4, 2), factor)
    state["second" if changed else "first"] = torch.full((2,), factor)
    return state


def plan_caching(place: Place) -> list:
    """Five saves through cached plans: each is of its own values, and what changes at the third is honoured."""
    run = run_of(place, "caching")
    with run.writer(deadline=DEADLINE) as w:
        for step in range(1, 6):
            dcp.save(versions(step, step), storage_writer=EverstepWriter(w, step=step), planner=Caching())
    for step in range(1, 6):
        into, wanted = versions(step, 0), versions(step, step)
        into["step"] = 0
        dcp.load(into, storage_reader=EverstepReader(run, step=step))
        assert_alike(into["line"], wanted["line"])
        for name in set(wanted) - {"line", "step"}:
            assert torch.equal(into[name], wanted[name]) and into[name].dtype == wanted[name].dtype, (step, name)
        assert into["step"] == step
    return steps(run)


class Shared(DefaultSavePlanner):
    """One class, so one cache, for two states of the same names and shapes, and a third of other ones."""

    def __init__(self):
        super().__init__(enable_plan_caching=True)


def one_cache_for_two_states(place: Place) -> list:
    run = run_of(place, "two-states")

    def states(factor):
        averages = {name: value for name, value in spread(MESHES["line"], ON_LINE, -factor).items()}
        return spread(MESHES["line"], ON_LINE, factor), averages, {"other": torch.full((3,), float(factor))}

    with run.writer(deadline=DEADLINE) as w:
        for turn in (1, 2):
            for number, state in enumerate(states(turn)):
                dcp.save(state, storage_writer=EverstepWriter(w, step=10 * turn + number), planner=Shared())
    for turn in (1, 2):
        for number, (wanted, into) in enumerate(zip(states(turn), states(0))):
            dcp.load(into, storage_reader=EverstepReader(run, step=10 * turn + number))
            if number < 2:
                assert_alike(into, wanted)
            else:
                assert torch.equal(into["other"], wanted["other"])
    return steps(run)


def threads(place: Place) -> dict:
    """Saves by a thread of torch's: the state changes at once, the next copy waits, and other saves of the writer as well."""
    run = run_of(place, "threads")
    state = {"line": spread(MESHES["line"], ON_LINE, 1), "value": [0]}
    state["large"], state["legacy"] = torch.full((300_000,), 1.0), legacy(place, 1)
    where, futures = set(), []
    with run.writer(deadline=DEADLINE) as w:
        for step in (1, 2, 3):
            for value in (*state["line"].values(), state["large"]):
                (value.to_local() if isinstance(value, DTensor) else value).fill_(step)
            fill(state["legacy"], step)
            state["value"][0] = step
            way = "overlap" if step == 3 and NEW else "blocking"
            said = dcp.async_save(state, storage_writer=EverstepWriter(w, step=step, staging=way))
            where.add(w._torch._arena.address)
            if way == "overlap":
                said.staging_completion.result(60)
                said = said.upload_completion
            futures.append(said)
        w.save(4, {"direct": torch.ones(3)})
        futures.append(dcp.async_save(state, storage_writer=EverstepWriter(w, step=5)))
    assert all(future.done() and future.exception() is None for future in futures)
    for step in (1, 2, 3):
        into = {"line": spread(MESHES["line"], ON_LINE, 0), "value": [0], "large": torch.zeros(300_000)}
        into["legacy"], wanted = legacy(place, 0), legacy(place, 0)
        fill(wanted, step)
        dcp.load(into, storage_reader=EverstepReader(run, step=step))
        assert all(bool((value.to_local() == step).all()) for value in into["line"].values())
        assert bool((into["large"] == step).all()) and into["value"] == [step]
        assert shards(into["legacy"]) == shards(wanted)
    return {"buffers": len(where), "steps": steps(run)}


def processes(place: Place) -> dict | None:
    """Saves by a process of torch's, with cached plans, by two ranks: under the same session, without a fence. At the end
    that process is killed in a save."""
    if place.rank > 1:
        return None
    from torch.distributed.checkpoint import _async_process_executor

    run, mesh = on_double(place, "processes"), MESHES["2"]
    board = dist.PrefixStore("processes", dist.distributed_c10d._get_default_store())

    def start(w, step):
        return dcp.async_save(
            state,
            storage_writer=EverstepWriter(w, step=step),
            planner=Caching(),
            process_group=GROUPS[2],
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
        )

    def latest(step):
        into = {"line": spread(mesh, ON_LINE, 0), "step": 0, "large": torch.zeros(50_000)}
        into["legacy"] = legacy(place, 0, GROUPS[2])
        dcp.load(into, storage_reader=EverstepReader(run.repository.checkpoint(f"processes@step={step}")), process_group=GROUPS[2])
        return into

    state = {"line": spread(mesh, ON_LINE, 1), "large": torch.zeros(50_000), "legacy": legacy(place, 1, GROUPS[2])}
    with run.writer(group=(place.rank, 2, board), deadline=90.0) as w:  # torch's processes take a while to begin
        for step in (1, 2, 3):
            state["step"] = step
            state["large"].fill_(step)
            fill(state["legacy"], step)
            future = start(w, step)
            state["large"].fill_(-1)
            fill(state["legacy"], -1)
        found = {"metadata": future.result(60).storage_meta.checkpoint_id, "newest": w.latest.step}
        w.save(4, {"direct": torch.ones(3) * place.world})
        found["pid"] = _async_process_executor._CHECKPOINT_PROCESS._save_process.pid
        state["step"] = 5
        state["large"].fill_(5)
        fill(state["legacy"], 5)
        start(w, 5).result(60)
        w.save_async(6, {"direct": torch.ones(4)})
        found["resumed"] = w.resume({"direct": torch.zeros(4)})
        for step in (1, 2, 3, 5):
            into = latest(step)
            assert into["step"] == step and bool((into["large"] == step).all()), (step, into["large"])
            wanted = legacy(place, 0, GROUPS[2])
            fill(wanted, step)
            assert shards(into["legacy"]) == shards(wanted)
            assert_alike(into["line"], state["line"])
        found["killed"] = killed_process(place, (w, start, state), found["pid"]) if NEW else None
        saved = w.save(8, {"direct": torch.ones(5)})
        found["after"] = saved.step
    found["steps"] = steps(run)
    found["ordinal"] = run.latest().ordinal
    return found


def killed_process(place: Place, given: tuple, pid: int) -> list:
    """Rank 1's process is killed while its upload is held."""
    w, start, state = given
    if place.rank == 0:
        control(place.settings["double"], fault={"method": "PUT", "match": PACKS_OF.format(1), "hold": True})
    meet(place, "killing")
    state["line"]["rows"].to_local().uniform_()
    state["step"] = 7
    state["line"]["uneven"] = distribute_tensor(torch.rand(7, 1100), MESHES["2"], [Shard(0)], src_data_rank=None)
    future = start(w, 7)
    if place.rank == 1:
        control(place.settings["double"], arrival=True)
        os.kill(pid, signal.SIGKILL)
    try:
        future.result(60)
    except BaseException as error:
        found = [type(error).__name__, str(error)[:300]]
    else:
        found = [None, ""]
    meet(place, "killed")
    if place.rank == 0:
        control(place.settings["double"], release=True)
    meet(place, "released")
    return found


def meet(place: Place, name: str) -> None:
    """Of the first two ranks."""
    place.tell(f"{name}-{place.rank}", True)
    for rank in (0, 1):
        place.hear(f"{name}-{rank}")


# What fails.


def another_id(place: Place) -> dict:
    """A checkpoint_id that says something else, on one rank; no_dist and the like."""
    run = run_of(place, "ids")
    with run.writer(deadline=DEADLINE) as w:
        given = "ids@step=1" if place.rank != 2 else "ids@step=2"
        state = {"x": torch.ones(3)}
        other = failures(lambda: dcp.save(state, checkpoint_id=given, storage_writer=EverstepWriter(w, step=1)))
        try:
            alone = EverstepWriter(w, step=1)
            alone.set_up_storage_writer(True, rank=0, use_collectives=False)
        except everstep.InvalidArgument as error:
            apart = str(error)
        dcp.save(state, checkpoint_id="ids@step=1", storage_writer=EverstepWriter(w, step=1))
    return {"other": other, "apart": apart, "steps": steps(run)}


class Breaking(DefaultSavePlanner):
    """Cannot give its data on one rank."""

    def __init__(self, bad: bool):
        super().__init__()
        self.bad = bad

    def resolve_data(self, write_item):
        if self.bad:
            raise everstep.InvalidArgument("the data are gone")
        return super().resolve_data(write_item)


class Forgetful(Writer):
    """Does what torch's own writer does when one of its threads fails: it says nothing of an item that it did not write."""

    def __init__(self, writer, step, bad):
        super().__init__(writer, step)
        self.bad = bad

    def write_data(self, plan, planner):
        future = super().write_data(plan, planner)
        if not self.bad:
            return future
        dropped = torch.futures.Future()
        dropped.set_result(future.value()[:-1])
        return dropped


def broken(place: Place) -> dict:
    """A rank that fails: before it writes, in its upload, without a word. The next save of the same step is good."""
    found = {}
    for how in ("resolve", "lead", "upload", "forget", "commit"):
        run = on_double(place, f"broken-{how}")
        with run.writer(deadline=DEADLINE) as w:
            found[how] = broken_once(place, w, how)
            found[how]["steps"] = steps(run)
    return found


def broken_once(place: Place, w: everstep.Writer, how: str) -> dict:
    bad = {"resolve": place.rank == 2, "lead": place.rank == 0}.get(how, False)
    match = {"upload": PACKS_OF.format(2), "commit": "/commit|/decision|/decided"}.get(how)
    state = {"line": spread(MESHES["line"], ON_LINE), "noise": noise(place.rank)}
    if place.rank == 0 and match:
        control(place.settings["double"], fault={"method": "PUT", "match": match, "status": 403})
    place.meet(f"{w.run.name}-begin")
    writer = Forgetful(w, 1, how == "forget" and place.rank == 2)
    said = failures(lambda: dcp.save(state, storage_writer=writer, planner=Breaking(bad)))
    before = w.run.latest()
    place.meet(f"{w.run.name}-end")
    if place.rank == 0:
        control(place.settings["double"], release=True)
    place.meet(f"{w.run.name}-next")
    said["next"] = failures(lambda: dcp.save(state, storage_writer=EverstepWriter(w, step=1)))
    return {**said, "before": before and before.step}


def noise(rank: int) -> DTensor:
    local = torch.rand(5000, generator=torch.Generator().manual_seed(rank))
    return DTensor.from_local(local, MESHES["line"], [Shard(0)])


def absent(place: Place) -> dict:
    """What is not there, and what cannot be asked for by one rank: all ranks are told so, and none goes its own way."""
    run, found = on_double(place, "absent"), {}
    with run.writer(deadline=DEADLINE) as w:
        dcp.save({"x": torch.ones(3)}, storage_writer=EverstepWriter(w, step=1))
    load = lambda reader: failures(lambda: dcp.load({"x": torch.zeros(3)}, storage_reader=reader))  # noqa: E731
    found["step"] = load(EverstepReader(run, step=2, deadline=DEADLINE))
    found["run"] = load(EverstepReader(run.repository.run("nothing"), deadline=DEADLINE))
    reader = EverstepReader(run, deadline=DEADLINE)
    if place.rank == 2:
        reader._metadata = lambda: _raise(everstep.Unreachable("the store does not answer"))
    found["one"] = load(reader)
    reader = EverstepReader(run, deadline=DEADLINE)
    if place.rank == 0:
        reader._choose = lambda: _raise(everstep.Unreachable("the store does not answer"))
    found["leader"] = load(reader)
    into = {"x": torch.zeros(3)}
    dcp.load(into, storage_reader=EverstepReader(run, deadline=DEADLINE))
    found["then"] = into["x"].tolist()
    with run.writer(deadline=DEADLINE) as w:
        w.save(2, {"x": torch.ones(3)})
    other = run.repository.checkpoint(f"absent@step={2 if place.rank == 1 else 1}")
    found["different"] = load(EverstepReader(other))
    return found


def _raise(error: Exception):
    raise error


# Other meshes and numbers of ranks.


def small_model(seed: int, mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(33, 17), nn.LayerNorm(17), nn.Linear(17, 5))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01 * seed)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.linspace(0, 1, 4 * 33).view(4, 33)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    found = {}
    for name, parameter in model.named_parameters():
        found[name] = parameter.detach()
        found |= {f"{name}.{key}": value for key, value in optimizer.state[parameter].items()}
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value.clone() for name, value in found.items()
    }


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optim": moments}


def load_into(model, optimizer, checkpoint, group=None) -> None:
    state = state_of(model, optimizer)
    dcp.load(state, storage_reader=EverstepReader(checkpoint), process_group=group)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])


def fsdp(place: Place) -> dict:
    """FSDP2 with its optimizer: to fewer ranks, and from there back to all."""
    run, fewer = run_of(place, "fsdp"), place.world * 3 // 4
    model, optimizer = small_model(1, MESHES["line"])
    train(model, optimizer)
    with run.writer(deadline=DEADLINE) as w:
        dcp.save(state_of(model, optimizer), storage_writer=EverstepWriter(w, step=1))
    saved = everything(model, optimizer)
    place.meet("fsdp-saved")
    if place.rank < fewer:
        other = small_model(2, MESHES[str(fewer)])
        load_into(*other, run.repository.checkpoint("fsdp@step=1"), GROUPS[fewer])
        assert_equal(everything(*other), saved)
        store = dist.PrefixStore("fewer", dist.distributed_c10d._get_default_store())
        with run_of(place, "fsdp-fewer").writer(group=(place.rank, fewer, store), deadline=DEADLINE) as w:
            writer = EverstepWriter(w, step=2)
            dcp.save(state_of(*other), storage_writer=writer, process_group=GROUPS[fewer])
    place.meet("fsdp-fewer")
    again = small_model(3, MESHES["line"])
    load_into(*again, run_of(place, "fsdp-fewer").latest())
    assert_equal(everything(*again), saved)
    train(model, optimizer)
    train(*again)
    assert_equal(everything(*again), everything(model, optimizer))
    return {"ranks": run_of(place, "fsdp-fewer").latest().world_size}


def assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys() and one
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def meshes(place: Place) -> list:
    """From one dimension to two and back, and to fewer ranks; every box is that of the whole tensor."""
    run, fewer = run_of(place, "meshes"), place.world * 3 // 4
    line, grid = spread(MESHES["line"], ON_LINE), spread(MESHES["grid"], ON_GRID)
    with run.writer(deadline=DEADLINE) as w:
        dcp.save(line, storage_writer=EverstepWriter(w, step=1))
        dcp.save(grid, storage_writer=EverstepWriter(w, step=2))
    for step in (1, 2):
        into = spread(MESHES["grid"], ON_GRID, 0)
        dcp.load(into, storage_reader=EverstepReader(run, step=step))
        assert_alike(into, grid)
        if not NEW and step == 2:
            continue
        into = spread(MESHES["line"], ON_LINE, 0)
        dcp.load(into, storage_reader=EverstepReader(run, step=step))
        assert_alike(into, line)
        if place.rank < fewer:
            into = spread(MESHES[str(fewer)], ON_LINE, 0)
            reader = EverstepReader(run.repository.checkpoint(f"meshes@step={step}"))
            dcp.load(into, storage_reader=reader, process_group=GROUPS[fewer])
            assert_alike(into, spread(MESHES[str(fewer)], ON_LINE))
        place.meet(f"meshes-{step}")
    whole = {name: torch.zeros_like(WHOLE[name]) for name in ON_GRID}
    dcp.load(whole, storage_reader=EverstepReader(run.latest()), no_dist=True)
    assert_equal(whole, {name: WHOLE[name] for name in ON_GRID})
    return steps(run)


def tensor_parallel(place: Place) -> str:
    """FSDP over tensor parallelism: shards of shards of one dimension."""
    torch.manual_seed(5)
    hidden = 13 if NEW else 16  # torch 2.7 wants even parts here
    model = nn.Sequential(nn.Linear(10, hidden), nn.ReLU(), nn.Linear(hidden, 8))
    whole = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    grid = MESHES["grid"]
    parallelize_module(model, grid["b"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=grid["a"])
    run = run_of(place, "tp")
    with run.writer(deadline=DEADLINE) as w:
        dcp.save({"model": model.state_dict()}, storage_writer=EverstepWriter(w, step=1))
    into = {"model": {name: torch.zeros_like(tensor) for name, tensor in whole.items()}}
    dcp.load(into, storage_reader=EverstepReader(run))
    assert_equal(into["model"], whole)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    state = {"model": model.state_dict()}
    dcp.load(state, storage_reader=EverstepReader(run))
    model.load_state_dict(state["model"])
    assert_equal({name: tensor.full_tensor() for name, tensor in model.state_dict().items()}, whole)
    return repr(model[0].weight.placements)


def foreign(place: Place) -> dict:
    """A folder of torch's own writer, saved once more through everstep."""
    run, folder = run_of(place, "foreign"), str(place.folder / "foreign")
    state = {"grid": spread(MESHES["grid"], ON_GRID), "train": {"step": 7, "names": ["a", "b"]}}
    dcp.save(state, checkpoint_id=folder)

    def empty():
        return {"grid": spread(MESHES["grid"], ON_GRID, 0), "train": {"step": 0, "names": ["", ""]}}

    loaded, again = empty(), empty()
    dcp.load(loaded, checkpoint_id=folder)
    with run.writer(deadline=DEADLINE) as w:
        dcp.save(loaded, storage_writer=EverstepWriter(w, step=7))
    dcp.load(again, storage_reader=EverstepReader(run))
    assert_alike(again["grid"], state["grid"])
    return again["train"]


def slices(place: Place) -> dict:
    """A tensor that one rank wrote whole, read in parts: bytes that each rank receives, as a share of the tensor."""
    run = on_double(place, "slices")
    whole = torch.rand(4096, 1024, generator=torch.Generator().manual_seed(1))
    with run.writer(deadline=DEADLINE) as w:
        dcp.save({"w": whole}, storage_writer=EverstepWriter(w, step=1))
    into = {"w": distribute_tensor(torch.zeros_like(whole), MESHES["line"], [Shard(0)], src_data_rank=None)}
    reader = EverstepReader(run.latest())
    before = run.repository.traffic()["bytes_received"]
    dcp.load(into, storage_reader=reader)
    received = run.repository.traffic()["bytes_received"] - before
    rows = slice(1024 * place.rank, 1024 * (place.rank + 1))
    assert torch.equal(into["w"].to_local(), whole[rows])
    return {"share": received / (4096 * 1024 * 4)}


ALL = [
    nested,
    values_elsewhere,
    slices,
    plan_caching,
    one_cache_for_two_states,
    threads,
    processes,
    another_id,
    broken,
    absent,
    fsdp,
    meshes,
    tensor_parallel,
    foreign,
]

if __name__ == "__main__":
    import json

    wanted = json.loads(sys.argv[1])[3].get("scenarios")
    act({f.__name__: f for f in [begin, *ALL] if wanted is None or f is begin or f.__name__ in wanted})
