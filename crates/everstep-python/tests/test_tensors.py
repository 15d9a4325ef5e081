"""Tensors of torch and numpy: every element type, in every layout, is saved as what it shows."""

import everstep
import numpy as np
import pytest
import torch
from everstep._tensors import BITS
from everstep._torch_tensors import _NAMES

TORCH = sorted(_NAMES, key=str)
NUMPY = ["bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
NUMPY += ["float16", "float32", "float64", "complex64", "complex128"]


def random_tensor(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Any bits at all, NaNs with payloads as well."""
    size = torch.empty(0, dtype=dtype).element_size()
    data = np.random.default_rng(7).integers(
        0, 2 if dtype is torch.bool else 256, (*shape[:-1], shape[-1] * size), np.uint8
    )
    return torch.from_numpy(data).view(dtype)


def raw(tensor: torch.Tensor) -> bytes:
    """Its bytes in row-major order."""
    return (
        tensor.detach()
        .resolve_conj()
        .resolve_neg()
        .contiguous()
        .reshape(-1)
        .view(torch.uint8)
        .numpy()
        .tobytes()
    )


def layouts(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    found = {
        "contiguous": random_tensor(dtype, 4, 6),
        "transposed": random_tensor(dtype, 4, 6).t(),
        "strided": random_tensor(dtype, 8, 12)[::3, ::2],
        "expanded": random_tensor(dtype, 1).expand(5, 4),
        "channels_last": random_tensor(dtype, 2, 3, 4, 6).contiguous(memory_format=torch.channels_last),
        "offset": random_tensor(dtype, 32)[3:9],
        "empty": torch.empty((3, 0, 4), dtype=dtype),
    }
    if dtype is not getattr(torch, "float4_e2m1fn_x2", None):
        found["scalar"] = random_tensor(dtype, 1).reshape(())
    return found


def target(tensor: torch.Tensor, transposed: bool) -> torch.Tensor:
    """Zeros of the same shape; if asked for, in memory that is not in their order."""
    shape, size = tuple(tensor.shape), tensor.element_size()
    shape = shape[::-1] if transposed else shape
    memory = torch.zeros((*shape[:-1], (shape[-1] if shape else 1) * size), dtype=torch.uint8)
    memory = memory.view(tensor.dtype).reshape(shape)
    return memory.permute(tuple(reversed(range(len(shape))))) if transposed else memory


@pytest.mark.parametrize("dtype", TORCH, ids=str)
def test_c23_every_torch_dtype_comes_back_from_every_layout(save, dtype):
    state = layouts(dtype)
    checkpoint = save(state)
    for transposed in (False, True):
        into = {name: target(tensor, transposed) for name, tensor in state.items()}
        before = {name: tensor.data_ptr() for name, tensor in into.items()}
        checkpoint.load(into)
        for name, tensor in state.items():
            assert into[name].dtype == dtype and into[name].shape == tensor.shape, name
            assert raw(into[name]) == raw(tensor), (name, transposed)
            assert into[name].data_ptr() == before[name], f"{name} was not loaded in place"


@pytest.mark.parametrize("dtype", NUMPY)
def test_c23_every_numpy_dtype_comes_back_from_every_layout(save, dtype):
    size = np.dtype(dtype).itemsize
    data = (
        np.random.default_rng(3).integers(0, 2 if dtype == "bool" else 256, 24 * size, np.uint8).view(dtype)
    )
    base = data.reshape(4, 6)
    state = {
        "plain": base,
        "transposed": base.T,
        "strided": base[::2, ::3],
        "flipped": base[::-1, ::-1],
        "scalar": base[1, 2].reshape(()),
        "expanded": np.broadcast_to(base[0], (3, 6)),
        "empty": base[:0],
        "fortran": np.asfortranarray(base),
        "big_endian": base.astype(np.dtype(dtype).newbyteorder(">")),
        "offset": base.reshape(-1)[3:],
    }
    into = {name: np.zeros(array.shape, dtype) for name, array in state.items()}
    into["flipped"] = np.zeros((4, 6), dtype)[::-1, ::-1]
    into["big_endian"] = np.zeros((4, 6), np.dtype(dtype).newbyteorder(">"))
    save(state).load(into)
    for name, array in state.items():
        wanted, found = array.astype(dtype).tobytes(), into[name].astype(dtype).tobytes()
        assert found == wanted and into[name].shape == array.shape, name


def test_every_dtype_has_a_size_in_bits():
    assert all(
        torch.empty(0, dtype=dtype).element_size() * 8 // (2 if name == "float4_e2m1" else 1) == BITS[name]
        for dtype, name in _NAMES.items()
    )


def test_c23_lazy_conjugates_and_negatives_are_saved_as_what_they_show(save):
    values = torch.tensor([1 + 2j, 3 - 4j])
    state = {"conj": values.conj(), "neg": values.conj().imag}
    assert state["conj"].is_conj() and state["neg"].is_neg()
    into = {"conj": torch.zeros(2, dtype=torch.complex64), "neg": torch.zeros(2)}
    checkpoint = save(state)
    checkpoint.load(into)
    assert into["conj"].tolist() == [1 - 2j, 3 + 4j] and into["neg"].tolist() == [-2.0, 4.0]
    lazy = {
        "conj": torch.zeros(2, dtype=torch.complex64).conj(),
        "neg": torch.zeros(2, dtype=torch.complex64).conj().imag,
    }
    checkpoint.load(lazy)
    assert lazy["conj"].tolist() == [1 - 2j, 3 + 4j] and lazy["neg"].tolist() == [-2.0, 4.0]


def test_c23_the_examples_of_the_case_load_as_they_look(save):
    state = {
        "t": torch.arange(12).view(3, 4).t(),
        "s": torch.arange(20)[::3],
        "e": torch.tensor([7.0]).expand(5, 5),
    }
    checkpoint = save(state)
    assert checkpoint.read("t")[1, 0] == 1 and checkpoint.read("t").shape == (4, 3)
    assert checkpoint.read("s").tolist() == [0, 3, 6, 9, 12, 15, 18]
    assert checkpoint.read("e").tolist() == [[7.0] * 5] * 5


def test_c23_equal_contents_are_stored_once_whatever_their_layout(run):
    values = torch.arange(4096, dtype=torch.float32).view(64, 64)
    same = {
        "torch": values,
        "transposed": values.t().contiguous().t(),
        "strided": values.repeat_interleave(2, 1)[:, ::2],
        "flipped": values.flip(0).numpy()[::-1],
        "numpy": values.numpy().copy(),
        "fortran": np.asfortranarray(values.numpy()),
    }
    with run.writer() as writer:
        first = writer.save(1, {"w": values}).stats
        assert first.new_raw_bytes == values.nbytes
        for step, (name, array) in enumerate(same.items(), 2):
            stats = writer.save(step, {"w": array}).stats
            assert (stats.new_raw_bytes, stats.stored_bytes) == (0, 0), name


def test_what_lies_beside_a_view_is_not_saved(run):
    base = torch.zeros(1 << 20)
    with run.writer() as writer:
        stats = writer.save(1, {"row": base[10:20], "column": base.view(1024, 1024)[:, 3]}).stats
    assert stats.raw_bytes == 40 + 4096


def test_parameters_buffers_and_tensors_with_gradients_are_saved(save):
    weight = torch.nn.Parameter(torch.arange(4.0))
    state = {
        "p": weight,
        "grad": (weight * 2).detach(),
        "graph": weight * 3,
        "buffer": torch.nn.Buffer(torch.ones(2)),
    }
    into = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    into["p"] = torch.nn.Parameter(torch.zeros(4))
    save(state).load(into)
    assert (
        into["p"].tolist() == [0, 1, 2, 3]
        and into["p"].requires_grad
        and into["graph"].tolist() == [0, 3, 6, 9]
    )


def test_unknown_tensor_subclasses_are_refused_by_name(run):
    class Quantised(torch.Tensor):
        pass

    state = {"model": {"layers": [torch.zeros(1), torch.zeros(2).as_subclass(Quantised)]}}
    with (
        run.writer() as writer,
        pytest.raises(everstep.InvalidArgument, match=r"model\.layers\.1.*Quantised"),
    ):
        writer.save(1, state)
    assert run.latest() is None


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(3).to_sparse(),
        lambda: torch.zeros(2, device="meta"),
        lambda: torch.zeros(2, dtype=torch.complex32),
    ],
    ids=["sparse", "meta", "complex32"],
)
def test_tensors_that_have_no_kept_form_are_refused_by_name(run, make):
    with run.writer() as writer, pytest.raises(everstep.InvalidArgument, match="opt.w"):
        writer.save(1, {"opt": {"w": make()}})


@pytest.mark.parametrize(
    "array",
    [np.array(["text"]), np.array([object()]), np.zeros(2, "datetime64[s]"), np.zeros(2, [("a", "i4")])],
    ids=lambda a: a.dtype.kind,
)
def test_numpy_arrays_of_other_types_are_refused_by_name(run, array):
    with run.writer() as writer, pytest.raises(everstep.InvalidArgument, match="opt.w"):
        writer.save(1, {"opt": {"w": array}})


def test_c22_ties_are_recorded_and_stored_once(run):
    embedding = torch.nn.Parameter(torch.arange(64_000, dtype=torch.float32).view(1000, 64))
    state = {"emb": {"w": embedding}, "head": {"w": embedding}, "other": {"w": embedding.detach().clone()}}
    with run.writer() as writer:
        stats = writer.save(1, state).stats
    assert stats.new_raw_bytes == 256_000
    aliases = {entry["name"]: entry["alias_of"] for entry in run.latest().entries()}
    assert aliases == {"emb.w": None, "head.w": "emb.w", "other.w": None}


def test_c22_tied_and_untied_targets_both_load(save):
    tied = torch.arange(12.0).view(3, 4)
    checkpoint = save({"emb": tied, "head": tied})
    one = torch.zeros(3, 4)
    checkpoint.load({"emb": one, "head": one})
    assert torch.equal(one, tied)
    apart = {"emb": torch.zeros(3, 4), "head": torch.zeros(3, 4)}
    checkpoint.load(apart)
    assert torch.equal(apart["emb"], tied) and torch.equal(apart["head"], tied)
    apart["emb"][0, 0] = 9
    assert apart["head"][0, 0] == 0


def test_c22_a_tied_module_has_one_optimizer_entry(run):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.head = torch.nn.Embedding(10, 4), torch.nn.Linear(4, 10, bias=False)
            self.head.weight = self.emb.weight

    def trained(steps):
        torch.manual_seed(steps)
        model = Tied()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(steps):
            model.head(model.emb(torch.tensor([1, 2]))).sum().backward()
            optimizer.step()
        return {"model": model, "optim": optimizer}

    state, into = trained(2), trained(1)
    with run.writer() as writer:
        writer.save(1, state)
    names = {entry["name"] for entry in run.latest().entries()}
    assert {"model.emb.weight", "model.head.weight", "optim.state.emb.weight.exp_avg"} <= names
    assert not any("state.head" in name for name in names)
    run.latest().load(into)
    assert into["model"].head.weight is into["model"].emb.weight
    assert torch.equal(into["model"].head.weight, state["model"].head.weight)


def test_c22_overlapping_views_are_no_ties_and_keep_their_values(save):
    x = torch.arange(8.0)
    checkpoint = save({"head": x[:6], "tail": x[2:], "again": x[:6].view(2, 3)})
    assert [entry["alias_of"] for entry in checkpoint.entries()] == [None] * 3
    assert checkpoint.read("head").tolist() == [0, 1, 2, 3, 4, 5] and checkpoint.read("tail").tolist() == [
        2,
        3,
        4,
        5,
        6,
        7,
    ]
    memory = torch.zeros(8)
    checkpoint.load({"head": memory[:6], "tail": memory[2:], "again": torch.zeros(2, 3)})
    assert torch.equal(memory, x)


def test_empty_tensors_are_never_ties(save):
    checkpoint = save({"a": torch.empty(0, 3), "b": torch.empty(0, 3), "c": np.empty((2, 0))})
    assert [(entry["shape"], entry["alias_of"]) for entry in checkpoint.entries()] == [
        ([0, 3], None),
        ([0, 3], None),
        ([2, 0], None),
    ]


def test_shards_that_do_not_lie_in_their_tensor_are_refused():
    for shape, offset in (((3, 4), (2, 0)), ((2, 4), (0, -1)), ((2, 4, 1), (0, 0)), ((2, 4), (0,))):
        with pytest.raises(everstep.InvalidArgument, match="does not lie in"):
            everstep.Shard(np.zeros((2, 4)), shape, offset)


def test_tensors_that_describe_their_shards_are_saved_as_those(save):
    """torch's CheckpointableTensor: two boxes of a global tensor in one local one, with padding between them."""
    whole = torch.arange(12.0).view(4, 3)

    def local(fill=None):
        tensor = torch.full((5, 3), -1.0)
        tensor.global_shape, tensor.global_offsets = (4, 3), ((2, 0), (0, 0))
        tensor.local_offsets, tensor.local_sizes = ((0, 0), (3, 0)), ((2, 3), (2, 3))
        if fill is not None:
            tensor[:2], tensor[3:] = fill[2:], fill[:2]
        return tensor

    checkpoint = save({"w": local(whole)})
    assert torch.equal(checkpoint.read("w"), whole)
    into = local()
    checkpoint.load({"w": into})
    assert torch.equal(into[:2], whole[2:]) and torch.equal(into[3:], whole[:2]) and (into[2] == -1).all()


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="this torch has no packed floats")
def test_c21_packed_elements_are_read_in_pairs(save):
    packed = torch.arange(8, dtype=torch.uint8).view(2, 4).view(torch.float4_e2m1fn_x2)
    checkpoint = save({"w": packed})
    (entry,) = checkpoint.entries()
    assert (entry["dtype"], entry["shape"]) == ("float4_e2m1", [2, 8])
    assert checkpoint.read("w", (1, slice(2, 6))).view(torch.uint8).tolist() == [5, 6]
    for index in ((0, slice(0, 1)), (0, slice(1, 3)), (0, 3)):
        with pytest.raises(everstep.InvalidArgument, match="w"):
            checkpoint.read("w", index)
