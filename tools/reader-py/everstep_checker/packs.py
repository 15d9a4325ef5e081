"""Refs (page 05), and headers and tables of packs (page 06)."""

import struct
from itertools import pairwise

from blake3 import blake3
from everstep_reader.index import Place
from everstep_reader.objects import pack_key, require
from everstep_reader.sealed import check
from everstep_reader.tables import PACK, REFS
from everstep_reader.tensors import PLANES, RAW, verified

from .tables import PACK_FORM, PACK_HEADER, PACK_ROW, REFS_FORM, REFS_HEADER, ROW_FORM


def unpack(key, at, form, data, rule):
    """The fields of a little-endian structure, whose form is that of `struct`; bytes become hex."""
    form = struct.Struct(f"<{form}")
    require(len(data) == form.size, key, f"{at} is cut short")
    fields = dict(zip(rule, (one.hex() if isinstance(one, bytes) else one for one in form.unpack(data))))
    check(key, at, fields, rule)
    return fields


def read_refs(store, key, expected):
    """Attempt, rank and pack id of every entry, checked against the manifest."""
    data = store.read_whole(key, 24 + 52 * REFS, expected)
    count = unpack(key, "its header", REFS_FORM, data[:24], REFS_HEADER)["count"]
    fits = count == expected["packs"] and len(data) == 24 + 52 * count
    require(fits, key, f"it says to have {count} entries")
    entries = struct.iter_unpack("<16sI32s", data[24:])
    entries = [(attempt.hex(), rank, pack.hex()) for attempt, rank, pack in entries]
    require(all(left < right for left, right in pairwise(entries)), key, "its entries are not ascending")
    return entries


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
        intact = intact and row["width"] in (0, stored[0])
        require(intact, key, f"padding, length, checksum or width at {row['offset']}")
        verified(key, row["chunk"], row["codec"], stored, row["raw_len"])
        of_row = (row["offset"], row["stored_len"], row["codec"])
        places.add(Place(row["chunk"], row["raw_len"], attempt, rank, pack, len(data), *of_row))
    require(len(data) == end, key, f"{len(data) - end} bytes after its end")
    return places


def read_table(key, data, attempt, rank, pack):
    """The rows of the table, refused unless all of page 06 holds, in its order."""
    header = unpack(key, "its header", PACK_FORM, data[:64], PACK_HEADER)
    end = 64 + 64 * header["chunks"]
    whole = len(data) >= end and blake3(data[:end]).hexdigest() == pack
    require(whole, key, "header and table are not those of its key")
    rows = []
    for at in range(64, end, 64):
        row = unpack(key, f"the row at {at}", ROW_FORM, data[at : at + 64], PACK_ROW)
        widths = (2, 4, 8) if row["codec"] == PLANES else (0,)
        fits = row["codec"] != RAW or row["raw_len"] == row["stored_len"]
        fits = fits and row["width"] in widths and row["raw_len"] % max(row["width"], 1) == 0
        require(fits, key, f"codec, width and lengths of the row at {at}")
        require(row["offset"] == -(-end // 64) * 64, key, f"the offset of the row at {at}")
        end = row["offset"] + row["stored_len"]
        rows.append(row)
    require(header["pack_len"] == end, key, f"its header says {header['pack_len']} bytes, its table {end}")
    require((header["attempt"], header["rank"]) == (attempt, rank), key, "attempt or rank is not of its key")
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
