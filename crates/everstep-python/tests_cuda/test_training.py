"""Models and optimizers on a GPU, with FSDP2 over NCCL as well, end bit for bit where an undisturbed training ends."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from everstep import PerRank


@pytest.fixture
def nccl():
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda", 0))
    yield
    dist.destroy_process_group()


class Random:
    """The GPU's random numbers, which each rank has its own of."""

    def state_dict(self):
        return {"cuda": PerRank(torch.cuda.get_rng_state())}

    def load_state_dict(self, state):
        torch.cuda.set_rng_state(state["cuda"].value)


def build(sharded, **options):
    torch.manual_seed(1)
    layers = [torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(256, 256)]
    model = torch.nn.Sequential(*layers).cuda()
    if sharded:
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    return {"model": model, "optimizer": optimizer, "random": Random()}


def train(state, steps):
    for _ in range(steps):
        state["model"](torch.randn(64, 256, device="cuda")).square().mean().backward()
        state["optimizer"].step()
        state["optimizer"].zero_grad()


def tensors(state):
    whole = lambda tensor: (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).cpu()  # noqa: E731
    parameters = dict(state["model"].named_parameters())
    moments = {f"{n}.{k}": v for n, p in parameters.items() for k, v in state["optimizer"].state[p].items()}
    return {name: whole(tensor.detach()) for name, tensor in (parameters | moments).items()}


def ends_alike(run, sharded, **options):
    undisturbed = build(sharded, **options)
    with run.writer() as writer:
        train(undisturbed, 3)
        job = writer.save_async(3, undisturbed, staging="overlap")
        job.staged.result(60)
        train(undisturbed, 3)
    resumed = build(sharded, **options)
    with run.writer(takeover="now") as writer:
        assert writer.resume(into=resumed) == 3
        train(resumed, 3)
    expected, found = tensors(undisturbed), tensors(resumed)
    assert expected.keys() == found.keys() and len(found) == 16
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
    return resumed


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"capturable": True}], ids=["foreach", "fused", "capturable"])
def test_a_resumed_training_ends_bit_for_bit_where_an_undisturbed_one_ends(run, options):
    ends_alike(run, sharded=False, **options)


def test_so_does_one_with_fsdp2_over_nccl(run, nccl):
    resumed = ends_alike(run, sharded=True)
    parameter = next(resumed["model"].parameters())
    assert parameter.to_local().is_cuda


def test_a_checkpoint_of_the_gpu_loads_on_the_host_and_the_other_way_round(run):
    on_gpu = {"w": torch.randn(100, 100, device="cuda")}
    on_host = {"w": torch.zeros(100, 100)}
    with run.writer() as writer:
        writer.save(1, on_gpu)
        run.latest().load(on_host)
        assert torch.equal(on_host["w"], on_gpu["w"].cpu())
        on_host["w"] += 1
        writer.save(2, on_host)
    run.latest().load(on_gpu)
    assert torch.equal(on_host["w"], on_gpu["w"].cpu())


def test_casts_go_into_tensors_of_the_gpu(run):
    with run.writer() as writer:
        writer.save(1, {"w": torch.linspace(0, 1, 1000)})
    into = {"w": torch.zeros(1000, dtype=torch.bfloat16, device="cuda")}
    report = run.latest().load(into, cast=True)
    assert report.lossy_casts == [("w", "f32", "bf16")]
    assert torch.equal(into["w"].cpu(), torch.linspace(0, 1, 1000).bfloat16())
