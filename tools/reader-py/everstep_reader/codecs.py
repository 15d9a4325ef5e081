"""Stored bytes back to raw chunks (page 07)."""

import numpy
import zstandard

from .errors import known, require

RAW, ZSTD, PLANES = range(3)
PLANE_RAW, PLANE_FRAME, PLANE_CONSTANT = range(3)


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
