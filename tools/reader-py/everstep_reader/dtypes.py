"""Element types (page 10): their bits, and how numpy shows them."""

WHOLE = {"bool": "?", "f16": "<f2", "f32": "<f4", "f64": "<f8", "complex64": "<c8", "complex128": "<c16"}
WHOLE |= {f"{sign}{8 * size}": f"<{sign}{size}" for sign in "ui" for size in (1, 2, 4, 8)}
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
WHOLE |= {"bf16": "<u2"} | dict.fromkeys(FLOAT8, "<u1")  # numpy has none of these: the integers that their bits are
PACKED = ("float4_e2m1", "int4", "uint4")  # two elements in a byte: shown as the packed bytes, in one dimension
OBJECTS = ("value", "bytes")
BITS = {name: int(code[2:] or 1) * 8 for name, code in WHOLE.items()} | dict.fromkeys(PACKED, 4)


def bits(row):
    """Bits of an element of the row's tensor or object; None if its type is not known."""
    return BITS.get(row.dtype) if row.kind == "tensor" else 8 if row.dtype in OBJECTS else None
