"""What a load accepts, what it refuses before it changes anything, and what it reports."""

import everstep
import numpy as np
import pytest
import torch
from everstep._tensors import loses_bits


def ones(*names):
    return {name: torch.ones(2) for name in names}


def zeros(*names):
    return {name: torch.zeros(2) for name in names}


def untouched(state):
    return all(not tensor.any() for tensor in state.values())


def test_c11_strict_names_what_is_missing_and_what_is_unexpected(save):
    checkpoint = save(ones("w1", "w2", "old"))
    into = zeros("w1", "w2", "extra")
    with pytest.raises(everstep.SchemaMismatch) as refused:
        checkpoint.load(into)
    assert refused.value.missing == ("extra",) and refused.value.unexpected == ("old",)
    assert "extra" in str(refused.value) and "old" in str(refused.value)
    assert untouched(into)


def test_c11_lenient_loads_what_there_is_and_reports_the_rest(save):
    checkpoint = save(ones("w1", "w2", "old"))
    into = zeros("w1", "w2", "extra")
    report = checkpoint.load(into, strict=False)
    assert (report.missing, report.unexpected, report.tensors) == (["extra"], ["old"], 2)
    assert into["w1"].all() and into["w2"].all() and not into["extra"].any()


def test_c11_nothing_in_common_is_an_error_even_when_lenient(save):
    checkpoint = save({"_orig_mod.module.w1": torch.ones(2)})
    into = zeros("w1")
    for strict in (True, False):
        with pytest.raises(everstep.SchemaMismatch, match=r"rename=.*_orig_mod\.module\.w1"):
            checkpoint.load(into, strict=strict)
    assert untouched(into)


@pytest.mark.parametrize(
    "rename",
    [{"w1": "_orig_mod.module.w1"}, {"": "_orig_mod.module."}, lambda name: f"_orig_mod.module.{name}"],
    ids=["name", "prefix", "function"],
)
def test_c11_a_rename_makes_it_load(save, rename):
    checkpoint = save({"_orig_mod.module.w1": torch.ones(2)})
    into = zeros("w1")
    checkpoint.load(into, rename=rename)
    assert into["w1"].all()


def test_c11_prefixes_rename_values_and_tensors_below_them(save):
    checkpoint = save({"net": {"a": torch.ones(2), "note": "x"}, "network": {"b": torch.ones(2)}})
    into = {"model": {"a": torch.zeros(2), "note": None}, "network": {"b": torch.zeros(2)}}
    checkpoint.load(into, rename={"model": "net"})
    assert into["model"]["a"].all() and into["model"]["note"] == "x" and into["network"]["b"].all()
    with pytest.raises(everstep.InvalidArgument, match="rename"):
        checkpoint.load(into, rename="net")


STORED = {
    "f32_to_bf16": (torch.tensor([1.0009765625]), torch.bfloat16, 1.0, True),
    "i32_to_f32": (torch.tensor([16777217], dtype=torch.int32), torch.float32, 16777216.0, True),
    "bf16_to_f32": (torch.tensor([1.5], dtype=torch.bfloat16), torch.float32, 1.5, False),
    "u8_to_i16": (torch.tensor([255], dtype=torch.uint8), torch.int16, 255, False),
    "i64_to_i32": (torch.tensor([7]), torch.int32, 7, True),
}


def test_c17_other_dtypes_are_refused_by_default(save):
    checkpoint = save({name: stored for name, (stored, *_) in STORED.items()})
    into = {name: torch.zeros(1, dtype=dtype) for name, (_, dtype, _, _) in STORED.items()}
    with pytest.raises(everstep.SchemaMismatch) as refused:
        checkpoint.load(into)
    assert "f32_to_bf16 is stored as f32, the state has bf16" in str(refused.value)
    assert "i32_to_f32 is stored as i32, the state has f32" in str(refused.value)
    assert untouched(into)


