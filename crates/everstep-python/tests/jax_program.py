"""What tests of jax arrays do, on 8 virtual CPU devices, without torch."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NamedTuple

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
os.environ["JAX_PLATFORMS"] = "cpu"

import everstep
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

assert "torch" not in sys.modules

P = PartitionSpec
ODD = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "float32", "complex64"]
ODD += ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]


class Moments(NamedTuple):
    """As an optimizer keeps them."""

    count: Any
    mean: Any
    square: Any


class Nothing(NamedTuple):
    """A part of an optimizer that keeps nothing."""


def mesh(*sizes: int) -> Mesh:
    devices = np.array(jax.devices()[: int(np.prod(sizes))])
    return Mesh(devices.reshape(sizes), ("a", "b", "c")[: len(sizes)])


def put(value: Any, on: Mesh, *axes: Any) -> jax.Array:
    return jax.device_put(value, NamedSharding(on, P(*axes)))


def raw(array: Any) -> bytes:
    return np.asarray(array).tobytes()


def state_of(on: Mesh) -> dict[str, Any]:
    """Parameters sharded over both axes, one replicated, moments of both, and what is no array."""
    numbers = np.random.default_rng(1)

    def weights(scale: float) -> dict[str, Any]:
        return {
            "in": put(scale * numbers.standard_normal((16, 8), np.float32), on, "a", "b"),
            "out": put(scale * numbers.standard_normal((8, 4), np.float32), on, None, "b"),
            "scale": put(np.full(4, scale, np.float32), on),
        }

    moments = Moments(put(np.int32(0), on), weights(0.0), weights(0.0))
    random = put(np.zeros(2, np.uint32), on)
    return {"weights": weights(1.0), "moments": (moments, Nothing()), "random": random, "seen": 0}


@jax.jit
def updated(weights: Any, moments: Moments, random: Any) -> Any:
    key, own = jax.random.split(random)
    batch = jax.random.normal(own, (32, 16))

    def loss(weights: Any) -> Any:
        return jnp.square(jnp.tanh(batch @ weights["in"]) @ weights["out"] * weights["scale"]).mean()

    slope = jax.grad(loss)(weights)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments.mean, slope)
    square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, moments.square, slope)
    weights = jax.tree.map(lambda w, m, s: w - 0.01 * m / (jnp.sqrt(s) + 1e-8), weights, mean, square)
    return weights, Moments(moments.count + 1, mean, square), key


def train(repository: str, steps: int, die_at: int | None = None) -> list[Any]:
    """Trains up to `steps` from the newest checkpoint on, saving every second one; where it began, and how it ended."""
    state = state_of(mesh(2, 1))
    with everstep.Repository(repository, create=True).run("jax").writer(takeover="now") as writer:
        began = step = writer.resume(into=state) or 0
        while step < steps:
            step += 1
            moments, nothing = state["moments"]
            state["weights"], moments, state["random"] = updated(state["weights"], moments, state["random"])
            state["moments"], state["seen"] = (moments, nothing), state["seen"] + 32
            if step == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if step % 2 == 0:
                writer.save_async(step, state)
    assert type(state["moments"][0]) is Moments and type(state["moments"][1]) is Nothing
    leaves = {jax.tree_util.keystr(path): raw(leaf).hex() for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
    return [began, leaves]


def meshes(repository: str) -> None:
    """What was saved on one mesh is loaded on others, where the arrays of the state lie."""
    run = everstep.Repository(repository, create=True).run("meshes")
    values = {"one": np.arange(48.0, dtype=np.float32).reshape(12, 4), "two": np.arange(16, dtype=np.int32)}
    both = (("a", "b"),)
    layouts = {
        "one": (("a", "b"), (None, "a"), ("b",), both, ()),
        "two": (("a",), ("b",), both, (), ("a",)),
    }
    pairs = [(mesh(4, 2), 0), (mesh(2, 2), 1), (mesh(4, 1), 2), (mesh(2, 1), 3), (mesh(1, 4), 4)]
    saved = [{name: put(value, on, *layouts[name][i]) for name, value in values.items()} for on, i in pairs]
    with run.writer() as writer:
        for step, state in enumerate(saved):
            job = writer.save_async(step, state) if step % 2 else writer.save(step, state)
            assert (job.result() if step % 2 else job).stats.raw_bytes == 256, "a box is handed in once"
    for ordinal, _ in run.checkpoints():
        for state in saved:
            into = {name: array * 0 for name, array in state.items()}
            run.checkpoint(ordinal).load(into)
            for name, array in into.items():
                assert array.sharding == state[name].sharding and array.committed
                assert raw(array) == values[name].tobytes()


def types(repository: str) -> list[str]:
    """Every element type there is, without torch; those that numpy does not have are of ml_dtypes."""
    run = everstep.Repository(repository, create=True).run("types")
    bits = np.random.default_rng(1).integers(0, 256, 64, np.uint8)
    state = {name: jnp.asarray((bits % 2 if name == "bool" else bits).view(jnp.dtype(name))) for name in ODD}
    state |= {"none": jnp.asarray(np.zeros((0, 3))), "numpy": np.asarray(state["bfloat16"]), "number": np.float32(1.5)}
    state["e8m0"] = np.arange(4, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu)
    with run.writer() as writer:
        writer.save(1, state)
        refused = []
        for value in (jax.random.key(1), jnp.ones(3, "int4"), jax.ShapeDtypeStruct((2,), "float32")):
            try:
                writer.save(2, {"x": value})
            except everstep.InvalidArgument as error:
                refused.append(str(error))
    into = {name: np.zeros(value.shape, value.dtype) for name, value in state.items()}
    into |= {name: jnp.asarray(into[name]) for name, value in state.items() if isinstance(value, jax.Array)}
    into["number"] = np.float32(0)
    run.latest().load(into)
    for name, value in state.items():
        assert type(into[name]) is type(value) and into[name].dtype == value.dtype and raw(into[name]) == raw(value), name
    wider = {"bfloat16": jnp.zeros(32, "float32")}
    report = run.latest().load(wider, select="bfloat16", cast=True)
    assert raw(wider["bfloat16"]) == raw(state["bfloat16"].astype("float32")) and report.lossy_casts == []
    return refused


def places(repository: str) -> None:
    """A loaded array is as free, or as bound, as the one whose place it takes."""
    run = everstep.Repository(repository, create=True).run("places")
    device = jax.devices()[3]
    state = {
        "free": jnp.arange(3), "bound": jax.device_put(jnp.arange(3), device), "weak": jnp.asarray(0.5),
        "sharded": put(jnp.arange(8.0), mesh(8), "a"), "tied": jnp.ones(5), "list": [jnp.ones(2)], "pair": (jnp.zeros(2), 1),
    }  # fmt: skip
    state["tie"] = state["tied"]
    with run.writer() as writer:
        writer.save(1, state)
    assert [entry["name"] for entry in run.latest().entries() if entry.get("alias_of")] == ["tie"]
    into = jax.tree.map(lambda x: x * 0, state)
    given = into["list"]
    into["sharded"] = jax.ShapeDtypeStruct((8,), "float32", sharding=state["sharded"].sharding)
    run.latest().load(into)
    assert [into[name].committed for name in ("free", "bound", "sharded")] == [False, True, True]
    assert into["bound"].sharding == SingleDeviceSharding(device)
    assert into["sharded"].sharding == state["sharded"].sharding
    assert into["weak"].weak_type and not into["free"].weak_type
    assert (into["weak"] * jnp.ones(1, "bfloat16")).dtype == "bfloat16"
    assert into["free"] + into["sharded"][:3] is not None  # a free one follows to where the others are
    assert into["list"] is given and into["pair"][1] == 1
    for name in ("free", "bound", "weak", "sharded", "tied", "tie"):
        assert raw(into[name]) == raw(state[name])


def donated(repository: str) -> str:
    """What a step gives away while it is being saved is saved as it was; what was loaded may be given away as well."""
    run = everstep.Repository(repository, create=True).run("donated")
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    on = mesh(8)
    state = {"sharded": put(jnp.zeros(1 << 16), on, "a"), "whole": put(jnp.zeros(1 << 16), on)}
    with run.writer() as writer:
        for number in range(4):
            writer.save_async(number, state)
            state = {name: step(array) for name, array in state.items()}
        kept = state
        gone = {name: step(array) for name, array in state.items()}
        try:
            writer.save(9, kept)
        except everstep.InvalidArgument as error:
            complaint = str(error)
    for ordinal, number in run.checkpoints():
        run.checkpoint(ordinal).load(kept)  # the layout of a donated array is still known
        assert all((np.asarray(array) == number).all() for array in kept.values())
        kept = {name: step(step(array)) for name, array in kept.items()}
        shards = [shard.data for array in kept.values() for shard in array.addressable_shards]
        assert len(shards) == 16 and all((np.asarray(shard) == number + 2).all() for shard in shards)
    assert all((np.asarray(array) == 5).all() for array in gone.values())
    return complaint


class Folder:
    """A board in a folder, for processes that have no torch."""

    def __init__(self, path: str):
        self.path = path

    def set(self, key: str, value: bytes) -> None:
        name = os.path.join(self.path, key.replace("/", "_"))
        with open(f"{name}.new", "wb") as file:
            file.write(value)
        os.rename(f"{name}.new", name)

    def get(self, key: str) -> bytes | None:
        try:
            with open(os.path.join(self.path, key.replace("/", "_")), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None


def crowd(repository: str, board: str, port: int) -> None:
    """Two processes of 8 devices each, as one job of jax: this one, and one that it forks."""
    os.makedirs(board)
    everstep.Repository(repository, create=True)
    other = os.fork()
    _member(repository, board, port, 1 if other == 0 else 0)
    if other == 0:
        os._exit(0)
    assert os.waitpid(other, 0)[1] == 0


def _member(repository: str, board: str, port: int, process: int) -> None:
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, process)
    on = Mesh(np.array(jax.devices()).reshape(4, 4), ("a", "b"))
    whole = np.arange(64.0, dtype=np.float32).reshape(8, 8)

    def spread(*axes: Any) -> jax.Array:
        return jax.make_array_from_callback((8, 8), NamedSharding(on, P(*axes)), lambda index: whole[index])

    state = {"both": spread("a", "b"), "one": spread(None, "b"), "none": spread(), "own": jnp.ones(3)}
    run = everstep.Repository(repository).run("crowd")
    with run.writer(group=(process, 2, Folder(board)), deadline=60.0) as writer:
        saved = writer.save(1, state)
        into = {"both": spread("b"), "one": spread("a"), "none": spread("b", "a"), "own": jnp.zeros(3)}
        into = {name: array * 0 for name, array in into.items()}
        assert writer.resume(into) == 1
    for array in (into[name] for name in ("both", "one", "none")):
        for shard in array.addressable_shards:
            assert (np.asarray(shard.data) == whole[shard.index]).all()
    assert raw(into["own"]) == raw(state["own"]) and saved.ordinal == run.latest().ordinal
    jax.distributed.shutdown()
