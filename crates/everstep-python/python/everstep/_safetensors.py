"""The header of a safetensors file: which tensor lies where in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import Any

from ._tensors import BITS

_DTYPES = {
    "BOOL": "bool", "U8": "u8", "I8": "i8", "U16": "u16", "I16": "i16", "U32": "u32", "I32": "i32", "U64": "u64",
    "I64": "i64", "F16": "f16", "BF16": "bf16", "F32": "f32", "F64": "f64", "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": "float4_e2m1",
}  # fmt: skip

#: Bytes of the length that a file begins with.
_PREFIX = 8
#: Bytes that a header may have: as in safetensors itself.
_HEADER = 100_000_000


@dataclass(frozen=True)
class Part:
    """A tensor in a file: bytes `begin` to `end` of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Cut(ValueError):
    """The file is not as long as it says, or no such file at all."""


def header_of(start: bytes, size: int) -> bytes:
    """The first bytes of a file of `size` bytes, up to its data; `start` has at least those. Raises Cut."""
    length = int.from_bytes(start[:_PREFIX], "little") if len(start) >= _PREFIX else size
    if length > min(_HEADER, size - _PREFIX):
        raise Cut(f"a file of {size} bytes has a header of {length}")
    return bytes(start[: _PREFIX + length])


def parts(header: bytes, size: int) -> list[Part] | None:
    """What lies in a file of `size` bytes that begins with `header`, in the order of the file, without gaps; None if there
    is something in it that cannot be told apart: then the file is kept as mere bytes. Raises Cut."""
    try:
        described = json.loads(header[_PREFIX:])
        found = [_part(name, item, len(header)) for name, item in described.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Cut(f"its header cannot be read: {error}") from None
    end = max((end for _, _, _, _, end in found), default=len(header))
    if end > size:
        raise Cut(f"it has {size} bytes of {end}")
    known = [Part(*values) for values in sorted(found, key=lambda values: values[3:]) if values[1] is not None]
    whole = len(known) == len(found) and _is_gapless(known, len(header), size)
    return known if whole else None


def _part(name: str, item: dict[str, Any], start: int) -> tuple[str, str | None, tuple[int, ...], int, int]:
    begin, end = item["data_offsets"]
    shape = tuple(int(extent) for extent in item["shape"])
    if not (0 <= int(begin) <= int(end) and all(extent >= 0 for extent in shape)):
        raise ValueError(f"{name} lies nowhere")
    dtype = _DTYPES.get(item["dtype"])
    if dtype is not None and prod(shape) * BITS[dtype] != 8 * (end - begin):
        dtype = None
    return name, dtype, shape, start + begin, start + end


def _is_gapless(found: list[Part], at: int, size: int) -> bool:
    for part in found:
        if part.begin != at:
            return False
        at = part.end
    return at == size
