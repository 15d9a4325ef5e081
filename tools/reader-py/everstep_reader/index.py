"""The index (page 04): a parquet table of pieces. Nothing of it is believed before its hash was checked."""

import io
from collections import namedtuple
from itertools import groupby, pairwise
from math import prod
from operator import le

import numpy
import pyarrow
import pyarrow.compute
import pyarrow.parquet as parquet
from blake3 import blake3

from . import sealed, tables
from .objects import limit, require
from .tensors import BITS, OBJECTS, bits_of, whole_bytes

COLUMNS = {  # by physical and logical type, length, and number of lists around
    "BYTE_ARRAY String 0 0": "name kind dtype alias_of",
    "INT64 Int(bitWidth=64, isSigned=false) 0 1": "shape{0} offset{0} extent{0}".format(".list.element"),
    "INT64 Int(bitWidth=64, isSigned=false) 0 0": "chunk_offset raw_len pack_len pack_offset stored_len",
    "INT32 Int(bitWidth=32, isSigned=false) 0 0": "rank writer_rank",
    "INT32 Int(bitWidth=8, isSigned=false) 0 0": "codec",
    "FIXED_LEN_BYTE_ARRAY None 32 0": "chunk pack", "FIXED_LEN_BYTE_ARRAY None 16 0": "writer_attempt",
}
TYPES = {name: kind for kind, names in COLUMNS.items() for name in names.split()}
TEXTS = COLUMNS["BYTE_ARRAY String 0 0"].split()
ELEMENTS, ROW_GROUPS, DICTIONARY = 2, 4, 2  # fields of the metadata; a kind of page
HEADERS = {0: (5, 2), DICTIONARY: (7, 2), 3: (8, 4)}  # by kind of page: its header, and the encoding in that
ENCODINGS = (0, 2, 3, 5, 8)  # PLAIN, dictionaries, RLE, DELTA_BINARY_PACKED: none makes much text of little
COMPRESSIONS = (0, 6)  # none, ZSTD
MALFORMED = (LookupError, TypeError, ValueError, OverflowError, RecursionError)  # what the walk may raise
Place = namedtuple("Place", tables.PLACE)  # of a chunk
Row = namedtuple("Row", "name kind dtype shape offset extent alias_of rank chunk_offset place")


def read(store, key, expected):
    """All rows of an index, checked against its entry in the manifest and against each other."""
    data, end = store.read_whole(key, tables.INDEX, expected), expected["footer_offset"]
    footer, rows = data[end:], []
    limit(len(footer), tables.FOOTER, key, "bytes of the footer")
    require(blake3(footer).hexdigest() == expected["footer_blake3"], key, "its footer has another hash")
    ends = (data[:4], footer[-4:], int.from_bytes(footer[-8:-4], "little"))
    require(ends == (b"PAR1", b"PAR1", len(footer) - 8), key, "its footer is not where the manifest says")
    try:
        walked = thrift(io.BytesIO(footer))
        limit(len(walked[ELEMENTS]), tables.SCHEMA, key, "elements of its schema")
        file = parquet.ParquetFile(pyarrow.BufferReader(data), pre_buffer=False, read_dictionary=TEXTS)
        check_columns(key, file.schema)
        groups = directory(key, file.metadata.metadata or {}, expected)
        for number, (group, about) in enumerate(zip(groups, walked[ROW_GROUPS], strict=True)):
            check_pages(key, data, group, about[1])
            table = file.read_row_group(number, columns=list(TYPES), use_threads=False)
            rows += read_group(key, group, table)
    except (pyarrow.ArrowException, OSError, MemoryError, *MALFORMED) as error:
        require(False, key, f"parquet: {error!r}")
    check_rows(key, rows)
    return rows


