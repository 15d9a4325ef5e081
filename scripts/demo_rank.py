"""What each rank of the demo runs: the example as it is, watched from outside.

    demo_rank.py train REPOSITORY RESULTS STEPS EVERY     under torchrun
    demo_rank.py load REPOSITORY RESULTS RANKS            starts its ranks itself

Leaves what it saw in RESULTS/rank-N.json: digests of the final state in memory, as torch has it, and times.
"""

import hashlib
import json
import os
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import train  # noqa: E402
import torch  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: E402

import everstep  # noqa: E402


class Watch:
    """When steps ended, and what saves and resuming took."""

    def __init__(self):
        self.steps, self.jobs, self.resumed = [], [], None
        register_optimizer_step_post_hook(lambda *_: self.stepped())
        self._wrap("save_async", self.saved)
        self._wrap("resume", self.resume)

    def _wrap(self, name, seen):
        inner = getattr(everstep.Writer, name)
        setattr(everstep.Writer, name, lambda *args, **options: seen(lambda: inner(*args, **options)))

    def stepped(self):
        self.steps.append(time.time())
        step = (self.resumed["step"] or 0) + len(self.steps)
        print(f"rank {os.environ['RANK']}, process {os.getpid()}, step {step}", flush=True)

    def saved(self, call):
        began = time.time()
        job = call()
        entry = {"began": began, "job": job}
        job.committed.add_done_callback(lambda _: entry.update(ended=time.time()))
        self.jobs.append(entry)
        return job

    def resume(self, call):
        began = time.time()
        step = call()
        self.resumed = {"step": step, "began": began, "seconds": time.time() - began}
        return step

    def results(self):
        return {
            "attempt": int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
            "first_step": self.steps[0],
            "resumed": self.resumed,
            "pauses": [entry["job"].stats.blocked for entry in self.jobs],
            "seconds_to_commit": [entry["ended"] - entry["began"] for entry in self.jobs],
            **self._intervals(),
        }

    def _intervals(self):
        """Seconds from step to step, without the pauses themselves: while a save was on its way, and otherwise."""
        saving, alone = [], []
        for since, until in zip(self.steps, self.steps[1:]):
            inside = [entry for entry in self.jobs if entry["began"] < until and entry["ended"] > since]
            paused = sum(entry["job"].stats.blocked for entry in inside if entry["began"] > since)
            (saving if inside else alone).append(until - since - paused)
        return {"saving": saving, "alone": alone}


def digest(tensor):
    whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return hashlib.sha256(whole.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def tensors(state):
    """Every tensor of model and optimizer, whole, by its name and digest."""
    model, optimizer = state["model"], state["optimizer"]
    found = {f"model.{name}": digest(tensor) for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            found[f"optimizer.{name}.{key}"] = digest(value)
    return found


def own(state):
    """What is no tensor of model or optimizer, or belongs to this rank alone."""
    batches = state["batches"].value.state_dict()
    return {
        "schedule": repr(state["schedule"].state_dict()),
        "learning rate": state["optimizer"].param_groups[0]["lr"],
        "position in the text": batches["at"],
        "random numbers": digest(batches["random"]),
    }


def leave(results, state, **seen):
    seen |= {"tensors": tensors(state), "own": own(state)}
    Path(results, f"rank-{os.environ['RANK']}.json").write_text(json.dumps(seen))
    train.destroy_process_group()


def watched(repository, results, steps, every):
    train.logging.basicConfig(level=train.logging.INFO, format="%(message)s")
    watch = Watch()
    state = train.train(repository, int(steps), int(every))
    leave(results, state, **watch.results())


def load(repository, results, ranks):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    # Forked, so that torch is imported once. Nothing that a fork would break is there yet.
    children = [fork(repository, results, rank) for rank in range(int(ranks))]
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children))


def fork(repository, results, rank):
    child = os.fork()
    if child:
        return child
    os.environ["RANK"] = str(rank)
    state = train.build(1)
    report = everstep.Repository(repository).run("gpt").latest().load(into=state, per_rank="skip")
    leave(results, state, step=report.step, bytes=report.bytes)
    sys.exit(0)


{"train": watched, "load": load}[sys.argv[1]](*sys.argv[2:])
