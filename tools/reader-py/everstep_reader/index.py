"""The index (page 04): a parquet table of pieces, of which nothing is believed before its hash was checked."""

from itertools import pairwise

import pyarrow
import pyarrow.compute
import pyarrow.parquet as parquet
from blake3 import blake3

from . import sealed, tables, thrift
from .errors import limit, require
from .rows import check_rows, read_row
from .rules import check

TEXT, BYTES_16, BYTES_32 = "BYTE_ARRAY String 0", "FIXED_LEN_BYTE_ARRAY None 16", "FIXED_LEN_BYTE_ARRAY None 32"
U8, U32, U64 = (f"INT{max(bits, 32)} Int(bitWidth={bits}, isSigned=false) 0" for bits in (8, 32, 64))
TEXTS = dict.fromkeys(("name", "kind", "dtype", "alias_of"), (TEXT, 0))
COLUMNS = TEXTS | {
    "shape.list.element": (U64, 1), "offset.list.element": (U64, 1), "extent.list.element": (U64, 1), "rank": (U32, 0),
    "chunk": (BYTES_32, 0), "chunk_offset": (U64, 0), "raw_len": (U64, 0), "codec": (U8, 0), "stored_len": (U64, 0),
    "writer_attempt": (BYTES_16, 0), "writer_rank": (U32, 0), "pack": (BYTES_32, 0), "pack_len": (U64, 0),
    "pack_offset": (U64, 0),
}


def read(store, key, expected):
    """All rows of an index, checked against its entry in the manifest and against each other."""
    data, end = store.read_whole(key, tables.INDEX, expected), expected["footer_offset"]
    footer = data[end:]
    limit(len(footer), tables.FOOTER, key, "bytes of the footer")
    require(blake3(footer).hexdigest() == expected["footer_blake3"], key, "its footer has another hash")
    ends = (data[:4], footer[-4:], int.from_bytes(footer[-8:-4], "little"))
    require(ends == (b"PAR1", b"PAR1", len(footer) - 8), key, "its footer does not begin where the manifest says")
    try:
        walked = thrift.Compact(data, end).struct()
        limit(len(walked[thrift.SCHEMA]), tables.SCHEMA, key, "elements of its schema")
        metadata = parquet.read_metadata(pyarrow.BufferReader(data))
        check_columns(key, metadata.schema)
        groups = directory(key, metadata, expected)
        options = {"metadata": metadata, "pre_buffer": False, "read_dictionary": list(TEXTS)}
        file, rows = parquet.ParquetFile(pyarrow.BufferReader(data), **options), []
        for number, group in enumerate(groups):
            check_group(key, data, group, walked[thrift.ROW_GROUPS][number])
            rows += read_group(key, group, file.read_row_group(number, columns=list(COLUMNS), use_threads=False))
    except (pyarrow.ArrowException, OSError, MemoryError, *thrift.MALFORMED) as error:
        require(False, key, f"parquet: {error!r}")
    check_rows(key, rows)
    return rows


def check_columns(key, schema):
    columns = [schema.column(number) for number in range(len(schema))]
    kinds = [f"{column.physical_type} {column.logical_type} {column.length}" for column in columns]
    found = {column.path: (kind, column.max_repetition_level) for column, kind in zip(columns, kinds)}
    names = schema.to_arrow_schema().names
    require(len(set(names)) == len(names), key, "two columns have one name")
    require(found.items() >= COLUMNS.items(), key, f"its columns are {found}")


def directory(key, metadata, expected):
    """The entries of the footer's directory: one for each row group, one directly after the other."""
    fields = sealed.parse(key, (metadata.metadata or {}).get(b"everstep.index", b"null"))
    check(key, "its directory", fields, tables.DIRECTORY)
    groups = fields["groups"]
    counts = (len(groups), sum(group["rows"] for group in groups)) == (metadata.num_row_groups, expected["rows"])
    require(counts, key, "its directory has not the row groups of the file, or the rows of the manifest")
    ordered = all(left["last"] <= right["first"] for left, right in pairwise(groups))
    ends = [4, *(group["start"] + group["len"] for group in groups)]
    adjoin = [*(group["start"] for group in groups), expected["footer_offset"]] == ends
    require(ordered and adjoin, key, "its row groups are not in order, or do not adjoin each other and the footer")
    return groups


def check_group(key, data, group, metadata):
    """Right hash; column chunks that lie inside, are compressed as allowed, and unpack to a bounded size."""
    start, end = group["start"], group["start"] + group["len"]
    require(blake3(data[start:end]).hexdigest() == group["blake3"], key, f"the row group at {start} has another hash")
    require(metadata[thrift.NUM_ROWS] == group["rows"], key, f"the row group at {start} has not as many rows")
    ranges = [thrift.range_of(column) for column in metadata[thrift.COLUMN_CHUNKS]]
    inside = all(start <= first <= last <= end for first, last in ranges)
    require(inside, key, f"a column of the row group at {start} lies outside of it, or is not compressed as allowed")
    thrift.walk_pages(key, data, group["rows"], ranges)


def read_group(key, group, table):
    for name in TEXTS:  # which stay in dictionaries until then: one long name must not become one for each row
        for part in table.column(name).chunks:
            longest = pyarrow.compute.max(pyarrow.compute.binary_length(part.dictionary)).as_py()
            limit(longest or 0, tables.NAME, key, f"bytes of a {name}")
    rows = [read_row(key, values) for values in table.to_pylist()]
    same = [row.name for row in rows[:1] + rows[-1:]] == [group["first"], group["last"]] and len(rows) == group["rows"]
    require(same, key, "a row group has not the rows or names of its directory")
    return rows
