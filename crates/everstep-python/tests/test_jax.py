"""jax arrays in a state: 8 virtual devices, no torch."""

import signal
import socket

import pytest
from nursery import Nursery, needs

pytestmark = needs("jax")


@pytest.fixture(scope="module")
def nursery():
    """One of its own, which never imports torch."""
    with Nursery() as ready:
        yield ready


def test_a_killed_training_goes_on_and_ends_bit_for_bit_where_an_undisturbed_one_ends(nursery, tmp_path):
    assert nursery.attempt("jax_program.train", tmp_path / "killed", 7, 6)["status"] == -signal.SIGKILL
    began, resumed = nursery("jax_program.train", tmp_path / "killed", 7)
    assert 0 < began < 6
    never, undisturbed = nursery("jax_program.train", tmp_path / "quiet", 7)
    assert never == 0 and resumed == undisturbed


def test_arrays_are_saved_once_per_box_and_loaded_on_any_other_mesh(nursery, tmp_path):
    nursery("jax_program.meshes", tmp_path / "repo")


def test_every_element_type_comes_back_without_torch_and_what_cannot_be_kept_is_refused(nursery, tmp_path):
    key, packed, description = nursery("jax_program.types", tmp_path / "repo")
    assert "jax.random.key_data" in key and "int4" in packed and "ShapeDtypeStruct" in description


def test_a_loaded_array_is_as_free_or_bound_or_weakly_typed_as_the_one_before(nursery, tmp_path):
    nursery("jax_program.places", tmp_path / "repo")


def test_donated_arrays_are_saved_as_they_were_and_refused_once_they_are_gone(nursery, tmp_path):
    assert "donated" in nursery("jax_program.donated", tmp_path / "repo")


def test_processes_of_one_job_hand_in_each_box_once_and_load_their_own(nursery, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    nursery("jax_program.crowd", tmp_path / "repo", tmp_path / "board", port)