def thrift(file, kind=12):
    """A value of Thrift's compact protocol; structs, which are of kind 12, by the numbers of their fields."""
    if kind <= 2:
        return kind == 1
    if 4 <= kind <= 6:
        return (number := varint(file)) >> 1 ^ -(number & 1)
    if kind == 9:
        head = file.read(1)[0]
        count = head >> 4 if head < 0xF0 else varint(file)
        if count > tables.GROUPS:
            raise ValueError(f"{count} items of a list")
        return [thrift(file, max(head & 15, 3)) for _ in range(count)]  # a boolean there is a byte
    if kind != 12:
        return file.read({3: 1, 7: 8}.get(kind) or varint(file))  # bytes, doubles, binaries
    fields, field = {}, 0
    while head := file.read(1)[0]:
        field = field + (head >> 4) if head >> 4 else thrift(file, 4)
        fields[field] = thrift(file, head & 15)
    return fields


def varint(file):
    byte = file.read(1)[0]
    return byte if byte < 128 else byte & 127 | varint(file) << 7


def check_columns(key, schema):
    columns, names = map(schema.column, range(len(schema))), schema.to_arrow_schema().names
    about = ("physical_type", "logical_type", "length", "max_repetition_level")
    found = {column.path: " ".join(str(getattr(column, name)) for name in about) for column in columns}
    fits = len(set(names)) == len(names) and found.items() >= TYPES.items()
    require(fits, key, f"a column is missing, of another type, or there twice: {found}")


def directory(key, metadata, expected):
    """The entries of the footer's directory: one for each row group, one directly after the other."""
    fields = sealed.parse(key, metadata.get(b"everstep.index", b"null"))
    sealed.check(key, "its directory", fields, tables.DIRECTORY)
    groups = fields["groups"]
    starts = [*(group["start"] for group in groups), expected["footer_offset"]]
    ends = [4, *(group["start"] + group["len"] for group in groups)]
    ordered = starts == ends and all(left["last"] <= right["first"] for left, right in pairwise(groups))
    require(ordered, key, "its row groups are not in order, or do not adjoin each other and the footer")
    require(sum(group["rows"] for group in groups) == expected["rows"], key, "its groups have not all rows")
    return groups


def check_pages(key, data, group, columns):
    """Checks a row group that the directory names: its hash, and the pages of its column chunks."""
    stored, total = data[group["start"] : group["start"] + group["len"]], 0
    require(blake3(stored).hexdigest() == group["blake3"], key, "a row group has another hash")
    for column in columns:
        about, values = column[3], 0
        first = min(about[9], about.get(11) or about[9]) - group["start"]  # of its data, or its dictionary
        last = first + about[7]
        allowed = 0 <= first <= last <= len(stored) and 1 not in column and about[4] in COMPRESSIONS
        require(allowed, key, "a column lies outside of its row group, or is in another compression")
        pages = io.BytesIO(stored[first:last])
        while pages.tell() < last - first:
            page = thrift(pages)
            header, encoding = HEADERS[page[1]]
            count, encoding = page[header][1], page[header][encoding]
            allowed = encoding in ENCODINGS and min(page[2], count) >= 0 <= page[3] <= last - first
            require(allowed, key, f"encoding {encoding} or sizes of a page")
            total, values = total + page[2], values + (0 if page[1] == DICTIONARY else count)
            limit(total, tables.GROUP_PAGES, key, "bytes of the pages of a row group")
            limit(max(values, count), tables.VALUES_PER_ROW * group["rows"], key, "values of a column")
            pages.seek(page[3], io.SEEK_CUR)
        require(pages.tell() == last - first, key, "a page that its column does not hold")


def read_group(key, group, table):
    for name in TEXTS:  # in dictionaries until here: one long name must not become one for each row
        for part in table.column(name).chunks:
            longest = pyarrow.compute.max(pyarrow.compute.binary_length(part.dictionary)).as_py()
            limit(longest or 0, tables.NAME, key, f"bytes of a {name}")
    rows = [read_row(key, values) for values in table.to_pylist()]
    found = (len(rows), [row.name for row in rows[:1] + rows[-1:]])
    require(found == (group["rows"], [group["first"], group["last"]]), key, "rows that its directory has not")
    return rows


