"""Examples that no other command runs."""

import signal

from nursery import needs

pytestmark = needs("torch")


def test_a_killed_loop_like_torchtitans_ends_bit_for_bit_where_an_undisturbed_one_ends(nursery, tmp_path):
    """Over the end of an epoch of 32 batches."""
    assert nursery.attempt("titan_program.train", tmp_path / "killed", 38, 31)["status"] == -signal.SIGKILL
    began, end, newest = nursery("titan_program.train", tmp_path / "killed", 38)
    assert began in (25, 29) and newest == 38
    first, undisturbed, _ = nursery("titan_program.train", tmp_path / "quiet", 38)
    assert first == 1 and end == undisturbed
