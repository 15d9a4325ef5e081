"""Bytes of a known element type and shape in memory of any kind, such as a mapped file: saved and loaded without a library of
arrays, and without a copy."""

from __future__ import annotations

from typing import Any

from ._everstep import Region
from ._tensors import Kind, Piece, register


class Raw:
    """A tensor's bytes, row-major and little-endian, in `memory` (C-contiguous; writable if it is to be loaded into)."""

    __slots__ = ("dtype", "shape", "memory")

    def __init__(self, dtype: str, shape: tuple[int, ...], memory: memoryview):
        self.dtype, self.shape, self.memory = dtype, shape, memory


def _pieces(_: str, value: Raw) -> list[Piece]:
    return [Piece(value.dtype, value.shape, (0,) * len(value.shape), value.shape, "all", value, KIND)]


def _direct(raw: Raw, _: str, writable: bool) -> Region | None:
    return None if writable and raw.memory.readonly else Region.of_buffer(raw.memory, writable)


def _fresh(raw: Raw) -> Raw:
    return Raw(raw.dtype, raw.shape, memoryview(bytearray(raw.memory.nbytes)))


def _assign(raw: Raw, loaded: Raw) -> None:
    raw.memory[:] = loaded.memory


def _locked(raw: Raw) -> str | None:
    return "its memory is read-only" if raw.memory.readonly else None


def _address(_: Any) -> None:
    return None


KIND = Kind(_direct, lambda raw: raw, _fresh, _assign, _locked, _address, lambda one, other: one is other)
register(Raw, _pieces)