def whole(rows):
    """The rows of each tensor and object, and of each rank's own, in the order of the index."""
    return [list(parts) for _, parts in groupby(rows, key=lambda row: (row.name, row.rank))]


def read_row(key, values):
    """A row of checked values; None where it has none."""
    values = {name: one.hex() if isinstance(one, bytes) else one for name, one in values.items()}
    values = {name: one for name, one in values.items() if one is not None}
    at = f"the row of {values.get('name', '')[:80]!r} at {values.get('offset')}"
    sealed.check(key, at, values, tables.BOX)
    if values.keys() & tables.IN_CHUNK.keys():
        sealed.check(key, at, values, tables.IN_CHUNK)
    place = Place(*map(values.get, tables.PLACE)) if "chunk" in values else None
    row = Row(*map(values.get, Row._fields[:-1]), place)
    of_kind = row.dtype not in (OBJECTS if row.kind == "tensor" else BITS)
    of_kind = of_kind and (row.kind == "tensor" or len(row.shape) == 1)
    require(of_kind, key, f"dtype or dimensions of {at} are not those of its kind")
    inside = len(row.shape) == len(row.offset) == len(row.extent) and all(map(le, ends(row), row.shape))
    require(inside, key, f"the box of {at} is not inside of its shape")
    require((prod(row.extent) == 0) == (place is None), key, f"{at} has elements or a chunk, and not both")
    if place:
        bits = bits_of(row) or 0
        splits = bits and whole_bytes(bits, row.shape, row.offset, row.extent) is None
        end = row.chunk_offset + -(-prod(row.extent) * bits // 8)
        require(end <= place.raw_len and not splits, key, f"{at} does not lie in its chunk, or splits a byte")
        require(place.pack_offset + place.stored_len <= place.pack_len, key, f"{at} does not lie in its pack")
    return row


def ends(row):
    return [start + length for start, length in zip(row.offset, row.extent)]


def check_rows(key, rows):
    order = [(row.name, -1 if row.rank is None else row.rank, row.offset) for row in rows]
    require(all(left < right for left, right in pairwise(order)), key, "its rows are not ascending")
    for name, parts in groupby(rows, key=lambda row: row.name):
        kinds = {(row.kind, row.rank is None) for row in parts}
        require(len(kinds) == 1, key, f"{name[:80]!r} has two kinds, or rows with and without a rank")
    for parts in whole(rows):
        same = len({(row.dtype, tuple(row.shape), row.alias_of) for row in parts}) == 1
        at = f"{parts[0].name[:80]!r} of rank {parts[0].rank}"
        require(same, key, f"{at} has two dtypes, shapes or aliases")
        require(covers(key, parts[0].shape, parts), key, f"{at} is not covered exactly once")


def covers(key, shape, parts):
    """Whether boxes cover a shape exactly once: all of it, and with as many elements as it has.

    Where one ends another begins, or the shape ends: so boxes are made of cells that the beginnings cut."""
    if prod(shape) == 0:
        return len(parts) == 1 and parts[0].extent == shape
    cuts = [sorted({size, *starts}) for size, *starts in zip(shape, *(row.offset for row in parts))]
    limit(prod(len(cut) - 1 for cut in cuts), tables.BOX_CELLS, key, "cells into which boxes cut a shape")
    number = [{cut: at for at, cut in enumerate(some)} for some in cuts]
    covered = numpy.zeros([len(cut) - 1 for cut in cuts], bool)
    for row in parts:
        box = zip(number, row.offset, ends(row))
        covered[tuple(slice(cells[start], cells.get(end, 0)) for cells, start, end in box)] = True
    elements = [prod(row.extent) for row in parts]
    return covered.all() and min(elements) > 0 and sum(elements) == prod(shape)
