"""numpy arrays as pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._everstep import Region
from ._tensors import Kind, Piece
from .errors import InvalidArgument

#: numpy's names of element types, those of the package ml_dtypes as well, in the format's words.
_NAMES = {
    "bool": "bool", "uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32", "int32": "i32",
    "uint64": "u64", "int64": "i64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "complex64": "complex64", "complex128": "complex128", "float8_e4m3fn": "float8_e4m3fn",
    "float8_e4m3fnuz": "float8_e4m3fnuz", "float8_e5m2": "float8_e5m2", "float8_e5m2fnuz": "float8_e5m2fnuz",
    "float8_e8m0fnu": "float8_e8m0fnu",
}
_OF_NAMES = {ours: theirs for theirs, ours in _NAMES.items()}


def format_name(theirs: str) -> str | None:
    """What an element type of this name in numpy is called in the format, if it has it."""
    return _NAMES.get(theirs)


#: The same by types that were met: numpy takes long to say the name of one.
_OF_TYPES: dict[np.dtype, str] = {}


def _name(dtype: np.dtype) -> str | None:
    name = _NAMES.get(dtype.name)
    if name is not None:
        _OF_TYPES[dtype] = name
    return name


def pieces(name: str, value: np.ndarray | np.generic) -> list[Piece]:
    """The one box that an array, or a scalar, is."""
    array = np.asarray(value)
    dtype = _OF_TYPES.get(array.dtype) or _name(array.dtype)
    if dtype is None:
        raise InvalidArgument(f"{name}: numpy arrays of dtype {array.dtype} cannot be kept; convert it first")
    return [Piece(dtype, array.shape, (0,) * array.ndim, array.shape, "all", array, KIND)]


def empty(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """A new array."""
    theirs = _OF_NAMES.get(dtype)
    if theirs is None:
        raise InvalidArgument(f"numpy has no element type {dtype}")
    try:
        return np.empty(shape, np.dtype(theirs))
    except TypeError:
        raise InvalidArgument(f"element type {dtype} in numpy needs the package ml_dtypes: import it first") from None


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _direct(array: np.ndarray, _: str, writable: bool) -> Region | None:
    little = array.dtype.byteorder != ">"
    if not (array.flags.c_contiguous and little and (array.flags.writeable or not writable)):
        return None
    return Region.of_buffer(_bytes(array), writable)


def _compact(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))


def _fresh(array: np.ndarray) -> np.ndarray:
    return np.empty(array.shape, array.dtype.newbyteorder("<"))


def _assign(array: np.ndarray, loaded: Any) -> None:
    np.copyto(array, loaded, casting="unsafe")


def _locked(array: np.ndarray) -> str | None:
    return None if array.flags.writeable or not array.size else "the array is read-only"


def _address(array: np.ndarray) -> int | None:
    return array.__array_interface__["data"][0] if array.size else None


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return (one.dtype, one.shape, one.strides) == (other.dtype, other.shape, other.strides)


KIND = Kind(_direct, _compact, _fresh, _assign, _locked, _address, _same)
