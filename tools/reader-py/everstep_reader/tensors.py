"""Tensors and objects: their element types (page 10), boxes of them (page 11), and their values."""

from math import prod

import numpy

from . import packs, values
from .errors import TooLarge, known

WHOLE = {"bool": "?", "f16": "<f2", "f32": "<f4", "f64": "<f8", "complex64": "<c8", "complex128": "<c16"}
WHOLE |= {f"{sign}{8 * size}": f"<{sign}{size}" for sign in "ui" for size in (1, 2, 4, 8)}
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
WHOLE |= {"bf16": "<u2"} | dict.fromkeys(FLOAT8, "<u1")  # numpy has none of these: the integers that their bits are
PACKED = ("float4_e2m1", "int4", "uint4")  # two elements in a byte: loaded as the packed bytes, in one dimension
OBJECTS = ("value", "bytes")
BITS = {name: int(code[2:] or 1) * 8 for name, code in WHOLE.items()} | dict.fromkeys(PACKED, 4)


def bits_of(row):
    """Bits of an element of the row's tensor or object; None if its type is not known."""
    return BITS.get(row.dtype) if row.kind == "tensor" else 8 if row.dtype in OBJECTS else None


def whole_bytes(bits, shape, offset, extent):
    """The same box, of bytes instead of pairs of packed elements; None if it splits one."""
    if bits >= 8:
        return shape, offset, extent
    shape, offset, extent = shape or [1], offset or [0], extent or [1]
    if shape[-1] % 2:  # rows begin in the middle of bytes: whole ones alone, as a part of one dimension
        end, row = offset[0] + extent[0], prod(shape[1:])
        if extent[1:] != shape[1:] or offset[0] % 2 or end % 2 and end != shape[0]:
            return None
        shape, offset, extent = ([numbers[0] * row] for numbers in (shape, offset, extent))
    elif offset[-1] % 2 or extent[-1] % 2:
        return None
    return [[*numbers[:-1], -(-numbers[-1] // 2)] for numbers in (shape, offset, extent)]


def raw(checkpoint, parts):
    """The bytes of one tensor or object, put together from the rows of its pieces."""
    first, bits = parts[0], bits_of(parts[0])
    about = f"{first.name[:80]!r} of {first.dtype!r} and shape {first.shape}"
    known(bits, checkpoint.index_key, about)
    item = numpy.dtype((numpy.void, max(bits // 8, 1)))
    try:
        whole = numpy.empty(whole_bytes(bits, first.shape, [0] * len(first.shape), first.shape)[0], item)
    except (MemoryError, ValueError) as error:
        raise TooLarge(checkpoint.index_key, f"{about}: {error}") from None
    for row in parts if whole.size else ():
        _, offset, extent = whole_bytes(bits, row.shape, row.offset, row.extent)
        chunk = checkpoint.promised(packs.read_chunk, row.place)
        piece = numpy.frombuffer(chunk, item, prod(extent), row.chunk_offset)
        whole[tuple(slice(start, start + length) for start, length in zip(offset, extent))] = piece.reshape(extent)
    return whole.reshape(-1).view(numpy.uint8)


def load(checkpoint, parts):
    """A numpy array, or the value or bytes of an object."""
    first, data = parts[0], raw(checkpoint, parts)
    if first.kind == "object":
        return values.decode(checkpoint.index_key, data.tobytes()) if first.dtype == "value" else data.tobytes()
    return data if first.dtype in PACKED else data.view(WHOLE[first.dtype]).reshape(first.shape)
