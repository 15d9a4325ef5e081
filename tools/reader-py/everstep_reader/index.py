"""The index (page 04): a parquet table of pieces, of which nothing is believed before its hash was checked."""

from collections import namedtuple
from itertools import groupby, pairwise
from math import prod

import pyarrow
import pyarrow.compute
import pyarrow.parquet as parquet
from blake3 import blake3

from . import boxes, dtypes, limits, pages, sealed
from .errors import Corrupt, limit, require
from .packs import Place

TEXT, HASH, ID = "BYTE_ARRAY String 0", "FIXED_LEN_BYTE_ARRAY None 32", "FIXED_LEN_BYTE_ARRAY None 16"
U8, U32, U64 = (f"INT{max(bits, 32)} Int(bitWidth={bits}, isSigned=false) 0" for bits in (8, 32, 64))
COLUMNS = {
    "name": TEXT, "kind": TEXT, "dtype": TEXT, "shape": U64, "offset": U64, "extent": U64, "alias_of": TEXT, "rank": U32,
    "chunk_offset": U64, "chunk": HASH, "raw_len": U64, "writer_attempt": ID, "writer_rank": U32, "pack": HASH,
    "pack_len": U64, "pack_offset": U64, "stored_len": U64, "codec": U8,
}
TEXTS, LISTS = ("name", "kind", "dtype", "alias_of"), ("shape", "offset", "extent")
GROUP = {
    "first": sealed.text, "last": sealed.text, "rows": sealed.integer, "start": sealed.integer, "len": sealed.integer,
    "blake3": sealed.HASH,
}
Row = namedtuple("Row", "name kind dtype shape offset extent alias_of rank chunk_offset place")


def read(store, key, expected):
    """All rows of an index, checked against its entry in the manifest and against each other."""
    data = store.read(key, limits.INDEX)
    whole = (len(data), blake3(data).hexdigest()) == (expected["len"], expected["blake3"])
    require(whole, key, "length or hash is not that of the manifest")
    try:
        rows = [row for group in row_groups(key, data, expected) for row in group]
    except (pyarrow.ArrowException, OSError, UnicodeError, MemoryError) as error:
        require(False, key, f"parquet: {error}")
    check_rows(key, rows)
    return rows


def row_groups(key, data, expected):
    """The rows of each row group, after footer, directory and the row group itself were checked."""
    end = expected["footer_offset"]
    footer = data[end:]
    limit(len(footer), limits.FOOTER, key, "bytes of the footer")
    require(blake3(footer).hexdigest() == expected["footer_blake3"], key, "its footer has another hash")
    ends = (data[:4], footer[-4:], int.from_bytes(footer[-8:-4], "little"))
    require(ends == (b"PAR1", b"PAR1", len(footer) - 8), key, "its footer does not begin where the manifest says")
    metadata = parquet.read_metadata(pyarrow.BufferReader(data))
    check_schema(key, metadata.schema)
    groups = directory(key, metadata, expected["rows"])
    file = parquet.ParquetFile(pyarrow.BufferReader(data), metadata=metadata, pre_buffer=False, read_dictionary=TEXTS)
    at = 4
    for number, group in enumerate(groups):
        data_end = at + group["len"]
        require(group["start"] == at and data_end <= end, key, f"row group {number} is not behind the one before")
        require(blake3(data[at:data_end]).hexdigest() == group["blake3"], key, f"row group {number} has another hash")
        check_group(key, data, group, metadata.row_group(number))
        yield rows_of(key, group, file.read_row_group(number, columns=list(COLUMNS), use_threads=False))
        at = data_end
    require(at == end, key, "bytes between the last row group and the footer")


def directory(key, metadata, rows):
    """The entries of the footer's directory, one for each row group."""
    fields = sealed.parse(key, (metadata.metadata or {}).get(b"everstep.index", b"null"))
    sealed.check_version(key, fields)
    sealed.check(key, "", fields, {"groups": [GROUP, limits.GROUPS]})
    groups = fields["groups"]
    require(len(groups) == metadata.num_row_groups, key, "its directory has not the row groups of the file")
    require(sum(group["rows"] for group in groups) == rows, key, "its row groups have not the rows of the manifest")
    for group in groups:
        limit(group["rows"], limits.GROUP_ROWS, key, "rows of a row group")
        limit(group["len"], limits.GROUP_STORED, key, "bytes of a row group")
    ordered = all(left["last"] <= right["first"] for left, right in pairwise(groups))
    require(ordered and all(group["rows"] for group in groups), key, "its row groups are empty or not in order")
    return groups


def check_schema(key, schema):
    found = {}
    for number in range(len(schema)):
        column = schema.column(number)
        require(column.path not in found, key, f"two columns {column.path!r}")
        kind = f"{column.physical_type} {column.logical_type} {column.length}"
        found[column.path] = (kind, column.max_repetition_level)
    for name, kind in COLUMNS.items():
        path, expected = (f"{name}.list.element", (kind, 1)) if name in LISTS else (name, (kind, 0))
        require(found.get(path) == expected, key, f"column {path} is {found.get(path)}, not {expected}")


