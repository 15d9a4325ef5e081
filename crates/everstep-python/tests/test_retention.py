"""Retention beside the training: what expires, what it may touch, and that it never disturbs."""

import logging
import queue

import everstep
import numpy as np
import pytest

EXPIRED = r"/expired/"


def state_of(step: int) -> dict:
    return {"w": np.full(1000, float(step))}


class Heard:
    """Events, and a wait for those of retention."""

    def __init__(self):
        self.events: queue.Queue = queue.Queue()
        self.expired: list[int] = []

    def __call__(self, event) -> None:
        self.events.put(event)

    def until(self, kind: str, count: int = 1):
        """The last of `count` events of `kind`; or, of expiries, the one after which so many checkpoints have expired."""
        seen = 0
        while seen < count:
            event = self.events.get(timeout=60)
            if event.kind == kind:
                seen += max(len(event.expired), 1)
                self.expired += event.expired
        return event


def steps_of(run) -> list[int]:
    return [step for _, step in run.checkpoints()]


def test_what_the_policy_does_not_keep_expires_after_each_commit(repo, run, folder):
    heard = Heard()
    with repo.run("other").writer() as other:
        for step in (1, 2, 3):
            other.save(step, state_of(step))
    packs = len(list(folder.glob("packs/**/*-*")))
    with run.writer(on_event=heard) as writer:
        writer.save(10, state_of(10))
        writer.retain({"keep_last": 2, "keep_every": 100})
        for step in (100, 105, 110, 115):
            writer.save(step, state_of(step))
        assert heard.until("expired").step == 115
    assert steps_of(run) == [10, 100, 110, 115], "the first of each hundred steps, and the newest two"
    assert steps_of(repo.run("other")) == [1, 2, 3], "it is restricted to the run"
    assert len(list(folder.glob("packs/**/*-*"))) == packs + 5, "nothing is deleted"


def test_saves_in_the_background_are_followed_by_retention_until_it_is_ended(run):
    heard = Heard()
    with run.writer(on_event=heard, overlap=2) as writer:
        writer.retain([{"keep_last": 1}])
        for step in range(1, 6):
            writer.save_async(step, state_of(step))
        heard.until("expired", 4)
        assert steps_of(run) == [5]
        writer.retain(None)
        for step in range(6, 9):
            writer.save(step, state_of(step))
    assert steps_of(run) == [5, 6, 7, 8]
    assert sorted(heard.expired) == [2, 3, 4, 5]


@pytest.mark.parametrize("form", ["text", "path", "str", "tables"])
def test_a_policy_is_toml_or_its_tables(run, tmp_path, form):
    text = '[[policy]]\nruns = "other"\nkeep_all = true\n\n[[policy]]\nruns = ["gpt", "x-*"]\nkeep_last = 1\n'
    (tmp_path / "policy.toml").write_text(text)
    path = tmp_path / "policy.toml"
    tables = [{"runs": "other", "keep_all": True}, {"runs": ["gpt", "x-*"], "keep_last": 1}]
    policy = {"text": text, "path": path, "str": str(path), "tables": tables}[form]
    heard = Heard()
    with run.writer(on_event=heard) as writer:
        writer.retain(policy)
        writer.save(1, state_of(1))
        writer.save(2, state_of(2))
        heard.until("expired")
    assert steps_of(run) == [2]


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ({"keep_lats": 3}, "keep_lats"),
        ({"keep_last": 0}, "nonzero"),
        ({}, "no rule keeps anything"),
        ([], "at least one"),
        ({"runs": "other", "keep_last": 1}, "no table of the policy is for run gpt"),
        ('[[policy]]\nruns = "*"\nkeep_last = "x"\n', "line 3"),
        ("missing.toml", "missing.toml"),
        ({"keep_last": object()}, "TOML"),
        (7, "TOML"),
    ],
)
def test_a_policy_that_is_wrong_is_refused_at_once(run, policy, why):
    with run.writer() as writer:
        with pytest.raises(everstep.errors.InvalidArgument, match=why):
            writer.retain(policy)


def test_a_pin_and_the_best_stay(repo, run):
    heard = Heard()
    with run.writer(on_event=heard) as writer:
        for step, loss in ((1, 0.5), (2, 0.1), (3, 0.7)):
            writer.save(step, state_of(step), metadata={"loss": loss})
        repo.pin("kept", repo.checkpoint("gpt@step=1"))
        writer.retain({"keep_last": 1, "keep_best": {"metric": "loss", "mode": "min"}})
        writer.save(4, state_of(4), metadata={"loss": 0.9})
        heard.until("expired")
    assert steps_of(run) == [1, 2, 4]


def test_a_failure_is_a_warning_and_an_event_and_the_next_pass_goes_on(double, remote, caplog):
    run, heard = remote.run("gpt"), Heard()
    with run.writer(on_event=heard) as writer:
        writer.retain({"keep_last": 1})
        writer.save(1, state_of(1))
        double.fault(EXPIRED, status=403)
        with caplog.at_level(logging.WARNING, "everstep"):
            writer.save(2, state_of(2))
            failed = heard.until("retention_failed")
        assert isinstance(failed.error, everstep.errors.PermissionDenied) and failed.step == 2
        assert "retention after step 2 failed" in caplog.text
        double.release()
        writer.save(3, state_of(3))
        heard.until("expired", 2)
    assert steps_of(run) == [3]


def test_saves_and_close_do_not_wait_for_retention(double, remote):
    run = remote.run("gpt")
    with run.writer() as writer:
        writer.retain({"keep_last": 1})
        writer.save(1, state_of(1))
        double.fault(EXPIRED, hold=True)
        writer.save(2, state_of(2))
        double.wait_for_arrival()
        writer.save(3, state_of(3))
    assert steps_of(run) == [1, 2, 3], "the pass is still held"
