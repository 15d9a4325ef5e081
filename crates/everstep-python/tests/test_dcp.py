"""Saving and loading through torch.distributed.checkpoint (DCP). What its interface is known to trip storages over, and what
it asks of one, each have a test. These are shown elsewhere, since they do not depend on DCP:

| what | shown by |
|---|---|
| a crash between the shards and the commit leaves no mix of old and new files (keys are written once) | `test_processes.py`: c09 |
| a failed sync to disk fails the save | `everstep-store`: `a_failed_sync_is_not_papered_over_by_another_try` |
| faults of the store at any call: committed and whole, or not visible | `tests/tests/simulation`, `tests/tests/protocol` |
| ranks killed at any moment, garbage bounded and collected | `tests/tests/crash`, `test_processes.py`: c09 |
| state of each rank is kept apart, replicas that differ are reported | `test_ranks.py`: c10, `differing_replicas` |
| retention never takes the newest, a pinned or a foreign checkpoint | `crates/everstep-gc`, `tests/tests/simulation` |
| metadata of thousands of ranks, no LIST in a save | `tests/tests/scale` |
| no memory or descriptor left behind by overlapping saves | `test_processes.py`: c33 |
| forks, Ctrl-C, the end of the interpreter | `test_processes.py` |
"""

import copy
import io
import pickle
import shutil
from multiprocessing.reduction import ForkingPickler

import everstep
import pytest

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint import CheckpointException, DefaultLoadPlanner, DefaultSavePlanner  # noqa: E402
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex  # noqa: E402
from torch.distributed.checkpoint.metadata import TensorProperties, TensorStorageMetadata  # noqa: E402
from torch.distributed.checkpoint.storage import WriteResult  # noqa: E402

from everstep._dcp_staging import TorchBuffer  # noqa: E402
from everstep._dcp_writer import _checked  # noqa: E402
from everstep.torch import EverstepReader, EverstepWriter  # noqa: E402
from ranks import SOON, Ranks  # noqa: E402
from s3_double import PACK, S3Double  # noqa: E402
from test_tensors import TORCH, layouts, raw, target  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
FOUR = ["nested", "values_elsewhere", "slices", "plan_caching", "one_cache_for_two_states", "threads", "processes"]
FOUR += ["another_id", "broken", "absent", "tensor_parallel", "foreign"]


@pytest.fixture(scope="module")
def ranks(empty_repository, tmp_path_factory):
    """Runs scenarios on ranks, which have a repository and an S3 double with one."""
    double = S3Double()
    double.objects["bucket/r/everstep.json"] = ((empty_repository / "everstep.json").read_bytes(), 0.0)

    def run(world: int, scenarios: list[str]) -> Ranks:
        folder = tmp_path_factory.mktemp("dcp")
        repository = shutil.copytree(empty_repository, folder / "repo")
        settings = {"repository": str(repository), "double": double.url, "scenarios": scenarios}
        return Ranks.forked("dcp_program.py", world, folder, **settings).wait()

    yield run
    double.close()


@pytest.fixture(scope="module")
def four(ranks):
    return ranks(4, FOUR)


@pytest.fixture(scope="module")
def eight(ranks):
    return ranks(8, ["fsdp", "meshes"])


@pytest.fixture
def through(run):
    """Saves a state through DCP as the next step, and gives its checkpoint."""

    def saved(state, step: int = 1, planner=None) -> everstep.Checkpoint:
        with run.writer(takeover="now") as writer:
            dcp.save(state, storage_writer=EverstepWriter(writer, step=step), planner=planner)
        return run.latest()

    return saved


def loaded(into, source, planner=None, **options):
    dcp.load(into, storage_reader=EverstepReader(source, **options), planner=planner)
    return into


def cause(call):
    """What everstep says, within what torch raises."""
    with pytest.raises(CheckpointException) as raised:
        call()
    ((error, _),) = raised.value.failures.values()
    return error


# What is known to go wrong.


def test_trap_1_what_no_rank_has_written_is_not_committed(four):
    for said in four.said("broken"):
        kind, message = said["forget"]["told"]["0"]
        assert kind == "InvalidArgument" and "written by no rank: noise at [10000]" in message, message
        assert said["forget"]["before"] is None and said["forget"]["steps"] == [1]


