"""What four ranks of torch.distributed do. Run by `ranks.Ranks`."""

import os
import signal
import threading
import time

import everstep
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from light_program import PACKS_OF, attempt, one_failure
from meshes import ON_GRID, ON_LINE, WHOLE
from ranks import DEADLINE, Place, act
from s3_double import control

torch.set_num_threads(1)
MESHES: dict[str, DeviceMesh] = {}


def begin(place: Place) -> None:
    dist.init_process_group("gloo")
    MESHES["line"] = init_device_mesh("cpu", (4,))
    MESHES["grid"] = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    MESHES["three"] = DeviceMesh("cpu", [0, 1, 2])


def run_of(place: Place, name: str) -> everstep.Run:
    return everstep.Repository(place.settings["repository"]).run(name)


def spread(mesh: DeviceMesh, placements: dict, zero: bool = False) -> dict[str, DTensor]:
    source = {name: torch.zeros_like(tensor) if zero else tensor for name, tensor in WHOLE.items()}
    return {
        name: distribute_tensor(tensor, mesh, placements[name], src_data_rank=None)
        for name, tensor in source.items()
    }


def assert_alike(found: dict[str, DTensor], wanted: dict[str, DTensor]) -> None:
    for name in wanted:
        assert found[name].placements == wanted[name].placements
        assert torch.equal(found[name].to_local(), wanted[name].to_local()), name


def dtensors(place: Place) -> list:
    """Saved on one mesh, loaded on another, there and back, and by fewer ranks."""
    run = run_of(place, "dtensors")
    line, grid = spread(MESHES["line"], ON_LINE), spread(MESHES["grid"], ON_GRID)
    with run.writer(deadline=DEADLINE) as w:
        w.save(1, line)
        into = spread(MESHES["grid"], ON_GRID, zero=True)
        w.resume(into)
        assert_alike(into, grid)
        stats = w.save_async(2, grid).result(60).stats
        into = spread(MESHES["line"], ON_LINE, zero=True)
        w.resume(into)
        assert_alike(into, line)
    place.meet("dtensors")
    if place.rank < 3:
        into = spread(MESHES["three"], ON_LINE, zero=True)
        run.latest().load(into)
        assert_alike(into, spread(MESHES["three"], ON_LINE))
    return [stats.new_raw_bytes]


def partial_sums(place: Place) -> list:
    from torch.distributed.tensor import Partial

    tensor = DTensor.from_local(torch.ones(3), MESHES["line"], [Partial()])
    with run_of(place, "partial").writer(deadline=DEADLINE) as w:
        return attempt(lambda: w.save(1, {"deep": {"w": tensor}}))


def sharded_tensors(place: Place) -> list:
    """ShardedTensor: rows of three ranks, none on the last one; loaded as plain memory and as DTensor."""
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ShardMetadata

    def rows(fill=None):
        begin, count = 3 * place.rank, (3, 3, 1, 0)[place.rank]
        local = WHOLE["rows"][begin : begin + count].clone() if fill is None else torch.full((count, 3), fill)
        where = ShardMetadata([begin, 0], [count, 3], placement=f"rank:{place.rank}/cpu")
        return sharded_tensor.init_from_local_shards(
            [sharded_tensor.Shard(local, where)] if count else [], 7, 3
        )

    with run_of(place, "sharded").writer(deadline=DEADLINE) as w:
        w.save(1, {"w": rows()})
        into, plain = rows(-1.0), torch.zeros(7, 3)
        w.resume({"w": into})
        w.resume({"w": plain})
    for shard in into.local_shards():
        begin = shard.metadata.shard_offsets[0]
        assert torch.equal(shard.tensor, WHOLE["rows"][begin : begin + len(shard.tensor)])
    return plain.flatten().tolist()


def small_model(seed: int, mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(33, 17), nn.LayerNorm(17), nn.Linear(17, 5))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01 * seed)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 1) -> None:
    for step in range(steps):
        model(torch.linspace(0, 1, 4 * 33).view(4, 33) + step).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """All parameters and moments, whole."""
    found = {}
    for name, parameter in model.named_parameters():
        found[name] = parameter.detach()
        found |= {f"{name}.{key}": value for key, value in optimizer.state[parameter].items()}
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value.clone()
        for name, value in found.items()
    }


def assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys() and one
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def fsdp(place: Place) -> int:
    """A model and its AdamW: on as many ranks, on three, and from three back on four."""
    run, state = run_of(place, "fsdp"), {}
    state["model"], state["optim"] = small_model(1, MESHES["line"])
    train(state["model"], state["optim"], 2)
    other = dict(zip(("model", "optim"), small_model(2, MESHES["line"])))
    saved = everything(state["model"], state["optim"])
    with run.writer(deadline=DEADLINE) as w:
        w.save_async(2, state)
        train(state["model"], state["optim"])  # in place, while the save is on its way
        assert w.resume(other) == 2
    assert_equal(everything(other["model"], other["optim"]), saved)
    train(other["model"], other["optim"])
    assert_equal(everything(other["model"], other["optim"]), everything(state["model"], state["optim"]))
    place.meet("fsdp-4")
    if place.rank < 3:
        fewer = dict(zip(("model", "optim"), small_model(3, MESHES["three"])))
        run.latest().load(fewer)
        assert_equal(everything(fewer["model"], fewer["optim"]), saved)
        with run_of(place, "fsdp3").writer(group=(place.rank, 3, place.board("fsdp3")), deadline=DEADLINE) as w:
            w.save(5, fewer)
    place.meet("fsdp-3")
    again = dict(zip(("model", "optim"), small_model(4, MESHES["line"])))
    run_of(place, "fsdp3").latest().load(again)
    assert_equal(everything(again["model"], again["optim"]), saved)
    return run_of(place, "fsdp3").latest().world_size


def tensor_parallel(place: Place) -> str:
    """FSDP over tensor parallelism: shards of shards of one dimension."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(10, 13), nn.ReLU(), nn.Linear(13, 6))
    whole = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    grid = MESHES["grid"]
    parallelize_module(model, grid["shard"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=grid["replicate"])
    run = run_of(place, "tp")
    with run.writer(deadline=DEADLINE) as w:
        w.save(1, {"model": model})
        into = {name: torch.zeros_like(tensor) for name, tensor in whole.items()}
        w.resume({"model": into})
        assert_equal(into, whole)
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
        w.resume({"model": model})
    assert_equal({name: tensor.full_tensor() for name, tensor in model.state_dict().items()}, whole)
    return repr(model[0].weight.placements)


def hsdp(place: Place) -> dict:
    """Two copies on two ranks each: stored once."""
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512))
    fully_shard(model, mesh=MESHES["grid"])
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.rand(2, 512)).square().mean().backward()
    optimizer.step()
    repo = everstep.Repository(place.settings["hsdp"], compress=False)
    with repo.run("hsdp").writer(deadline=DEADLINE) as w:
        stats = w.save(1, {"model": model, "optim": optimizer}).stats
    return {
        "stored": stats.stored_bytes,
        "raw": 3 * 4 * 2 * (512 * 512 + 512),
        "params": [list(p.to_local().shape) for p in model.parameters()],
    }


def failures(place: Place) -> dict:
    """C04 a to c: rank 2 fails while it collects its state, in its upload, just before the commit; in a save, and in
    one in the background. Then the next save succeeds."""
    found = {}
    repo = everstep.Repository(
        "s3://bucket/r", endpoint_url=place.settings["double"], allow_http=True, region="us-east-1"
    )
    for how in ("collect", "upload", "commit"):
        for mode in ("save", "async"):
            run = repo.run(f"{how}-{mode}")
            with run.writer(deadline=DEADLINE) as w:
                found[f"{how}-{mode}"] = one_failure(place, w, how, mode == "async")
    return found


def killed(place: Place) -> dict:
    """C04 d: rank 2 is killed in its upload. The last thing these ranks do."""
    url = place.settings["double"]
    repo = everstep.Repository("s3://bucket/r", endpoint_url=url, allow_http=True, region="us-east-1")
    w = repo.run("killed-torch").writer(deadline=6.0)
    w.save(1, {"w": torch.ones(3)})
    if place.rank == 0:
        control(url, fault={"method": "PUT", "match": PACKS_OF.format(2), "hold": True})
    place.meet("killed-torch")
    if place.rank == 2:
        threading.Thread(
            target=lambda: (control(url, arrival=True), os.kill(os.getpid(), signal.SIGKILL))
        ).start()
    local = torch.rand(5000, generator=torch.Generator().manual_seed(place.rank))
    error = attempt(lambda: w.save(2, {"w": everstep.Shard(local, (20000,), (5000 * place.rank,))}))
    began = time.monotonic()
    following = attempt(lambda: w.save(3, {"w": torch.ones(3)}))
    return {
        "error": error,
        "following": following,
        "waited": time.monotonic() - began,
        "latest": repo.run("killed-torch").latest().step,
    }


if __name__ == "__main__":
    act(
        {
            f.__name__: f
            for f in (
                begin,
                dtensors,
                partial_sums,
                sharded_tensors,
                fsdp,
                tensor_parallel,
                hsdp,
                failures,
                killed,
            )
        }
    )
