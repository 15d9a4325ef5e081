"""The rows of an index (page 04): what each must say, and all those of one tensor or object together."""

from bisect import bisect_left
from collections import namedtuple
from itertools import groupby, pairwise
from math import prod
from operator import le

import numpy

from .errors import limit, require
from .packs import Place
from .rules import check
from .tables import BOX_CELLS, CHUNK, PIECE
from .tensors import BITS, OBJECTS, bits_of, whole_bytes

Row = namedtuple("Row", "name kind dtype shape offset extent alias_of rank chunk_offset place")


def whole(rows):
    """The rows of each tensor and object, and of each rank's own, in the order of the index."""
    return [list(parts) for _, parts in groupby(rows, key=lambda row: (row.name, row.rank))]


def read_row(key, values):
    """A row of checked values; None where it has none."""
    values = {name: one.hex() if isinstance(one, bytes) else one for name, one in values.items() if one is not None}
    about = f"the row of {values.get('name', '')[:80]!r} at {values.get('offset')}"
    check(key, about, values, PIECE)
    if values.keys() & CHUNK.keys():
        check(key, about, values, CHUNK)
    place = Place(*map(values.get, Place._fields)) if "chunk" in values else None
    row = Row(*map(values.get, Row._fields[:-1]), place)
    tensor = row.kind == "tensor"
    of_kind = row.dtype not in (OBJECTS if tensor else BITS) and (tensor or len(row.shape) == 1)
    require(of_kind, key, f"dtype or dimensions of {about} are not those of its kind")
    ends = [start + length for start, length in zip(row.offset, row.extent)]
    same = len(row.shape) == len(row.offset) == len(row.extent)
    require(same and all(map(le, ends, row.shape)), key, f"the box of {about} is not inside of its shape")
    elements, bits = prod(row.extent), bits_of(row)
    require((elements == 0) == (place is None), key, f"{about} has elements and no chunk, or a chunk and none")
    if place:
        splits = bits and whole_bytes(bits, row.shape, row.offset, row.extent) is None
        inside = row.chunk_offset + -(-elements * (bits or 0) // 8) <= place.raw_len
        require(inside and not splits, key, f"{about} does not lie in its chunk, or splits a byte")
        require(place.pack_offset + place.stored_len <= place.pack_len, key, f"the chunk of {about} is not in its pack")
    return row


def check_rows(key, rows):
    order = [(row.name, -1 if row.rank is None else row.rank, row.offset) for row in rows]
    require(all(left < right for left, right in pairwise(order)), key, "its rows are not ascending")
    for name, parts in groupby(rows, key=lambda row: row.name):
        kinds = {(row.kind, row.rank is None) for row in parts}
        require(len(kinds) == 1, key, f"{name[:80]!r} has two kinds, or rows with and without a rank")
    for parts in whole(rows):
        about = f"{parts[0].name[:80]!r} of rank {parts[0].rank}"
        same = len({(row.dtype, tuple(row.shape), row.alias_of) for row in parts}) == 1
        require(same, key, f"{about} has two dtypes, shapes or aliases")
        check_cover(key, about, parts[0].shape, parts)


def check_cover(key, about, shape, parts):
    """Boxes cover a shape exactly once: so they do each cell of the grid on which all of them begin and end."""
    if prod(shape) == 0:
        require(len(parts) == 1 and parts[0].extent == shape, key, f"{about} has no elements, but parts")
        return
    boxes = [[(start, start + length) for start, length in zip(row.offset, row.extent)] for row in parts]
    cuts = [sorted({0, size, *(cut for box in boxes for cut in box[at])}) for at, size in enumerate(shape)]
    limit(prod(len(cut) - 1 for cut in cuts), BOX_CELLS, key, f"cells into which boxes cut {about}")
    covered = numpy.zeros([len(cut) - 1 for cut in cuts], bool)
    for box in boxes:
        cells = tuple(slice(bisect_left(cut, start), bisect_left(cut, end)) for cut, (start, end) in zip(cuts, box))
        require(not covered[cells].any(), key, f"the box of {about} from {box} overlaps with another")
        covered[cells] = True
    require(covered.all(), key, f"{about} is not covered")
