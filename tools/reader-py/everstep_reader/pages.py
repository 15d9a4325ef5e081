"""Walks the page headers of parquet column chunks (Thrift, compact protocol), so that no page is unpacked unbounded."""

from .errors import limit, require
from .limits import GROUP_PAGES, VALUES_PER_ROW

DATA, DICTIONARY, DATA_V2 = 0, 2, 3
HEADERS = {DATA: (5, 2), DICTIONARY: (7, 2), DATA_V2: (8, 4)}  # fields of the header, and in it of the encoding
ENCODINGS = (0, 2, 3, 5, 8)  # PLAIN, dictionaries, RLE, DELTA_BINARY_PACKED: none makes much text of little


class Compact:
    """Reads Thrift structs as field ids and values; ends of the data are a `ValueError`."""

    def __init__(self, data, at, end):
        self.data, self.at, self.end = data, at, end

    def take(self, count):
        if count > self.end - self.at:
            raise ValueError("it ends early")
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self):
        value = shift = 0
        while (byte := self.take(1)[0]) > 127 and shift < 63:
            value, shift = value | (byte & 127) << shift, shift + 7
        return value | byte << shift

    def value(self, kind, depth):
        if depth > 8 or kind > 12 or kind == 11:
            raise ValueError("a header of no known form")
        if kind < 3:
            return kind == 1
        if kind in (3, 7):
            return self.take(1 if kind == 3 else 8)
        if kind < 7:
            return (number := self.varint()) >> 1 ^ -(number & 1)
        if kind == 8:
            return self.take(self.varint())
        return self.struct(depth) if kind == 12 else self.items(depth)

    def items(self, depth):
        head = self.take(1)[0]
        count = head >> 4 if head < 0xF0 else self.varint()
        return [self.value(max(head & 15, 3), depth + 1) for _ in range(count)]

    def struct(self, depth=0):
        fields, field = {}, 0
        while head := self.take(1)[0]:
            field = field + (head >> 4) if head >> 4 else self.value(4, depth)
            fields[field] = self.value(head & 15, depth + 1)
        return fields


def walk(key, data, rows, columns):
    """Checks all pages of a row group; `columns` are the starts and ends of its column chunks in `data`."""
    total = 0
    for start, end in columns:
        reader, values = Compact(data, start, end), 0
        while reader.at < end:
            try:
                page = reader.struct()
                kind, size, stored = page[1], page[2], page[3]
                header, encoding = HEADERS[kind]
                count, encoding = page[header][1], page[header][encoding]
                require(encoding in ENCODINGS, key, f"a page with encoding {encoding} before {reader.at}")
                require(min(size, stored, count) >= 0, key, f"a page with a negative size before {reader.at}")
                reader.take(stored)
            except (ValueError, KeyError, TypeError) as error:
                require(False, key, f"the page header before {reader.at}: {error!r}")
            total, values = total + size, values + (0 if kind == DICTIONARY else count)
            limit(total, GROUP_PAGES, key, "bytes of the pages of a row group")
            limit(max(values, count), VALUES_PER_ROW * rows, key, "values of a column of a row group")
