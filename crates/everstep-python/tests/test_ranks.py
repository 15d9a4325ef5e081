"""Jobs of many ranks: what they save together, how they act alike, and what happens when one of them fails."""

from concurrent.futures import ThreadPoolExecutor

import everstep
import numpy as np
import pytest

from light_program import SHAPES, part, whole
from ranks import SOON, Ranks
from s3_double import S3Double

FOUR = [
    "loaders",
    "differing_replicas",
    "quiet_ranks",
    "metadata_of_one",
    "skipping_alike",
    "warned_alike",
    "fall_back",
]
FOUR += [
    "loads_that_fail_on_one",
    "fenced",
    "failures_of_the_leader",
    "refused_opening",
    "killed_in_the_background",
]


@pytest.fixture(scope="module")
def place(empty_repository, tmp_path_factory):
    """A folder with a repository, and an S3 double with one."""
    import shutil

    folder = tmp_path_factory.mktemp("ranks")
    for name in ("repo", "hsdp"):
        shutil.copytree(empty_repository, folder / name)
    double = S3Double()
    double.objects["bucket/r/everstep.json"] = ((empty_repository / "everstep.json").read_bytes(), 0.0)
    yield folder, {"repository": str(folder / "repo"), "hsdp": str(folder / "hsdp"), "double": double.url}
    double.close()


def ranks_of(place, name: str, program: str, world: int, **settings):
    folder, common = place
    own = folder / name
    own.mkdir()
    return Ranks(program, world, own, **common, **settings).wait()


@pytest.fixture(scope="module")
def four(place):
    """Four ranks with numpy alone."""
    return ranks_of(place, "four", "light_program.py", 4, scenarios=FOUR)


@pytest.fixture(scope="module")
def eight(place, four):
    return ranks_of(place, "eight", "light_program.py", 8, scenarios=["uneven", "resume_loaders"])


@pytest.fixture(scope="module")
def two(place, four):
    return ranks_of(place, "two", "light_program.py", 2, scenarios=["resume_loaders", "killed_leader"])


@pytest.fixture(scope="module")
def torch_four(place):
    """Four ranks of torch.distributed."""
    return ranks_of(place, "torch", "torch_program.py", 4)


@pytest.fixture
def repo(place):
    return everstep.Repository(place[1]["repository"])


@pytest.mark.parametrize("world", [1, 5, 6, 8, 16])
def test_c10_uneven_and_empty_shards_are_loaded_by_other_numbers_of_ranks(repo, eight, world):
    assert {said["ordinal"] for said in eight.said("uneven")} == {repo.run("uneven").latest().ordinal}
    latest = repo.run("uneven").latest()
    assert latest.world_size == 8
    for rank in range(world):
        wanted = {name: part(name, rank, world) for name in SHAPES}
        into = {
            name: everstep.Shard(np.full_like(shard.tensor, -1), shard.global_shape, shard.global_offset)
            for name, shard in wanted.items()
        }
        into["E"] = everstep.Shard(np.zeros(5, "float32"), (5,), (0,))
        latest.load(into)
        for name, shard in wanted.items():
            assert np.array_equal(into[name].tensor, shard.tensor), (name, rank)
        assert into["E"].tensor.tolist() == [0, 1, 2, 3, 4]


def test_c10_a_whole_tensor_is_read_from_its_shards(repo, eight):
    latest = repo.run("uneven").latest()
    for name in SHAPES:
        assert np.array_equal(latest.read(name, library="numpy"), whole(name))


def test_c10_each_rank_gets_its_own_state_back(four):
    assert four.said("loaders") == [0, 1, 2, 3]


def test_c10_the_state_of_each_rank_is_never_dropped_silently(two, eight):
    for world, ranks in ((2, two), (8, eight)):
        for rank, said in enumerate(ranks.said("resume_loaders")):
            kind, message, _ = said["refused"]
            assert (
                kind == "SchemaMismatch" and "dl" in message and "4" in message and str(world) in message
            ), message
            assert said["untouched"] and said["value"] == rank % 4


