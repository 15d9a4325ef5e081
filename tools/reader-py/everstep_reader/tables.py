"""What a reader needs every object to say (pages 02 to 04), field by field, within the limits of page 12."""

from .objects import CHOSEN, HASH, ID, RUN

KI, MI = 1 << 10, 1 << 20
SEALED, JSON_DEPTH, TEXT = 4 * MI, 127, 4 * MI
INDEX, FOOTER, SCHEMA, GROUPS, GROUP, GROUP_ROWS = 2 * KI * MI, 16 * MI, 256, 16_384, 64 * MI, 16_384
GROUP_PAGES, VALUES_PER_ROW, BOX_CELLS = 32 * MI, 64, 32 * MI
RAW, STORED, PACK, REFS = 32 * MI, 32 * MI + 4 * KI, 64 * MI, 16 * MI
VALUE, VALUE_DEPTH, VALUE_ITEMS = 256 * MI, 128, 4 * MI
U32, U64 = range(1 << 32), range(1 << 64)
NAME, NUMBERS, FEATURES = 16 * KI, [U64, 64], [TEXT, SEALED]

VERSION = (1,)
REQUIRES = {"read?": FEATURES, "write?": FEATURES, "gc?": FEATURES}
REFERENCE = {"run": RUN, "ordinal": range(1, 10**18 + 1), "attempt": ID}
PARENTS = [REFERENCE, 16]
BLOCKS = {"block_elements": range(1, 1 << 64)}
OVERRIDE = BLOCKS | {"pattern": 4 * KI}
CONFIGURATION = {
    "magic": "everstep-repository", "version": VERSION, "version_name": TEXT, "requires": REQUIRES, "id": ID,
    "writers": ("many-writers", "single-writer"), "created": TEXT, "tool": TEXT,
    "chunking": BLOCKS | {"block_bytes": range(16, RAW + 1), "overrides?": [OVERRIDE, 256]},
}
TOTALS = "tensors objects chunks chunks_new raw_bytes reused_raw_bytes new_raw_bytes new_stored_bytes"
FILE = {"blake3": HASH, "len": U64}
MANIFEST = {
    **REFERENCE, "step": U64, "session": ID, "parents": PARENTS, "world_size": U64,
    "index": FILE | {"len": range(INDEX + 1), "rows": U64, "footer_offset": U64, "footer_blake3": HASH},
    "refs": FILE | {"packs": range(REFS + 1)}, "owners": [ID, REFS], "rollback_to?": REFERENCE,
    "pin?": {"name": CHOSEN, "of": REFERENCE | {"run": CHOSEN}}, "totals": dict.fromkeys(TOTALS.split(), U64),
    "metadata": {}, "created": TEXT, "tool": TEXT,
}
DECISION = {
    "magic": "everstep-decision", "version": VERSION, "requires": REQUIRES, **REFERENCE,
    "decision": "COMMIT|ABORT", "manifest?": MANIFEST, "abort?": {"reason": TEXT, "detail?": TEXT, "by?": ID},
}
GROUP_ENTRY = {"first": NAME, "last": NAME, "rows": range(1, GROUP_ROWS + 1), "start": U64} | FILE
DIRECTORY = {"version": VERSION, "groups": [GROUP_ENTRY | {"len": range(GROUP + 1)}, GROUPS]}
BOX = {
    "name": NAME, "kind": "tensor|object", "dtype": 64, "alias_of?": NAME, "rank?": U32,
    "shape": NUMBERS, "offset": NUMBERS, "extent": NUMBERS,
}
PLACE = {
    "chunk": HASH, "raw_len": range(RAW + 1), "writer_attempt": ID, "writer_rank": U32, "pack": HASH,
    "pack_len": range(PACK + 1), "pack_offset": range(64, 1 << 64, 64), "stored_len": range(1, STORED + 1),
    "codec": range(1 << 8),
}
IN_CHUNK = PLACE | {"chunk_offset": U64}
