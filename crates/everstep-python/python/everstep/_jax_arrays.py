"""jax arrays as pieces. They cannot be changed: what is loaded becomes new arrays that lie as the old ones did."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import _numpy_arrays
from ._everstep import Region
from ._tensors import Box, Kind, Piece
from .errors import InvalidArgument

_HINTS = {
    "key<": "give jax.random.key_data(key), and jax.random.wrap_key_data(data) when it is loaded",
    "int": "convert it first",
}


def is_known(kind: type) -> bool:
    """Whether values of this type are arrays of jax, or describe one."""
    return issubclass(kind, (jax.Array, jax.ShapeDtypeStruct))


def pieces(name: str, value: Any) -> list[Piece]:
    """The boxes that this process hands in: of each box the first replica, so that it comes from one process of the job.
    An array that this process has all of counts as the same on all ranks, as a plain tensor does."""
    dtype = _dtype(name, value)
    if isinstance(value, (jax.ShapeDtypeStruct, jax.core.Tracer)):
        raise InvalidArgument(f"{name}: a {type(value).__name__} has no values that could be saved")
    if value.is_deleted():
        raise InvalidArgument(f"{name}: the array was deleted or donated; save what came of it")
    replicas = "all" if value.is_fully_addressable else None
    found = []
    for shard in value.addressable_shards:
        if shard.replica_id == 0:
            offset, extent = _box(shard.index, value.shape)
            found.append(Piece(dtype, tuple(value.shape), offset, extent, replicas, shard.data, KIND))
    return found


class Replacement:
    """What takes the place of `like` (an array, or a ShapeDtypeStruct): host memory for every box that this process
    holds, and an array of them under the sharding of `like`."""

    def __init__(self, name: str, like: Any):
        self._like, self._dtype = like, _dtype(name, like)
        #: None: on the default device, and free to follow others to theirs.
        self._sharding = like.sharding if _is_committed(like) else None
        self._host: dict[Box, np.ndarray] = {}

    def pieces(self) -> list[Piece]:
        """The boxes to load into."""
        shape, found = tuple(self._like.shape), []
        for offset, extent in self._boxes(shape):
            host = self._host[offset, extent] = np.empty(extent, np.dtype(self._like.dtype))
            found.append(Piece(self._dtype, shape, offset, extent, "all", host, _numpy_arrays.KIND))
        return found

    def _boxes(self, shape: tuple[int, ...]) -> set[Box]:
        if self._sharding is None:
            return {((0,) * len(shape), shape)}
        return {_box(index, shape) for index in self._sharding.addressable_devices_indices_map(shape).values()}

    def array(self) -> jax.Array:
        """The array, once its boxes are filled."""
        shape = tuple(self._like.shape)
        if getattr(self._like, "weak_type", False) and not shape and self._host:
            return self._weak(next(iter(self._host.values())))
        if self._sharding is None:
            (host,) = self._host.values()
            return jnp.asarray(host)
        return jax.make_array_from_callback(shape, self._sharding, lambda index: self._host[_box(index, shape)])

    def _weak(self, host: np.ndarray) -> jax.Array:
        """A number that adapts its type to others', as the number of Python that it came from: made of one again."""
        array = jnp.asarray(host.item())
        if array.dtype != host.dtype:
            array = jnp.asarray(host)
        return array if self._sharding is None else jax.device_put(array, self._sharding)


def _is_committed(like: Any) -> bool:
    """Whether it has to stay on the devices where it is."""
    if isinstance(like, jax.ShapeDtypeStruct):
        return like.sharding is not None
    return bool(getattr(like, "committed", getattr(like, "_committed", True)))


def _dtype(name: str, value: Any) -> str:
    theirs = str(value.dtype)
    dtype = _numpy_arrays.format_name(theirs)
    if dtype is None:
        hint = next((hint for start, hint in _HINTS.items() if theirs.startswith(start)), "convert it first")
        raise InvalidArgument(f"{name}: jax arrays of dtype {theirs} cannot be kept; {hint}")
    return dtype


def _box(index: tuple[slice, ...], shape: tuple[int, ...]) -> Box:
    bounds = [part.indices(size) for part, size in zip(index, shape, strict=True)]
    return tuple(start for start, _, _ in bounds), tuple(stop - start for start, stop, _ in bounds)


def _direct(local: Any, dtype: str, writable: bool) -> Region | None:
    """Of a shard in host memory, which numpy sees without a copy."""
    if isinstance(local, np.ndarray):
        return _numpy_arrays.KIND.direct(local, dtype, writable)
    if writable or any(device.platform != "cpu" for device in local.devices()):
        return None
    return _numpy_arrays.KIND.direct(np.asarray(local), dtype, False)


def _compact(local: Any) -> np.ndarray:
    return _numpy_arrays.KIND.compact(np.asarray(local))


def _fresh(local: Any) -> np.ndarray:
    return np.empty(local.shape, np.dtype(local.dtype))


def _assign(_: Any, __: Any) -> None:
    raise InvalidArgument("a jax array cannot be changed")


def _locked(_: Any) -> str | None:
    return "a jax array cannot be changed: give a numpy array here, or the array itself instead of a Shard of it"


def _address(local: Any) -> int | None:
    """A shard is the same object each time, so that its identity tells whether two names mean one array."""
    return id(local) if local.size else None


def _same(one: Any, other: Any) -> bool:
    return one is other


KIND = Kind(_direct, _compact, _fresh, _assign, _locked, _address, _same)
