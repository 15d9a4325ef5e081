"""What tests of Lightning do, in processes that a nursery forks."""

from __future__ import annotations

import logging
import os
import signal
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any
from unittest import mock

import everstep
import lightning
import numpy as np
import torch
from everstep.lightning import EverstepCheckpointIO
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO
from nursery import raises, ranks
from torch.utils.data import DataLoader

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)

BATCHES = 3


class Model(lightning.LightningModule):
    """With a norm, whose state dict has a version, and a step count of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.save_hyperparameters({"width": 8, "dtype": "float32"})
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
        self.seen = 0

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        self.seen += len(batch)
        loss = self.net(batch).square().mean()
        self.log("loss", loss)
        self.log("age", float(self.global_step))
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["seen"] = {"count": np.int64(self.seen), "history": (torch.arange(3), [np.ones(2)])}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.seen = int(checkpoint["seen"]["count"])


class Dies(Callback):
    """Once something is committed: ten steps may take less time than one save that nothing waits for."""

    def __init__(self, step: int, run: everstep.Run):
        self.step, self.run = step, run

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.step:
            self.run.wait(timeout=60)
            os.kill(os.getpid(), signal.SIGKILL)


def plugin(run: everstep.Run, how: str) -> Any:
    own = EverstepCheckpointIO(run, background=how == "background", takeover="now")
    return own, AsyncCheckpointIO(own) if how == "async" else own


def trainer_for(folder: str, plugins: list[Any], epochs: int, *callbacks: Any, **options: Any) -> lightning.Trainer:
    keeps = ModelCheckpoint(dirpath=Path(folder, "saved"), monitor="age", mode="max", save_top_k=2, save_last=True, **options)
    return lightning.Trainer(
        max_epochs=epochs, plugins=plugins, callbacks=[keeps, *callbacks], default_root_dir=folder, logger=False, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip


def data() -> DataLoader:
    rows = torch.randn(4 * BATCHES, 4, generator=torch.Generator().manual_seed(1))
    return DataLoader(rows, batch_size=4)


def train(repository: str, folder: str, how: str, epochs: int, die_at: int = -1) -> list[Any]:
    """Trains up to `epochs` from the newest checkpoint on; from where, and how it ended."""
    torch.manual_seed(1)
    run = everstep.Repository(repository, create=True).run("lightning")
    own, io = plugin(run, how)
    model, trainer = Model(), trainer_for(folder, [io], epochs, Dies(die_at, run))
    began = own.latest()
    trainer.fit(model, data(), ckpt_path=began)
    own.teardown()
    kept = [os.path.basename(own._path(ordinal)) for ordinal, _ in run.checkpoints()]
    assert not any(Path(folder).rglob("*.ckpt")), "nothing is written where paths point"
    optimizer = trainer.optimizers[0].state_dict()
    end = {name: tensor.numpy().tobytes().hex() for name, tensor in model.state_dict().items()}
    end |= {f"{i}.{name}": part.numpy().tobytes().hex() for i, parts in optimizer["state"].items() for name, part in parts.items()}
    end |= {"groups": repr(optimizer["param_groups"]), "seen": model.seen, "step": trainer.global_step}
    end["best"] = {os.path.basename(k): v.item() for k, v in trainer.checkpoint_callback.best_k_models.items()}
    return [began and os.path.basename(began), end, kept]


def same(one: Any, other: Any, where: str = "") -> None:
    """Whether two states are the same to the last bit, in types and order as well."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert list(one) == list(other), where
        for key in one:
            same(one[key], other[key], f"{where}.{key}")
        assert getattr(one, "_metadata", None) == getattr(other, "_metadata", None), where
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), where
        for i, (a, b) in enumerate(zip(one, other)):
            same(a, b, f"{where}.{i}")
    elif isinstance(one, (torch.Tensor, np.ndarray)):
        assert one.dtype == other.dtype and one.shape == other.shape and bytes(np.asarray(one)) == bytes(np.asarray(other)), where
    else:
        assert one == other, where


def beside(repository: str, folder: str) -> None:
    """What comes back is what torch.save would have given back."""
    run = everstep.Repository(repository, create=True).run("lightning")
    own = EverstepCheckpointIO(run)
    trainer, seen = trainer_for(folder, [own], 2), {}

    class Both(Callback):
        def on_train_end(self, trainer: Any, module: Any) -> None:
            for only in (False, True):
                path = os.path.join(folder, f"weights-{only}.ckpt")
                seen[path] = trainer._checkpoint_connector.dump_checkpoint(only)
                TorchCheckpointIO().save_checkpoint(seen[path], path)
                trainer.save_checkpoint(path, weights_only=only)

    trainer.callbacks.append(Both())
    trainer.fit(Model(), data())
    assert len(seen) == 2
    for path in seen:
        same(own.load_checkpoint(path), TorchCheckpointIO().load_checkpoint(path, weights_only=False))
    only = own.load_checkpoint(path, weights_only=True)
    assert "optimizer_states" not in only and "state_dict" in only
    moved = own.load_checkpoint(path, map_location="meta")
    assert all(tensor.is_meta for tensor in moved["state_dict"].values())
    same(own.load_checkpoint(path, map_location=lambda storage, where: storage), only)
    # Without Lightning, by name, into a module:
    fresh = Model()
    own.checkpoint(path).load({"m": fresh}, rename={"m": "state_dict"}, select="m.*")
    same(fresh.state_dict(), only["state_dict"])
    oldest = run.repository.checkpoint("lightning@max=age")
    assert oldest.step == 2 * BATCHES and oldest.metadata["age"] == trainer.callback_metrics["age"].item()


