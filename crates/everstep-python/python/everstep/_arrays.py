"""Bytes that were read become arrays of the library that the program uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._tensors import library
from .errors import InvalidArgument


def from_bytes(dtype: str, shape: Sequence[int], data: bytearray, library_name: str | None = None) -> Any:
    """An array over `data` (row-major, little-endian): of torch if the program has imported it, else of numpy."""
    wanted = library_name or ("torch" if library("torch") is not None else "numpy")
    if wanted == "torch":
        return _torch(dtype, shape, data)
    if wanted == "numpy":
        return _numpy(dtype, shape, data)
    raise InvalidArgument(f'library is "torch" or "numpy", not {wanted!r}')


def empty(dtype: str, shape: Sequence[int], library_name: str) -> Any:
    """A new array in host memory, of "torch" or of "numpy"."""
    if library_name == "torch":
        from . import _torch_tensors

        return _torch_tensors.empty(dtype, tuple(shape))
    from . import _numpy_arrays

    return _numpy_arrays.empty(dtype, tuple(shape))


def _torch(dtype: str, shape: Sequence[int], data: bytearray) -> Any:
    import torch

    from . import _torch_tensors

    like = _torch_tensors.empty(dtype, tuple(shape))
    return torch.frombuffer(data, dtype=like.dtype).reshape(like.shape) if data else like


def _numpy(dtype: str, shape: Sequence[int], data: bytearray) -> Any:
    try:
        import numpy
    except ImportError:
        raise InvalidArgument("reading a tensor needs torch or numpy; neither is installed") from None
    from . import _numpy_arrays

    like = _numpy_arrays.empty(dtype, (0,))
    return numpy.frombuffer(data, dtype=like.dtype).reshape(tuple(shape))


def box(shape: Sequence[int], index: Any, name: str) -> tuple[list[int], list[int], list[int]]:
    """Offset, extent and final shape of what `index` (ints, slices of step 1, one Ellipsis) means in `shape`."""
    index = index if isinstance(index, tuple) else (index,)
    if Ellipsis in [item for item in index if item is Ellipsis]:
        at = next(i for i, item in enumerate(index) if item is Ellipsis)
        fill = len(shape) - (len(index) - 1)
        index = index[:at] + (slice(None),) * max(fill, 0) + index[at + 1 :]
    if len(index) > len(shape):
        raise InvalidArgument(f"{name}: {len(index)} indices into a tensor of shape {list(shape)}")
    index += (slice(None),) * (len(shape) - len(index))
    offset, extent, final = [], [], []
    for dimension, (item, size) in enumerate(zip(index, shape)):
        start, length, kept = _one(item, size, f"{name}, dimension {dimension}")
        offset.append(start)
        extent.append(length)
        final += [length] if kept else []
    return offset, extent, final


def _one(item: Any, size: int, where: str) -> tuple[int, int, bool]:
    if isinstance(item, slice):
        start, stop, step = item.indices(size)
        if step != 1:
            raise InvalidArgument(f"{where}: slices have step 1, not {step}")
        return start, max(stop - start, 0), True
    if isinstance(item, bool) or not hasattr(item, "__index__"):
        raise InvalidArgument(f"{where}: an index is an int, a slice or ..., not {item!r}")
    at = item.__index__()
    if not -size <= at < size:
        raise InvalidArgument(f"{where}: index {at} is out of range for {size} elements")
    return at % size, 1, False
