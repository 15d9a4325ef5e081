"""Chunks (page 07), and the tensors and objects that are made of them (pages 10 and 11)."""

from functools import lru_cache
from math import prod

import numpy
import zstandard
from blake3 import blake3

from .objects import TooLarge, known, pack_key, require
from .tables import STORED

RAW, ZSTD, PLANES = range(3)
PLANE_RAW, PLANE_FRAME, PLANE_CONSTANT = range(3)
WHOLE = {"bool": "?", "f16": "<f2", "f32": "<f4", "f64": "<f8", "complex64": "<c8", "complex128": "<c16"}
WHOLE |= {f"{sign}{8 * size}": f"<{sign}{size}" for sign in "ui" for size in (1, 2, 4, 8)}
FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
WHOLE |= {"bf16": "<u2"} | dict.fromkeys(FLOAT8, "<u1")  # numpy has none: the integers that their bits are
PACKED = ("float4_e2m1", "int4", "uint4")  # two elements in a byte; loaded as bytes, in one dimension
OBJECTS = ("value", "bytes")
BITS = {name: int(code[2:] or 1) * 8 for name, code in WHOLE.items()} | dict.fromkeys(PACKED, 4)


@lru_cache(8)
def read_chunk(store, place):
    """The verified raw bytes of a chunk, found by its index row alone."""
    key = pack_key(place.writer_attempt, place.writer_rank, place.pack)
    stored = store.read(key, STORED, place.pack_offset, place.stored_len)
    return verified(key, place.chunk, place.codec, stored, place.raw_len)


def verified(key, chunk, codec, stored, raw_len):
    raw = decode(key, codec, stored, raw_len)
    require(blake3(raw).hexdigest() == chunk, key, f"chunk {chunk} has other bytes")
    return raw


def decode(where, codec, stored, raw_len):
    """Exactly `raw_len` raw bytes; whether they are the right ones, only their hash tells."""
    known(codec <= PLANES, where, f"codec {codec}")
    raw = stored if codec == RAW else (frame if codec == ZSTD else planes)(where, stored, raw_len)
    require(len(raw) == raw_len, where, f"{len(raw)} raw bytes instead of {raw_len}")
    return raw


def frame(where, stored, size):
    """One zstd frame that declares this content size and fills its place."""
    try:
        head = zstandard.get_frame_parameters(stored)
        fits = stored[:4] == zstandard.FRAME_HEADER and head.content_size == size and not head.dict_id
        require(fits, where, f"no zstd frame of {size} bytes without a dictionary")
        return zstandard.ZstdDecompressor().decompress(stored, allow_extra_data=False)
    except (zstandard.ZstdError, ValueError) as error:
        require(False, where, f"zstd: {error}")


def planes(where, stored, raw_len):
    """Byte planes of integers that were rotated left by one bit."""
    width = stored[0] if stored else 0
    whole = width in (2, 4, 8) and raw_len > 0 and raw_len % width == 0
    require(whole, where, f"planes of width {width} of {raw_len} bytes")
    count, at = raw_len // width, 1 + width
    octets = numpy.empty((count, width), numpy.uint8)
    for number, kind in enumerate(stored[1:at]):
        require(kind <= PLANE_CONSTANT, where, f"a plane of kind {kind}")
        size = (count, 8 + int.from_bytes(stored[at : at + 8], "little"), 1)[kind]
        plane, at = stored[at : at + size], at + size
        require(at <= len(stored), where, "its planes end early")
        plane = frame(where, plane[8:], count) if kind == PLANE_FRAME else plane
        octets[:, number] = numpy.frombuffer(plane, numpy.uint8)
    require(at == len(stored), where, "its planes do not end where it does")
    rotated = octets.view(f"<u{width}")
    return (rotated >> 1 | rotated << (8 * width - 1)).tobytes()


def bits_of(row):
    """Bits of an element of the row's tensor or object; None if its type is not known."""
    return BITS.get(row.dtype) if row.kind == "tensor" else 8 if row.dtype in OBJECTS else None


def whole_bytes(bits, shape, offset, extent):
    """The same box, of bytes instead of pairs of packed elements; None if it splits one."""
    if bits >= 8:
        return shape, offset, extent
    shape, offset, extent = shape or [1], offset or [0], extent or [1]
    if shape[-1] % 2:  # rows begin in the middle of bytes: whole ones alone, as a part of one dimension
        end, row = offset[0] + extent[0], prod(shape[1:])
        if extent[1:] != shape[1:] or offset[0] % 2 or end % 2 and end != shape[0]:
            return None
        shape, offset, extent = ([numbers[0] * row] for numbers in (shape, offset, extent))
    elif offset[-1] % 2 or extent[-1] % 2:
        return None
    return [[*numbers[:-1], -(-numbers[-1] // 2)] for numbers in (shape, offset, extent)]


def raw(checkpoint, parts):
    """The bytes of one tensor or object, put together from the rows of its pieces."""
    first, bits = parts[0], bits_of(parts[0])
    about = f"{first.name[:80]!r} of {first.dtype!r} and shape {first.shape}"
    known(bits, checkpoint.index_key, about)
    item = numpy.dtype((numpy.void, max(bits // 8, 1)))
    try:
        whole = numpy.empty(whole_bytes(bits, first.shape, [0] * len(first.shape), first.shape)[0], item)
    except (MemoryError, ValueError) as error:
        raise TooLarge(checkpoint.index_key, f"{about}: {error}") from None
    for row in parts if whole.size else ():
        _, offset, extent = whole_bytes(bits, row.shape, row.offset, row.extent)
        chunk = checkpoint.promised(read_chunk, row.place)
        piece = numpy.frombuffer(chunk, item, prod(extent), row.chunk_offset)
        box = tuple(slice(start, start + length) for start, length in zip(offset, extent))
        whole[box] = piece.reshape(extent)
    return whole.reshape(-1).view(numpy.uint8)


def load(checkpoint, parts):
    """A numpy array, or the bytes of an object, which may encode a value (page 09)."""
    first, data = parts[0], raw(checkpoint, parts)
    if first.kind == "tensor":
        return data if first.dtype in PACKED else data.view(WHOLE[first.dtype]).reshape(first.shape)
    return data.tobytes()
