"""The example of a loop like torchtitan's, run small, in a process that a nursery forks."""

from __future__ import annotations

import os
import runpy
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # which an optimizer imports when it is first used
import torch.distributed.fsdp

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "titan_loop.py"


def train(repository: str, steps: int, die_at: int = -1) -> list[Any]:
    """Where it began, and how it ended."""
    torch.set_num_threads(1)
    os.environ["EVERSTEP_JOB"] = "titan"  # one job that is restarted, so that nobody waits for the dead process
    trainer = runpy.run_path(str(EXAMPLE))["Trainer"](repository, steps, 4)
    train_step, seen = trainer.train_step, []

    def watched(batch: torch.Tensor) -> float:
        seen.append(trainer.step)
        if trainer.step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return train_step(batch)

    trainer.train_step = watched
    trainer.train().close()
    end = {name: tensor.numpy().tobytes().hex() for name, tensor in trainer.model.state_dict().items()}
    for number, parts in trainer.optimizer.state_dict()["state"].items():
        end |= {f"{number}.{name}": np.asarray(part).tobytes().hex() for name, part in parts.items()}
    end |= {"trainer": trainer.state_dict(), "lr": trainer.schedule.get_last_lr()}
    return [seen[0], end, trainer.checkpoints.writer.run.latest().step]
