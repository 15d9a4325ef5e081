"""What parquet keeps in Thrift's compact protocol (page 04): page headers are walked before any page is unpacked."""

from .errors import limit, require
from .tables import GROUP_PAGES, GROUPS, VALUES_PER_ROW

SCHEMA, ROW_GROUPS, COLUMN_CHUNKS, NUM_ROWS = 2, 4, 1, 3  # fields of the metadata, and of a row group
UNCOMPRESSED, ZSTD = 0, 6
DATA, DICTIONARY, DATA_V2 = 0, 2, 3
HEADERS = {DATA: (5, 2), DICTIONARY: (7, 2), DATA_V2: (8, 4)}  # fields of the header, and in it of the encoding
ENCODINGS = (0, 2, 3, 5, 8)  # PLAIN, dictionaries, RLE, DELTA_BINARY_PACKED: none makes much text of little
SIZES = {3: 1, 7: 8, 8: None}  # of bytes, doubles and binaries, whose length comes first; they are passed over
MALFORMED = (LookupError, TypeError, ValueError, RecursionError)


class Compact:
    """Reads structs, as values by the number of their field; raises one of `MALFORMED` where there is none."""

    def __init__(self, data, at):
        self.data, self.at = data, at

    def byte(self):
        self.at += 1
        return self.data[self.at - 1]

    def varint(self):
        byte = self.byte()
        return byte if byte < 128 else byte & 127 | self.varint() << 7

    def value(self, kind):
        if kind <= 2:
            return kind == 1
        if 4 <= kind <= 6:
            return (number := self.varint()) >> 1 ^ -(number & 1)
        if kind in (9, 12):
            return self.items() if kind == 9 else self.struct()
        size = SIZES[kind] or self.varint()
        self.at += size

    def items(self):
        head = self.byte()
        count = head >> 4 if head < 0xF0 else self.varint()
        if count > GROUPS:
            raise ValueError(f"{count} items of a list")
        return [self.value(max(head & 15, 3)) for _ in range(count)]  # a boolean there is a byte

    def struct(self):
        fields, field = {}, 0
        while head := self.byte():
            field = field + (head >> 4) if head >> 4 else self.value(4)
            fields[field] = self.value(head & 15)
        return fields


def range_of(column):
    """Start and end of a column chunk in the file; (-1, -1) if it is in another one, or compressed in another way."""
    metadata = column[3]
    first = min(metadata[9], metadata.get(11) or metadata[9])  # of its data pages, and of its dictionary
    allowed = 1 not in column and metadata[4] in (UNCOMPRESSED, ZSTD)
    return (first, first + metadata[7]) if allowed else (-1, -1)


def walk_pages(key, data, rows, columns):
    """Checks all pages of a row group; `columns` are the starts and ends of its column chunks in `data`."""
    total = 0
    for start, end in columns:
        reader, values = Compact(data, start), 0
        while reader.at < end:
            page = reader.struct()
            kind, size, stored = page[1], page[2], page[3]
            header, encoding = HEADERS[kind]
            count, encoding = page[header][1], page[header][encoding]
            allowed = encoding in ENCODINGS and min(size, stored, count) >= 0
            require(allowed, key, f"encoding {encoding} or sizes of the page at {reader.at}")
            total, values = total + size, values + (0 if kind == DICTIONARY else count)
            limit(total, GROUP_PAGES, key, "bytes of the pages of a row group")
            limit(max(values, count), VALUES_PER_ROW * rows, key, "values of a column of a row group")
            reader.at += stored
        require(reader.at == end, key, "a page that its column does not hold")
