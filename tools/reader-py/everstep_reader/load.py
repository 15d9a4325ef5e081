"""Tensors and objects of a checkpoint, whole, every byte verified."""

from itertools import groupby

import numpy

from . import boxes, dtypes, packs, values
from .errors import TooLarge, known


def names(checkpoint):
    """The rows of each tensor and object, and of each rank's own, in the order of the index."""
    return [list(rows) for _, rows in groupby(checkpoint.rows, key=lambda row: (row.name, row.rank))]


def raw(checkpoint, rows):
    """The bytes of one tensor or object, put together from its pieces."""
    bits, shape, about = dtypes.bits(rows[0]), rows[0].shape, f"{rows[0].name[:80]!r} of {rows[0].dtype!r}"
    known(bits, checkpoint.index_key, about)
    try:
        whole = numpy.empty(boxes.in_bytes(bits, shape, [0] * len(shape), shape)[0], numpy.uint8)
    except (MemoryError, ValueError) as error:
        raise TooLarge(checkpoint.index_key, f"{about} and shape {shape}: {error}") from None
    for row in rows if whole.size else ():
        _, offset, extent = boxes.in_bytes(bits, shape, row.offset, row.extent)
        chunk = checkpoint.promised(packs.read_chunk, row.place)
        piece = numpy.frombuffer(chunk, numpy.uint8, int(numpy.prod(extent)), row.chunk_offset)
        whole[tuple(slice(start, start + length) for start, length in zip(offset, extent))] = piece.reshape(extent)
    return whole.reshape(-1)


def load(checkpoint, rows):
    """A numpy array, or the value or bytes of an object."""
    first, data = rows[0], raw(checkpoint, rows)
    if first.kind == "object":
        return values.decode(checkpoint.index_key, data.tobytes()) if first.dtype == "value" else data.tobytes()
    if first.dtype in dtypes.PACKED:
        return data
    return data.view(dtypes.WHOLE[first.dtype]).reshape(first.shape)