def test_c17_a_cast_is_asked_for_and_says_where_bits_can_be_lost(save):
    checkpoint = save({name: stored for name, (stored, *_) in STORED.items()})
    into = {name: torch.zeros(1, dtype=dtype) for name, (_, dtype, _, _) in STORED.items()}
    report = checkpoint.load(into, cast=True)
    for name, (_, dtype, value, _) in STORED.items():
        assert into[name].dtype == dtype and into[name].item() == value, name
    assert sorted(name for name, _, _ in report.lossy_casts) == sorted(
        name for name, case in STORED.items() if case[3]
    )
    assert ("f32_to_bf16", "f32", "bf16") in report.lossy_casts


def test_c17_a_cast_is_for_the_names_that_are_given(save):
    checkpoint = save({"model": {"w": torch.ones(2)}, "ema": {"w": torch.ones(2)}})
    into = {part: {"w": torch.zeros(2, dtype=torch.float64)} for part in ("model", "ema")}
    with pytest.raises(everstep.SchemaMismatch, match=r"ema\.w is stored as f32"):
        checkpoint.load(into, cast="model.*")
    assert not into["model"]["w"].any()
    assert checkpoint.load(into, cast=["model.*", "ema.*"]).lossy_casts == []
    assert into["ema"]["w"].all()