def io_alone(repository: str) -> None:
    """The plug-in without a trainer: paths, removal, what is refused."""
    run = everstep.Repository(repository, create=True).run("paths")
    own = EverstepCheckpointIO(run)
    assert own.latest() is None
    for step in (1, 2, 3):
        own.save_checkpoint({"global_step": step}, f"/somewhere/step={step}.ckpt")
    own.save_checkpoint({"global_step": 4, "everstep": {"everstep": "tensor"}}, "/somewhere/last.ckpt")
    assert own.latest() == "/somewhere/last.ckpt"
    assert own.load_checkpoint("/somewhere/step=2.ckpt")["global_step"] == 2
    assert own.load_checkpoint("/elsewhere/step=2.ckpt")["global_step"] == 2  # by the name of the file
    assert own.load_checkpoint("/somewhere/last.ckpt") == {"global_step": 4, "everstep": {"everstep": "tensor"}}
    run.repository.pin("kept", own.checkpoint("/somewhere/step=1.ckpt"))
    own.remove_checkpoint("/elsewhere/step=2.ckpt")  # by the whole path alone
    with mock.patch.object(logging.getLogger("everstep"), "info") as said:
        own.remove_checkpoint("/somewhere/step=1.ckpt")  # what is pinned stays
    assert "pinned" in said.call_args.args[0], said.call_args
    own.remove_checkpoint("/somewhere/last.ckpt")  # the newest stays ...
    assert [step for _, step in run.checkpoints()] == [1, 2, 3, 4]
    own.save_checkpoint({"global_step": 5}, "/somewhere/last.ckpt")  # ... until there is a newer one
    assert [step for _, step in run.checkpoints()] == [1, 2, 3, 5]
    run.repository.unpin("kept")
    assert own._unwanted == set() and own.load_checkpoint("/somewhere/step=1.ckpt") == {"global_step": 1}
    with mock.patch.object(run.repository, "pins", side_effect=everstep.Unreachable("no answer")):
        own.remove_checkpoint("/somewhere/step=1.ckpt")  # not while it may be pinned
        assert [step for _, step in run.checkpoints()] == [1, 2, 3, 5]
    own._expire(set())  # as the next save does
    assert [step for _, step in run.checkpoints()] == [2, 3, 5]
    assert own.load_checkpoint("/somewhere/last.ckpt")["global_step"] == 5
    first = min(own._paths)
    own._expire({first, first + 1000})  # which somebody else has expired, and which never was
    assert own._unwanted == set() and [step for _, step in run.checkpoints()] == [2, 3, 5]
    for path, error in (("/somewhere/step=1.ckpt", everstep.NotFound), ("nowhere.ckpt", everstep.NotFound)):
        raises(error, path, lambda: own.load_checkpoint(path))
    raises(everstep.InvalidArgument, "a.b", lambda: own.save_checkpoint({"a": {"b": object()}}, "x.ckpt"))
    raises(everstep.InvalidArgument, "storage_options", lambda: own.save_checkpoint({}, "x.ckpt", {"k": 1}))
    loose = EverstepCheckpointIO(run, allow_pickle=True, takeover="now")
    loose.save_checkpoint({"path": Path("a"), "ordered": OrderedDict(b=1, a=2)}, "pickled.ckpt")
    same(loose.load_checkpoint("pickled.ckpt"), {"path": Path("a"), "ordered": OrderedDict(b=1, a=2)})
    raises(everstep.InvalidArgument, "pickle", lambda: loose.load_checkpoint("pickled.ckpt", weights_only=True))
    raises(everstep.Conflict, "", lambda: (own.save_checkpoint({}, "late.ckpt"), own.teardown()))
    loose.teardown()


def distributed(repository: str, folder: str) -> list[Any]:
    """Two ranks of data-parallel training: the first saves, both load."""
    everstep.Repository(repository, create=True)

    def rank() -> list[Any]:
        ended = []
        for epochs in (1, 2):
            run = everstep.Repository(repository).run("ddp")
            own, model = EverstepCheckpointIO(run, background=True, takeover="now"), Model()
            keeps = ModelCheckpoint(dirpath=Path(folder, "saved"), save_top_k=-1)
            trainer = lightning.Trainer(
                max_epochs=epochs, plugins=[own], callbacks=[keeps], default_root_dir=folder, logger=False, accelerator="cpu",
                devices=2, strategy="ddp", enable_progress_bar=False, enable_model_summary=False,
            )  # fmt: skip
            trainer.fit(model, data(), ckpt_path=own.latest())
            torch.distributed.barrier()  # the first still waited for its save
            ended.append([step for _, step in run.checkpoints()])
            assert trainer.global_step == 2 * epochs
        return ended

    return ranks(rank)