def test_tensors_that_are_not_the_same_on_all_ranks_are_refused(four):
    for said in four.said("differing_replicas"):
        kind, message, seconds = said["refused"]
        assert kind is not None and "bad" in message and seconds < SOON, message
        assert said["step"] == 2 and said["steps"] == [2]


def test_c33_only_the_leader_logs_at_info(four):
    leader, *others = four.said("quiet_ranks")
    assert 2 <= len(leader) <= 4 and all("step" in line for line in leader)
    assert others == [[], [], []]


def test_metadata_that_is_no_json_does_not_separate_the_ranks(four):
    for rank, said in enumerate(four.said("metadata_of_one")):
        for kind, message, seconds in (said["refused"], said["later"]):
            assert kind in ("InvalidArgument", "RankFailed") and "metadata" in message and seconds < SOON, (
                rank,
                message,
            )
        assert said["step"] == 5


def test_all_ranks_skip_the_same_saves(four):
    assert four.said("skipping_alike") == [[False, True, True, False]] * 4


def test_all_ranks_raise_at_the_same_step_once_warnings_are_enough(four):
    for said in four.said("warned_alike"):
        assert [kind for kind, _, _ in said["told"]][:3] == [None] * 3
        kind, message, _ = said["told"][3]
        assert kind == "RankFailed" and "step 3" in message and "rank 1" in message and "403" in message
        assert said["steps"] == [5]


def test_all_ranks_fall_back_to_the_same_older_checkpoint(four):
    for said in four.said("fall_back"):
        assert said["refused"][0] == "Corrupt", said["refused"]
        assert (said["step"], said["equal"]) == (1, True)
        assert said["steps"] == [1, 2]


def test_c04_a_load_that_fails_on_one_rank_fails_on_all(four):
    for rank, said in enumerate(four.said("loads_that_fail_on_one")):
        kind, message, seconds = said["shape"]
        assert kind == "SchemaMismatch" and ("rank 2" in message or rank == 2) and seconds < SOON, message
        kind, message, seconds = said["own"]
        assert "cannot load this" in message and ("rank 1" in message) and seconds < SOON, message
        assert said["step"] == 1


def test_all_ranks_of_a_job_that_was_taken_over_are_told(four):
    for said in four.said("fenced"):
        kind, message, seconds = said["refused"]
        assert kind in ("Conflict", "RankFailed") and seconds < SOON, message
        assert said["latest"] == 10
    assert four.said("fenced")[0]["refused"][0] == "Conflict"


def test_no_rank_opens_a_run_that_another_job_holds(four):
    for said in four.said("refused_opening"):
        assert said["refused"][0] == "Conflict" and said["refused"][2] < SOON, said["refused"]
        assert said["step"] == 1


def test_c04_a_rank_killed_in_the_background_is_named_to_all(four):
    live = four.said("killed_in_the_background", silent=(2,))
    assert four.was_killed(2) and len(live) == 3
    for said in live:
        for kind, message, seconds in (said["own"], said["following"]):
            assert kind == "RankFailed" and "rank 2" in message and seconds < SOON, message
        assert "step 2" in said["following"][1] and said["latest"] == 1


def test_c04_a_killed_leader_is_named_to_the_others(two):
    (said,) = two.said("killed_leader", silent=(0,))
    assert two.was_killed(0)
    for kind, message, seconds in (said["own"], said["following"]):
        assert kind in ("RankFailed", "OutcomeUnknown") and "rank 0" in message and seconds < SOON, (
            kind,
            message,
        )
    assert said["latest"] == 1


def test_dtensors_are_saved_on_one_mesh_and_loaded_on_another(torch_four, repo):
    torch_four.said("begin")
    torch_four.said("dtensors")
    assert np.array_equal(
        repo.run("dtensors").latest().read("rows", library="numpy"), np.arange(150.0).reshape(50, 3)
    )


def test_dtensors_with_partial_sums_are_refused_by_name(torch_four):
    for kind, message, _ in torch_four.said("partial_sums"):
        assert kind in ("InvalidArgument", "RankFailed") and "deep.w" in message