def test_trap_1_every_item_is_counted():
    def tensor(*offsets):
        chunks = [ChunkStorageMetadata(torch.Size(offset), torch.Size((2, 2))) for offset in offsets]
        return TensorStorageMetadata(TensorProperties(), torch.Size((4, 2)), chunks)

    def written(*places):
        return [WriteResult(MetadataIndex(name, offset), 0, None) for name, offset in places]

    planned = Metadata({"a": tensor((0, 0), (2, 0)), "b": dcp.metadata.BytesStorageMetadata(), "c": tensor((0, 0))})
    all_of_it = written(("a", (0, 0)), ("a", (2, 0)), ("b", None), ("c", None))
    assert _checked(planned, [all_of_it], 1) == []
    for left_out in range(4):
        with pytest.raises(everstep.InvalidArgument, match="written by no rank: [abc]"):
            _checked(planned, [all_of_it[:left_out] + all_of_it[left_out + 1 :]], 1)
        with pytest.raises(everstep.InvalidArgument, match="not planned so: [abc]"):
            _checked(planned, [all_of_it + [all_of_it[left_out]]], 1)
    with pytest.raises(everstep.InvalidArgument, match="not planned so: d"):
        _checked(planned, [all_of_it + written(("d", None))], 1)
    with pytest.raises(everstep.InvalidArgument, match="2 ranks .* results of 1"):
        _checked(planned, [all_of_it], 2)


def test_trap_2_cached_plans_carry_nothing_of_a_step(four):
    assert four.said("plan_caching") == [[1, 2, 3, 4, 5]] * 4


def test_trap_2_a_cached_metadata_object_only_gets_fields_replaced(run):
    planner = lambda: DefaultSavePlanner(enable_plan_caching=True)  # noqa: E731
    state = {"w": torch.ones(3), "mine": 1}
    with run.writer() as w:
        first = dcp.save(state, storage_writer=EverstepWriter(w, step=1), planner=planner())
        kept, said = copy.deepcopy(first.state_dict_metadata), first.storage_meta
        second = dcp.save(state, storage_writer=EverstepWriter(w, step=2), planner=planner())
    assert first.state_dict_metadata == second.state_dict_metadata == kept
    assert said.checkpoint_id == "gpt@ordinal=2" and second.storage_meta.checkpoint_id == "gpt@ordinal=3"


def test_trap_3_states_that_share_a_cache_do_not_mix(four):
    assert four.said("one_cache_for_two_states") == [[10, 11, 12, 20, 21, 22]] * 4


class Halving(DefaultSavePlanner):
    """Saves floats in half the bits: what is written is not what was planned."""

    def transform_object(self, write_item, found):
        found = super().transform_object(write_item, found)
        return found.bfloat16() if isinstance(found, torch.Tensor) and found.dtype is torch.float32 else found


def test_trap_3_the_tensor_says_what_it_is_and_not_the_plan(through):
    checkpoint = through({"w": torch.arange(4.0), "n": torch.arange(3)}, planner=Halving())
    assert [entry["dtype"] for entry in checkpoint.entries() if entry["kind"] == "tensor"] == ["i64", "bf16"]
    assert checkpoint.read("w").tolist() == [0, 1, 2, 3]


def test_trap_4_what_goes_through_collectives_is_tiny(run):
    class Watched(EverstepWriter):
        def finish(self, metadata, results):
            self.sent = [len(pickle.dumps(result.storage_data)) for part in results for result in part]
            super().finish(metadata, results)

    with run.writer() as w:
        writer = Watched(w, step=1)
        said = dcp.save({f"w{i}": torch.full((3,), float(i)) for i in range(100)}, storage_writer=writer)
    assert sum(writer.sent) < 1000 and said.storage_data is None


def test_trap_6_absence_is_told_to_all_ranks_and_by_its_name(four):
    for said in four.said("absent"):
        for what in ("step", "run"):
            assert {kind for kind, _ in said[what]["told"].values()} == {"NotFound"}, said[what]
            assert len(said[what]["told"]) == 4 and said[what]["seconds"] < SOON
        assert "step 2" in said["step"]["told"]["0"][1] and "nothing" in said["run"]["told"]["3"][1]


def test_trap_6_a_store_that_does_not_answer_one_rank_is_no_absence(four):
    for said in four.said("absent"):
        assert said["one"]["told"] == {"2": ["Unreachable", "the store does not answer"]}
        assert {kind for kind, _ in said["leader"]["told"].values()} == {"Unreachable"}
        assert said["one"]["seconds"] < SOON and said["then"] == [1, 1, 1], "no rank went a way of its own"


