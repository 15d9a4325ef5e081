"""What tests of the Trainer of transformers do, in processes that a nursery forks."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import signal
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import accelerate
import everstep
import everstep.folders
import numpy as np
import safetensors.torch
import torch
import torch._dynamo
import torch.distributed.checkpoint
import transformers
from everstep.transformers import EverstepCallback, materialize
from nursery import raises, ranks
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_utils import get_last_checkpoint

#: What a Trainer imports when it is first used, so that it is imported once.
LATE = (torch._dynamo, torch.distributed.checkpoint, PreTrainedModel, PreTrainedTokenizerBase)
warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
STEPS = 8


class Model(torch.nn.Module):
    """With a part that is frozen and larger than what is trained, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = torch.nn.Linear(4, 50_000).requires_grad_(False)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.net(x).square().mean()}


class Acts(transformers.TrainerCallback):
    """Dies at the end of a step, or in the midst of saving."""

    def __init__(self, die_at: int, in_saving: bool):
        self.die_at, self.in_saving = die_at, in_saving

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.die_at and self.in_saving:
            torch.save = _half_a_save
        elif state.global_step == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)


def _half_a_save(_: Any, path: Any, *__: Any, **___: Any) -> None:
    Path(path).write_bytes(b"PK\3\4 the first half")
    os.kill(os.getpid(), signal.SIGKILL)


def trainer_for(output: str, callbacks: list[Any], steps: int = STEPS, **options: Any) -> transformers.Trainer:
    rows = torch.randn(12, 4, generator=torch.Generator().manual_seed(1))
    settings = {"save_steps": 2, "logging_steps": 2, "save_total_limit": 2, "learning_rate": 0.01, "seed": 1, **options}
    arguments = transformers.TrainingArguments(
        output_dir=output, max_steps=steps, per_device_train_batch_size=4, report_to=[], use_cpu=True, disable_tqdm=True,
        **settings,
    )  # fmt: skip
    torch.manual_seed(1)
    return transformers.Trainer(Model(), arguments, train_dataset=[{"x": row} for row in rows], callbacks=callbacks)


def train(repository: str, output: str, die_at: int = -1, in_saving: bool = False, background: bool = True) -> list[Any]:
    """Trains from the newest checkpoint of the run on; from where, and how it ended."""
    run = everstep.Repository(repository, create=True).run("hf")
    keep = EverstepCallback(run, background=background, takeover="now")
    trainer = trainer_for(output, [keep, Acts(die_at, in_saving)])
    began = keep.resume(output)
    trainer.train(resume_from_checkpoint=began)
    end = {name: tensor.numpy().tobytes().hex() for name, tensor in trainer.model.net.state_dict().items()}
    for i, parts in trainer.optimizer.state_dict()["state"].items():
        end |= {f"{i}.{name}": np.asarray(part).tobytes().hex() for name, part in parts.items()}
    end["lr"] = trainer.lr_scheduler.get_last_lr()
    end["logged"] = [line.get("loss") for line in trainer.state.log_history][: STEPS // 2]
    return [began and os.path.basename(began), end, [step for _, step in run.checkpoints()]]


def folders(repository: str, output: str) -> None:
    """Folders come back byte for byte, and what did not change is stored once."""
    run = everstep.Repository(repository, create=True).run("hf")
    keep = EverstepCallback(run, background=False, takeover="now")
    trainer_for(output, [keep], steps=4).train()
    for ordinal, step in run.checkpoints():
        written = Path(output, f"checkpoint-{step}")
        back = materialize(run.checkpoint(ordinal), Path(output, "back", str(step)))
        assert same_folders(written, back) > 5
        tensors = safetensors.torch.load_file(back / "model.safetensors")
        assert torch.equal(tensors["net.0.weight"], run.checkpoint(ordinal).read("model.net.0.weight"))
    totals = run.latest().manifest["totals"]
    assert totals["new_raw_bytes"] < totals["raw_bytes"] / 4, "the frozen part is there already"
    assert isinstance(run.latest().metadata["loss"], float) and run.repository.checkpoint("hf@min=loss").step in (2, 4)
    raises(everstep.InvalidArgument, "replace=True", lambda: materialize(run.latest(), back))
    (back / "stray").touch()
    materialize(run.latest(), back, replace=True)
    assert same_folders(written, back) and not [path for path in back.parent.iterdir() if path.name.startswith(".")]
    with run.writer(takeover="now") as writer:
        writer.save(9, {"x": 1})
    raises(everstep.InvalidArgument, "not saved from a folder", lambda: materialize(run.latest(), Path(output, "no")))


def same_folders(one: Path, other: Path) -> int:
    """How many files two folders have, which are the same."""
    names = [sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file()) for folder in (one, other)]
    assert names[0] == names[1]
    assert filecmp.cmpfiles(one, other, names[0], shallow=False)[0] == names[0]
    return len(names[0])


