"""Writes small repositories from the specification alone, and lets a case change what is written before it is hashed.

So a forged object has every hash right, and only the rule that the case breaks is broken."""

import io
import json
import math
import struct
from collections import namedtuple
from pathlib import Path

import numpy
import pyarrow
import pyarrow.parquet as parquet
import zstandard
from blake3 import blake3
from everstep_checker.packs import crc32c
from everstep_reader.tensors import PLANES
from everstep_reader.objects import pack_key

REPOSITORY, FENCE_SESSION, PIN_SESSION = "11" * 16, "22" * 16, "44" * 16
ATTEMPTS = ["a0" * 16, "a1" * 16, "a2" * 16]
REUSED = {"chunks_new": 0, "reused_raw_bytes": 441, "new_raw_bytes": 0, "new_stored_bytes": 0}  # the totals of a pin
REFS_HEADER, REF, PACK_HEADER, PACK_ROW = map(struct.Struct, ("<8sIIQ", "<16sI32s", "<8sHHHHII16sQ16s", "<32sBBHIQQQ"))
Entry = namedtuple("Entry", "chunk codec width base crc raw_len stored_len offset")
U32, U64 = pyarrow.uint32(), pyarrow.uint64()
LIST = pyarrow.list_(pyarrow.field("element", U64, nullable=False))
ID, HASH, TEXT = pyarrow.binary(16), pyarrow.binary(32), pyarrow.string()
COLUMNS = {
    "name": TEXT, "kind": TEXT, "dtype": TEXT, "shape": LIST, "offset": LIST, "extent": LIST, "alias_of": TEXT, "rank": U32,
    "chunk": HASH, "chunk_offset": U64, "raw_len": U64, "writer_attempt": ID, "writer_rank": U32, "pack": HASH,
    "pack_len": U64, "pack_offset": U64, "stored_len": U64, "codec": pyarrow.uint8(),
}
NEVER_NULL = ("name", "kind", "dtype", "shape", "offset", "extent")


def record_key(run, kind, ordinal):
    return f"runs/{run}/{kind}/{ordinal:020}"


def digest(data):
    return blake3(data).hexdigest()


def seal(fields):
    text = fields if isinstance(fields, str) else json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    body = text.removesuffix("}").encode()
    return body + b',"blake3":"' + digest(body).encode() + b'"}\n'


def without_none(fields):
    return {name: value for name, value in fields.items() if value is not None}