def test_trap_6_asked_directly_it_raises(repo, run, through):
    with pytest.raises(everstep.NotFound):
        EverstepReader(run).read_metadata()
    through({"w": torch.ones(2)})
    reader = EverstepReader(repo)
    reader.reset("gpt@step=4")
    with pytest.raises(everstep.NotFound, match="step 4"):
        reader.read_metadata()
    again = reader.read_metadata(rank=0)  # as torch asks after a failure
    with pytest.raises(everstep.NotFound, match="step 4"):
        reader.set_up_storage_reader(again, True)


def test_trap_7_another_element_type_is_an_error_unless_a_cast_is_asked_for(through):
    checkpoint = through({"w": torch.tensor([1.0, 2.5]), "v": torch.ones(2)})
    into = {"w": torch.zeros(2, dtype=torch.bfloat16), "v": torch.zeros(2)}
    error = cause(lambda: loaded(into, checkpoint))
    assert isinstance(error, everstep.SchemaMismatch) and "w is stored as f32, the state has bf16" in str(error)
    assert into["v"].tolist() == [0, 0], "nothing was changed"
    assert loaded(into, checkpoint, cast="w")["w"].tolist() == [1, 2.5]


def test_trap_8_uneven_empty_and_strided_shards_make_up_the_whole_tensor(eight, four):
    assert eight.said("meshes") == [[1, 2]] * 8
    assert all("_StridedShard" in said for said in four.said("tensor_parallel"))


def test_trap_9_all_of_a_rank_is_handed_in_and_loaded_by_one_call_each(run, monkeypatch):
    calls = []

    class Counted:
        def __init__(self, native):
            self._native = native

        def __getattr__(self, name):
            calls.append(name)
            return getattr(self._native, name)

    state = {f"w{i}": torch.full((300,), float(i)) for i in range(50)} | {"t": torch.ones(4, 3).t()}
    with run.writer() as w:
        w._native = Counted(w._native)
        dcp.save(state, storage_writer=EverstepWriter(w, step=1))
        assert (calls.count("hand_in"), calls.count("commit"), calls.count("save")) == (1, 1, 0)
    checkpoint = run.latest()
    checkpoint.native = Counted(checkpoint.native)
    into = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    loaded(into, checkpoint)
    assert calls.count("load") == 1 and all(torch.equal(into[name], state[name]) for name in state)


def test_trap_10_metadata_costs_a_few_requests_however_many_tensors_there_are(double, remote):
    run = remote.run("many")
    with run.writer() as w:
        dcp.save({f"w{i}": torch.full((30,), float(i)) for i in range(200)}, storage_writer=EverstepWriter(w, step=1))
    fresh = everstep.Repository("s3://bucket/r", **double.options)
    before = fresh.traffic()["requests"]
    metadata = EverstepReader(fresh.run("many")).read_metadata()
    assert len(metadata.state_dict_metadata) == 200 and fresh.traffic()["requests"] - before < 20


# What a storage has to bear.


def test_idea_1_saves_by_threads_and_processes_restore_the_values_of_their_step(four):
    """Of DTensors, ShardedTensors, plain tensors and values."""
    assert four.said("threads") == [{"buffers": 1, "steps": [1, 2, 3, 4, 5]}] * 4
    for said in four.said("processes")[:2]:
        assert said["metadata"] == "processes@ordinal=4" and said["newest"] == 3 and said["resumed"] == 6


def test_idea_1_a_checkpointing_process_that_is_killed_leaves_no_checkpoint_and_the_session_goes_on(four):
    for said in four.said("processes")[:2]:
        assert said["after"] == 8 and said["steps"] == [1, 2, 3, 4, 5, 6, 8]
        # One fence, seven commits, and one attempt that was killed.
        assert said["ordinal"] == 8 + (said["killed"] is not None), "another session was opened"
        assert said["killed"] is None or said["killed"][0] is not None


def test_idea_1_what_is_sent_to_another_process_is_small_and_opens_nothing(run, repo):
    with run.writer() as w:
        sent = pickle.dumps(EverstepWriter(w, step=5, metadata={"loss": 1.0}))
        there = pickle.loads(sent)
        assert len(sent) < 1500 and there.checkpoint_id == "gpt@step=5"
        with pytest.raises(everstep.InvalidArgument, match="staged where it was made"):
            there.stage({})
        there.set_up_storage_writer(True, rank=0, use_collectives=True)  # here, as if it were there
        dcp.save({"w": torch.ones(2)}, storage_writer=there)
        assert w.latest.step == 5 and w.save(6, {"w": torch.ones(3)}).ordinal == 3