def test_c17_a_cast_works_into_other_layouts_and_numpy(save):
    checkpoint = save({"t": torch.arange(6.0).view(2, 3), "n": np.arange(6.0).reshape(2, 3)})
    into = {"t": torch.zeros(3, 2, dtype=torch.int64).t(), "n": np.zeros((2, 3), "float32")[:, ::-1]}
    checkpoint.load(into, cast=True)
    assert into["t"].tolist() == into["n"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_c17_another_shape_is_always_an_error(save):
    checkpoint = save({"w": torch.ones(4, 3), "v": torch.ones(2)})
    into = {"w": torch.zeros(3, 4), "v": torch.zeros(2)}
    for cast in (False, True):
        for strict in (False, True):
            with pytest.raises(
                everstep.SchemaMismatch, match=r"w is stored as \[4, 3\], the state has \[3, 4\]"
            ):
                checkpoint.load(into, cast=cast, strict=strict)
    assert untouched(into)


def test_c17_which_casts_can_lose_bits():
    exact = "bf16-f32 f16-f32 f32-f64 u8-i16 i8-i16 u32-i64 u8-f32 i32-f64 u8-bf16 complex64-complex128 bool-f32 float8_e4m3fn-bf16"
    lossy = "f32-bf16 f16-bf16 bf16-f16 f64-f32 i16-u16 u8-i8 i64-i32 i64-f64 i32-f32 u16-bf16 complex128-complex64 f32-u8 f32-complex64"
    assert [pair for pair in exact.split() if loses_bits(*pair.split("-"))] == []
    assert [pair for pair in lossy.split() if not loses_bits(*pair.split("-"))] == []


def test_select_loads_a_part_and_expects_no_more(save):
    checkpoint = save(
        {"model": {"a": torch.ones(2), "b": torch.ones(2)}, "ema": {"a": torch.ones(2)}, "step": 7}
    )
    into = {"model": {"a": torch.zeros(2), "b": torch.zeros(2)}, "other": torch.zeros(2), "step": 0}
    report = checkpoint.load(into, select="model.*")
    assert report.tensors == 2 and into["model"]["b"].all() and not into["other"].any() and into["step"] == 0
    checkpoint.load(into, select=["step"])
    assert into["step"] == 7
    with pytest.raises(everstep.SchemaMismatch, match=r"unexpected in the checkpoint: \[model.b\]"):
        checkpoint.load({"model": {"a": torch.zeros(2)}}, select="model.*")


def test_values_and_tensors_are_not_taken_for_each_other(save):
    checkpoint = save({"a": torch.ones(2), "b": 5, "c": everstep.PerRank(1)})
    for into, what in (
        ({"a": 1, "b": 5, "c": everstep.PerRank(0)}, "a is stored as a tensor"),
        ({"a": torch.zeros(2), "b": torch.zeros(2), "c": everstep.PerRank(0)}, "b is stored as a value"),
        ({"a": torch.zeros(2), "b": 5, "c": 0}, "c is stored as PerRank"),
        (
            {"a": torch.zeros(2), "b": everstep.PerRank(5), "c": everstep.PerRank(0)},
            "b is stored as a value of the whole job",
        ),
    ):
        with pytest.raises(everstep.SchemaMismatch, match=what):
            checkpoint.load(into)


def test_per_rank_policies(save):
    checkpoint = save({"data": everstep.PerRank({"position": 3})})
    into = {"data": everstep.PerRank("own")}
    checkpoint.load(into, per_rank="skip")
    assert into["data"].value == "own"
    seen = []
    checkpoint.load(into, per_rank=lambda saved, rank, world: seen.append((saved, rank, world)) or "made")
    assert seen == [({0: {"position": 3}}, 0, 1)] and into["data"].value == "made"
    with pytest.raises(everstep.InvalidArgument, match="per_rank"):
        checkpoint.load(into, per_rank="any")


class Loader:
    """Something with a state of plain values and a tensor."""

    def __init__(self, position=0):
        self.position, self.seen, self.loads = position, torch.zeros(2), 0

    def state_dict(self):
        return {"position": self.position, "seen": self.seen.clone(), "deep": {"names": ["a"]}}

    def load_state_dict(self, state):
        self.position, self.seen, self.loads = state["position"], state["seen"], self.loads + 1


class Plain:
    def __init__(self, value):
        self.value = value

    def state_dict(self):
        return self.value

    def load_state_dict(self, state):
        self.value = state


def test_stateful_objects_get_their_state_once(save):
    source, plain = Loader(5), Plain({"epoch": 2, "order": (1, 2)})
    source.seen += 3
    checkpoint = save({"loader": source, "nested": [{"plain": plain}]})
    into = {"loader": Loader(), "nested": [{"plain": Plain(None)}]}
    loader, other = into["loader"], into["nested"][0]["plain"]
    checkpoint.load(into)
    assert into["loader"] is loader and (loader.position, loader.seen.tolist(), loader.loads) == (
        5,
        [3, 3],
        1,
    )
    assert other.value == {"epoch": 2, "order": (1, 2)}


def test_state_of_each_rank_may_be_something_stateful(save):
    checkpoint = save({"data": everstep.PerRank(Loader(5))})
    loader = Loader()
    into = {"data": everstep.PerRank(loader)}
    checkpoint.load(into, per_rank="skip")
    assert loader.loads == 0
    checkpoint.load(into)
    assert into["data"].value is loader and (loader.position, loader.loads) == (5, 1)


def test_a_stateful_object_is_not_called_when_the_load_is_refused(save):
    checkpoint = save({"loader": Loader(5), "w": torch.ones(2)})
    into = {"loader": Loader(), "w": torch.zeros(3)}
    with pytest.raises(everstep.SchemaMismatch):
        checkpoint.load(into)
    assert into["loader"].loads == 0 and into["loader"].position == 0


def test_modules_are_loaded_in_place_with_their_buffers(save):
    def model(seed):
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))

    source, target = model(0), model(1)
    source(torch.randn(8, 3))
    weight = target[0].weight
    save({"model": source}).load({"model": target})
    assert target[0].weight is weight and torch.equal(weight, source[0].weight)
    assert torch.equal(target[1].running_mean, source[1].running_mean) and target[1].num_batches_tracked == 1


def test_a_module_with_a_state_dict_of_its_own_is_handed_its_state(save):
    class Wrapped(torch.nn.Module):
        def __init__(self, value):
            super().__init__()
            self.w, self.note = torch.nn.Parameter(torch.full((2,), value)), value

        def get_extra_state(self):
            return {"note": self.note}

        def set_extra_state(self, state):
            self.note = state["note"]

    target = Wrapped(0.0)
    save({"model": Wrapped(3.0)}).load({"model": target})
    assert target.note == 3.0 and target.w.tolist() == [3, 3]


def test_tied_and_overlapping_targets_are_filled_alike(save):
    checkpoint = save({"a": torch.arange(4.0), "b": torch.arange(4.0), "c": torch.arange(2.0, 6.0)})
    memory = torch.zeros(6)
    checkpoint.load({"a": memory[:4], "b": memory[:4], "c": memory[2:]})
    assert memory.tolist() == [0, 1, 2, 3, 4, 5]