class Forge:
    """`change` is called with the name of a stage and what is about to be written, and returns what shall be."""

    def __init__(self, root, change=lambda stage, made: made):
        self.root, self.change, self.saved = Path(root), change, {}

    def put(self, key, data):
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def folder(self, key):
        """A folder in the place of an object."""
        path = self.root / key
        path.unlink(missing_ok=True)
        path.mkdir(parents=True)

    def sealed(self, stage, key, magic, **fields):
        fields = {"magic": magic, "version": 1} | fields
        self.put(key, seal(self.change(stage, fields)))

    def repository(self):
        """A fence, a checkpoint, a checkpoint that reuses its first chunk, and nothing else."""
        chunking = {"block_elements": 1024, "block_bytes": 1 << 20}
        self.sealed(
            "configuration", "everstep.json", "everstep-repository", version_name="1", requires={}, id=REPOSITORY,
            chunking=chunking, writers="many-writers", created="2026-01-01T00:00:00Z", tool="forge",
        )
        self.intent(1, kind="fence", parents=[], world_size=0)
        floats = numpy.arange(64, dtype="<f4").tobytes()
        zeros = bytes(160)
        value = bytes.fromhex("a2656265746173da4556535482fb3feccccccccccccd0200f6")
        frame = zstandard.ZstdCompressor(write_checksum=False).compress(zeros)
        planes = b"\x04" + bytes([0, 0, 0, 0]) + b"".join(rotated(floats, 4))
        rows = [
            self.row("a", "f32", [8, 8], floats, 0), self.row("e", "u8", [0, 3], b"", None),
            self.row("o", "value", [len(value)], value, 1, kind="object"), self.row("z", "u8", [160], zeros, 2),
        ]
        first = self.save(2, [], [(floats, 2, planes), (value, 0, value), (zeros, 1, frame)], rows)
        other = bytes(range(100))
        rows = [
            self.row("a", "f32", [8, 8], floats, first[0]), self.row("b", "i4", [0], b"", None),
            self.row("n", "int4", [2, 4], other[:4], 0, raw=other), self.row("r", "bytes", [96], other[4:], 0, "object", 0, raw=other),
        ]
        rows[1]["dtype"], rows[3]["chunk_offset"] = "i32", 4
        self.save(3, [2], [(other, 0, other)], rows)
        self.change("later", self)

    def intent(self, ordinal, **fields):
        about = {"run": "r", "ordinal": ordinal, "attempt": f"{0xA0 + ordinal - 1:x}" * 16, "session": FENCE_SESSION, "requires": {}}
        about |= fields
        self.sealed(f"intent {ordinal}", record_key(about["run"], "intents", ordinal), "everstep-intent", **about)

    def marker(self, run, ordinal, **fields):
        about = {"run": run, "ordinal": ordinal, "reason": "", "created": ""} | fields
        self.sealed("", record_key(run, "expired", ordinal), "everstep-expired", **about)

    def sweep(self):
        """Takes away what a collector would of the first checkpoint, after it has expired, while its packs are in use."""
        for path in self.root.glob(f"index/{ATTEMPTS[1]}/*"):
            path.unlink()

    PIN_DECISION = record_key("_pins", "decisions", 2)

    def pin(self, intent=None, manifest=None):
        """A fence in the run of pins, and a pin of the first checkpoint, with fields that are put in, over, or away."""
        of_parent, index, refs = self.saved[2]
        parents = [{"run": "r", "ordinal": 2, "attempt": ATTEMPTS[1]}]
        about = {"run": "_pins", "session": PIN_SESSION}
        self.intent(1, **about, attempt="b0" * 16, kind="fence", parents=[], world_size=0)
        about |= {"attempt": "b1" * 16, "parents": parents, "step": 20, "world_size": 1}
        self.intent(2, **about | {"kind": "save"} | (intent or {}))
        self.put(f"index/{'b1' * 16}/{digest(index)}.parquet", index)
        self.put(f"index/{'b1' * 16}/{digest(refs)}.refs", refs)
        made = of_parent | about | {"ordinal": 2, "pin": {"name": "best", "of": parents[0]}, "totals": of_parent["totals"] | REUSED}
        same = {"run": "_pins", "ordinal": 2, "attempt": "b1" * 16}
        manifest = without_none(made | (manifest or {}))
        same |= {"requires": {}, "decision": "COMMIT", "manifest": manifest}
        self.sealed("pin", self.PIN_DECISION, "everstep-decision", **same)

    def lease(self, key="77" * 16, **fields):
        """A lease of the first checkpoint."""
        parent = {"run": "r", "ordinal": 2, "attempt": ATTEMPTS[1]}
        about = {"requires": {}, "lease": key, "parent": parent, "ttl": 600, "created": "2026-01-01T00:00:00Z"}
        self.sealed("lease", f"leases/{key}", "everstep-lease", **without_none(about | fields))

    def lease_end(self, key="77" * 16, **fields):
        about = {"lease": key, "reason": "closed", "created": "2026-01-01T00:00:00Z"} | fields
        self.sealed("lease end", f"leases/{key}.end", "everstep-lease-end", **about)

    def row(self, name, dtype, shape, data, place, kind="tensor", rank=None, raw=None):
        """`place` is the number of a chunk of this save, the place of an older one, or None without elements."""
        return {
            "name": name, "kind": kind, "dtype": dtype, "shape": shape, "offset": [0] * len(shape), "extent": shape,
            "alias_of": None, "rank": rank, "place": place, "chunk_offset": None if place is None else 0,
        }

    def save(self, ordinal, parents, chunks, rows):
        """An attempt and its COMMIT; gives the places of its chunks."""
        attempt = ATTEMPTS[ordinal - 1]
        parents = [{"run": "r", "ordinal": one, "attempt": ATTEMPTS[one - 1]} for one in parents]
        self.intent(ordinal, kind="save", parents=parents, step=10 * ordinal, world_size=1)
        places = self.pack(f"pack {ordinal}", attempt, chunks)
        for row in rows:
            place = row.pop("place")
            row |= (places[place] if isinstance(place, int) else place) or {}
        rows = self.change(f"rows {ordinal}", rows)
        used = sorted({(row["writer_attempt"], row["writer_rank"], row["pack"]) for row in rows if row.get("pack")})
        used = self.change(f"refs {ordinal}", used)
        refs = REFS_HEADER.pack(b"EVSTREFS", 1, 0, len(used)) + b"".join(REF.pack(*one) for one in used)
        refs = self.change(f"refs bytes {ordinal}", refs)
        index, footer = self.index(ordinal, rows)
        self.put(f"index/{attempt}/{digest(index)}.parquet", index)
        self.put(f"index/{attempt}/{digest(refs)}.refs", refs)
        same = {"run": "r", "ordinal": ordinal, "attempt": attempt}
        manifest = same | {
            "step": 10 * ordinal, "session": FENCE_SESSION, "parents": parents, "world_size": 1,
            "index": {"blake3": digest(index), "len": len(index), "rows": len(rows), "footer_offset": footer,
                      "footer_blake3": digest(index[footer:])},
            "refs": {"blake3": digest(refs), "len": len(refs), "packs": len(used)},
            "owners": sorted({one[0].hex() for one in used}), "totals": totals(attempt, rows), "metadata": {"loss": 1.5},
            "created": "2026-01-01T00:00:00Z", "tool": "forge",
        }
        self.saved[ordinal] = (manifest, index, refs)
        self.sealed(
            f"decision {ordinal}", record_key("r", "decisions", ordinal), "everstep-decision", requires={}, **same,
            decision="COMMIT", manifest=manifest,
        )
        return places

    def pack(self, stage, attempt, chunks):
        """`chunks` are raw bytes, codec and stored bytes; a change may give table rows that differ from them."""
        table, at = [], 64 + 64 * len(chunks)
        for raw, codec, stored in chunks:
            at = -(-at // 64) * 64
            width = stored[0] if codec == PLANES else 0
            table.append(Entry(blake3(raw).digest(), codec, width, 0, crc32c(stored), len(raw), len(stored), at))
            at += len(stored)
        header = [b"EVSTPACK", 1, 64, 64, 0, len(chunks), 0, bytes.fromhex(attempt), at, bytes(16)]
        header, table = self.change(f"{stage} table", (header, table))
        front = PACK_HEADER.pack(*header) + b"".join(PACK_ROW.pack(*entry) for entry in table)
        body = bytearray(at)
        body[: len(front)] = front
        for entry, (_, _, stored) in zip(table, chunks):
            body[entry.offset : entry.offset + len(stored)] = stored
        body = self.change(f"{stage} bytes", bytes(body))
        self.put(pack_key(attempt, 0, digest(front)), body)
        return [
            {"chunk": entry.chunk, "raw_len": entry.raw_len, "writer_attempt": bytes.fromhex(attempt), "writer_rank": 0,
             "pack": blake3(front).digest(), "pack_len": at, "pack_offset": entry.offset, "stored_len": entry.stored_len,
             "codec": entry.codec} for entry in table
        ]  # fmt: skip

    def index(self, ordinal, rows):
        """The bytes of an index with row groups of two rows, and where its footer begins."""
        columns = self.change(f"columns {ordinal}", dict(COLUMNS))
        schema = pyarrow.schema([pyarrow.field(name, kind, name not in NEVER_NULL) for name, kind in columns.items()])
        file, groups = io.BytesIO(), []
        options = {"compression": "zstd", "store_schema": False, "use_dictionary": ["name", "kind", "dtype"]}
        with parquet.ParquetWriter(file, schema, **self.change(f"writer {ordinal}", options)) as writer:
            for group in [rows[at : at + 2] for at in range(0, len(rows), 2)]:
                start = file.tell()
                values = [[row.get(name) for row in group] for name in columns]
                arrays = [pyarrow.array(column, kind) for column, kind in zip(values, columns.values())]
                writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
                groups.append({"first": group[0]["name"], "last": group[-1]["name"], "rows": len(group), "start": start,
                               "len": file.tell() - start, "blake3": digest(file.getvalue()[start:])})  # fmt: skip
            directory = self.change(f"directory {ordinal}", {"version": 1, "groups": groups})
            writer.add_key_value_metadata({"everstep.index": json.dumps(directory)})
        data = file.getvalue()
        length = struct.unpack("<I", data[-8:-4])[0]
        return data, len(data) - 8 - length


def totals(attempt, rows):
    chunks = list({row["chunk"]: row for row in rows if row.get("chunk")}.values())
    new = [row for row in chunks if row["writer_attempt"].hex() == attempt]
    bits = {"f32": 32, "i32": 32, "int4": 4}
    firsts = list({(row["name"], row["rank"]): row for row in rows}.values())
    return {
        "tensors": sum(row["kind"] == "tensor" for row in firsts), "objects": sum(row["kind"] == "object" for row in firsts),
        "chunks": len(chunks), "chunks_new": len(new),
        "raw_bytes": sum(-(-math.prod(row["shape"]) * bits.get(row["dtype"], 8) // 8) for row in firsts),
        "reused_raw_bytes": sum(row["raw_len"] for row in chunks) - sum(row["raw_len"] for row in new),
        "new_raw_bytes": sum(row["raw_len"] for row in new), "new_stored_bytes": sum(row["stored_len"] for row in new),
    }


def rotated(raw, width):
    """The planes of little-endian integers, each rotated left by one bit."""
    bits = 8 * width
    numbers = [int.from_bytes(raw[at : at + width], "little") for at in range(0, len(raw), width)]
    numbers = [(number << 1 | number >> bits - 1) & (1 << bits) - 1 for number in numbers]
    return [bytes(number >> 8 * plane & 255 for number in numbers) for plane in range(width)]
