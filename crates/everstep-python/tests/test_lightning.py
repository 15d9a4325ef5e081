"""Lightning keeps its checkpoints in a run."""

import signal

import pytest
from nursery import needs

pytestmark = needs("torch", "lightning")


@pytest.fixture(scope="module")
def undisturbed(nursery, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    began, end, kept = nursery("lightning_program.train", folder / "repo", folder, "plain", 5)
    assert began is None and removed(kept) == ["epoch=3-step=12.ckpt", "epoch=4-step=15.ckpt"]
    return end


def removed(kept):
    """What is left of those that Lightning removes all but two of; `last.ckpt` it overwrites, and older ones stay."""
    assert kept[-1] == "last.ckpt"
    return [name for name in kept if name != "last.ckpt"]


@pytest.mark.parametrize("how", ["plain", "background", "async"])
def test_a_killed_fit_goes_on_and_ends_bit_for_bit_where_an_undisturbed_one_ends(nursery, undisturbed, tmp_path, how):
    repository = tmp_path / "repo"
    assert nursery.attempt("lightning_program.train", repository, tmp_path, how, 5, 11)["status"] == -signal.SIGKILL
    began, end, kept = nursery("lightning_program.train", repository, tmp_path, how, 5)
    assert began == "last.ckpt" if how == "plain" else began  # what was on its way may have come through, or not
    assert end == undisturbed and removed(kept)[-2:] == ["epoch=3-step=12.ckpt", "epoch=4-step=15.ckpt"]


def test_what_comes_back_is_what_torch_save_would_have_given_back(nursery, tmp_path):
    nursery("lightning_program.beside", tmp_path / "repo", tmp_path)


def test_a_path_finds_its_checkpoint_and_removing_one_expires_it_but_never_the_newest(nursery, tmp_path):
    nursery("lightning_program.io_alone", tmp_path / "repo")


def test_of_two_ranks_the_first_saves_and_both_go_on(nursery, tmp_path):
    assert nursery("lightning_program.distributed", tmp_path / "repo", tmp_path) == [[2], [2, 4]]
