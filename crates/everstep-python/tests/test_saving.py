"""Saves in the background: what they record, how they overlap, what they tell, and what their failure does."""

import contextlib
import logging
import queue
import sys
import threading
from pathlib import Path

import everstep
import numpy as np
import pytest
import torch

from s3_double import PACK


def state_of(value: float) -> dict:
    """All elements and the counter say `value`; none of it is contiguous memory alone."""
    base = torch.full((64, 1 << 12), value)
    return {
        "w": base.clone(),
        "v": base.clone().t(),
        "step": torch.tensor(value),
        "n": np.full((50, 40), value),
        "reversed": np.full(1000, value)[::-1],
        "shared": base.clone().share_memory_(),
        "plain": {"value": value, "list": [value]},
    }


def bump(state: dict) -> None:
    for name in ("w", "v", "step", "shared"):
        state[name].add_(1)
    for name in ("n", "reversed"):
        state[name] += 1
    state["plain"]["value"] = -1
    state["plain"]["list"].append(-1)


def assert_all(checkpoint, value: float) -> None:
    into = state_of(-5.0)
    checkpoint.load(into)
    assert all((into[name] == value).all() for name in ("w", "v", "step", "n", "reversed", "shared"))
    assert into["plain"] == {"value": value, "list": [value]}


@pytest.fixture
def remote_run(remote):
    return remote.run("gpt")


def held(double, writer, step, state, **options):
    """A save whose packs do not arrive until the double lets go."""
    double.fault(PACK, hold=True)
    job = writer.save_async(step, state, **options)
    double.wait_for_arrival()
    return job


@pytest.mark.parametrize("staging", ["blocking", "overlap"])
def test_c02_a_save_holds_the_values_of_its_call(double, remote_run, staging):
    state = state_of(1.0)
    with remote_run.writer() as writer:
        double.fault(PACK, hold=True)
        job = writer.save_async(1, state, staging=staging)
        if staging == "overlap":
            assert job.staged.result(60) is None
        bump(state)
        double.wait_for_arrival()
        assert not job.committed.done() and job.outcome == "running"
        double.release()
        saved = job.result(60)
        assert (saved.step, job.outcome, job.stats.raw_bytes) == (1, "committed", saved.stats.raw_bytes)
        bump(state)
        writer.save(2, {**state, "plain": {"value": 3.0, "list": [3.0]}})
    assert_all(remote_run.checkpoint(saved.ordinal), 1.0)
    assert_all(remote_run.latest(), 3.0)


def test_c02_buffers_that_are_used_again_mix_nothing(run):
    with run.writer(overlap=2) as writer:
        state = state_of(0.0)
        jobs = []
        for step in range(1, 7):
            bump(state)
            state["plain"] = {"value": float(step), "list": [float(step)]}
            jobs.append(writer.save_async(step, state, staging="blocking"))
    for job in jobs:
        assert_all(run.checkpoint(job.result().ordinal), float(job.step))


def test_a_save_waits_for_the_one_before(double, remote_run):
    happened, calling = [], threading.Event()
    with remote_run.writer(on_event=lambda event: happened.append((event.kind, event.step))) as writer:
        held(double, writer, 1, state_of(1.0))
        threading.Thread(target=lambda: calling.wait(60) and double.release()).start()
        calling.set()
        writer.save_async(2, state_of(2.0)).result(60)
    assert [event for event in happened if event[0] != "progress"] == [
        ("staged", 1),
        ("committed", 1),
        ("staged", 2),
        ("committed", 2),
    ]


def test_a_save_is_skipped_while_another_is_on_its_way(double, remote_run):
    happened = []
    with remote_run.writer(
        overlap="skip", on_event=lambda event: happened.append((event.kind, event.step))
    ) as writer:
        first = held(double, writer, 1, state_of(1.0))
        second = writer.save_async(2, state_of(2.0))
        assert (
            second.skipped
            and second.outcome == "skipped"
            and second.result(0) is None
            and second.staged.done()
        )
        double.release()
        first.result(60)
        assert writer.save_async(3, state_of(3.0)).result(60).step == 3
    assert [step for _, step in remote_run.checkpoints()] == [1, 3]
    assert ("skipped", 2) in happened


