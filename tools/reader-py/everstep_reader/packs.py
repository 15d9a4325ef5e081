"""Refs (page 05) and packs (page 06)."""

from collections import namedtuple
from functools import lru_cache
from itertools import pairwise
from struct import Struct

from blake3 import blake3

from . import codecs, keys, limits
from .errors import known, limit, require

REFS_HEADER, REF = Struct("<8sIIQ"), Struct("<16sI32s")
HEADER, ENTRY = Struct("<8sHHHHII16sQ16s"), Struct("<32sBBHIQQQ")
Place = namedtuple("Place", "chunk raw_len attempt rank pack pack_len offset stored_len codec")
Entry = namedtuple("Entry", "chunk codec width base crc raw_len stored_len offset")


def read_refs(store, key, expected):
    """Attempt, rank and pack id of every entry, checked against the manifest."""
    data = store.read(key, REFS_HEADER.size + REF.size * limits.REFS)
    whole = (len(data), blake3(data).hexdigest()) == (expected["len"], expected["blake3"])
    require(whole and len(data) >= REFS_HEADER.size, key, "length or hash is not that of the manifest")
    magic, version, zero, count = REFS_HEADER.unpack_from(data)
    require(magic == b"EVSTREFS", key, "it is no refs object")
    known(version == 0, key, f"format version {version}")
    require(not zero and len(data) == REFS_HEADER.size + REF.size * count, key, "header or length of the entries")
    require(count == expected["packs"], key, f"{count} entries, the manifest has {expected['packs']}")
    entries = list(REF.iter_unpack(data[REFS_HEADER.size :]))
    require(all(left < right for left, right in pairwise(entries)), key, "its entries are not ascending")
    return [(attempt.hex(), rank, pack.hex()) for attempt, rank, pack in entries]


@lru_cache(8)
def read_chunk(store, place):
    """The verified raw bytes of a chunk, found by its index row alone."""
    key = keys.pack(place.attempt, place.rank, place.pack)
    return decode(key, store.read(key, limits.STORED, place.offset, place.stored_len), place)


def decode(key, stored, chunk):
    raw = codecs.decode(key, chunk.codec, stored, chunk.raw_len)
    require(blake3(raw).hexdigest() == chunk.chunk, key, f"chunk {chunk.chunk} at {chunk.offset} has other bytes")
    return raw


def parse_table(key, data, attempt, rank, pack_id):
    """The table of a pack, refused unless all of page 06 holds, in its order."""
    require(len(data) >= HEADER.size, key, "it is shorter than a header")
    magic, version, header, row, zero, count, of_rank, of_attempt, pack_len, zeros = HEADER.unpack_from(data)
    require(magic == b"EVSTPACK", key, "it is no pack")
    known(version == 0, key, f"format version {version}")
    require((header, row, zero, zeros) == (HEADER.size, ENTRY.size, 0, bytes(16)) and count, key, "its header")
    limit(count, limits.PACK_CHUNKS, key, "chunks")
    limit(pack_len, limits.PACK, key, "bytes")
    end = HEADER.size + ENTRY.size * count
    whole = blake3(data[:end]).hexdigest() == pack_id and len(data) >= end
    require(whole, key, "header and table are not those of its key")
    entries = [Entry._make(entry) for entry in ENTRY.iter_unpack(data[HEADER.size : end])]
    for entry in entries:
        check_entry(key, entry, -(-end // 64) * 64)
        end = entry.offset + entry.stored_len
    require(pack_len == end, key, f"its header says {pack_len} bytes, its table {end}")
    require((of_attempt.hex(), of_rank) == (attempt, rank), key, "attempt or rank is not that of its key")
    return [entry._replace(chunk=entry.chunk.hex()) for entry in entries]


def check_entry(key, entry, offset):
    planes, raw = entry.codec == codecs.PLANES, entry.codec == codecs.RAW
    known(not entry.base and entry.codec <= codecs.PLANES, key, f"codec {entry.codec} with base {entry.base}")
    limit(entry.raw_len, limits.RAW, key, "raw bytes of a chunk")
    limit(entry.stored_len, limits.STORED, key, "stored bytes of a chunk")
    lengths = entry.raw_len and entry.stored_len and (not raw or entry.raw_len == entry.stored_len)
    require(lengths, key, "lengths of a chunk")
    require(entry.width in ((2, 4, 8) if planes else (0,)), key, f"element width {entry.width}")
    require(not planes or entry.raw_len % entry.width == 0, key, "planes of no whole elements")
    require(entry.offset == offset, key, f"a chunk at {entry.offset} instead of {offset}")


def read(store, attempt, rank, pack_id):
    """What index rows must say of the chunks of a pack, by offset, after every byte was checked."""
    key = keys.pack(attempt, rank, pack_id)
    data = store.read(key, limits.PACK)
    entries = parse_table(key, data, attempt, rank, pack_id)
    end = entries[0].offset
    for entry in entries:
        padding, end = data[end : entry.offset], entry.offset + entry.stored_len
        stored = data[entry.offset : end]
        require(len(stored) == entry.stored_len, key, "it ends early")
        intact = not any(padding) and crc32c(stored) == entry.crc
        require(intact, key, f"padding or checksum of the chunk at {entry.offset}")
        require(entry.width in (0, stored[0]), key, f"element width of the chunk at {entry.offset}")
        decode(key, stored, entry)
    require(len(data) == end, key, f"{len(data) - end} bytes after its end")
    return {entry.offset: (entry.chunk, entry.codec, entry.raw_len, entry.stored_len, end) for entry in entries}


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
