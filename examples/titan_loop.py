"""A training loop in the manner of torchtitan: a trainer that is state itself, a checkpoint manager, a data loader that knows
where it is, saves that overlap with the next forward pass, and a last save before the end.

    python examples/titan_loop.py --repository /tmp/checkpoints
    torchrun --standalone --nproc-per-node 2 examples/titan_loop.py --repository /tmp/checkpoints

Kill it and start it again: it ends, bit for bit, where an undisturbed one ends. `Checkpoints` is all of Everstep that it needs;
take that class along.
"""

import argparse
import logging
import os

import torch
from torch import nn
from torch.distributed import destroy_process_group, init_device_mesh, init_process_group, is_initialized
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

import everstep
from everstep import PerRank

WIDTH, BATCH, ROWS, WARMUP = 32, 8, 256, 10


class Checkpoints:
    """The manager: `states` is everything that has `state_dict` and `load_state_dict`, by name. All ranks call the same methods
    at the same steps."""

    def __init__(self, repository, run, states, every, keep_going=True):
        self.states, self.every, self.staging = states, every, None
        on_failure = "warn" if keep_going else "raise"  # a save that fails is told, and a later one may succeed
        opened = everstep.Repository(repository, create=True).run(run)
        self.writer = opened.writer(takeover="wait", overlap="wait", on_failure=on_failure, max_age=3600)

    def load(self):
        """The newest good checkpoint, or none; whether there was one."""
        return self.writer.resume(into=self.states, fallback=2) is not None

    def maybe_save(self, step, last=False, **metrics):
        """Saves in the background every so many steps, and at the last one."""
        if step % self.every == 0 or last:
            self.staging = self.writer.save_async(step, self.states, metadata=metrics, staging="overlap").staged

    def maybe_wait_for_staging(self):
        """Before anything that is being saved changes."""
        if self.staging is not None:
            self.staging.result()
            self.staging = None

    def close(self):
        """Waits until the last save is durable."""
        self.maybe_wait_for_staging()
        self.writer.close()


class Loader:
    """Shuffled anew each epoch, one share for each rank; it goes on in the midst of an epoch."""

    def __init__(self, rank, ranks):
        rows = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(rank))
        self.rows, self.rank, self.epoch, self.batch = TensorDataset(rows), rank, 0, 0

    def __iter__(self):
        while True:
            order = torch.Generator().manual_seed(1000 * self.epoch + self.rank)
            loader = DataLoader(self.rows, BATCH, shuffle=True, generator=order, num_workers=0)
            for number, (batch,) in enumerate(loader):
                if number >= self.batch:
                    self.batch = number + 1
                    yield batch
            self.epoch, self.batch = self.epoch + 1, 0

    def state_dict(self):
        return {"epoch": self.epoch, "batch": self.batch, "random": torch.get_rng_state()}

    def load_state_dict(self, state):
        self.epoch, self.batch = state["epoch"], state["batch"]
        torch.set_rng_state(state["random"])


class Trainer:
    """Holds what a training is made of, and is itself a part of its state: the step, and the tokens seen."""

    def __init__(self, repository, steps, every):
        rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * WIDTH, WIDTH))
        if ranks > 1:
            init_process_group("gloo")
            fully_shard(self.model, mesh=init_device_mesh("cpu", (ranks,)))
        torch.manual_seed(1 + rank)  # from here on for dropout
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / WARMUP))
        self.loader, self.steps, self.step, self.seen = Loader(rank, ranks), steps, 0, 0
        states = {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "loader": PerRank(self.loader),
            "trainer": self,
        }
        self.checkpoints = Checkpoints(repository, "titan", states, every)

    def state_dict(self):
        return {"step": self.step, "seen": self.seen}

    def load_state_dict(self, state):
        self.step, self.seen = state["step"], state["seen"]

    def train_step(self, batch):
        self.optimizer.zero_grad()
        loss = (self.model(batch) - batch).square().mean()
        loss.backward()  # the save before may still be copying: gradients are no part of it
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.checkpoints.maybe_wait_for_staging()
        self.optimizer.step()
        self.schedule.step()
        return loss.item()

    def train(self):
        self.checkpoints.load()
        batches = iter(self.loader)
        while self.step < self.steps:
            self.step += 1
            batch = next(batches)
            self.seen += batch.numel()
            loss = self.train_step(batch)
            self.checkpoints.maybe_save(self.step, last=self.step == self.steps, loss=loss)
        return self

    def close(self):
        self.checkpoints.close()
        if is_initialized():
            destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repository", default="checkpoints", help="a path or URL")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    trainer = Trainer(**vars(parser.parse_args()))
    trainer.train().close()