def check_group(key, data, group, metadata):
    """Column chunks lie inside the range, are encoded as allowed, and unpack to a bounded size."""
    require(metadata.num_rows == group["rows"], key, "a row group has not the rows that its directory says")
    ranges = []
    for number in range(metadata.num_columns):
        column = metadata.column(number)
        start = min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset)
        end = start + column.total_compressed_size
        inside = group["start"] <= start <= end <= group["start"] + group["len"]
        require(inside and not column.file_path, key, f"column {column.path_in_schema} is outside of its row group")
        allowed = column.compression in ("UNCOMPRESSED", "ZSTD")
        require(allowed, key, f"column {column.path_in_schema} is compressed by {column.compression}")
        ranges.append((start, end))
    pages.walk(key, data, metadata.num_rows, ranges)


def rows_of(key, group, table):
    require(table.num_rows == group["rows"], key, "a row group decodes to another number of rows")
    for name in TEXTS:  # which stay in dictionaries until then: one long name must not become one for each row
        for part in table.column(name).chunks:
            longest = pyarrow.compute.max(pyarrow.compute.binary_length(part.dictionary)).as_py()
            limit(longest or 0, limits.NAME, key, f"bytes of a {name}")
    rows = []
    for *piece, chunk, raw_len, attempt, rank, pack, pack_len, offset, stored_len, codec in zip(
        *(table.column(name).to_pylist() for name in COLUMNS)
    ):
        required = (*piece[:6], *(number for name in piece[3:6] for number in name or ()))
        require(None not in required, key, "a row without a name, kind, dtype or box")
        chunk_values = (piece[8], chunk, raw_len, attempt, rank, pack, pack_len, offset, stored_len, codec)
        empty = chunk_values.count(None) == len(chunk_values)
        require(empty or None not in chunk_values, key, f"a row of {piece[0][:80]!r} has half a chunk")
        place = None if empty else Place(
            chunk.hex(), raw_len, attempt.hex(), rank, pack.hex(), pack_len, offset, stored_len, codec
        )
        rows.append(Row(*piece, place))
    names = (rows[0].name, rows[-1].name)
    require(names == (group["first"], group["last"]), key, "a row group has not the names that its directory says")
    return rows


def order(row):
    return row.name.encode(), -1 if row.rank is None else row.rank, row.offset


def check_rows(key, rows):
    """The rules of rows: each, in pairs, and for the tensor or object that they make up."""
    require(all(order(left) < order(right) for left, right in pairwise(rows)), key, "its rows are not ascending")
    for row in rows:
        where = f"row of {row.name[:80]!r}, rank {row.rank}, at {row.offset}"
        try:
            check_row(where, row)
        except Corrupt as error:
            raise type(error)(key, str(error)) from None
    for name, of_name in groupby(rows, key=lambda row: row.name):
        of_name = list(of_name)
        kinds = {(row.kind, row.rank is None) for row in of_name}
        require(len(kinds) == 1, key, f"{name[:80]!r} has two kinds, or rows with and without a rank")
        for _, parts in groupby(of_name, key=lambda row: row.rank):
            check_whole(key, list(parts))


def check_whole(key, parts):
    name, shape = parts[0].name[:80], parts[0].shape
    same = len({(row.dtype, tuple(row.shape), row.alias_of) for row in parts}) == 1
    require(same, key, f"{name!r} has two dtypes, shapes or aliases")
    if prod(shape):
        boxes.cover_once(key, shape, [(row.offset, row.extent) for row in parts])
    else:
        require(len(parts) == 1 and parts[0].extent == shape, key, f"{name!r} has no elements, but more than one row")


def check_row(where, row):
    limit(len(row.name.encode()), limits.NAME, where, "bytes of its name")
    limit(len(row.dtype.encode()), limits.DTYPE, where, "bytes of its dtype")
    limit(len(row.shape), limits.DIMENSIONS, where, "dimensions")
    require(row.kind in ("tensor", "object"), where, f"kind {row.kind[:80]!r}")
    mixed = row.dtype in (dtypes.OBJECTS if row.kind == "tensor" else dtypes.BITS)
    require(not mixed, where, f"{row.kind} of {row.dtype}")
    require(row.kind == "tensor" or len(row.shape) == 1, where, "an object of not one dimension")
    require(len(row.shape) == len(row.offset) == len(row.extent), where, "shape, offset and extent differ in length")
    inside = all(offset + extent <= whole for whole, offset, extent in zip(row.shape, row.offset, row.extent))
    require(inside, where, f"its box of {row.extent} is not inside of {row.shape}")
    elements, bits, place = prod(row.extent), dtypes.bits(row), row.place
    require((elements == 0) == (place is None), where, "elements without a chunk, or a chunk without elements")
    if place:
        split = bits and boxes.in_bytes(bits, row.shape, row.offset, row.extent) is None
        require(not split, where, "its box splits a byte")
        length = -(-elements * (bits or 0) // 8)
        check_place(where, place)
        require(row.chunk_offset + length <= place.raw_len, where, f"{length} bytes are not inside of its chunk")


def check_place(where, place):
    limit(place.raw_len, limits.RAW, where, "raw bytes of its chunk")
    limit(place.stored_len, limits.STORED, where, "stored bytes of its chunk")
    limit(place.pack_len, limits.PACK, where, "bytes of its pack")
    aligned = place.offset % 64 == 0 and place.offset and place.stored_len
    require(aligned and place.offset + place.stored_len <= place.pack_len, where, "its chunk does not lie in its pack")