def test_as_many_saves_are_on_their_way_as_was_said(double, remote_run):
    with remote_run.writer(overlap=2) as writer:
        jobs = [held(double, writer, 1, state_of(1.0)), writer.save_async(2, state_of(2.0))]
        assert jobs[1].staged.done() and not jobs[0].committed.done()
        third = threading.Thread(target=lambda: jobs.append(writer.save_async(3, state_of(3.0))))
        third.start()
        double.release()
        third.join(60)
        assert jobs[0].committed.done()
        assert [job.result(60).step for job in jobs] == [1, 2, 3]
    assert_all(remote_run.checkpoint(jobs[1].result().ordinal), 2.0)


def test_c08_a_failure_in_the_background_is_raised_by_the_next_save(double, remote_run):
    with remote_run.writer() as writer:
        writer.save_async(1, state_of(1.0)).result(60)
        double.fault(PACK, status=403)
        job = writer.save_async(2, state_of(2.0))
        with pytest.raises(everstep.PermissionDenied, match="403"):
            job.result(60)
        assert job.outcome == "failed"
        with pytest.raises(everstep.PermissionDenied, match="step 2.*403"):
            writer.save_async(3, state_of(3.0))
        assert remote_run.latest().step == 1
        double.release()
        writer.save_async(4, state_of(4.0)).result(60)
    assert [step for _, step in remote_run.checkpoints()] == [1, 4]
    assert_all(remote_run.checkpoint(remote_run.checkpoints()[0][0]), 1.0)


@pytest.mark.parametrize("how", ["save", "close", "with", "resume"])
def test_c08_no_way_on_hides_a_failure_in_the_background(double, remote_run, how):
    writer = remote_run.writer()
    double.fault(PACK, status=403)
    job = writer.save_async(2, state_of(2.0))
    with pytest.raises(everstep.PermissionDenied, match="step 2.*403"):
        if how == "save":
            writer.save(3, {"x": 1})
        elif how == "close":
            writer.close()
        elif how == "resume":
            writer.resume({"x": 1})
        else:
            with writer:
                pass
    assert job.committed.exception(60) and remote_run.latest() is None
    writer.close()


def test_c08_a_failure_does_not_hide_the_error_of_the_training(double, remote_run):
    double.fault(PACK, status=403)
    with pytest.raises(ZeroDivisionError), remote_run.writer() as writer:
        writer.save_async(2, state_of(2.0))
        1 / 0


def test_c08_a_retry_is_a_new_attempt(double, remote_run):
    with remote_run.writer() as writer:
        double.fault(PACK, status=403)
        with pytest.raises(everstep.PermissionDenied):
            writer.save(5, state_of(1.0))
        double.release()
        saved = writer.save(5, state_of(2.0))
    assert remote_run.checkpoints() == [(saved.ordinal, 5)]
    assert_all(remote_run.latest(), 2.0)


def test_c08_a_state_that_cannot_be_saved_is_told_at_the_call(run):
    with run.writer() as writer:
        with pytest.raises(everstep.InvalidArgument, match="bad"):
            writer.save_async(1, {"bad": object()})
        writer.save_async(2, state_of(2.0)).result(60)
        with pytest.raises(everstep.InvalidArgument, match="staging"):
            writer.save_async(3, state_of(2.0), staging="later")
    assert [step for _, step in run.checkpoints()] == [2]


