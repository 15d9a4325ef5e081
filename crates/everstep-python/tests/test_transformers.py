"""The Trainer of transformers keeps its checkpoints in a run."""

import signal

import pytest
from nursery import needs

pytestmark = needs("torch", "transformers", "accelerate")


@pytest.fixture(scope="module")
def undisturbed(nursery, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    began, end, kept = nursery("transformers_program.train", folder / "repo", folder / "out")
    assert began is None and kept == [2, 4, 6, 8]
    return end


def test_a_killed_training_goes_on_elsewhere_and_ends_bit_for_bit_where_an_undisturbed_one_ends(
    nursery, undisturbed, tmp_path
):
    assert nursery.attempt("transformers_program.train", tmp_path / "repo", tmp_path / "lost", 7)["status"] == -signal.SIGKILL
    began, end, kept = nursery("transformers_program.train", tmp_path / "repo", tmp_path / "new")
    assert began in ("checkpoint-4", "checkpoint-6") and end == undisturbed and sorted(set(kept)) == kept[-4:]


def test_a_half_written_folder_is_never_taken_for_a_checkpoint(nursery, undisturbed, tmp_path):
    repository, output = tmp_path / "repo", tmp_path / "out"
    assert nursery.attempt("transformers_program.train", repository, output, 6, True, False)["status"] == -signal.SIGKILL
    assert nursery("transformers_program.last", output) == "checkpoint-6", "which the Trainer itself would take"
    began, end, kept = nursery("transformers_program.train", repository, output)
    assert began == "checkpoint-4" and end == undisturbed and kept == [2, 4, 6, 8]


def test_a_folder_comes_back_byte_for_byte_and_what_did_not_change_is_stored_once(nursery, tmp_path):
    nursery("transformers_program.folders", tmp_path / "repo", tmp_path / "out")


def test_files_of_all_kinds_come_back_and_incomplete_ones_are_refused(nursery, tmp_path):
    nursery("transformers_program.odd", tmp_path / "repo", tmp_path / "folder")


def test_a_list_of_files_that_leads_out_of_the_folder_is_damage(nursery, tmp_path):
    (tmp_path / "folder").mkdir()
    nursery("transformers_program.outside", tmp_path / "repo", tmp_path / "folder")


def test_a_checkpoint_that_is_written_on_a_signal_is_taken_as_well(nursery, tmp_path):
    assert nursery("transformers_program.signalled", tmp_path / "repo", tmp_path / "out") == [3]


def test_a_killed_training_with_accelerate_goes_on_from_its_folder(nursery, tmp_path):
    died = nursery.attempt("transformers_program.accelerated", tmp_path / "repo", tmp_path / "lost", 6)
    assert died["status"] == -signal.SIGKILL
    began, end = nursery("transformers_program.accelerated", tmp_path / "repo", tmp_path / "new")
    never, undisturbed = nursery("transformers_program.accelerated", tmp_path / "quiet", tmp_path / "other")
    assert (began, never) == (4, None) and end == undisturbed


def test_of_two_ranks_the_first_takes_the_folder_once_both_have_written_and_both_hear_of_it(nursery, tmp_path):
    assert nursery("transformers_program.distributed", tmp_path / "repo", tmp_path / "out") == [3, 4]
