"""A state becomes what is saved: tensors by name, and for the rest one object for each largest part without tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import _optimizers, _tensors, _values
from ._quiet import quiet
from ._tensors import PerRank, Piece
from .errors import InvalidArgument

_SCALARS = frozenset((int, float, str, bool, type(None), bytes))


class Collected:
    """What one rank saves. Nothing is copied yet but plain values."""

    def __init__(self, rank: int, allow_pickle: bool):
        self.rank, self.allow_pickle = rank, allow_pickle
        #: name, alias_of, piece
        self.pieces: list[tuple[str, str | None, Piece]] = []
        #: name, rank or None, value
        self.objects: list[tuple[str, int | None, Any]] = []
        self._tensors: dict[str, None] = {}
        self._memory: dict[int, list[tuple[str, Piece]]] = {}

    def tensor(self, name: str, pieces: list[Piece]) -> None:
        if name in self._tensors:
            raise _twice(name)
        if not name.isascii():
            _check_text(name)
        self._tensors[name] = None
        alias = self._alias(name, pieces)
        for piece in pieces:
            self.pieces.append((name, alias, piece))

    def _alias(self, name: str, pieces: list[Piece]) -> str | None:
        """The tensor of the same memory that came first: a tie."""
        if len(pieces) != 1:
            return None
        piece = pieces[0]
        address = piece.kind.address(piece.local)
        if address is None:
            return None
        others = self._memory.setdefault(address, [])
        for first, other in others:
            at_one_place = other.shape == piece.shape and other.offset == piece.offset
            if other.kind is piece.kind and at_one_place and piece.kind.same(other.local, piece.local):
                return first
        others.append((name, piece))
        return None

    def object(self, name: str, value: Any) -> None:
        _check_text(name)
        rank, value = (self.rank, value.value) if type(value) is PerRank else (None, value)
        if rank is not None and is_stateful(value):
            value = value.state_dict()
        self.objects.append((name, rank, _values.snapshot(name, value, self.allow_pickle)))

    def check(self) -> "Collected":
        seen = set(self._tensors)
        for name, _, _ in self.objects:
            if name in seen:
                raise _twice(name)
            seen.add(name)
        return self


def _check_text(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"the name {name!r} is no text: {error}") from None


def _twice(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"two parts of the state are called {name!r}: keys that contain dots may read like nested ones; rename one"
    )


def collect(state: Mapping, rank: int, allow_pickle: bool) -> Collected:
    """What this rank saves of `state`."""
    if not isinstance(state, Mapping):
        raise InvalidArgument(f"the state is a dict of names, not {type(state).__name__}")
    found = Collected(rank, allow_pickle)
    names: dict[int, str] | None = None

    def parameter_names() -> dict[int, str]:
        nonlocal names
        names = _optimizers.parameter_names(state) if names is None else names
        return names

    def visit(name: str, value: Any) -> bool:
        """Whether there was something that is no plain value. What is plain is left to the caller."""
        kind = type(value)
        if kind in _SCALARS:
            return False
        if kind is dict:
            return mapping(name, value)
        if kind is list or kind is tuple:
            return not _all_scalars(value) and children(name, enumerate(value))
        if kind is PerRank or kind is _values.Plain:
            found.object(name, value if kind is PerRank else value.value)
            return True
        pieces = _tensors.pieces(name, value)
        if pieces is not None:
            found.tensor(name, pieces)
            return True
        if isinstance(value, Mapping):
            return mapping(name, value)
        if _values.is_named_tuple(value):
            return children(name, zip(value._fields, value))
        if _optimizers.is_optimizer(value):
            parts = _optimizers.Named(name, value, parameter_names()).state_dict()
            if not children(name, parts.items()):  # it has not made a step, or keeps nothing
                for key, part in parts.items():
                    found.object(join(name, key), part)
            return True
        if is_stateful(value):
            inner = value.state_dict()
            return visit(name, inner) or (found.object(name, inner) or True)
        return False

    def mapping(name: str, value: Mapping) -> bool:
        if _optimizers.is_numbered(value):
            raise _optimizers.refuse_numbers(name)
        return children(name, value.items())

    def children(name: str, items: Any) -> bool:
        keys, plain, any_tensor = [], [], False
        for key, item in items:
            if visit(f"{name}.{key}" if name else str(key), item):
                any_tensor = True
            else:
                plain.append((key, item))
            keys.append(key)
        if any_tensor:
            for key in keys:
                join(name, key)
            for key, item in plain:
                found.object(join(name, key), item)
        return any_tensor

    try:
        with quiet():
            if not children("", state.items()):
                for key, item in state.items():
                    found.object(join("", key), item)
    except RecursionError:
        raise InvalidArgument("the state is nested deeper than Python can follow, or contains itself") from None
    return found.check()


def _all_scalars(values: Any) -> bool:
    return all(type(value) in _SCALARS for value in values)


def is_stateful(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def join(name: str, key: Any) -> str:
    """The name of an item: keys of dicts are strings or ints, those of lists are positions."""
    if type(key) is not str:
        if type(key) is not int:
            where = name or "the state"
            raise InvalidArgument(f"{where}: a key beside tensors is a str or an int, not {type(key).__name__}")
        key = str(key)
    return f"{name}.{key}" if name else key