def test_failures_only_warn_as_long_as_that_was_said(double, remote_run, caplog):
    with remote_run.writer(on_failure="warn", max_failures=2) as writer:
        writer.save(1, state_of(1.0))
        double.fault(PACK, status=403)
        for step in (2, 3, 4):
            writer.save_async(step, state_of(step))
        with pytest.raises(everstep.PermissionDenied, match="step 4"):
            writer.save_async(5, state_of(5.0))
        double.release()
        writer.save_async(6, state_of(6.0))
    assert [step for _, step in remote_run.checkpoints()] == [1, 6]
    assert any(
        "step 2" in record.message and "403" in record.message
        for record in caplog.records
        if record.levelno == logging.WARNING
    )


def test_a_commit_lets_the_count_of_failures_begin_anew(double, remote_run):
    with remote_run.writer(on_failure="warn", max_failures=1) as writer:
        for step in range(1, 7):
            if step % 2:
                double.fault(PACK, status=403)
            writer.save_async(step, state_of(step)).committed.exception(60)
            double.release()
    assert [step for _, step in remote_run.checkpoints()] == [2, 4, 6]


def test_failures_raise_once_the_last_commit_is_too_old(double, remote_run):
    with remote_run.writer(on_failure="warn", max_age=0.0) as writer:
        writer.save(1, state_of(1.0))
        writer.save(2, state_of(2.0))
        double.fault(PACK, status=403)
        writer.save_async(3, state_of(3.0))
        with pytest.raises(everstep.PermissionDenied, match="step 3"):
            writer.save_async(4, state_of(4.0))


def test_a_fenced_writer_raises_even_when_failures_only_warn(folder):
    first = everstep.Repository(str(folder)).run("gpt").writer(on_failure="warn", job="a")
    second = everstep.Repository(str(folder)).run("gpt").writer(job="b", takeover="now")
    second.save(1, state_of(1.0))
    first.save_async(1, state_of(2.0))
    with pytest.raises(everstep.Conflict):
        first.save_async(2, state_of(3.0))
    second.close()
    assert_all(second.run.latest(), 1.0)


def test_another_job_is_not_taken_over_unasked(folder):
    first = everstep.Repository(str(folder)).run("gpt").writer(job="a")
    other = everstep.Repository(str(folder)).run("gpt")
    with pytest.raises(everstep.Conflict):
        other.writer(job="b")
    other.writer(job="a").close()
    with pytest.raises(everstep.Conflict):
        first.save(1, {"x": 1})


def test_c09_finish_says_what_was_committed_in_time(double, remote_run):
    writer = remote_run.writer()
    writer.save_async(1, state_of(1.0)).result(60)
    held(double, writer, 2, state_of(2.0))
    late = writer.finish(0.05)
    assert not late and late.pending == [2] and late.committed == [] and not late.failed
    double.release()
    done = writer.finish(60)
    assert done and done.committed == [2] and done.pending == []
    double.fault(PACK, status=403)
    writer.save_async(3, state_of(3.0))
    failed = writer.finish(60)
    assert not failed and list(failed.failed) == [3] and "403" in str(failed.failed[3])
    with pytest.raises(everstep.PermissionDenied):
        writer.close()


def test_progress_is_told_while_a_store_stands_still(double, remote_run):
    events: queue.Queue = queue.Queue()
    with remote_run.writer(on_event=events.put, progress_every=0.02) as writer:
        job = held(double, writer, 1, state_of(1.0))
        beats = []
        while len(beats) < 3:
            event = events.get(timeout=60)
            beats += [event] if event.kind == "progress" else []
        assert beats[-1].planned >= beats[-1].done >= 0 and beats[-1].planned > 0
        double.release()
        job.result(60)
    kinds = [event.kind for event in events.queue]
    assert kinds[-1] == "committed"


def test_progress_is_told_of_a_save_in_the_foreground(double, remote_run):
    beats = []

    def heard(event):
        beats.append(event)
        if [e.kind for e in beats].count("progress") == 3:
            double.release()

    with remote_run.writer(on_event=heard, progress_every=0.02) as writer:
        double.fault(PACK, hold=True)
        writer.save(1, state_of(1.0))
    assert [event.kind for event in beats if event.kind != "progress"] == ["committed"]