@pytest.mark.parametrize("how", ["resolve", "lead", "upload", "commit"])
def test_idea_2_a_rank_that_fails_is_named_with_its_own_error_and_the_next_save_succeeds(four, how):
    rank = {"lead": "0", "commit": "0"}.get(how, "2")
    wanted = {"resolve": "InvalidArgument", "lead": "InvalidArgument"}.get(how, "PermissionDenied")
    for said in four.said("broken"):
        kind, message = said[how]["told"][rank]
        assert kind == wanted and ("403" in message or "gone" in message), message
        assert said[how]["seconds"] < SOON and said[how]["next"]["told"] == {}
        assert said[how]["before"] is None and said[how]["steps"] == [1]


def test_idea_4_a_view_is_copied_without_the_memory_around_it_and_ties_once():
    large, state = torch.arange(1_000_000.0), {}
    state["view"], state["again"] = large[10:20], large[10:20]
    state["columns"], state["none"] = torch.arange(12.0).view(3, 4).t(), torch.empty(0, 3)
    state["scalar"], state["nested"] = torch.tensor(2.5), {"list": [torch.ones(2), "text"], "value": 3}
    state["turned"] = torch.conj(torch.tensor([1 + 2j]))
    buffer = TorchBuffer()
    staged = buffer.stage(state)()
    assert buffer._arena.length < 2000 and staged["view"].data_ptr() == staged["again"].data_ptr()
    wanted = {name: value.clone() for name, value in state.items() if name != "nested"}
    large.zero_()
    state["nested"]["list"][0].zero_()
    for name, value in wanted.items():
        assert torch.equal(staged[name], value) and staged[name].is_contiguous(), name
    assert staged["nested"]["list"][0].tolist() == [1, 1] and staged["nested"]["value"] == 3
    # On its way to another process it moves to where that one has it too, and stays there.
    sent = ForkingPickler.dumps(staged)
    assert len(sent) < 10_000 and all(staged[name].is_shared() for name in ("view", "columns", "scalar"))
    assert torch.equal(staged["columns"], wanted["columns"])
    del staged, sent
    assert buffer.stage({"later": torch.ones(5)})()["later"].is_shared()


def test_idea_4_where_there_is_no_room_to_share_only_another_process_is_refused(monkeypatch):
    class Full:
        f_bavail, f_frsize = 0, 4096

    monkeypatch.setattr("os.statvfs", lambda path: Full)
    staged = TorchBuffer().stage({"w": torch.ones(5)})()
    assert staged["w"].tolist() == [1] * 5
    with pytest.raises(everstep.SetupError, match="/dev/shm has room for 0 bytes, .* by a thread"):
        ForkingPickler.dumps(staged)
    assert staged["w"].tolist() == [1] * 5 and not staged["w"].is_shared()


