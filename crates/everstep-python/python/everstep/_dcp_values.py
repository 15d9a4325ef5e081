"""What torch.distributed.checkpoint keeps as bytes: plain values as such, so that they are read without a pickle and by
anybody; the rest as the bytes that its planner made."""

from __future__ import annotations

import io
from typing import Any

import torch

from . import _values
from ._everstep import Opaque, encode
from ._jobs import log

_PLAIN = frozenset((type(None), bool, int, float, str, bytes))


def kept(data: bytes) -> Any:
    """The plain value of which torch.save makes exactly these bytes; else the bytes."""
    try:
        value = torch.load(io.BytesIO(data), weights_only=True)
        if _is_plain(value) and saved(value) == data:
            encode(value)
            return value
    except Exception:  # whatever it is, it is none of torch.save's plain values
        pass
    return Opaque(data)


def saved(value: Any) -> bytes:
    """As torch.save has it."""
    into = io.BytesIO()
    torch.save(value, into)
    return into.getvalue()


def as_bytes(name: str, stored: Any, allow_pickle: bool) -> io.BytesIO:
    """What a planner's `load_bytes` takes, of an object of a checkpoint."""
    value = _values.restore(name, stored, allow_pickle)
    return io.BytesIO(value if type(stored) is Opaque and type(value) is bytes else saved(value))


def kept_planner_data(planner: Any) -> Any:
    """What loaders need to rebuild a state that they do not know: of the default planner and of those made from it. Empty
    for other planners."""
    data = getattr(getattr(planner, "metadata", None), "planner_data", None) or {}
    try:
        encode(data)
    except (TypeError, ValueError, OverflowError) as error:
        log.warning("what the planner keeps is no plain value and is left out: %s", error)
        return {}
    return data


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in (list, tuple):
        return all(map(_is_plain, value))
    if kind is dict:
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    return kind in _PLAIN