def test_sharded_tensors_are_saved_as_the_tensor_that_they_are_parts_of(torch_four):
    assert torch_four.said("sharded_tensors") == [list(map(float, range(21)))] * 4


def test_fsdp_models_and_optimizers_go_on_bit_for_bit_on_other_numbers_of_ranks(torch_four):
    assert torch_four.said("fsdp") == [3] * 4


def test_fsdp_over_tensor_parallelism_comes_back(torch_four):
    assert all("_StridedShard" in said for said in torch_four.said("tensor_parallel"))


def test_hsdp_stores_one_copy(torch_four, place):
    said = torch_four.said("hsdp")
    packs = sum(path.stat().st_size for path in (place[0] / "hsdp" / "packs").rglob("*") if path.is_file())
    assert said[0]["raw"] <= packs <= 1.02 * said[0]["raw"]
    assert all(rank["stored"] > 0.15 * packs for rank in said), "the work is not spread over the ranks"


CAUSES = {"collect": "out of shape", "upload": "403", "commit": "403"}


def assert_all_were_told(told: list[dict], rank: int, how: str, mode: str) -> None:
    """All ranks got an error that names `rank` and its cause in time, and the next save succeeded."""
    for own, said in enumerate(told):
        kind, message, seconds = said["error"]
        assert kind is not None and CAUSES[how] in message and seconds < SOON, message
        assert (
            f"rank {rank}" in message or (own == rank and mode == "save") or (rank == 0 and mode == "async")
        ), message
        assert said["before"] is None and said["after"] == [3]
    assert len({said["ordinal"] for said in told}) == 1
    if mode == "async":
        assert len({said["error"][1] for said in told}) == 1, "the ranks were told different things"


@pytest.mark.parametrize("mode", ["save", "async"])
@pytest.mark.parametrize("how", ["collect", "upload", "commit"])
def test_c04_a_rank_that_fails_is_named_to_all_and_the_next_save_succeeds(torch_four, how, mode):
    assert_all_were_told([said[f"{how}-{mode}"] for said in torch_four.said("failures")], 2, how, mode)


@pytest.mark.parametrize("mode", ["save", "async"])
@pytest.mark.parametrize("how", ["collect", "upload"])
def test_c04_a_leader_that_fails_is_named_to_all_and_the_next_save_succeeds(four, how, mode):
    assert_all_were_told(
        [said[f"{how}-{mode}"] for said in four.said("failures_of_the_leader")], 0, how, mode
    )


def test_c04_a_killed_rank_is_named_to_all(torch_four):
    live = torch_four.said("killed", silent=(2,))
    assert torch_four.was_killed(2) and len(live) == 3
    for said in live:
        kind, message, seconds = said["error"]
        assert kind == "RankFailed" and "rank 2" in message and seconds < SOON, message
        assert said["following"][0] == "RankFailed" and said["latest"] == 1


class Shelf(dict):
    """A board that outlives the ranks that use it."""

    def set(self, key: str, value: bytes) -> None:
        self[key] = value


def test_a_board_that_outlived_a_job_does_not_show_its_opening_to_the_next_one(run):
    board, tickets = Shelf(), []

    def opened(rank: int, deadline: float = 30.0):
        return run.writer(takeover="now", deadline=deadline, group=(rank, 2, board))

    for _ in range(3):
        with ThreadPoolExecutor(1) as pool:
            # The rank is there first, and sees what the leader of the life before left.
            member = pool.submit(opened, 1)
            leader = opened(0)
            ranks = [leader, member.result(60)]
            saving = pool.submit(ranks[1].save, 1, {"x": 1})
            assert leader.save(1, {"x": 1}).ordinal == saving.result(60).ordinal
        assert leader._ticket == ranks[1]._ticket
        tickets.append(leader._ticket)
    assert len(set(tickets)) == 3
    with pytest.raises(everstep.RankFailed, match="rank 0 was not heard of"):
        opened(1, deadline=0.2)
    with pytest.raises(everstep.RankFailed, match="rank 1 was not heard of"):
        opened(0, deadline=0.2)
    assert run.repository._native.adopt(leader._ticket).latest().step == 1, "a leader alone fences nobody"
