"""How a program ends, is interrupted, forks, or does without torch and numpy: each in a process of its own."""

import random
import signal
import subprocess

import everstep
import numpy as np
import pytest

from children import Child, run_child
from s3_double import PACK

REMOTE = """
import signal, sys, time
import numpy as np
import everstep

repo = everstep.Repository("s3://bucket/r", endpoint_url=sys.argv[1], allow_http=True, region="us-east-1")
run = repo.run("gpt")
state = {"w": np.random.default_rng(0).standard_normal(100_000), "step": 1}
"""


def test_c08_the_end_of_a_program_waits_for_its_save(double, remote):
    double.fault(PACK, hold=True)
    code = REMOTE + 'w = run.writer(); w.save_async(1, state); print("returned from main")'
    with Child(code, double.url) as child:
        assert child.line() == "returned from main"
        double.wait_for_arrival()
        double.release()
        status, _, complaints = child.end()
    assert (status, complaints) == (0, "")
    assert remote.run("gpt").latest().step == 1


def test_c08_the_end_of_a_program_says_what_was_not_committed(double, remote):
    double.fault(PACK, hold=True)
    code = REMOTE + 'w = run.writer(exit_limit=0.2); w.save_async(7, state); print("returned from main")'
    with Child(code, double.url) as child:
        status, _, complaints = child.end()
    assert status == 120 and "run gpt: step 7 not committed" in complaints
    double.release()
    assert remote.run("gpt").latest() is None


def test_c08_the_end_of_a_program_says_what_failed(double, remote):
    double.fault(PACK, status=403)
    code = "import atexit\natexit.register(lambda: print('a handler', file=sys.stderr, flush=True))\n" + REMOTE
    with Child(code + "w = run.writer(); w.save_async(7, state)", double.url) as child:
        status, _, complaints = child.end()
    assert status == 120, "so that whoever started it sees it"
    assert "step 7 not committed" in complaints and "403" in complaints
    assert complaints.splitlines()[-1] == "a handler", "handlers that were registered before run undisturbed"


@pytest.mark.parametrize("in_time", [True, False])
def test_c09_a_program_told_to_end_knows_whether_its_save_was_committed(double, remote, in_time):
    double.fault(PACK, hold=True)
    code = (
        REMOTE
        + """
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
w = run.writer(exit_limit=0.0)
w.save_async(3, state)
print("saving")
while not told:
    signal.pause()
print("told to end")
done = w.finish(20.0 if sys.argv[2] == "True" else 0.2)
print(done.committed, done.pending, bool(done))
"""
    )
    with Child(code, double.url, in_time) as child:
        assert child.line() == "saving"
        double.wait_for_arrival()
        child.process.send_signal(signal.SIGTERM)
        assert child.line() == "told to end"
        if in_time:
            double.release()
        assert child.line() == ("[3] [] True" if in_time else "[] [3] False")
        child.end()
        double.release()
    latest = remote.run("gpt").latest()
    assert (latest.step if latest else None) == (3 if in_time else None)


def test_c09_a_program_killed_at_any_moment_leaves_whole_checkpoints(folder):
    code = """
    import sys
    import numpy as np
    import everstep
    w = everstep.Repository(sys.argv[1]).run("gpt").writer(takeover="now", overlap=2)
    state = {"a": np.zeros((300, 1000)), "b": [np.zeros(50_000, "float32"), {"step": 0}]}
    step = w.resume(state) or 0
    print(step)
    while True:
        step += 1
        for array in (state["a"], state["b"][0]):
            array[...] = step + np.arange(array.shape[-1]) % 7
        state["b"][1]["step"] = step
        w.save_async(step, state)
        print(step)
    """
    chance, seen = random.Random(9), []
    for _ in range(8):
        with Child(code, folder) as child:
            assert int(child.line()) >= (seen[-1] if seen else 0)
            with pytest.raises(subprocess.TimeoutExpired):
                child.process.wait(chance.uniform(0.0, 0.3))
            child.process.kill()
            begun = [int(line) for line in child.end()[1].split()]
        latest = everstep.Repository(str(folder)).run("gpt").latest()
        step = latest.step if latest else 0
        assert not begun or step in range(begun[0] - 1, begun[-1] + 2)
        if latest is not None:
            into = {"a": np.zeros((300, 1000)), "b": [np.zeros(50_000, "float32"), {"step": 0}]}
            latest.load(into)
            assert into["b"][1]["step"] == step
            assert all(
                (array == step + np.arange(array.shape[-1]) % 7).all() for array in (into["a"], into["b"][0])
            )
        seen.append(step)
    assert seen == sorted(seen) and seen[-1] > 0


