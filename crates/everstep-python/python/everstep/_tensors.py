"""What counts as a tensor, what its elements are called in the format, where its bytes are, and which box of which
global tensor they are. numpy, torch and jax are looked at only if the program has imported them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ._everstep import Region
from .errors import InvalidArgument

Box = tuple[tuple[int, ...], tuple[int, ...]]  # offset, extent, in elements of the global tensor
Replicas = None | str | tuple[int, ...]


class Shard:
    """A rank's part of a tensor: `tensor` is the box at `global_offset` of a tensor of `global_shape` (elements)."""

    __slots__ = ("tensor", "global_shape", "global_offset")

    def __init__(self, tensor: Any, global_shape: Sequence[int], global_offset: Sequence[int]):
        self.tensor, self.global_shape, self.global_offset = tensor, tuple(global_shape), tuple(global_offset)
        shape, inside = tuple(tensor.shape), len(self.global_shape) == len(self.global_offset)
        if not inside or len(shape) != len(self.global_shape) or any(
            o < 0 or o + n > g for o, n, g in zip(self.global_offset, shape, self.global_shape)
        ):
            raise InvalidArgument(
                f"Shard: a tensor of shape {list(shape)} at offset {list(self.global_offset)} does not lie in "
                f"{list(self.global_shape)}"
            )


class PerRank:
    """State that each rank has its own of, such as a data loader's position: plain values and tensors, or something with
    `state_dict` and `load_state_dict`."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


@dataclass(slots=True)
class Piece:
    """One box of one tensor, in this process."""

    dtype: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    extent: tuple[int, ...]
    replicas: Replicas
    local: Any  # the array or tensor that holds the box
    kind: "Kind"


@dataclass(frozen=True)
class Kind:
    """How one library's arrays are handled."""

    #: Region of its bytes if these lie row by row in host memory, else None.
    direct: Callable[[Any, str, bool], Region | None]
    #: A copy that does, to save from.
    compact: Callable[[Any], Any]
    #: An array of its own to load into, then `assign(local, loaded)`.
    fresh: Callable[[Any], Any]
    assign: Callable[[Any, Any], None]
    #: Why nothing can be assigned to it, or None.
    locked: Callable[[Any], str | None]
    #: Where its memory begins, or None if it has none of its own.
    address: Callable[[Any], int | None]
    #: Whether two arrays whose memory begins at one address are one: a tie.
    same: Callable[[Any, Any], bool]


def library(name: str) -> Any:
    """torch, numpy or jax, if this program has imported it."""
    return sys.modules.get(name)


def pieces(name: str, value: Any) -> list[Piece] | None:
    """The boxes of `value` that this process holds, or None if it is no tensor."""
    kind = type(value)
    try:
        cut = _cutters[kind]
    except KeyError:
        cut = _cutters[kind] = _cutter(kind)
    return None if cut is None else cut(name, value)


def targets(name: str, value: Any) -> tuple[list[Piece] | None, Callable[[], Any] | None]:
    """The boxes that `value` is loaded into; and, if it is of a kind that cannot be changed, what makes the value that takes
    its place once they are filled."""
    kind = type(value)
    try:
        replace = _replacers[kind]
    except KeyError:
        replace = _replacers[kind] = _replacer(kind)
    return (pieces(name, value), None) if replace is None else replace(name, value)


#: How values of a type are replaced by loaded ones; None for what is filled in place, and for what is no tensor.
_replacers: dict[type, Callable[[str, Any], tuple[list[Piece], Callable[[], Any]]] | None] = {}


def _replacer(kind: type) -> Callable[[str, Any], tuple[list[Piece], Callable[[], Any]]] | None:
    numpy, jax = library("numpy"), library("jax")
    if numpy is not None and issubclass(kind, numpy.generic):
        return _replaced_scalar
    if jax is not None and _jax().is_known(kind):
        return _replaced_array
    return None


