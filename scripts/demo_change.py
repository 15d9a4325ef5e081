"""demo_change.py IN OUT PREFIX: copies a safetensors file, nudging the fp32 tensors below PREFIX as a training step would."""

import json
import struct
import sys
from array import array


def main(source: str, target: str, prefix: str) -> None:
    data = bytearray(open(source, "rb").read())
    (header_len,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + header_len])
    changed = 0
    for name, info in header.items():
        if name.startswith(prefix) and info["dtype"] == "F32":
            begin, end = (8 + header_len + offset for offset in info["data_offsets"])
            values = array("f", bytes(data[begin:end]))
            data[begin:end] = array("f", (x * 0.999 for x in values)).tobytes()
            changed += end - begin
    open(target, "wb").write(data)
    print(f"changed {changed / 1e6:.1f} MB of {len(data) / 1e6:.1f} MB: the tensors below {prefix}")


main(*sys.argv[1:])
