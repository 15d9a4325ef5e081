"""CUDA tensors are copied to pinned host memory, in order with what the trainer queued, and come back bit for bit."""

import time

import pytest
import torch

from everstep import _collect, _staging

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.complex64,
    torch.float8_e4m3fn, torch.float8_e5m2,
]


def same(one, other):
    return torch.equal(one.cpu().contiguous().view(torch.uint8), other.cpu().contiguous().view(torch.uint8))


def random_bytes(dtype, shape):
    found = torch.randint(0, 2 if dtype is torch.bool else 256, (*shape[:-1], shape[-1] * dtype.itemsize), dtype=torch.uint8)
    return found.view(dtype).cuda()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("how", ["save", "blocking", "overlap"])
def test_every_dtype_comes_back_bit_for_bit(run, dtype, how):
    saved = random_bytes(dtype, (33, 17))
    with run.writer() as writer:
        if how == "save":
            writer.save(1, {"x": saved})
        else:
            writer.save_async(1, {"x": saved}, staging=how).result(60)
    into = {"x": torch.zeros_like(saved)}
    run.latest().load(into)
    assert into["x"].is_cuda and same(into["x"], saved)


@pytest.mark.parametrize("how", ["blocking", "overlap"])
def test_views_scalars_and_empty_tensors_are_saved_as_what_they_show(run, how):
    base = torch.arange(600, device="cuda", dtype=torch.float32).view(20, 30)
    state = {"transposed": base.t(), "part": base[3:7, ::2], "scalar": base[1, 1], "empty": base[:0], "host": base.cpu()}
    with run.writer() as writer:
        writer.save_async(1, state, staging=how).result(60)
    into = {name: torch.zeros(tensor.shape, device=tensor.device) for name, tensor in state.items()}
    run.latest().load(into)
    assert all(torch.equal(into[name], state[name]) for name in state)


def test_the_state_may_change_as_soon_as_a_blocking_call_returns(run):
    x = torch.full((1 << 24,), 1.0, device="cuda")
    with run.writer() as writer:
        job = writer.save_async(1, {"x": x})
        x.fill_(2.0)
        job.result(60)
    assert run.latest().read("x").eq(1.0).all()


def test_the_state_may_change_once_an_overlapping_save_is_staged(run):
    x = torch.full((1 << 24,), 1.0, device="cuda")
    with run.writer() as writer:
        job = writer.save_async(1, {"x": x}, staging="overlap")
        job.staged.result(60)
        x.fill_(2.0)
        job.result(60)
    assert run.latest().read("x").eq(1.0).all()


@pytest.mark.parametrize("how", ["blocking", "overlap"])
@pytest.mark.parametrize("stream", ["default", "own"])
def test_what_the_trainer_queued_before_the_call_is_in_the_copy(run, how, stream):
    x = torch.zeros(1 << 22, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream() if stream == "own" else torch.cuda.default_stream()), run.writer() as writer:
        torch.cuda._sleep(500_000_000)  # cycles: some tenths of a second
        x.fill_(3.0)
        writer.save_async(1, {"x": x}, staging=how).result(60)
    assert run.latest().read("x").eq(3.0).all()


def test_an_overlapping_save_returns_before_the_gpu_has_finished(run):
    x = torch.zeros(1 << 22, device="cuda")
    with run.writer() as writer:
        writer.save_async(1, {"x": x}).result(60)  # makes and pins the buffer
        torch.cuda._sleep(2_000_000_000)
        started = time.monotonic()
        job = writer.save_async(2, {"x": x}, staging="overlap")
        returned = time.monotonic() - started
        assert not job.staged.done()
        job.staged.result(60)
        assert returned < (time.monotonic() - started) / 2
        job.result(60)


def test_buffers_are_pinned_and_kept():
    buffer = _staging.Buffer(2)
    addresses = set()
    for size in (1 << 20, 1 << 20, 1 << 22):  # grows once
        state = {"x": torch.ones(size, device="cuda")}
        buffer.plan(_collect.collect(state, 0, False)).copy()
        addresses.add(buffer._arena.address)
        memory = torch.frombuffer((_staging.ctypes.c_char * 4096).from_address(buffer._arena.address), dtype=torch.uint8)
        assert memory.is_pinned()
    assert len(addresses) <= 2


def test_figures_of_staging(run, capsys):
    state = {f"layer{i}": torch.randn(1 << 24, device="cuda") for i in range(32)}  # 2.1 GB
    size = sum(tensor.nbytes for tensor in state.values())
    with run.writer() as writer:
        for step in (1, 2, 3):
            job = writer.save_async(step, state)
            job.result(300)
            with capsys.disabled():
                print(f"\nstaging of {size / 1e9:.1f} GB, save {step}: blocked {job.stats.blocked:.3f} s, "
                      f"{size / job.stats.staging / 1e9:.1f} GB/s")
