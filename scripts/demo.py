"""The demo: a training is killed, comes back, and ends bit for bit where an undisturbed one ends. See demo.sh."""

import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path

from safetensors.numpy import load_file

STEPS, EVERY, RANKS = 30, 3, 2
INSPECT = "target/debug/ckpt-inspect"
STEP_LINE = re.compile(r"rank (\d+), process (\d+), step (\d+)")
SAVED_LINE = re.compile(r"run gpt: (step \d+ is committed: .*)")


class Kill:
    """Ends one rank by SIGKILL at a moment that the seed decides: within the step after `step`."""

    def __init__(self, seed):
        dice = random.Random(seed)
        self.rank, self.step, self.part = dice.randrange(RANKS), dice.randrange(EVERY, STEPS - 1), dice.random()
        self.at, self._last = None, time.time()

    def see(self, rank, process, step):
        if self.at is not None or rank != self.rank:
            return
        if step == self.step:
            time.sleep(self.part * (time.time() - self._last))
            os.kill(process, signal.SIGKILL)
            self.at = time.time()
            say(f"SIGKILL to rank {rank} (process {process}) {self.part:.0%} into step {step + 1}")
        self._last = time.time()


def say(line):
    print(line, flush=True)


def torchrun(arguments, restarts=0, kill=None):
    """Runs demo_rank.py; what is said of checkpoints is shown, the rest only if it fails."""
    launch = ["--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", RANKS, "--max-restarts", restarts]
    command = [sys.executable, "-m", "torch.distributed.run", *launch, "scripts/demo_rank.py", "train", *arguments]
    # A store of its own for each attempt: the shared one would hand addresses of dead processes to those that restart.
    surroundings = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    lines = []
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=surroundings
    ) as process:
        for line in process.stdout:
            lines.append(line)
            for step in STEP_LINE.finditer(line):
                if kill:
                    kill.see(*map(int, step.groups()))
            if saved := SAVED_LINE.search(line):
                say("    " + saved.group(1))
    if process.returncode:
        sys.exit("".join(lines[-60:]) + f"torchrun ended with {process.returncode}")


def results(folder, ranks):
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(ranks)]


def train(folder, name, **options):
    (folder / name).mkdir()
    torchrun([folder / f"{name}-checkpoints", folder / name, STEPS, EVERY], **options)
    return results(folder / name, RANKS)


def same(what, one, other):
    different = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    if different:
        sys.exit(f"{what}: {len(different)} differ, such as {', '.join(different[:5])}")


def compare(undisturbed, killed):
    for rank, (one, other) in enumerate(zip(undisturbed, killed)):
        same(f"rank {rank}, tensors", one["tensors"], other["tensors"])
        same(f"rank {rank}, its own", one["own"], other["own"])
    say(f"equal, bit for bit: {len(one['tensors'])} tensors, and of each rank {', '.join(one['own'])}")


def load_on_three(folder, killed):
    (folder / "three").mkdir()
    repository = folder / "killed-checkpoints"
    subprocess.run([sys.executable, "scripts/demo_rank.py", "load", repository, folder / "three", "3"], check=True)
    for rank, seen in enumerate(results(folder / "three", 3)):
        same(f"rank {rank} of 3, tensors", killed[0]["tensors"], seen["tensors"])
    say(f"step {seen['step']} on 3 ranks, each with its own shards: the same digest of every tensor")


def inspect(verb, *arguments):
    say(f"$ ckpt-inspect {' '.join([verb, *arguments])}")
    subprocess.run([INSPECT, verb, *arguments], check=True)


def export(folder, killed):
    """The model as a safetensors file, which another library reads."""
    file = folder / "model.safetensors"
    inspect("export", "gpt", "--select", "model.*", "-o", str(file))
    found = {name: sha256(array.tobytes()).hexdigest() for name, array in load_file(file).items()}
    model = {name: digest for name, digest in killed[0]["tensors"].items() if name.startswith("model.")}
    same("model.safetensors", model, found)
    say(f"model.safetensors has the same digest of all {len(found)} tensors of the model")


def stored(checkpoints):
    """Bytes of all files, and raw bytes of all checkpoints."""
    listed = subprocess.run([INSPECT, "ls", "--json", str(checkpoints)], check=True, capture_output=True, text=True)
    sizes = [row["raw_bytes"] for row in json.loads(listed.stdout)["checkpoints"]]
    return sum(file.stat().st_size for file in checkpoints.rglob("*") if file.is_file()), sum(sizes), len(sizes)


def figures(folder, undisturbed, killed, kill):
    pauses = [second for rank in undisturbed for second in rank["pauses"]]
    commits = [second for rank in undisturbed for second in rank["seconds_to_commit"]]
    saving, alone = ([second for rank in undisturbed for second in rank[kind]] for kind in ("saving", "alone"))
    busy, calm = statistics.median(saving) * 1e3, statistics.median(alone or saving) * 1e3
    size, raw, count = stored(folder / "undisturbed-checkpoints")
    back = max(rank["first_step"] for rank in killed) - kill.at
    restarted = max(rank["resumed"]["began"] for rank in killed) - kill.at
    resumed = max(rank["resumed"]["seconds"] for rank in killed)
    total = sum(saving + alone) + sum(pauses)
    slowed = (
        f"a step takes {busy:.0f} ms (median of {len(saving)}), otherwise {calm:.0f} ms (of {len(alone)}); with the pauses "
        f"{(sum(pauses) + len(saving) * (busy - calm) / 1e3) / total:+.0%} of all time, saving every {EVERY} steps"
    )
    start = f"{back:.1f} s from SIGKILL to the end of the next step, {restarted:.1f} s of it until torchrun, Python and torch ran"
    for name, value, more in (
        ("pause per save", f"{statistics.median(pauses) * 1e3:.0f} ms", f"at most {max(pauses) * 1e3:.0f} ms in {count} saves; "
         f"committed after {statistics.median(commits):.2f} s"),
        ("training slowed by", f"{busy / calm - 1:+.0%}", f"while saving: {slowed}"),
        ("bytes stored against raw", f"{size / raw:.2f}", f"{size / 1e6:.0f} MB for {count} checkpoints of {raw / count / 1e6:.0f} MB"),
        ("time to resume", f"{resumed:.2f} s", start),
    ):
        say(f"{name:25} {value:>7}   {more}")


def main(folder):
    seed = int(os.environ.get("EVERSTEP_DEMO_SEED") or random.SystemRandom().randrange(1 << 32))
    kill = Kill(seed)
    say(f"\n--- train a small GPT for {STEPS} steps on {RANKS} ranks with FSDP2, a checkpoint every {EVERY} steps")
    undisturbed = train(folder, "undisturbed")
    say(f"\n--- the same again; rank {kill.rank} is killed after step {kill.step}, torchrun restarts both (seed {seed})")
    killed = train(folder, "killed", restarts=1, kill=kill)
    back = killed[0]["resumed"]["step"]
    say(f"resumed from step {back}" if back else "nothing was committed yet: started again")
    say("\n--- compare both final states in memory, whole tensors by SHA-256")
    compare(undisturbed, killed)
    say("\n--- load the checkpoint on 3 ranks")
    load_on_three(folder, killed)
    say("\n--- look at the repository")
    os.environ["EVERSTEP_REPOSITORY"] = str(folder / "killed-checkpoints")
    inspect("ls")
    inspect("show", "gpt")
    inspect("verify", "--deep")
    export(folder, killed)
    say("\n--- figures")
    figures(folder, undisturbed, killed, kill)


with tempfile.TemporaryDirectory() as temporary:
    main(Path(temporary))