def _replaced_scalar(name: str, value: Any) -> tuple[list[Piece], Callable[[], Any]]:
    found = _numpy().pieces(name, value)
    return found, lambda: found[0].local[()]


def _replaced_array(name: str, value: Any) -> tuple[list[Piece], Callable[[], Any]]:
    replacement = _jax().Replacement(name, value)
    return replacement.pieces(), replacement.array


#: How values of a type become pieces; None for what is no tensor.
_cutters: dict[type, Callable[[str, Any], list[Piece] | None] | None] = {Shard: lambda name, value: _declared(name, value)}


def register(kind: type, cut: Callable[[str, Any], list[Piece]]) -> None:
    """Makes values of a class of ours count as tensors."""
    _cutters[kind] = cut


def _cutter(kind: type) -> Callable[[str, Any], list[Piece] | None] | None:
    torch, numpy = library("torch"), library("numpy")
    if torch is not None and kind.__name__ == "ShardedTensor":
        return _torch().sharded
    if torch is not None and issubclass(kind, torch.Tensor):
        return _torch().cutter(kind)
    if numpy is not None and issubclass(kind, (numpy.ndarray, numpy.generic)):
        return _numpy().pieces
    if library("jax") is not None and _jax().is_known(kind):
        return _jax().pieces
    return None


def _declared(name: str, shard: Shard) -> list[Piece]:
    inner = pieces(name, shard.tensor)
    if inner is None or len(inner) != 1 or inner[0].shape != inner[0].extent:
        raise InvalidArgument(f"{name}: Shard takes a plain tensor, not {type(shard.tensor).__name__}")
    piece = inner[0]
    piece.shape, piece.offset, piece.replicas = shard.global_shape, shard.global_offset, None
    return [piece]


@lru_cache(maxsize=1)
def _torch() -> Any:
    from . import _torch_tensors

    return _torch_tensors


@lru_cache(maxsize=1)
def _numpy() -> Any:
    from . import _numpy_arrays

    return _numpy_arrays


@lru_cache(maxsize=1)
def _jax() -> Any:
    from . import _jax_arrays

    return _jax_arrays


#: Bits of an element, by the format's names.
BITS = {
    "bool": 8, "u8": 8, "i8": 8, "u16": 16, "i16": 16, "u32": 32, "i32": 32, "u64": 64, "i64": 64,
    "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "complex64": 64, "complex128": 128,
    "float8_e4m3fn": 8, "float8_e4m3fnuz": 8, "float8_e5m2": 8, "float8_e5m2fnuz": 8, "float8_e8m0fnu": 8,
    "float4_e2m1": 4, "int4": 4, "uint4": 4,
}

#: (bits of precision, exponent range as a power of two) of floats; enough to tell whether a cast can lose bits.
_FLOATS = {
    "f16": (11, -24, 15), "bf16": (8, -133, 127), "f32": (24, -149, 127), "f64": (53, -1074, 1023),
    "float8_e4m3fn": (4, -9, 8), "float8_e5m2": (3, -16, 15),
}


def loses_bits(stored: str, wanted: str) -> bool:
    """Whether some value of dtype `stored` is not a value of dtype `wanted`."""
    if stored == wanted or stored == "bool":
        return False
    if stored in _FLOATS and wanted in _FLOATS:
        a, b = _FLOATS[stored], _FLOATS[wanted]
        return a[0] > b[0] or a[1] < b[1] or a[2] > b[2]
    if stored[0] in "iu" and wanted[0] in "iu" and stored in BITS and wanted in BITS:
        signed = (stored[0] == "i") - (wanted[0] == "i")
        return signed > 0 or BITS[stored] - (stored[0] == "i") > BITS[wanted] - (wanted[0] == "i")
    if stored[0] in "iu" and wanted in _FLOATS:
        return BITS[stored] - (stored[0] == "i") > _FLOATS[wanted][0]
    return {stored, wanted} != {"complex64", "complex128"} or stored == "complex128"
