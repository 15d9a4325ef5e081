"""Trains a small GPT on the sources of Python's standard library, and survives being killed.

    torchrun --standalone --nproc-per-node 2 --max-restarts 3 examples/train.py --repository /tmp/checkpoints

Kill a process of it, or all of them and start it again: it goes on from the newest checkpoint and ends, bit for bit, where
an undisturbed run ends. `python examples/train.py` trains in one process.
"""

import argparse
import logging
import os
import sysconfig
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed import destroy_process_group, init_device_mesh, init_process_group, is_initialized
from torch.distributed.fsdp import fully_shard

import everstep
from everstep import PerRank

WIDTH, HEADS, LAYERS, CONTEXT, BATCH = 192, 4, 3, 64, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)
        nn.init.normal_(self.token.weight, std=0.02)
        self.head.weight = self.token.weight  # tied: stored once

    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Batches:
    """The text, window by window. Where it is there, and its random numbers, each rank has for itself."""

    def __init__(self, rank, ranks):
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        self.text = torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8)
        self.at = rank * len(self.text) // ranks

    def next(self):
        length = BATCH * CONTEXT
        window = self.text[self.at : self.at + length + 1].long()
        self.at = (self.at + length) % (len(self.text) - length)
        return window[:-1].view(BATCH, CONTEXT), window[1:].view(BATCH, CONTEXT)

    def state_dict(self):
        return {"at": self.at, "random": torch.get_rng_state()}

    def load_state_dict(self, state):
        self.at = state["at"]
        torch.set_rng_state(state["random"])


def build(steps):
    """Everything that training changes, in the sharding of this job."""
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    model = GPT()
    if ranks > 1:
        init_process_group("gloo")
        mesh = init_device_mesh("cpu", (ranks,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    torch.manual_seed(1 + rank)  # from here on for dropout
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    return {"model": model, "optimizer": optimizer, "schedule": schedule, "batches": PerRank(Batches(rank, ranks))}


def train(repository, steps, every):
    """Trains up to `steps`, from the newest checkpoint on if there is one; `every` so many steps it is saved."""
    state = build(steps)
    model, optimizer, schedule = state["model"], state["optimizer"], state["schedule"]
    batches = state["batches"].value
    run = everstep.Repository(repository, create=True).run("gpt")
    with run.writer(takeover="wait") as writer:
        step = writer.resume(into=state) or 0
        while step < steps:
            step += 1
            tokens, following = batches.next()
            loss = F.cross_entropy(model(tokens).flatten(0, 1), following.flatten())
            loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if step % every == 0 or step == steps:
                writer.save_async(step, state, metadata={"loss": loss.item()})
    return state


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repository", default="checkpoints", help="a path or URL")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    train(**vars(parser.parse_args()))
    if is_initialized():
        destroy_process_group()
