"""What a checker needs the other objects to say (pages 03, 05, 06): tables for `check` of the reader."""

from everstep_reader.objects import HASH, ID, RUN
from everstep_reader.tables import PACK, PARENTS, RAW, REFERENCE, REFS, REQUIRES, STORED, TEXT, U32, U64
from everstep_reader.tables import VERSION

INTENT = {
    "magic": "everstep-intent", "version": VERSION, "requires": REQUIRES, **REFERENCE, "session": ID,
    "kind": ("save", "fence"), "parents": PARENTS, "step?": U64, "world_size": U64, "job?": 256,
}
MARKER = {
    "magic": "everstep-expired", "version": VERSION, "run": RUN, "ordinal": REFERENCE["ordinal"],
    "reason": TEXT, "created": TEXT,
}
LEASE = {
    "magic": "everstep-lease", "version": VERSION, "requires": REQUIRES, "lease": ID, "parent": REFERENCE,
    "ttl": range(60, 30 * 86_400 + 1), "holder?": 256, "created": TEXT,
}
LEASE_END = {"magic": "everstep-lease-end", "version": VERSION, "lease": ID, "reason": TEXT, "created": TEXT}

REFS_FORM = "8sI4sQ"
REFS_HEADER = {"magic": b"EVSTREFS".hex(), "version": VERSION, "zeros": "0*", "count": range(REFS + 1)}
PACK_FORM = "8sH6sII16sQ16s"
PACK_HEADER = {
    "magic": b"EVSTPACK".hex(), "version": VERSION, "sizes": "400040000000", "chunks": range(1, 131_072 + 1),
    "rank": U32, "attempt": ID, "pack_len": range(PACK + 1), "zeros": "0*",
}
ROW_FORM = "32sBBHIQQQ"
PACK_ROW = {
    "chunk": HASH, "codec": (0, 1, 2), "width": range(1 << 8), "base": (0,), "crc": U32,
    "raw_len": range(1, RAW + 1), "stored_len": range(1, STORED + 1), "offset": U64,
}
