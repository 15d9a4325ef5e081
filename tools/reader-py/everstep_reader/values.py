"""Values (page 09): a subset of CBOR with one encoding for each value."""

import struct

from .errors import Corrupt, limit
from .limits import VALUE, VALUE_DEPTH, VALUE_ITEMS

TUPLE = 0x45565354
SIMPLE = {0xF4: False, 0xF5: True, 0xF6: None}


class Pairs(tuple):
    """A map, as pairs, with keys that a dict would take for equal: 1, 1.0 and True, or 0.0 and -0.0."""


def decode(where, data):
    """None, bool, int, float, bytes, str, list, tuple, dict or `Pairs`."""
    limit(len(data), VALUE, where, "bytes of a value")
    decoder = Decoder(where, data)
    value = decoder.item(0)
    if decoder.at != len(data):
        raise Corrupt(where, f"bytes after the value, at {decoder.at}")
    return value


class Decoder:
    def __init__(self, where, data):
        self.where, self.data, self.at, self.items_left = where, data, 0, VALUE_ITEMS

    def fail(self, what):
        raise Corrupt(self.where, f"value at {self.at}: {what}")

    def take(self, count):
        if count > len(self.data) - self.at:
            self.fail("it ends early")
        self.at += count
        return self.data[self.at - count : self.at]

    def head(self):
        """Major type and argument; the argument in its shortest form."""
        first = self.take(1)[0]
        major, short = first >> 5, first & 31
        if short < 24 or major == 7:
            return major, short
        if short > 27:
            self.fail("no definite length")
        size = 1 << (short - 24)
        argument = int.from_bytes(self.take(size))
        if argument < (24, 1 << 8, 1 << 16, 1 << 32)[short - 24]:
            self.fail("a number in too many bytes")
        return major, argument

    def item(self, depth, as_key=False):
        major, argument = self.head()
        if major in (0, 1):
            if argument >= 1 << 63:
                self.fail("an integer that needs a tag")
            return argument if major == 0 else -1 - argument
        if major == 2:
            return self.take(argument)
        if major == 3:
            return self.text(argument)
        if major == 7:
            return self.simple(argument)
        if major == 6 and argument in (2, 3):
            return self.big(argument)
        if as_key:
            self.fail("a list, tuple or map as a key")
        is_tuple = major == 6 and argument == TUPLE
        if is_tuple:
            major, argument = self.head()
        limit(depth + 1, VALUE_DEPTH, self.where, "lists, tuples and maps in each other")
        if major == 4:
            return (tuple if is_tuple else list)(self.items(argument, depth + 1))
        return self.map(argument, depth + 1) if major == 5 and not is_tuple else self.fail("another tag")

    def expect(self, count):
        if count > len(self.data) - self.at:
            self.fail(f"{count} items in {len(self.data) - self.at} bytes")
        self.items_left -= count
        limit(-self.items_left, 0, self.where, "items beyond those that a value may have")

    def items(self, count, depth):
        self.expect(count)
        for _ in range(count):
            yield self.item(depth)

    def map(self, count, depth):
        self.expect(2 * count)
        pairs, seen = [], set()
        for _ in range(count):
            start = self.at
            key = self.item(depth, as_key=True)
            if self.data[start : self.at] in seen:
                self.fail("a key that is there twice")
            seen.add(self.data[start : self.at])
            pairs.append((key, self.item(depth)))
        return dict(pairs) if len(dict(pairs)) == count else Pairs(pairs)

    def text(self, length):
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            self.fail("text that is not UTF-8")

    def simple(self, short):
        if short == 27:
            return struct.unpack(">d", self.take(8))[0]
        return SIMPLE[0xE0 | short] if 0xE0 | short in SIMPLE else self.fail(f"simple value {short}")

    def big(self, tag):
        major, length = self.head()
        digits = self.take(length) if major == 2 else b""
        if len(digits) < 8 or digits[0] == 0 or len(digits) == 8 and digits[0] < 128:
            self.fail("a big integer that is none")
        return int.from_bytes(digits) if tag == 2 else -1 - int.from_bytes(digits)