def test_progress_is_told_of_a_load(double, remote_run):
    with remote_run.writer() as writer:
        writer.save(1, state_of(1.0))
    beats = []

    def heard(event):
        beats.append(event)
        if len(beats) == 3:
            double.release()

    double.fault(PACK, method="GET", hold=True)
    remote_run.latest().load(state_of(0.0), on_event=heard, progress_every=0.02)
    assert {(event.kind, event.step) for event in beats} == {("loading", 1)} and len(beats) >= 3
    beats.clear()
    double.fault(PACK, method="GET", hold=True)
    with remote_run.writer(takeover="now", on_event=heard, progress_every=0.02) as writer:
        assert writer.resume(state_of(0.0)) == 1
    assert {event.kind for event in beats} == {"loading"} and beats[-1].planned > 0


def test_what_on_event_raises_stays_there(run, caplog):
    def bad(event):
        raise ValueError("not my day")

    with run.writer(on_event=bad) as writer:
        writer.save_async(1, state_of(1.0)).result(60)
    assert run.latest().step == 1 and "not my day" in caplog.text


def test_on_event_hears_failures(double, remote_run):
    heard = []
    writer = remote_run.writer(on_event=heard.append)
    double.fault(PACK, status=403)
    writer.save_async(1, state_of(1.0))
    with pytest.raises(everstep.PermissionDenied):
        writer.close()
    failed = [event for event in heard if event.kind == "failed"]
    assert len(failed) == 1 and isinstance(failed[0].error, everstep.PermissionDenied)


def test_c33_a_save_says_two_lines_at_most(run, caplog):
    caplog.set_level(logging.INFO)
    with run.writer() as writer:
        writer.save(1, state_of(1.0))
        for step in (2, 3):
            writer.save_async(step, state_of(step))
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("everstep")]
    assert 3 <= len(lines) <= 6 and all(f"step {step} is committed" in " ".join(lines) for step in (1, 2, 3))


def test_stats_say_what_a_save_took(run):
    with run.writer() as writer:
        job = writer.save_async(1, state_of(1.0))
        stats = job.result(60).stats
    assert stats is job.stats
    assert stats.blocked > 0 and stats.staging > 0 and stats.staging <= stats.blocked
    assert (
        set(stats.seconds) >= {"hash", "encode", "upload", "commit", "total"} and stats.seconds["total"] > 0
    )
    assert (
        stats.raw_bytes >= stats.new_raw_bytes > stats.stored_bytes > 0
    )  # the state is constant, so it compresses
    assert stats.requests > 0 and stats.retries == 0


