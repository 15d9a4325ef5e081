"""Walks what parquet keeps in Thrift's compact protocol (page 04), so that no library is handed what it cannot bound."""

from . import tables
from .errors import limit, require

SCHEMA = 2  # field of the metadata
DATA, DICTIONARY, DATA_V2 = 0, 2, 3
HEADERS = {DATA: (5, 2), DICTIONARY: (7, 2), DATA_V2: (8, 4)}  # fields of the header, and in it of the encoding
ENCODINGS = (0, 2, 3, 5, 8)  # PLAIN, dictionaries, RLE, DELTA_BINARY_PACKED: none makes much text of little


class Compact:
    """Reads structs, as values by the number of their field."""

    def __init__(self, key, data, at, end):
        self.key, self.data, self.at, self.end = key, data, at, end

    def take(self, count):
        require(count <= self.end - self.at, self.key, f"Thrift at {self.at} ends early")
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self):
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        require(False, self.key, f"Thrift at {self.at}: a number of more than 64 bits")

    def value(self, kind, depth):
        possible = depth <= 8 and (1 <= kind <= 9 or kind == 12)  # parquet has no sets and maps
        require(possible, self.key, f"Thrift at {self.at} is no metadata of parquet")
        if kind <= 2:
            return kind == 1
        if kind <= 6 and kind != 3:
            return (number := self.varint()) >> 1 ^ -(number & 1)
        if kind == 12:
            return self.struct(depth)
        if kind == 9:
            return self.items(depth)
        return self.take({3: 1, 7: 8}.get(kind) or self.varint())

    def items(self, depth):
        head = self.take(1)[0]
        count = head >> 4 if head < 0xF0 else self.varint()
        limit(count, tables.GROUPS, self.key, "items of a list")
        return [self.value(max(head & 15, 3), depth + 1) for _ in range(count)]  # a boolean there is a byte

    def struct(self, depth=0):
        fields, field = {}, 0
        while head := self.take(1)[0]:
            field = field + (head >> 4) if head >> 4 else self.value(4, depth)
            fields[field] = self.value(head & 15, depth + 1)
        return fields


def walk_metadata(key, data, start, end):
    schema = Compact(key, data, start, end).struct().get(SCHEMA)
    require(isinstance(schema, list), key, "its metadata have no schema")
    limit(len(schema), tables.COLUMNS, key, "elements of the schema")


def walk_pages(key, data, rows, columns):
    """Checks all pages of a row group; `columns` are the starts and ends of its column chunks in `data`."""
    total = 0
    for start, end in columns:
        reader, values = Compact(key, data, start, end), 0
        while reader.at < end:
            page = reader.struct()
            try:
                kind, size, stored = page[1], page[2], page[3]
                header, encoding = HEADERS[kind]
                count, encoding = page[header][1], page[header][encoding]
                smallest = min(size, stored, count)
            except (KeyError, TypeError) as error:
                require(False, key, f"the page header before {reader.at}: {error!r}")
            require(encoding in ENCODINGS, key, f"a page with encoding {encoding} before {reader.at}")
            require(smallest >= 0, key, f"a page with a negative size before {reader.at}")
            reader.take(stored)
            total, values = total + size, values + (0 if kind == DICTIONARY else count)
            limit(total, tables.GROUP_PAGES, key, "bytes of the pages of a row group")
            limit(max(values, count), tables.VALUES_PER_ROW * rows, key, "values of a column of a row group")