def test_arrays_that_cannot_be_written_are_refused_before_anything_changes(save):
    checkpoint = save({"a": np.ones(2), "b": torch.ones(3)})
    locked = np.zeros(2)
    locked.flags.writeable = False
    into = {"b": torch.zeros(3), "a": locked}
    with pytest.raises(everstep.InvalidArgument, match="a.*read-only"):
        checkpoint.load(into)
    assert not into["b"].any() and not locked.any()
    with pytest.raises(everstep.InvalidArgument, match="b"):
        checkpoint.load({"a": np.zeros(2), "b": torch.zeros(1).expand(3)})


def test_numpy_scalars_are_replaced(save):
    into = {"f": np.float32(0), "nested": {"i": np.int64(0), "b": np.bool_(False)}}
    save({"f": np.float32(1.5), "nested": {"i": np.int64(-7), "b": np.bool_(True)}}).load(into)
    assert into == {"f": 1.5, "nested": {"i": -7, "b": True}}
    assert type(into["f"]) is np.float32 and type(into["nested"]["i"]) is np.int64


def test_tuples_and_lists_of_tensors_come_back_in_place(save):
    first, second = torch.zeros(1), np.zeros(1)
    into = {"pair": (first, {"x": 0, "t": second}), "list": [torch.zeros(1), 0]}
    report = save({"pair": (torch.ones(1), {"x": 5, "t": np.ones(1)}), "list": [torch.ones(1), 8]}).load(into)
    assert type(into["pair"]) is tuple and first.item() == 1 and second[0] == 1
    assert into["pair"][1]["x"] == 5 and into["list"][1] == 8
    assert (report.step, report.tensors, report.objects) == (1, 3, 2)
    assert report.bytes >= 16


def test_torch_and_numpy_read_each_other(save):
    checkpoint = save({"a": torch.arange(3.0), "b": np.arange(3)})
    into = {"a": np.zeros(3, "float32"), "b": torch.zeros(3, dtype=torch.int64)}
    checkpoint.load(into)
    assert into["a"].tolist() == [0, 1, 2] and into["b"].tolist() == [0, 1, 2]


GRID = np.arange(4 * 5 * 6, dtype="int32").reshape(4, 5, 6)
BOXES = [
    ...,
    2,
    -1,
    slice(1, 3),
    slice(None),
    (1, 2, 3),
    (slice(0, 2), ...),
    (..., slice(2, 4)),
    (0, ..., -2),
    (slice(None), 4),
]
BOXES += [(slice(-2, None), slice(1, -1), 0), (slice(3, 1),), (np.int64(1), slice(2)), (..., 1, 2, 3), ()]


@pytest.mark.parametrize("index", BOXES, ids=str)
def test_read_gives_the_box_that_numpy_gives(save, index):
    checkpoint = save({"g": GRID})
    found = checkpoint.read("g", index, library="numpy")
    assert np.array_equal(found, GRID[index]) and np.shape(found) == GRID[index].shape
    torched = checkpoint.read("g", index)
    assert (
        type(torched) is torch.Tensor
        and tuple(torched.shape) == GRID[index].shape
        and torched.tolist() == GRID[index].tolist()
    )


def test_read_says_what_is_wrong_with_an_index(save):
    checkpoint = save({"g": GRID, "n": 3, "half": torch.zeros(2, dtype=torch.bfloat16)})
    for index in (
        9,
        -5,
        (0, 0, 6),
        (0, 0, 0, 0),
        slice(0, 4, 2),
        slice(None, None, -1),
        "x",
        1.0,
        (..., ...),
        None,
        [0, 1],
        True,
    ):
        with pytest.raises(everstep.InvalidArgument, match="g"):
            checkpoint.read("g", index)
    with pytest.raises(everstep.NotFound, match="nothing"):
        checkpoint.read("nothing")
    with pytest.raises(everstep.InvalidArgument, match="value"):
        checkpoint.read("n")
    with pytest.raises(everstep.InvalidArgument, match="library"):
        checkpoint.read("g", 0, library="jax")
    with pytest.raises(everstep.InvalidArgument, match="ml_dtypes"):
        checkpoint.read("half", library="numpy")
    with pytest.raises(everstep.NotFound):
        checkpoint.value("nothing")


