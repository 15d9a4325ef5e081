"""Plain values: what is kept as it is, what must be converted, and what only a pickle could keep."""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Mapping
from typing import Any

from . import _tensors
from ._everstep import Arena, Opaque, decode, encode
from .errors import EverstepError, InvalidArgument

#: What stands before a pickle, so that no other bytes are ever taken for one.
_PICKLE = b"everstep-pickle\0"
#: Marks a tensor within state of one rank: {_TENSOR: dtype, "shape": [...], "data": bytes}.
_TENSOR = "everstep:tensor"
_TENSOR_KEYS = {_TENSOR, "shape", "data"}


class Plain:
    """A value that is plain all through, and is kept as one object whatever its keys look like."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


def snapshot(name: str, value: Any, allow_pickle: bool) -> Any:
    """`value` as it is now, detached from the program: a plain value, or Opaque."""
    if type(value) in (bytearray, memoryview):
        value = bytes(value)
    try:
        return decode(encode(value))
    except (TypeError, ValueError):
        pass
    try:
        return decode(encode(_converted(name, value)))
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, EverstepError):
            raise
        if allow_pickle:
            return Opaque(_PICKLE + pickle.dumps(value))
        raise InvalidArgument(
            f"{name}: {error}. Plain values are None, bool, int, float, str, bytes and lists, tuples and dicts of them; "
            "convert it, or give allow_pickle=True when saving and when loading"
        ) from None


def restore(name: str, stored: Any, allow_pickle: bool) -> Any:
    """What `snapshot` kept."""
    if type(stored) is not Opaque:
        return _revived(stored)
    if not stored.data.startswith(_PICKLE):
        return stored.data
    if not allow_pickle:
        raise InvalidArgument(
            f"{name} was saved as a pickle, which can run any code when it is loaded: give allow_pickle=True if you "
            "trust whoever wrote this checkpoint"
        )
    return pickle.loads(stored.data[len(_PICKLE) :])


def put(current: Any, loaded: Any) -> Any:
    """What takes the place of `current`: mutable containers are kept, so that whoever else holds them sees it, and so
    that an OrderedDict or a Counter stays one; named tuples keep their class."""
    if isinstance(current, dict) and isinstance(loaded, dict):
        current.clear()
        current.update(loaded)
        return current
    if type(current) is list and type(loaded) is list:
        current[:] = loaded
        return current
    if isinstance(current, tuple) and type(loaded) is tuple and len(current) == len(loaded):
        items = [put(old, new) for old, new in zip(current, loaded)]
        return type(current)(*items) if is_named_tuple(current) else tuple(items)
    return loaded


def is_named_tuple(value: Any) -> bool:
    """Whether it is a tuple whose items have names."""
    return isinstance(value, tuple) and hasattr(value, "_fields") and hasattr(value, "_make")


def _converted(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _converted(f"{name}.{key}", item) for key, item in value.items()}
    if type(value) is list:
        return [_converted(f"{name}.{i}", item) for i, item in enumerate(value)]
    if type(value) is tuple or type(value).__name__ == "Size" or is_named_tuple(value):
        return tuple(_converted(f"{name}.{i}", item) for i, item in enumerate(value))
    found = _tensors.pieces(name, value)
    if found is None:
        return value
    (piece,) = found
    data = _bytes_of(piece)
    return {_TENSOR: piece.dtype, "shape": list(piece.shape), "data": data}


def _bytes_of(piece: Any) -> bytes:
    region = piece.kind.direct(piece.kind.compact(piece.local), piece.dtype, False)
    length = _length(piece.dtype, piece.extent)
    arena = Arena(1)
    address = arena.reserve(max(length, 1))
    arena.copy([(0, region)])
    return ctypes.string_at(address, length)


def _length(dtype: str, shape: Any) -> int:
    elements = 1
    for extent in shape:
        elements *= extent
    return (elements * _tensors.BITS[dtype] + 7) // 8


def _revived(value: Any) -> Any:
    if type(value) is dict:
        if _is_tensor(value):
            return _tensor_of(value)
        return {key: _revived(item) for key, item in value.items()}
    if type(value) is list:
        return [_revived(item) for item in value]
    if type(value) is tuple:
        return tuple(_revived(item) for item in value)
    return value


def _is_tensor(value: dict) -> bool:
    if value.keys() != _TENSOR_KEYS:
        return False
    dtype, shape, data = value[_TENSOR], value["shape"], value["data"]
    known = type(dtype) is str and dtype in _tensors.BITS and type(shape) is list and type(data) is bytes
    return known and all(type(n) is int and n >= 0 for n in shape) and _length(dtype, shape) == len(data)


def _tensor_of(value: dict) -> Any:
    from ._arrays import from_bytes

    return from_bytes(value[_TENSOR], value["shape"], bytearray(value["data"]))
