"""Refs (page 05) and packs (page 06)."""

from collections import namedtuple
from functools import lru_cache
from itertools import pairwise

from blake3 import blake3

from . import codecs
from .errors import require
from .objects import pack_key
from .rules import unpack
from .tables import CHUNK, PACK, PACK_HEADER, PACK_ROW, REFS, REFS_HEADER, STORED

Place = namedtuple("Place", list(CHUNK)[1:])  # of a chunk, as the rows of an index tell it


def read_refs(store, key, expected):
    """Attempt, rank and pack id of every entry, checked against the manifest."""
    data = store.read_whole(key, 24 + 52 * REFS, expected)
    count = unpack(key, "its header", "8sIIQ", data[:24], REFS_HEADER)["count"]
    require(count == expected["packs"] and len(data) == 24 + 52 * count, key, f"not the length of {count} entries")
    entries = [data[at : at + 52] for at in range(24, len(data), 52)]
    entries = [(one[:16].hex(), int.from_bytes(one[16:20], "little"), one[20:].hex()) for one in entries]
    require(all(left < right for left, right in pairwise(entries)), key, "its entries are not ascending")
    return entries


@lru_cache(8)
def read_chunk(store, place):
    """The verified raw bytes of a chunk, found by its index row alone."""
    key = pack_key(place.writer_attempt, place.writer_rank, place.pack)
    stored = store.read(key, STORED, place.pack_offset, place.stored_len)
    return decode(key, place.chunk, place.codec, stored, place.raw_len)


def decode(key, chunk, codec, stored, raw_len):
    raw = codecs.decode(key, codec, stored, raw_len)
    require(blake3(raw).hexdigest() == chunk, key, f"chunk {chunk} has other bytes")
    return raw


def read(store, attempt, rank, pack):
    """The places of all chunks of a pack, after every byte of it was checked."""
    key = pack_key(attempt, rank, pack)
    data = store.read(key, PACK)
    rows, places = read_table(key, data, attempt, rank, pack), set()
    end = 64 + 64 * len(rows)
    for row in rows:
        padding, end = data[end : row["offset"]], row["offset"] + row["stored_len"]
        stored = data[row["offset"] : end]
        intact = len(stored) == row["stored_len"] and not any(padding) and crc32c(stored) == row["crc"]
        require(intact and row["width"] in (0, stored[0]), key, f"padding, checksum or width at {row['offset']}")
        decode(key, row["chunk"], row["codec"], stored, row["raw_len"])
        of_row = (row["offset"], row["stored_len"], row["codec"])
        places.add(Place(row["chunk"], row["raw_len"], attempt, rank, pack, len(data), *of_row))
    require(len(data) == end, key, f"{len(data) - end} bytes after its end")
    return places


def read_table(key, data, attempt, rank, pack):
    """The rows of the table, refused unless all of page 06 holds, in its order."""
    header = unpack(key, "its header", "8sHHHHII16sQ16s", data[:64], PACK_HEADER)
    end = 64 + 64 * header["chunks"]
    whole = len(data) >= end and blake3(data[:end]).hexdigest() == pack
    require(whole, key, "header and table are not those of its key")
    rows = []
    for at in range(64, end, 64):
        row = unpack(key, f"the row at {at}", "32sBBHIQQQ", data[at : at + 64], PACK_ROW)
        widths = (2, 4, 8) if row["codec"] == codecs.PLANES else (0,)
        fits = row["codec"] != codecs.RAW or row["raw_len"] == row["stored_len"]
        fits = fits and row["width"] in widths and row["raw_len"] % max(row["width"], 1) == 0
        require(fits, key, f"codec, width and lengths of the row at {at}")
        require(row["offset"] == -(-end // 64) * 64, key, f"the offset of the row at {at}")
        end = row["offset"] + row["stored_len"]
        rows.append(row)
    require(header["pack_len"] == end, key, f"its header says {header['pack_len']} bytes, its table {end}")
    require((header["attempt"], header["rank"]) == (attempt, rank), key, "attempt or rank is not that of its key")
    return rows


def crc32c(data):
    state = 0xFFFFFFFF
    for byte in data:
        state = CRC[(state ^ byte) & 255] ^ state >> 8
    return state ^ 0xFFFFFFFF


def crc_of(byte):
    for _ in range(8):
        byte = byte >> 1 ^ (byte & 1) * 0x82F63B78
    return byte


CRC = [crc_of(byte) for byte in range(256)]