def test_read_fetches_no_more_than_the_box_needs(remote):
    run = remote.run("gpt")
    with run.writer() as writer:
        writer.save(1, {"big": np.random.default_rng(0).standard_normal((8, 1 << 20))})
    checkpoint, before = run.latest(), remote.traffic()["bytes_received"]
    assert checkpoint.read("big", (3, slice(0, 8)), library="numpy").shape == (8,)
    assert remote.traffic()["bytes_received"] - before < 10 << 20


def test_what_is_read_is_writable_and_ones_own(save):
    checkpoint = save({"g": GRID, "s": torch.tensor(3.5, dtype=torch.bfloat16), "e": torch.empty(0, 2)})
    first = checkpoint.read("g")
    first += 1
    assert checkpoint.read("g")[0, 0, 0] == 0
    assert checkpoint.read("s").item() == 3.5 and checkpoint.read("s").shape == ()
    assert checkpoint.read("e").shape == (0, 2)


def test_checkpoints_are_found_by_what_they_are_called(repo, run):
    assert run.latest() is None and repo.runs() == []
    with run.writer() as writer:
        for step in (10, 20):
            writer.save(step, {"step": step}, metadata={"loss": 1.0 / step})
    first, second = (run.checkpoint(ordinal) for ordinal, _ in run.checkpoints())
    assert (first.step, second.step, first.run, first.world_size) == (10, 20, "gpt", 1)
    assert run.latest() == second != first and len({first, run.checkpoint(first.ordinal)}) == 1
    assert (
        repo.checkpoint("gpt@step=10") == first
        and repo.checkpoint("gpt@min=loss") == second
        and repo.checkpoint("gpt") == second
    )
    assert repo.runs() == ["gpt"] and "gpt" in repr(run) and "step 20" in repr(second)
    repo.pin("best", first)
    run.expire(first.ordinal, "not needed")
    with pytest.raises(everstep.Expired):
        run.checkpoint(first.ordinal)
    kept = repo.checkpoint("pin:best")
    assert kept.value("step") == 10 and repr(kept) == f"pin:best, which is gpt@ordinal={first.ordinal} (step 10)"
    assert repo.pins() == [kept.pin] == [everstep.Pin("best", "gpt", first.ordinal, 10)] and second.pin is None
    with pytest.raises(everstep.Conflict):
        repo.pin("best", second)
    repo.unpin("best", "done")
    assert repo.pins() == []
    with pytest.raises(everstep.Conflict):
        run.expire(second.ordinal)
    with pytest.raises(everstep.NotFound):
        run.checkpoint(99)


def test_a_lease_keeps_data_readable(save):
    checkpoint = save({"w": np.ones(3)})
    with checkpoint.lease(ttl=60) as lease:
        assert lease.id and checkpoint.read("w", library="numpy").all()


def test_wait_gives_the_newest_after_one_or_none(repo, run):
    assert run.wait(timeout=0.1) is None
    with run.writer() as writer:
        writer.save(1, {"x": 1})
        first = run.wait(timeout=30)
        assert run.wait(after=first, timeout=0.1) is None
        writer.save(2, {"x": 2})
        writer.save(3, {"x": 3})
    assert run.wait(after=first, timeout=30).step == 3


def test_a_repository_that_is_not_there_is_said_to_be_missing(tmp_path):
    with pytest.raises(everstep.NotFound):
        everstep.Repository(str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()
    made = everstep.Repository(str(tmp_path / "nowhere"), create=True)
    assert everstep.Repository(str(tmp_path / "nowhere"), create=True).id == made.id
    with pytest.raises(everstep.InvalidArgument):
        everstep.Repository("ftp://host/path")


def test_latest_raises_when_the_store_does_not_answer_well(double, remote):
    run = remote.run("gpt")
    with run.writer() as writer:
        writer.save(1, {"x": 1})
    double.fault("/bucket", method="GET", status=403)
    with pytest.raises(everstep.PermissionDenied):
        remote.run("gpt").latest()
    with pytest.raises(everstep.PermissionDenied):
        remote.run("other").latest()