def test_ctrl_c_ends_a_save_and_the_next_one_works(double, remote):
    double.fault(PACK, hold=True)
    code = (
        REMOTE
        + """
w = run.writer()
try:
    w.save(1, state)
except KeyboardInterrupt:
    print("interrupted")
sys.stdin.readline()
w.save(2, state)
w.close()
"""
    )
    with Child(code, double.url) as child:
        double.wait_for_arrival()
        child.process.send_signal(signal.SIGINT)
        assert child.line() == "interrupted"
        double.release()
        status, _, complaints = child.end()
    assert status == 0, complaints
    assert [step for _, step in remote.run("gpt").checkpoints()] == [2]


def test_ctrl_c_ends_the_wait_for_a_save_and_not_the_save(double, remote):
    double.fault(PACK, hold=True)
    code = (
        REMOTE
        + """
w = run.writer()
job = w.save_async(1, state)
try:
    print("waiting")
    w.save_async(2, state)
except KeyboardInterrupt:
    print("interrupted", job.outcome)
print(job.result(60).step)
w.save(3, state)
w.close()
"""
    )
    with Child(code, double.url) as child:
        assert child.line() == "waiting"
        double.wait_for_arrival()
        child.process.send_signal(signal.SIGINT)
        assert child.line() == "interrupted running"
        double.release()
        assert child.line() == "1"
        status, _, complaints = child.end()
    assert status == 0, complaints
    assert [step for _, step in remote.run("gpt").checkpoints()] == [1, 3]


def test_signal_handlers_run_while_a_save_goes_on(double, remote):
    double.fault(PACK, hold=True)
    code = (
        REMOTE
        + """
signal.signal(signal.SIGTERM, lambda *_: print("told to end"))
with run.writer() as w:
    print(w.save(1, state).step)
"""
    )
    with Child(code, double.url) as child:
        double.wait_for_arrival()
        child.process.send_signal(signal.SIGTERM)
        assert child.line() == "told to end"
        double.release()
        assert child.line() == "1"
        status, _, complaints = child.end()
    assert status == 0, complaints


def test_ctrl_c_ends_a_load_and_a_wait(double, remote):
    with remote.run("gpt").writer() as writer:
        writer.save(1, {"w": np.ones(100_000), "step": 1})
    double.fault(PACK, method="GET", hold=True)
    code = (
        REMOTE
        + """
latest = run.latest()
try:
    latest.load(state)
except KeyboardInterrupt:
    print("interrupted")
    try:
        print("waiting")
        run.wait(after=latest, timeout=600)
    except KeyboardInterrupt:
        print("interrupted")
"""
    )
    with Child(code, double.url) as child:
        double.wait_for_arrival()
        child.process.send_signal(signal.SIGINT)
        assert child.line() == "interrupted" and child.line() == "waiting"
        child.process.send_signal(signal.SIGINT)
        assert child.line() == "interrupted"
        double.release()
        status, _, complaints = child.end()
    assert status == 0, complaints


