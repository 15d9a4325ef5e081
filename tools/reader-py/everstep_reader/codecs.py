"""Stored bytes back to raw chunks (page 07)."""

import numpy
import zstandard

from .errors import known, require

RAW, ZSTD, PLANES = range(3)
PLANE_RAW, PLANE_FRAME, PLANE_CONSTANT = range(3)


def decode(where, codec, stored, raw_len):
    """Exactly `raw_len` raw bytes; whether they are the right ones, only their hash tells."""
    known(codec in (RAW, ZSTD, PLANES), where, f"codec {codec}")
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
    require(width in (2, 4, 8) and len(stored) > width, where, "planes without a header")
    require(raw_len > 0 and raw_len % width == 0, where, f"{raw_len} bytes are no planes of width {width}")
    count, at = raw_len // width, 1 + width
    octets = numpy.empty((count, width), numpy.uint8)

    def take(length):
        nonlocal at
        require(length <= len(stored) - at, where, "its planes end early")
        at += length
        return stored[at - length : at]

    for number, kind in enumerate(stored[1:at]):
        require(kind <= PLANE_CONSTANT, where, f"a plane of kind {kind}")
        plane = take((count, 8, 1)[kind])
        if kind == PLANE_FRAME:
            plane = frame(where, take(int.from_bytes(plane, "little")), count)
        octets[:, number] = numpy.frombuffer(plane, numpy.uint8)
    require(at == len(stored), where, "bytes after its last plane")
    rotated = octets.view(f"<u{width}")
    return (rotated >> 1 | rotated << (8 * width - 1)).tobytes()
