"""Nested states of a framework's own making, which are given back as they were rather than loaded into a state that exists:
tensors by the keys that lead to them, and a skeleton, a plain value, that says where they belong."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from . import _tensors
from ._everstep import encode
from .errors import Corrupt, InvalidArgument

#: What stands for something else in a skeleton: {_MARK: kind, ...}; the kinds are "tensor", "dict", "ordered", "pickle".
_MARK = "everstep"


class Split:
    """Takes a state apart. `tensors` is what is saved by name, `skeleton` what is saved beside.

    parts  tensors are taken as well of which this process has only a part."""

    def __init__(self, state: Mapping[str, Any], allow_pickle: bool = False, parts: bool = False):
        self.tensors: dict[str, Any] = {}
        self._allow_pickle, self._parts = allow_pickle, parts
        self.skeleton = self._taken("", state)

    def _taken(self, name: str, value: Any) -> Any:
        kind = type(value)
        if kind in (int, float, str, bool, type(None), bytes):
            return value
        if kind is dict:
            items = self._items(name, value)
            return {_MARK: "dict", "items": items} if _MARK in items else items
        if kind is list or kind is tuple:
            return kind(self._taken(f"{name}.{i}", item) for i, item in enumerate(value))
        if kind is OrderedDict:
            extra = self._items(f"{name}._metadata", getattr(value, "_metadata", {}))
            return {_MARK: "ordered", "items": self._items(name, value), "metadata": extra}
        if isinstance(value, Mapping):  # its class is not kept
            return self._taken(name, dict(value))
        found = _tensors.pieces(name, value)
        return self._other(name, value) if found is None else self._tensor(name, value, found)

    def _items(self, name: str, value: Mapping) -> dict:
        return {key: self._taken(f"{name}.{key}" if name else str(key), item) for key, item in value.items()}

    def _tensor(self, name: str, value: Any, found: list[_tensors.Piece]) -> dict[str, Any]:
        if not self._parts and (len(found) != 1 or found[0].shape != found[0].extent):
            raise InvalidArgument(
                f"{name}: this process has only a part of the tensor, and saves for all; use everstep.torch, or Run.writer"
            )
        unique = name
        while unique in self.tensors:  # keys that contain dots may read like nested ones
            unique += "'"
        self.tensors[unique] = value
        return {_MARK: "tensor", "name": unique, "library": _library(name, value)}

    def _other(self, name: str, value: Any) -> Any:
        try:
            encode(value)
        except (TypeError, ValueError) as error:
            if self._allow_pickle:
                return {_MARK: "pickle", "data": pickle.dumps(value)}
            raise InvalidArgument(
                f"{name}: {error}. Plain values are None, bool, int, float, str, bytes, lists, tuples and dicts of them, and "
                "tensors; convert it, or give allow_pickle=True"
            ) from None
        return value


def _library(name: str, value: Any) -> str:
    """What makes an array of this kind again."""
    torch, numpy = _tensors.library("torch"), _tensors.library("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return "torch"
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return "scalar" if isinstance(value, numpy.generic) else "numpy"
    raise InvalidArgument(f"{name}: a {type(value).__name__} cannot be given back here: convert it to a numpy array")


def joined(skeleton: Any, tensors: Mapping[str, Any], allow_pickle: bool = False) -> Any:
    """The state of which `skeleton` and `tensors` were made."""
    if type(skeleton) is list or type(skeleton) is tuple:
        return type(skeleton)(joined(item, tensors, allow_pickle) for item in skeleton)
    if type(skeleton) is not dict:
        return skeleton
    kind = skeleton.get(_MARK)
    if kind is None:
        return {key: joined(item, tensors, allow_pickle) for key, item in skeleton.items()}
    if kind == "tensor":
        value = tensors[skeleton["name"]]
        return value[()] if skeleton["library"] == "scalar" else value
    if kind == "dict":
        return {key: joined(item, tensors, allow_pickle) for key, item in skeleton["items"].items()}
    if kind == "ordered":
        return _ordered(skeleton, tensors, allow_pickle)
    if kind == "pickle":
        return _unpickled(skeleton["data"], allow_pickle)
    raise Corrupt(f"the skeleton of a state has {kind!r} in it, which this version does not know")


def _ordered(skeleton: dict[str, Any], tensors: Mapping[str, Any], allow_pickle: bool) -> OrderedDict:
    found = OrderedDict((key, joined(item, tensors, allow_pickle)) for key, item in skeleton["items"].items())
    if skeleton["metadata"]:
        found._metadata = OrderedDict(skeleton["metadata"])
    return found


def _unpickled(data: bytes, allow_pickle: bool) -> Any:
    if not allow_pickle:
        raise InvalidArgument(
            "part of this state was saved as a pickle, which can run any code when it is loaded: give allow_pickle=True if "
            "you trust whoever wrote it"
        )
    return pickle.loads(data)


def items(skeleton: dict[str, Any]) -> dict[Any, Any]:
    """What stands in the skeleton of a dict for each of its items."""
    return skeleton["items"] if skeleton.get(_MARK) in ("dict", "ordered") else skeleton


def libraries(skeleton: Any) -> dict[str, str]:
    """Of which library each tensor is that `skeleton` names."""
    found: dict[str, str] = {}
    parts = [skeleton]
    while parts:
        part = parts.pop()
        if type(part) is list or type(part) is tuple:
            parts += part
        elif type(part) is dict and part.get(_MARK) == "tensor":
            found[part["name"]] = part["library"]
        elif type(part) is dict and part.get(_MARK) != "pickle":
            parts += part["items"].values() if _MARK in part else part.values()
    return found