def odd(repository: str, folder: str) -> None:
    """Files of all kinds: sharded, empty, in folders, of odd types; and what is refused."""
    run = everstep.Repository(repository, create=True).run("odd")
    keep, odd = EverstepCallback(run), Path(folder, "checkpoint-7")
    (odd / "deeper" / "still").mkdir(parents=True)
    (odd / "trainer_state.json").write_text('{"global_step": 7}')
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    (odd / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shards[0], "b": shards[1]}}))
    types = {"b": torch.bfloat16, "c": torch.float8_e4m3fn, "d": torch.bool, "e": torch.int64, "f": torch.complex64}
    safetensors.torch.save_file({"a": torch.ones(2, 3), "none": torch.ones(0, 3)}, odd / shards[0], {"format": "pt"})
    values = {name: torch.arange(4).to(dtype) for name, dtype in types.items()}
    safetensors.torch.save_file({**values, "scalar": torch.tensor(1.5)}, odd / shards[1])
    safetensors.torch.save_file({}, odd / "deeper" / "empty.safetensors")
    (odd / "deeper" / "still" / "model.a").write_bytes(os.urandom(1 << 20))
    (odd / "model.a").write_bytes(os.urandom(1 << 20))  # called as a tensor of the shards is
    (odd / "empty").touch()
    header = b'{"x":{"dtype":"Q3","shape":[2],"data_offsets":[0,2]}}'
    (odd / "other.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"??")
    keep.ingest(odd, {"score": 1.0})
    keep._saver.close()
    assert same_folders(odd, materialize(run.latest(), Path(folder, "back"))) == 9
    assert torch.equal(run.latest().read("model.b"), values["b"]) and run.latest().metadata["score"] == 1.0
    for name, data, words in (
        (shards[0], (odd / shards[0]).read_bytes()[:-1], "bytes of"),
        (shards[0], (odd / shards[0]).read_bytes()[:20], "header"),
        (shards[0], None, shards[0]),
        ("optimizer.pt", b"PK\3\4 half", "archive"),
        ("config.json", b'{"a": ', "config.json"),
        ("trainer_state.json", b'{"global_step": 6}', "step 6"),
        ("trainer_state.json", b'{"glob', "trainer_state"),
        ("trainer_state.json", None, "comes last"),
        ("checkpoint-is-incomplete.txt", b"", "incomplete"),
    ):
        half = Path(folder, "half", "checkpoint-7")
        shutil.rmtree(half, ignore_errors=True)
        shutil.copytree(odd, half)
        (half / name).unlink(missing_ok=True)
        if data is not None:
            (half / name).write_bytes(data)
        raises(everstep.InvalidArgument, words, lambda: keep.ingest(half))
    (odd / "link").symlink_to("/etc/hostname")
    raises(everstep.InvalidArgument, "link", lambda: keep.ingest(odd))
    raises(everstep.InvalidArgument, "checkpoint-N", lambda: keep.ingest(folder))
    keep._saver.close()
    assert [step for _, step in run.checkpoints()] == [7]


def outside(repository: str, folder: str) -> None:
    """A list of files that leads out of the folder is damage."""
    run = everstep.Repository(repository, create=True).run("evil")
    with run.writer() as writer:
        for name in ("../evil", "/tmp/evil", ""):
            writer.save(1, {"folder:files": [{"path": name, "size": 1, "data": b"x"}]})
            raises(everstep.Corrupt, "outside", lambda: materialize(run.latest(), Path(folder, "a", "b")))
    assert not any(Path(folder).rglob("*evil*")) and not Path(folder, "a", "b").exists()


def signalled(repository: str, output: str) -> list[int]:
    """A checkpoint that is written on a signal, of which the Trainer tells no callback, and a step after it."""
    run = everstep.Repository(repository, create=True).run("hf")
    keep = EverstepCallback(run, takeover="now")
    Path(output, "checkpoint-1").mkdir(parents=True)  # of a training before
    Path(output, "checkpoint-1", "trainer_state.json").write_text('{"global_step": 1}')

    class Warned(transformers.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 3:
                trainer._save_checkpoint(trainer.model, None)  # as JITCheckpointCallback does
                control.should_training_stop = True

    trainer = trainer_for(output, [keep, Warned()], save_steps=100)
    trainer.train()
    assert trainer.state.global_step == 4
    return [step for _, step in run.checkpoints()]


def accelerated(repository: str, folder: str, die_at: int = -1) -> list[Any]:
    """Accelerate has no callbacks: its folder is saved with a writer, and written back."""
    run = everstep.Repository(repository, create=True).run("acc")
    torch.manual_seed(1)
    model, accelerator = Model().net, accelerate.Accelerator(cpu=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    with run.writer(takeover="now") as writer:
        newest = run.latest()
        if newest is not None:
            accelerator.load_state(materialize(newest, Path(folder, f"{newest.step}-again")))
        for step in range(newest.step + 1 if newest else 1, STEPS):
            loss = model(torch.randn(4, 4)).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if step == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if step % 2 == 0:
                written = accelerator.save_state(Path(folder, str(step)))
                writer.save(step, everstep.folders.state_of(written), metadata={"loss": loss.item()})
                shutil.rmtree(written)
    return [newest and newest.step, {name: tensor.numpy().tobytes().hex() for name, tensor in model.state_dict().items()}]


def distributed(repository: str, output: str) -> list[int]:
    """Two ranks, of which the second writes its part late; what the first finds, or fails with, both hear."""
    everstep.Repository(repository, create=True)
    folder = Path(output, "checkpoint-3")
    folder.mkdir(parents=True)

    def rank() -> list[int]:
        torch.distributed.init_process_group("gloo")
        own = torch.distributed.get_rank()
        keep = EverstepCallback(everstep.Repository(repository).run("two"), takeover="now")
        state = SimpleNamespace(global_step=3, is_world_process_zero=own == 0, log_history=[])
        arguments = SimpleNamespace(output_dir=output)
        keep.on_train_begin(arguments, state, None)
        if own == 1:
            time.sleep(0.3)  # not needed for the test to hold, but for it to fail
            (folder / "rng_state_1.pth").write_bytes(b"late")
        else:
            (folder / "trainer_state.json").write_text('{"global_step": 3}')
        keep.on_save(arguments, state, None)
        keep.on_train_end(arguments, state, None)
        torch.distributed.barrier()
        back = keep.resume(Path(output, "back"))
        assert sorted(os.listdir(back)) == ["rng_state_1.pth", "trainer_state.json"]
        missing = EverstepCallback(everstep.Repository(repository).run("none"))
        assert missing.resume(Path(output, "back")) is None
        torch.distributed.barrier()
        if own == 0:
            with keep.run.writer(group=(0, 1, None), takeover="now") as writer:
                writer.save(4, {"folder:files": [{"path": "../x", "size": 1, "data": b"x"}]})
        torch.distributed.barrier()
        raises(everstep.Corrupt, "outside", lambda: keep.resume(Path(output, "back"), fallback=0))
        assert keep.resume(Path(output, "back")) == back  # of the one before
        return [step for _, step in keep.run.checkpoints()]

    return ranks(rank)


def last(output: str) -> str:
    return os.path.basename(get_last_checkpoint(output))
