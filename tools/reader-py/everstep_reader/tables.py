"""What every object must say, field by field (pages 02 to 06), within the limits of page 12: tables for `rules`."""

from .objects import CHOSEN, HASH, ID, RUN

KI, MI, GI = 1 << 10, 1 << 20, 1 << 30
SEALED, JSON_DEPTH, TEXT = 4 * MI, 127, 4 * MI
INDEX, FOOTER, SCHEMA, GROUPS = 2 * GI, 16 * MI, 256, 16_384
GROUP_PAGES, VALUES_PER_ROW, BOX_CELLS = 32 * MI, 64, 32 * MI
RAW, STORED, PACK, REFS = 32 * MI, 32 * MI + 4 * KI, 64 * MI, 16 * MI
VALUE, VALUE_DEPTH, VALUE_ITEMS = 256 * MI, 128, 4 * MI
U8, U32, U64, POSITIVE = range(1 << 8), range(1 << 32), range(1 << 64), range(1, 1 << 64)
NAME, NUMBERS = 16 * KI, [U64, 64]

VERSION = (0,)
REQUIRES = {"read?": [TEXT, SEALED], "write?": [TEXT, SEALED], "gc?": [TEXT, SEALED]}
REFERENCE = {"run": RUN, "ordinal": range(1, 10**18 + 1), "attempt": ID}
PARENTS = [REFERENCE, 16]
CONFIGURATION = {
    "magic": {"everstep-repository"}, "version": VERSION, "version_name": TEXT, "requires": REQUIRES, "id": ID,
    "writers": {"many-writers", "single-writer"}, "created": TEXT, "tool": TEXT,
    "chunking": {
        "block_elements": POSITIVE, "block_bytes": range(16, RAW + 1),
        "overrides?": [{"pattern": 4 * KI, "block_elements": POSITIVE}, 256],
    },
}
INTENT = {
    "magic": {"everstep-intent"}, "version": VERSION, "requires": REQUIRES, **REFERENCE, "session": ID,
    "kind": ("save", "fence"), "parents": PARENTS, "step?": U64, "world_size": U64, "job?": 256,
}
MANIFEST = {
    **REFERENCE, "step": U64, "session": ID, "parents": PARENTS, "world_size": U64,
    "index": {"blake3": HASH, "len": range(INDEX + 1), "rows": U64, "footer_offset": U64, "footer_blake3": HASH},
    "refs": {"blake3": HASH, "len": U64, "packs": range(REFS + 1)}, "owners": [ID, REFS],
    "rollback_to?": REFERENCE, "pin?": {"name": CHOSEN, "of": REFERENCE | {"run": CHOSEN}},
    "totals": {
        "tensors": U64, "objects": U64, "chunks": U64, "chunks_new": U64, "raw_bytes": U64, "reused_raw_bytes": U64,
        "new_raw_bytes": U64, "new_stored_bytes": U64,
    },
    "metadata": {}, "created": TEXT, "tool": TEXT,
}
DECISION = {
    "magic": {"everstep-decision"}, "version": VERSION, "requires": REQUIRES, **REFERENCE,
    "decision": {"COMMIT", "ABORT"}, "manifest?": MANIFEST, "abort?": {"reason": TEXT, "detail?": TEXT, "by?": ID},
}
MARKER = {
    "magic": {"everstep-expired"}, "version": VERSION, "run": RUN, "ordinal": REFERENCE["ordinal"], "reason": TEXT,
    "created": TEXT,
}

LEASE = {
    "magic": {"everstep-lease"}, "version": VERSION, "requires": REQUIRES, "lease": ID, "parent": REFERENCE,
    "ttl": range(60, 30 * 86_400 + 1), "holder?": 256, "created": TEXT,
}
LEASE_END = {"magic": {"everstep-lease-end"}, "version": VERSION, "lease": ID, "reason": TEXT, "created": TEXT}

GROUP = {
    "first": NAME, "last": NAME, "rows": range(1, 16_384 + 1), "start": U64, "len": range(64 * MI + 1), "blake3": HASH,
}
DIRECTORY = {"version": VERSION, "groups": [GROUP, GROUPS]}
PIECE = {
    "name": NAME, "kind": {"tensor", "object"}, "dtype": 64, "shape": NUMBERS, "offset": NUMBERS, "extent": NUMBERS,
    "alias_of?": NAME, "rank?": U32,
}
CHUNK = {
    "chunk_offset": U64, "chunk": HASH, "raw_len": range(RAW + 1), "writer_attempt": ID, "writer_rank": U32,
    "pack": HASH, "pack_len": range(PACK + 1), "pack_offset": range(64, 1 << 64, 64),
    "stored_len": range(1, STORED + 1), "codec": U8,
}

REFS_HEADER = {"magic": {b"EVSTREFS".hex()}, "version": VERSION, "zero": {0}, "count": range(REFS + 1)}
PACK_HEADER = {
    "magic": {b"EVSTPACK".hex()}, "version": VERSION, "header": {64}, "row": {64}, "zero": {0},
    "chunks": range(1, 131_072 + 1), "rank": U32, "attempt": ID, "pack_len": range(PACK + 1),
    "zeros": {bytes(16).hex()},
}
PACK_ROW = {
    "chunk": HASH, "codec": (0, 1, 2), "width": U8, "base": (0,), "crc": U32, "raw_len": range(1, RAW + 1),
    "stored_len": range(1, STORED + 1), "offset": U64,
}
