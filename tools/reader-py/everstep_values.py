"""Values (page 09): a subset of CBOR with one encoding for each value. Who reads tensors alone needs none."""

import struct

from everstep_reader import tensors
from everstep_reader.objects import limit, require
from everstep_reader.tables import VALUE, VALUE_DEPTH, VALUE_ITEMS

TUPLE = 0x45565354
SIMPLE = {20: False, 21: True, 22: None}


class Map(tuple):
    """Pairs of key and value in order; a dict would take the keys 1, 1.0 and True for one."""


def load(checkpoint, parts):
    """What the reader loads, and instead of the bytes of an encoded value the value."""
    loaded, of_kind = tensors.load(checkpoint, parts), (parts[0].kind, parts[0].dtype)
    return decode(checkpoint.index_key, loaded) if of_kind == ("object", "value") else loaded


def decode(where, data):
    """None, bool, int, float, bytes, str, list, tuple or `Map`."""
    limit(len(data), VALUE, where, "bytes of a value")
    decoder = Decoder(where, data)
    try:
        value = decoder.item(0)
    except UnicodeDecodeError as error:
        decoder.require(False, error)
    decoder.require(decoder.at == len(data), "bytes after its end")
    return value


class Decoder:
    def __init__(self, where, data):
        self.where, self.data, self.at, self.items = where, data, 0, 0

    def require(self, holds, what):
        require(holds, self.where, f"value, before {self.at}: {what}")

    def take(self, count):
        self.require(count <= len(self.data) - self.at, "it ends early")
        self.at += count
        return self.data[self.at - count : self.at]

    def head(self):
        """Major type and argument; the argument in its shortest form."""
        first = self.take(1)[0]
        major, argument = first >> 5, first & 31
        if argument >= 24 and major != 7:
            self.require(argument <= 27, "no definite length")
            size = 1 << argument - 24
            argument = int.from_bytes(self.take(size))
            self.require(argument >= (24 if size == 1 else 1 << 4 * size), "a number in too many bytes")
        return major, argument

    def item(self, depth):
        major, argument = self.head()
        if major <= 1:
            self.require(argument < 1 << 63, "an integer that needs a tag")
            return argument ^ -major  # which is -1 - argument where that is negative
        if major in (2, 3):
            return self.take(argument) if major == 2 else self.take(argument).decode()
        if major == 7:
            self.require(argument == 27 or argument in SIMPLE, f"simple value {argument}")
            return struct.unpack(">d", self.take(8))[0] if argument == 27 else SIMPLE[argument]
        if major == 6 and argument in (2, 3):
            return self.big() ^ -(argument & 1)
        is_tuple = (major, argument) == (6, TUPLE)
        if is_tuple:
            major, argument = self.head()
        self.require(major == 4 or major == 5 and not is_tuple, "another tag")
        kind = Map if major == 5 else tuple if is_tuple else list
        return kind(self.container(major, argument, depth + 1))

    def container(self, major, count, depth):
        """Yields items, or pairs of a map, none of whose keys appears twice."""
        items, keys = count * (major - 3), set()
        limit(depth, VALUE_DEPTH, self.where, "lists, tuples and maps in each other")
        self.require(items <= len(self.data) - self.at, f"{items} items where there are fewer bytes")
        self.items += items
        limit(self.items, VALUE_ITEMS, self.where, "items of a value")
        for _ in range(count):
            start, item = self.at, self.item(depth)
            if major == 5:
                key = self.data[start : self.at]
                is_key = not isinstance(item, (list, tuple)) and key not in keys
                self.require(is_key, "a key that is there twice, or a list, tuple or map as one")
                keys.add(key)
                item = item, self.item(depth)
            yield item

    def big(self):
        """The integer of a tag, which no smaller encoding can hold."""
        major, length = self.head()
        digits = self.take(length) if major == 2 else b""
        number = int.from_bytes(digits)
        self.require(number >= 1 << 63 and digits[0], "a big integer that is none")
        return number