def niceness(kind: str) -> list[int]:
    """How far threads of that kind give way, in this process."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            _, named, fields = (task / "stat").read_text().replace("(", ")").split(")")
            found += [int(fields.split()[16])] if named.startswith(kind) else []
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux only")
def test_a_save_in_the_background_gives_way_to_the_training(folder):
    repo = everstep.Repository(str(folder), threads=2, background_threads=1, background_nice=7)
    with repo.run("gpt").writer() as writer:
        writer.save(1, state_of(1.0))
        assert 7 not in niceness("everstep-idle"), "somebody waited for that"
        writer.save_async(2, state_of(2.0)).result(60)
        assert niceness("everstep-idle").count(7) == 1
    assert set(niceness("everstep-cpu")) == {0}


def test_a_closed_writer_saves_no_more(run):
    writer = run.writer()
    writer.close()
    writer.close()
    for call in (lambda: writer.save(1, {}), lambda: writer.save_async(1, {}), lambda: writer.resume({})):
        with pytest.raises(everstep.InvalidArgument, match="closed"):
            call()


def test_resume_loads_the_newest_and_gives_its_step(repo, run):
    into = state_of(0.0)
    with run.writer() as writer:
        assert writer.resume(into) is None
        for step in (1, 2):
            writer.save(step, state_of(float(step)))
        assert writer.latest.step == 2
    with repo.run("gpt").writer() as writer:
        assert writer.resume(into) == 2
        report = writer.resume_report(into, select="w")
        assert (report.step, report.tensors) == (2, 1)
        stats = writer.save(3, state_of(2.0)).stats
        assert stats.new_raw_bytes == 0
    assert (into["w"] == 2).all()


def damage(folder, before) -> None:
    """Changes a byte in the middle of every pack that is not `before`."""
    for path in set(folder.glob("packs/**/*-*")) - set(before):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] = (data[len(data) // 2] + 1) % 256
        path.write_bytes(data)


def test_resume_falls_back_to_an_older_checkpoint_and_says_so(folder, run, caplog):
    generator = np.random.default_rng(1)
    states = [{"w": generator.standard_normal(5000)} for _ in range(2)]
    with run.writer() as writer:
        writer.save(1, states[0])
        before = list(folder.glob("packs/**/*-*"))
        writer.save(2, states[1])
    damage(folder, before)
    into = {"w": np.zeros(5000)}
    fresh = everstep.Repository(str(folder)).run("gpt")
    with fresh.writer() as writer:
        with pytest.raises(everstep.Corrupt):
            writer.resume(into, fallback=0)
        assert writer.resume(into, fallback=1) == 1
        assert np.array_equal(into["w"], states[0]["w"]) and "rolled back" in caplog.text
        assert writer.latest.step == 1 and fresh.latest().step == 1
        writer.save(2, states[1])
    assert fresh.latest().step == 2
    damage(folder, [])
    with everstep.Repository(str(folder)).run("gpt").writer() as writer, pytest.raises(everstep.Corrupt):
        writer.resume(into, fallback=5)


def test_resume_does_not_fall_back_when_the_state_does_not_fit(run):
    with run.writer() as writer:
        writer.save(1, {"w": np.zeros(2)})
        writer.save(2, {"w": np.zeros(3)})
        with pytest.raises(everstep.SchemaMismatch):
            writer.resume({"w": np.zeros(2)}, fallback=3)
        assert writer.latest.step == 2


def test_options_that_mean_nothing_are_refused(run):
    for options in ({"overlap": 0}, {"overlap": "maybe"}, {"overlap": True}, {"on_failure": "ignore"}):
        with pytest.raises(everstep.InvalidArgument):
            run.writer(**options)
    with pytest.raises(TypeError):
        run.writer(overlapp=1)
    for options in (
        {"takeover": "maybe"},
        {"group": (0, 2, None)},
        {"group": (2, 2, {})},
        {"job": "x" * 1000},
    ):
        with pytest.raises(everstep.InvalidArgument):
            run.writer(**options)


def test_steps_are_whole_numbers_of_any_library(run):
    with run.writer() as writer:
        assert [writer.save(step, {}).step for step in (0, np.int64(7), torch.tensor(8))] == [0, 7, 8]
        assert type(writer.save_async(np.int32(9), {}).result(60).step) is int
        for step in (-1, 1.0, "1", None, 1 << 63):
            with pytest.raises(everstep.InvalidArgument, match="step"):
                writer.save(step, {})
    assert [step for _, step in run.checkpoints()] == [0, 7, 8, 9]


def test_a_tensor_of_which_a_part_is_missing_is_refused_by_name(run):
    with run.writer() as writer, pytest.raises(everstep.InvalidArgument, match='"w".*\\[2\\]'):
        writer.save(1, {"w": everstep.Shard(np.zeros(2), (5,), (0,))})
    assert run.latest() is None


def test_an_attempt_that_failed_is_incomplete(double, remote_run):
    with remote_run.writer() as writer:
        first = writer.save(1, state_of(1.0))
        double.fault(PACK, status=403)
        with pytest.raises(everstep.PermissionDenied):
            writer.save(2, state_of(2.0))
        with pytest.raises(everstep.Incomplete):
            remote_run.checkpoint(first.ordinal + 1)
