"""Lightning's strategies that shard the model save and load through torch.distributed.checkpoint, into a run."""

import signal

import pytest
from nursery import needs

pytestmark = needs("torch", "lightning")


@pytest.mark.parametrize("strategy, background, rank", [("parallel", True, None), ("legacy", False, 1)])
def test_ranks_that_are_killed_go_on_and_end_bit_for_bit_where_undisturbed_ones_end(nursery, tmp_path, strategy, background, rank):
    """All of them while a save may be on its way; and one of them, without which the other cannot save."""
    told = nursery.attempt("lightning_shards_program.killed", tmp_path / "repo", tmp_path, strategy, background, rank)
    if rank is None:
        assert told["status"] == -signal.SIGKILL, told["complaint"]
    else:
        assert told["status"] == 1, "the rank that is left ends with an error, and does not hang"
    resumed, quiet = nursery("lightning_shards_program.resumed", tmp_path / "repo", tmp_path, strategy, background)
    name = resumed[0].rpartition("step=")[2]
    assert quiet[0] is None and name in (("2.ckpt", "3.ckpt") if background else ("3.ckpt",))
    assert resumed[1] == quiet[1], "what both ranks have"
    assert resumed[2][-2:] == quiet[2] == [5, 6], "ModelCheckpoint had the others removed, but for what it resumed from"
    if strategy == "parallel":
        assert nursery("lightning_shards_program.alone", tmp_path / "repo", tmp_path) == [8, 8]


def test_a_save_that_fails_on_one_rank_is_told_to_both_by_the_next(nursery, tmp_path):
    message, note, steps = nursery("lightning_shards_program.failing_save", tmp_path / "repo")
    assert "w1" in message and "rank 1" in note and steps == [3]