class Wrapped(torch.Tensor):
    """Has no memory of its own, as quantized tensors of other libraries."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        found = func(args[0].inner)
        return cls(found) if isinstance(found, torch.Tensor) else found


def test_idea_4_tensors_of_unknown_classes_are_refused_and_not_saved_as_garbage(run):
    state = {"w": Wrapped(torch.ones(3))}
    with run.writer() as w:
        staged = EverstepWriter(w, step=1).stage(state)
        assert staged["w"].inner.tolist() == [1, 1, 1]
        del staged  # or the writer would wait for the save of it
        error = cause(lambda: dcp.save(state, storage_writer=EverstepWriter(w, step=2)))
        assert isinstance(error, everstep.InvalidArgument) and "Wrapped" in str(error) and "w" in str(error)
    assert run.latest() is None


def test_idea_5_fsdp_goes_to_fewer_ranks_and_back(eight):
    assert eight.said("fsdp") == [{"ranks": 6}] * 8


@pytest.mark.parametrize("staged", [False, True])
def test_idea_6_every_element_type_comes_back_from_every_layout(through, staged):
    state = {f"{dtype}/{name}": tensor for dtype in TORCH for name, tensor in layouts(dtype).items()}
    state |= {"with.dots/and slashes/\u00fc": torch.ones(2)}
    checkpoint = through(TorchBuffer().stage(state)() if staged else state)
    into = {name: target(tensor, staged) for name, tensor in state.items()}
    before = {name: tensor.data_ptr() for name, tensor in into.items()}
    loaded(into, checkpoint)
    for name, tensor in state.items():
        assert raw(into[name]) == raw(tensor) and into[name].data_ptr() == before[name], name


def test_idea_10_memory_stays_flat_over_50_saves(run):
    state, addresses = {"w": torch.zeros(500_000), "step": 0}, set()
    with run.writer() as w:
        for step in range(50):
            state["w"][step] = 1.0
            state["step"] = step
            future = dcp.async_save(state, storage_writer=EverstepWriter(w, step=step))
            addresses.add((w._torch._arena.address, w._torch._arena.length))
        future.result(60)
    assert len(addresses) == 1 and loaded({"w": torch.zeros(500_000), "step": 0}, run.latest())["step"] == 49
    assert run.latest().read("w").sum().item() == 50


# The rest.


def test_a_nested_state_is_saved_by_torch_and_read_directly_and_the_other_way_round(four):
    for said in four.said("nested"):
        assert said["steps"] == [3, 4, 5] and said["meta"] == "nested@ordinal=2" and said["data"] is None
        assert said["newest"] == 3 and said["loss"] == {"loss": 0.5}


def test_values_that_another_rank_than_the_first_writes_are_those_of_the_whole_job(four):
    names = ["odd", "torch.distributed.checkpoint:planner_data", "train.lr", "train.step", "w", "writer"]
    for said in four.said("values_elsewhere"):
        assert said["found"] == [3, 3, 3], "the last of four ranks wrote them"
        assert said["ranks"] == {name: [] for name in names}
        assert said["unexpected"] == ["odd", "train.lr", "train.step", "writer"]


def test_a_folder_of_torchs_own_writer_is_saved_once_more_and_loads_equal(four):
    assert four.said("foreign") == [{"step": 7, "names": ["a", "b"]}] * 4


def test_a_part_of_what_a_rank_wrote_is_read_without_the_rest(four):
    for said in four.said("slices"):
        assert 0.2 < said["share"] < 0.45, "a quarter was asked for, and comes in whole chunks"


def test_a_checkpoint_id_that_says_something_else_is_told_to_all_ranks(four):
    for said in four.said("another_id"):
        ((kind, message),) = said["other"]["told"].values()
        assert kind == "InvalidArgument" and "ids@step=2" in message and "ids@step=1" in message
        assert "commits for itself" in said["apart"] or "commit for itself" in said["apart"]
        assert said["steps"] == [1]


def test_ranks_that_would_load_different_checkpoints_are_told(four):
    for said in four.said("absent"):
        ((kind, message),) = said["different"]["told"].values()
        assert kind == "InvalidArgument" and "rank 1" in message and "step 2" in message


def test_a_state_is_rebuilt_from_what_is_stored_alone(run, through):
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

    state = {"model": {"a.b": torch.ones(2), "c": [torch.zeros(1), 5]}, "step": 7, "odd": {1, 2}}
    checkpoint = through(state)
    found = _load_state_dict_from_keys({"model", "step", "odd"}, storage_reader=EverstepReader(checkpoint))
    assert found["model"]["a.b"].tolist() == [1, 1] and found["step"] == 7 and found["odd"] == {1, 2}
    part = _load_state_dict_from_keys({"model"}, storage_reader=EverstepReader(checkpoint))
    assert list(part) == ["model"] and part["model"]["c"][1] == 5


def test_plain_values_are_kept_as_such_and_others_as_the_planners_bytes(through):
    values = {"step": 3, "text": "x", "lists": [1, (2.5, None)], "odd": {1, 2}, "none": None, "raw": b"abc", "b": True}
    checkpoint = through(values)
    kinds = {entry["name"]: entry["dtype"] for entry in checkpoint.entries()}
    assert kinds["step"] == kinds["text"] == kinds["raw"] == "value" and kinds["odd"] == "bytes"
    assert checkpoint.value("step") == 3 and checkpoint.value("raw") == b"abc"
    assert torch.load(io.BytesIO(checkpoint.value("odd")), weights_only=False) == {1, 2}
    into = {name: None for name in values} | {"lists": [0, (0.0, 0)]}
    assert loaded(into, checkpoint) == values


def test_what_was_pickled_is_unpickled_only_where_that_was_said(save):
    checkpoint = save({"odd": {1, 2}}, allow_pickle=True)
    assert isinstance(cause(lambda: loaded({"odd": None}, checkpoint)), everstep.InvalidArgument)
    assert loaded({"odd": None}, checkpoint, allow_pickle=True)["odd"] == {1, 2}


def test_a_missing_name_and_another_shape_are_torchs_errors(through):
    checkpoint = through({"w": torch.ones(2)})
    assert "x" in str(cause(lambda: loaded({"x": torch.ones(2)}, checkpoint)))
    assert "Size mismatch" in str(cause(lambda: loaded({"w": torch.ones(3)}, checkpoint)))
    partial = loaded({"w": torch.zeros(2), "x": torch.ones(1)}, checkpoint, DefaultLoadPlanner(allow_partial_load=True))
    assert partial["w"].tolist() == [1, 1]


def test_a_reader_takes_checkpoints_runs_and_references(repo, run, through):
    through({"w": torch.ones(2)}, step=1)
    newest = through({"w": torch.full((2,), 2.0)}, step=2)
    empty = lambda: {"w": torch.zeros(2)}  # noqa: E731
    assert loaded(empty(), run)["w"].tolist() == [2, 2]
    assert loaded(empty(), run, step=1)["w"].tolist() == [1, 1]
    into, reader = empty(), EverstepReader(repo)
    dcp.load(into, checkpoint_id="gpt@step=1", storage_reader=reader)
    assert into["w"].tolist() == [1, 1] and reader.checkpoint.step == 1
    dcp.load(into, checkpoint_id="gpt@step=2", storage_reader=EverstepReader(newest))
    assert into["w"].tolist() == [2, 2]
    error = cause(lambda: dcp.load(into, checkpoint_id="gpt@step=1", storage_reader=EverstepReader(newest)))
    assert isinstance(error, everstep.InvalidArgument) and "gpt@step=1" in str(error)
    with pytest.raises(everstep.InvalidArgument, match="takes a checkpoint"):
        EverstepReader("gpt")


def test_a_writer_waits_for_torchs_save_and_says_when_it_has_not_ended(double, remote):
    run = remote.run("waits")
    writer = run.writer()
    double.fault(PACK, hold=True)
    future = dcp.async_save({"w": torch.rand(1000)}, storage_writer=EverstepWriter(writer, step=1))
    double.wait_for_arrival()
    assert writer.finish(0.05).pending == [1] and not future.done()
    double.release()
    assert writer.finish(20).pending == []
    assert writer.save(2, {"w": torch.ones(2)}).step == 2
    writer.close()
    assert [step for _, step in run.checkpoints()] == [1, 2]


def test_events_and_the_count_of_failures_know_of_torchs_saves(run):
    heard = []
    with run.writer(on_event=heard.append, on_failure="warn", max_failures=1) as w:
        w._failures = 1
        dcp.async_save({"w": torch.ones(3)}, storage_writer=EverstepWriter(w, step=1)).result(60)
        assert [event.kind for event in heard] == ["staged", "committed"] and heard[1].stats.raw_bytes >= 12
        assert w._failures == 0 and w.latest.step == 1
    with pytest.raises(everstep.InvalidArgument, match="closed"):
        EverstepWriter(w, step=2).stage({})


def test_retention_follows_torchs_saves(run):
    heard = []
    with run.writer(on_event=heard.append) as w:
        w.retain({"keep_last": 1})
        for step in (1, 2):
            dcp.save({"w": torch.full((3,), float(step))}, storage_writer=EverstepWriter(w, step=step))
    assert [step for _, step in run.checkpoints()] == [2]
    assert [event.expired for event in heard if event.kind == "expired"] == [(2,)]


def test_retention_follows_what_another_process_saved(run):
    with run.writer() as w:
        w.retain({"keep_last": 1})
        for step in (1, 2):
            there = pickle.loads(pickle.dumps(EverstepWriter(w, step=step)))
            dcp.save({"w": torch.full((3,), float(step))}, storage_writer=there)
        assert w.latest.step == 2
    assert [step for _, step in run.checkpoints()] == [2]


def test_wrong_settings_are_refused(run):
    with run.writer() as w:
        with pytest.raises(everstep.InvalidArgument, match="staging"):
            EverstepWriter(w, step=1, staging="later")
        with pytest.raises(everstep.InvalidArgument, match="step"):
            EverstepWriter(w, step="1")
        with pytest.raises(everstep.InvalidArgument, match="metadata"):
            EverstepWriter(w, step=1, metadata={"x": {1}})
    assert EverstepWriter.validate_checkpoint_id("gpt@step=1") and not EverstepWriter.validate_checkpoint_id("/a/b")
    assert EverstepReader.validate_checkpoint_id("gpt@min=loss") and not EverstepReader.validate_checkpoint_id("/a/b")
