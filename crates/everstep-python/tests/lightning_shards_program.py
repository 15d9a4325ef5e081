"""What tests of Lightning's sharding strategies do: on two ranks that a nursery forks, and what one process does with it."""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import everstep
import lightning
import numpy as np
import torch
import torch.distributed as dist
from everstep._lightning_shards import ShardSaver
from everstep.lightning import EverstepCheckpointIO, ShardedCheckpoints
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from lightning_program import same
from nursery import raises, ranks
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.utils.data import DataLoader

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)


class Parallel(ShardedCheckpoints, ModelParallelStrategy):
    """DTensors."""


class Legacy(ShardedCheckpoints, FSDPStrategy):
    """ShardedTensors. Only FSDPStrategy itself refuses to run without a GPU."""


STRATEGIES = {
    "parallel": lambda: Parallel(data_parallel_size=2, tensor_parallel_size=1),
    "legacy": lambda: Legacy(state_dict_type="sharded"),
}


class Model(lightning.LightningModule):
    """Of odd sizes, so that ranks have unequal parts and sometimes none."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))
        self.register_buffer("factor", torch.tensor([1.5]))
        self.seen = 0

    def configure_model(self) -> None:
        if self.device_mesh is not None:
            fully_shard(self.net, mesh=self.device_mesh["data_parallel"])
        elif isinstance(self.trainer.strategy, FSDPStrategy):
            # Around the module, Lightning would not say that the device is this one.
            self.net = FullyShardedDataParallel(self.net, device_id=torch.device("cpu"), use_orig_params=True)

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        self.seen += 1
        self.log("age", float(self.global_step))
        return (self.factor * self.net(batch)).square().mean()

    def validation_step(self, batch: torch.Tensor, _: int) -> None:
        self.checked = get_model_state_dict(self.trainer.strategy.model, options=StateDictOptions(full_state_dict=True))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        rank = self.trainer.global_rank  # that of the first rank counts
        checkpoint["seen"] = {"count": np.int64(self.seen), "ranks": (torch.full((2,), rank), [np.full(2, rank)])}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        seen = checkpoint["seen"]
        same(seen, {"count": np.int64(seen["count"]), "ranks": (torch.zeros(2, dtype=torch.int64), [np.zeros(2, np.int64)])})
        self.seen = int(seen["count"])


class Dies(Callback):
    """The rank `rank`, or all at once, before the save of `step`."""

    def __init__(self, step: int, rank: int | None):
        self.step, self.rank, self.pids = step, rank, [0, 0]

    def on_train_start(self, *_: Any) -> None:
        dist.all_gather_object(self.pids, os.getpid())

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.step and trainer.is_global_zero:
            for rank in (1, 0) if self.rank is None else (self.rank,):
                os.kill(self.pids[rank], signal.SIGKILL)


def trainer_for(folder: str, io: EverstepCheckpointIO, steps: int, *callbacks: Callback, **options: Any) -> lightning.Trainer:
    """An epoch is a step, after which it is saved: Lightning does not go on in the midst of an epoch."""
    keeps = ModelCheckpoint(Path(folder, "saved"), monitor="age", mode="max", save_top_k=2)
    return lightning.Trainer(
        max_epochs=steps, limit_train_batches=1, plugins=[io], callbacks=[keeps, *callbacks], default_root_dir=folder, logger=False,
        accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, **options,
    )  # fmt: skip


def data() -> DataLoader:
    return DataLoader(torch.randn(12, 4, generator=torch.Generator().manual_seed(1)), batch_size=2, shuffle=True)


def local(value: Any) -> Any:
    return value.to_local() if hasattr(value, "to_local") else value


def digest(model: Model, optimizer: torch.optim.Optimizer) -> list[str]:
    """Of what each rank has at the end."""
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [part for values in optimizer.state.values() for part in values.values()]
    said = hashlib.sha256(b"".join(local(tensor.detach()).numpy().tobytes() for tensor in tensors)).hexdigest()
    groups = repr([{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups])
    found: list[Any] = [None, None]
    dist.all_gather_object(found, f"{said} {len(tensors)} {groups} {model.seen}")
    return found


def fit(repository: str, folder: str, strategy: str, background: bool, *callbacks: Callback) -> list[Any]:
    """This rank of a training of six steps, from the newest checkpoint on: from where, how it ended, what is kept."""
    torch.manual_seed(1)
    run = everstep.Repository(repository).run("shards")
    io = EverstepCheckpointIO(run, background=background, takeover="now")
    began, model = io.latest(), Model()
    trainer = trainer_for(folder, io, 6, *callbacks, devices=2, strategy=STRATEGIES[strategy]())
    trainer.fit(model, data(), ckpt_path=began)
    assert io._shards._writer is None, "the session has ended with the training"
    assert not any(Path(folder, "saved").rglob("*.ckpt")), "nothing is written where paths point"
    dist.barrier()
    whole = get_model_state_dict(trainer.strategy.model, options=StateDictOptions(full_state_dict=True))
    if trainer.is_global_zero:
        same(dict(io.load_checkpoint(io.latest())["state_dict"]), {name: whole[name] for name in whole})
    return [began, digest(model, trainer.optimizers[0]), [step for _, step in run.checkpoints()]]


def killed(repository: str, folder: str, strategy: str, background: bool, rank: int | None) -> None:
    """A training that is killed at its fourth step, on one rank or on both."""
    everstep.Repository(repository, create=True)
    ranks(lambda: fit(repository, folder, strategy, background, Dies(4, rank)))


def resumed(repository: str, folder: str, strategy: str, background: bool) -> list[Any]:
    """It goes on; then an undisturbed one, in a repository of its own, in the same processes."""
    quiet = repository + "-quiet"
    everstep.Repository(quiet, create=True)

    def rank() -> list[Any]:
        found = [fit(repository, folder, strategy, background), fit(quiet, folder, strategy, background)]
        refusals(repository, folder, strategy)
        return found

    return ranks(rank)


def refusals(repository: str, folder: str, strategy: str) -> None:
    """What does not fit is refused on both ranks alike; a whole state, as other strategies save it, gives its weights."""
    io = EverstepCheckpointIO(everstep.Repository(repository).run("shards"), takeover="now")
    whole = EverstepCheckpointIO(everstep.Repository(repository).run("whole"), takeover="now")
    state = io.load_checkpoint(io.latest())
    if dist.get_rank() == 0:
        (optimizer,) = state["optimizer_states"]
        optimizer["state"] = dict(enumerate(optimizer["state"].values()))
        whole.save_checkpoint(state, "whole.ckpt")
        whole.teardown()
    dist.barrier()

    class Wider(Model):
        def configure_model(self) -> None:
            self.more = torch.nn.Linear(2, 2)
            super().configure_model()

    def trainer(plugin: Any) -> lightning.Trainer:
        return trainer_for(folder, plugin, 7, devices=2, strategy=STRATEGIES[strategy]())

    def fit_from(model: Model, plugin: Any, path: str | None) -> Any:
        return lambda: trainer(plugin).fit(model, data(), ckpt_path=path)

    raises(everstep.SchemaMismatch, "not stored: state_dict.more", fit_from(Wider(), io, io.latest()))
    raises(everstep.SchemaMismatch, "optimizer_states.0.state.", fit_from(Model(), whole, "whole.ckpt"))
    raises(everstep.NotFound, "nowhere.ckpt", fit_from(Model(), io, "nowhere.ckpt"))
    raises(everstep.InvalidArgument, "background=True", fit_from(Model(), TorchCheckpointIO(), None))
    model = Model()
    trainer(whole).validate(model, data(), ckpt_path="whole.ckpt", verbose=False)
    same(dict(model.checked), dict(state["state_dict"]))


def failing_save(repository: str) -> list[str]:
    """A save in the background fails on the second rank: both are told, by the next call, in everstep's own words."""
    everstep.Repository(repository, create=True)

    def rank() -> list[str]:
        dist.init_process_group("gloo")
        saver = ShardSaver(everstep.Repository(repository).run("fails"), True, {"takeover": "now"})
        bad = torch.ones(2).to_sparse() if dist.get_rank() else torch.ones(2)
        saver.save(1, {f"w{dist.get_rank()}": bad}, {})
        try:
            saver.save(2, {"w": torch.ones(2)}, {})
        except everstep.InvalidArgument as error:
            told = [str(error), *error.__notes__]
        saver.save(3, {"w": torch.ones(2)}, {})
        saver.close()
        dist.barrier()
        return [*told, [step for _, step in saver.run.checkpoints()]]

    return ranks(rank)


def alone(repository: str, folder: str) -> list[Any]:
    """One process goes on where two have ended: with the whole state, weights and optimizer."""
    io = EverstepCheckpointIO(everstep.Repository(repository).run("shards"), takeover="now")
    before, model = io.load_checkpoint(io.latest()), Model()
    found: dict[str, Any] = {}

    class Looks(Callback):
        def on_train_start(self, trainer: Any, module: Any) -> None:
            found["weights"] = {name: tensor.clone() for name, tensor in module.state_dict().items()}
            states = trainer.optimizers[0].state_dict()["state"].values()
            found["moments"] = [{name: part.clone() for name, part in state.items()} for state in states]

    trainer = trainer_for(folder, io, 8, Looks())
    trainer.fit(model, data(), ckpt_path=io.latest())
    same(found["weights"], dict(before["state_dict"]))
    (optimizer,) = before["optimizer_states"]
    names = optimizer["param_groups"][0]["params"]
    same(found["moments"], [optimizer["state"][name] for name in names])
    io.teardown()
    return [trainer.global_step, [step for _, step in io.run.checkpoints()][-1]]