def test_a_fork_has_no_writer_and_the_parent_keeps_its_own(folder):
    out = run_child(
        """
        import os, sys, warnings
        warnings.simplefilter("ignore")
        import everstep
        repo = everstep.Repository(sys.argv[1])
        run = repo.run("gpt")
        w = run.writer()
        w.save_async(1, {"x": 1}).result(60)
        child = os.fork()
        if child == 0:
            for call in (lambda: w.save(2, {}), lambda: w.save_async(2, {}), run.latest):
                try:
                    call()
                    print("no error")
                except (everstep.InvalidArgument, RuntimeError) as error:
                    print("fork" in str(error))
            print(everstep.Repository(sys.argv[1]).run("gpt").latest().step)
            sys.exit(5)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
        w.save_async(2, {"x": 2}).result(60)
        w.close()
        print(run.latest().step)
        """,
        folder,
    )
    assert out.split() == ["True", "True", "True", "1", "5", "2"]


WITHOUT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numpy"):
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Refuse())
"""


def test_neither_torch_nor_numpy_is_needed(folder):
    code = (
        WITHOUT
        + """
import everstep

run = everstep.Repository(sys.argv[1]).run("gpt")
into = {"config": {}, "step": 0}
with run.writer() as w:
    w.save_async(3, {"config": {"lr": 0.1, "betas": (0.9, 0.99)}, "step": 3}).result(60)
    assert w.resume(into) == 3
print(into, run.latest().value("step"))
try:
    everstep.Repository(sys.argv[1]).checkpoint("tensors").read("w")
except everstep.InvalidArgument as error:
    print(error)
"""
    )
    with everstep.Repository(str(folder)).run("tensors").writer() as writer:
        writer.save(1, {"w": np.zeros(3)})
    out = run_child(code, folder).splitlines()
    assert out[0] == "{'config': {'lr': 0.1, 'betas': (0.9, 0.99)}, 'step': 3} 3"
    assert "needs torch or numpy" in out[1]


def test_torch_is_not_imported_by_a_program_that_has_only_numpy(folder):
    code = """
    import sys
    import numpy as np
    import everstep
    run = everstep.Repository(sys.argv[1]).run("gpt")
    with run.writer() as w:
        w.save(1, {"w": np.arange(3.0), "data": everstep.PerRank([np.arange(2)])})
    into = {"w": np.zeros(3), "data": everstep.PerRank(None)}
    run.latest().load(into)
    print(into["w"].tolist(), into["data"].value[0].tolist(), type(run.latest().read("w")).__name__, "torch" in sys.modules)
    """
    assert run_child(code, folder).strip() == "[0.0, 1.0, 2.0] [0, 1] ndarray False"


def test_c33_overlapping_saves_leave_neither_memory_nor_descriptors(double, remote):
    """Ten saves of 64 MiB, of which 8 are new, each begun while the one before is on its way to a slow store."""
    code = (
        REMOTE
        + """
import ctypes, gc, os, resource

def resident():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps for later differs from run to run
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

size, part = 64 << 20, 8 << 20
repo = everstep.Repository("s3://bucket/r", endpoint_url=sys.argv[1], allow_http=True, region="us-east-1", bytes_in_flight=part)
state = {"w": np.random.default_rng(1).integers(0, 256, size, "uint8")}
w = repo.run("gpt").writer(overlap="wait")
w.save_async(0, state).result(60)
seen, descriptors, peak = [], [], 0
for step in range(1, 11):
    state["w"][step % 8 * part :][:part] += 1
    job = w.save_async(step, state)
    peak = max(peak, resident())
    if step in (2, 10):
        job.result(60)
        seen.append(resident())
        descriptors.append(len(os.listdir("/proc/self/fd")))
w.close()
del w, job
print(*seen, resident(), peak, size, *descriptors, len(run.checkpoints()))
"""
    )
    double.fault(PACK, delay=0.1)
    with Child(code, double.url) as child:
        status, out, complaints = child.end(90)
    assert status == 0, complaints
    first, last, after, peak, size, few, many, saved = map(int, out.split())
    assert saved == 11
    assert abs(last - first) <= 0.1 * first, (first, last)
    assert after <= last - 0.8 * size, f"the buffer was not given back: {last}, then {after}"
    assert peak <= first + (32 << 20), (first, peak)
    assert many <= few + 2, (few, many)
