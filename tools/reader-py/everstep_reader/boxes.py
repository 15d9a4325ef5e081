"""Boxes of a tensor: their bytes (page 10), and whether they cover it exactly once (page 04)."""

from itertools import pairwise
from math import prod

from .errors import limit, require
from .limits import BOX_STEPS


def in_bytes(bits, shape, offset, extent):
    """Shape, offset and extent in bytes, row-major; None if the box splits a byte (page 11)."""
    if bits >= 8:
        return [*shape, bits // 8], [*offset, 0], [*extent, bits // 8]
    if shape and shape[-1] % 2 == 0:
        whole = offset[-1] % 2 == extent[-1] % 2 == 0
        return whole and tuple([*box[:-1], box[-1] // 2] for box in (shape, offset, extent)) or None
    rows, first, count = (shape[0], offset[0], extent[0]) if shape else (1, 0, 1)
    end, row = first + count, prod(shape[1:])
    if list(extent[1:]) != list(shape[1:]) or first % 2 or end % 2 and end != rows:
        return None
    size, start, stop = (-(-elements * row // 2) for elements in (rows, first, end))
    return [size], [start], [stop - start]


def cover_once(where, shape, boxes):
    """Refuses boxes, given as offset and extent, that leave a gap or overlap."""
    cover(where, shape, [(offset, [a + b for a, b in zip(offset, extent)]) for offset, extent in boxes], 0, 0)


def cover(where, shape, boxes, dimension, steps):
    """Cuts a dimension where boxes begin or end: the boxes of each slab must cover all dimensions after it."""
    steps += len(boxes)
    limit(steps, BOX_STEPS, where, "parts in which boxes cut each other")
    if dimension == len(shape):
        require(len(boxes) == 1, where, f"the boxes at {boxes[0][0]} and {boxes[-1][0]} overlap")
        return steps
    boxes = sorted(boxes, key=lambda box: box[0][dimension], reverse=True)
    cuts = {0, shape[dimension]}.union(*((start[dimension], end[dimension]) for start, end in boxes))
    slab = []
    for cut, after in pairwise(sorted(cuts)):
        slab = [box for box in slab if box[1][dimension] > cut]
        while boxes and boxes[-1][0][dimension] == cut:
            slab.append(boxes.pop())
        require(slab, where, f"no box covers {cut} to {after} of dimension {dimension}")
        steps = cover(where, shape, slab, dimension + 1, steps)
    return steps
