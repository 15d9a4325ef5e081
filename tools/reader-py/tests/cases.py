"""Forged repositories, each with one rule broken or just kept, and what the specification says of it."""

import copy
import json
import re

import pyarrow

FINE, DAMAGED, UNSUPPORTED = "fine", "damaged", "unsupported"
CASES = []
GONE = object()
PARENT = {"run": "r", "ordinal": 2, "attempt": "a1" * 16}
CHUNK = (
    "chunk", "chunk_offset", "raw_len", "writer_attempt", "writer_rank", "pack", "pack_len", "pack_offset", "stored_len", "codec"
)


def case(verdict, stage, name, change):
    CASES.append((f"{stage}: {name}", stage, change, verdict))


def put(path, value):
    """Sets a field of a document, or takes it away."""

    def change(document):
        document = copy.deepcopy(document)
        *way, last = path.split(".")
        inner = document
        for step in way:
            inner = inner[step]
        if value is GONE:
            del inner[last]
        else:
            inner[last] = value
        return document

    return change


def deep(levels):
    return [deep(levels - 1)] if levels > 1 else []


def text(change):
    return lambda document: change(json.dumps(document, separators=(",", ":")))


def add(more):
    return text(lambda document: f"{document[:-1]},{more}}}")


def row(number, **values):
    """Changes one row of the index."""
    return lambda rows: [{**one, **values} if at == number else one for at, one in enumerate(rows)]


def all_rows(**values):
    return lambda rows: [{**one, **values} if one.get("pack") else one for one in rows]


def instead(number, *changed):
    """Puts several changed copies in the place of a row."""
    return lambda rows: [*rows[:number], *({**rows[number], **one} for one in changed), *rows[number + 1 :]]


def box(offset, extent, at=0):
    return {"offset": offset, "extent": extent, "chunk_offset": at}


def entry(number, **values):
    """Changes one row of the table of a pack."""
    return lambda front: (front[0], [one._replace(**values) if at == number else one for at, one in enumerate(front[1])])


def header(number, value):
    return lambda front: ([value if at == number else one for at, one in enumerate(front[0])], front[1])


def flip(at):
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def group(number, **values):
    return lambda directory: {
        **directory, "groups": [{**one, **values} if at == number else one for at, one in enumerate(directory["groups"])]
    }


case(FINE, "configuration", "nothing changed", lambda made: made)

# Page 02, on each kind of sealed object
for stage in ("configuration", "intent 1", "intent 3", "decision 3"):
    magic = re.compile('"magic":"[^"]*"')
    case(UNSUPPORTED, stage, "version 9", put("version", 9))
    case(UNSUPPORTED, stage, "version 0 of a draft", put("version", 0))
    case(UNSUPPORTED, stage, "version 2^32", put("version", 1 << 32))
    case(UNSUPPORTED, stage, "version 2^64 - 1", put("version", (1 << 64) - 1))
    case(UNSUPPORTED, stage, "version 9 of another shape", lambda made: {"magic": made["magic"], "version": 9})
    case(DAMAGED, stage, "another magic and version", lambda made: made | {"magic": "everstep-other", "version": 9})
    case(DAMAGED, stage, "version missing", put("version", GONE))
    case(DAMAGED, stage, "version as text", put("version", "1"))
    case(DAMAGED, stage, "version 1.0", put("version", 1.0))
    case(DAMAGED, stage, "another magic", put("magic", "everstep-other"))
    case(FINE, stage, "an unknown field", put("other", [1, {}]))
    case(FINE, stage, "an unknown field twice", add('"other":1,"other":2'))
    case(DAMAGED, stage, "a known field twice", text(lambda made, magic=magic: f"{made[:-1]},{magic.search(made)[0]}}}"))
    case(FINE, stage, "whitespace", text(lambda made: " { " + made[1:-1].replace(":", " : ", 1) + " }"))
    case(DAMAGED, stage, "NaN", add('"other":NaN'))
    case(DAMAGED, stage, "half a surrogate pair", add('"other":"\\ud800"'))
    case(DAMAGED, stage, "128 levels", add('"other":' + "[" * 127 + "]" * 127))
    case(FINE, stage, "127 levels", add('"other":' + "[" * 126 + "]" * 126))
    case(DAMAGED, stage, "a number beyond doubles", add('"other":1e999'))
    case(DAMAGED, stage, "no requires", put("requires", GONE))
    case(DAMAGED, stage, "a list for requires", put("requires", []))
    case(DAMAGED, stage, "a list of lists for requires", put("requires", [[]]))
    case(FINE, stage, "requires for a program that collects", put("requires", {"gc": ["new"]}))
    case(UNSUPPORTED, stage, "requires for reading", put("requires", {"read": ["new"]}))

# Pages 03 and 13
for field in ("version_name", "id", "chunking", "writers", "created", "tool"):
    case(DAMAGED, "configuration", f"no {field}", put(field, GONE))
case(UNSUPPORTED, "configuration", "other writers", put("writers", "other"))
case(DAMAGED, "configuration", "blocks too small", put("chunking.block_bytes", 8))
case(DAMAGED, "configuration", "blocks too large", put("chunking.block_bytes", (32 << 20) + 1))
case(DAMAGED, "configuration", "blocks of no elements", put("chunking.block_elements", 0))
case(DAMAGED, "configuration", "257 overrides", put("chunking.overrides", [{"pattern": "a", "block_elements": 1}] * 257))
for verdict, patterns in (
    (FINE, (r"", "]", "a-", "[]x]", "[!]]", "[a-]", "[-a]", "[a-b-]", "[--0]", r"[\]-a]", r"[A-\]]", r"\[", "[*?[]", "[a-a]", "[^!-~]")),
    (DAMAGED, ("[", "[]", "[!]", "[^]", "[]-A]", "[b-a]", r"[a-\]", "a\\", "[a-bz-y]", r"[\b-\a]", "x[a")),
):  # fmt: skip
    for pattern in patterns:
        overrides = [{"pattern": pattern, "block_elements": 1}]
        case(verdict, "configuration", f"the pattern {pattern}", put("chunking.overrides", overrides))
case(DAMAGED, "configuration", "a list for the blocks", put("chunking", [1024, 1 << 20]))
case(DAMAGED, "configuration", "an object for the writers", put("writers", {"many-writers": None}))
case(DAMAGED, "intent 3", "a list for a parent", put("parents", [["r", 2, "a1" * 16]]))
for field in ("run", "ordinal", "attempt", "session", "kind", "parents", "step", "world_size"):
    case(DAMAGED, "intent 3", f"no {field}", put(field, GONE))
case(DAMAGED, "intent 3", "another run", put("run", "q"))
case(DAMAGED, "intent 3", "another ordinal", put("ordinal", 4))
case(DAMAGED, "intent 3", "an attempt in capitals", put("attempt", "A2" * 16))
case(DAMAGED, "intent 3", "another attempt", put("attempt", "b2" * 16))
case(DAMAGED, "intent 3", "another session", put("session", "b2" * 16))
case(DAMAGED, "intent 3", "no writers", put("world_size", 0))
case(DAMAGED, "intent 3", "another step", put("step", 7))
case(DAMAGED, "intent 3", "a long job", put("job", "x" * 257))
case(DAMAGED, "intent 3", "17 parents", put("parents", [PARENT] * 17))
case(DAMAGED, "intent 3", "another parent", put("parents", [PARENT | {"attempt": "b2" * 16}]))
case(UNSUPPORTED, "intent 3", "another kind", put("kind", "other"))
case(DAMAGED, "intent 1", "a fence of one writer", put("world_size", 1))
case(DAMAGED, "intent 1", "a fence with a step", put("step", 1))
case(DAMAGED, "intent 1", "a fence with a parent", put("parents", [PARENT]))
for field in ("decision", "run", "ordinal", "attempt", "manifest"):
    case(DAMAGED, "decision 3", f"no {field}", put(field, GONE))
manifest = "run ordinal attempt step session parents world_size index refs owners totals metadata created tool index.rows index.footer_offset"
for field in manifest.split():
    case(DAMAGED, "decision 3", f"no {field} in the manifest", put(f"manifest.{field}", GONE))
case(DAMAGED, "decision 3", "neither COMMIT nor ABORT", put("decision", "MAYBE"))
case(DAMAGED, "decision 3", "COMMIT and abort", put("abort", {"reason": "failed"}))
case(DAMAGED, "decision 3", "ABORT and manifest", lambda made: made | {"decision": "ABORT", "abort": {"reason": "failed"}})
case(DAMAGED, "decision 3", "another session", put("manifest.session", "b2" * 16))
case(DAMAGED, "decision 3", "another attempt", put("manifest.attempt", "b2" * 16))
case(DAMAGED, "decision 3", "a parent that the intent does not name", put("manifest.parents", [PARENT, PARENT | {"ordinal": 1}]))
case(DAMAGED, "decision 3", "no parent, although chunks are reused", put("manifest.parents", []))
case(DAMAGED, "decision 3", "owners out of order", put("manifest.owners", ["a2" * 16, "a1" * 16]))
case(DAMAGED, "decision 3", "an owner too few", put("manifest.owners", ["a2" * 16]))
case(DAMAGED, "decision 3", "an owner too many", put("manifest.owners", ["a1" * 16, "a2" * 16, "a3" * 16]))
case(DAMAGED, "decision 3", "metadata that are no object", put("manifest.metadata", []))
case(DAMAGED, "decision 3", "a list for the refs", lambda made: put("manifest.refs", list(made["manifest"]["refs"].values()))(made))
case(DAMAGED, "decision 3", "a list for the manifest", lambda made: made | {"manifest": list(made["manifest"].values())})
for name, other in (("beyond doubles", text(lambda made: made[:-2] + ',"other":1e999}}')), ("in 127 levels", put("manifest.other", deep(125)))):
    case(DAMAGED if "doubles" in name else FINE, "decision 3", f"a manifest with something {name}", other)
case(DAMAGED, "decision 3", "a manifest with something in 128 levels", put("manifest.other", deep(126)))
case(DAMAGED, "decision 3", "other totals", put("manifest.totals.chunks", 77))
case(DAMAGED, "decision 3", "another number of rows", put("manifest.index.rows", 5))
case(DAMAGED, "decision 3", "another length of the index", put("manifest.index.len", 5))
case(DAMAGED, "decision 3", "another footer offset", put("manifest.index.footer_offset", 4))
case(DAMAGED, "decision 3", "another hash of the footer", put("manifest.index.footer_blake3", "00" * 32))
case(DAMAGED, "decision 3", "another number of packs", put("manifest.refs.packs", 7))

# Page 13: what comes later
def later(*intents, expired=None, **marker):
    """Intents of ordinals from 4 on, and an expired marker with these fields."""

    def change(forge):
        for ordinal, fields in enumerate(intents, start=4):
            forge.intent(ordinal, **fields)
        if expired:
            forge.marker("r", expired, **marker)

    return change


SAVE = {"kind": "save", "parents": [], "step": 9, "world_size": 1}
FENCE = {"kind": "fence", "parents": [], "world_size": 0, "session": "33" * 16}
case(FINE, "later", "an attempt without a decision", later(SAVE))
case(FINE, "later", "an attempt without a decision below a fence", later(SAVE, FENCE))
case(FINE, "later", "a fenced session that goes on", later(SAVE, FENCE, SAVE))
case(DAMAGED, "later", "an attempt without a decision below a fence that saved", later(SAVE, FENCE, SAVE | {"session": "33" * 16}))
case(DAMAGED, "later", "a parent without a decision", later(SAVE, SAVE | {"parents": [PARENT | {"ordinal": 4, "attempt": "a3" * 16}]}))
case(FINE, "later", "the newest checkpoint expires", later(expired=3))
case(FINE, "later", "an older checkpoint expires", later(expired=2))
case(UNSUPPORTED, "later", "a marker of version 9", later(expired=2, version=9))
case(UNSUPPORTED, "later", "a marker of version 2^32", later(expired=2, version=1 << 32))
case(UNSUPPORTED, "later", "a marker of version 9 of another shape", later(expired=2, version=9, reason=7))
case(FINE, "later", "a fence expires", later(expired=1))
case(DAMAGED, "later", "a marker of nothing", later(expired=9))
case(FINE, "later", "a session mark that is damaged", lambda forge: forge.put("sessions/" + "22" * 16, b"no mark"))
case(DAMAGED, "later", "a marker without a decision", later(SAVE, expired=4))

FIRST, NEVER = PARENT | {"ordinal": 1, "attempt": "a0" * 16}, PARENT | {"run": "q", "ordinal": 9, "attempt": "99" * 16}
case(FINE, "intent 3", "an unknown field that another object has", put("manifest", "r"))
case(DAMAGED, "intent 3", "itself as a parent", put("parents", [PARENT, PARENT | {"ordinal": 3, "attempt": "a2" * 16}]))
case(DAMAGED, "intent 3", "a parent that never was", put("parents", [PARENT, NEVER]))
case(DAMAGED, "later", "a pin of a fence", lambda forge: forge.pin({"parents": [FIRST]}, {"parents": [FIRST]}))
case(FINE, "later", "a fence as a parent of what is undecided", later(SAVE | {"parents": [FIRST]}))

# Page 03: pins and leases
def pinned(*others, **changes):
    return lambda forge: (forge.pin(**changes), [other(forge) for other in others])


def leased(*others, **changes):
    return lambda forge: (forge.lease(**changes), [other(forge) for other in others])


def marked(run, ordinal):
    return lambda forge: forge.marker(run, ordinal)


def pin_of(**changes):
    return {"pin": {"name": "best", "of": PARENT | changes}}


LEASE = f"leases/{'77' * 16}"
case(FINE, "later", "a pin", pinned())
case(FINE, "later", "a pin of what has expired", pinned(marked("r", 2)))
case(FINE, "later", "a pin of what was swept", pinned(marked("r", 2), lambda forge: forge.sweep()))
case(FINE, "later", "a pin that has expired", pinned(marked("_pins", 2)))
case(FINE, "later", "a pin without a decision", pinned(lambda forge: (forge.root / forge.PIN_DECISION).unlink()))
case(DAMAGED, "later", "a pin whose decision is damaged", pinned(lambda forge: forge.put(forge.PIN_DECISION, b"pin")))
case(DAMAGED, "later", "a pin without its index", pinned(lambda forge: next(forge.root.glob("index/b1*/*.parquet")).unlink()))
case(DAMAGED, "later", "a pin without its refs", pinned(lambda forge: next(forge.root.glob("index/b1*/*.refs")).unlink()))
case(DAMAGED, "later", "a COMMIT in _pins that is no pin", pinned(manifest={"pin": None}))
case(DAMAGED, "later", "a pin of a name that nobody can choose", pinned(manifest={"pin": {"name": "_best", "of": PARENT}}))
case(DAMAGED, "later", "a pin of a pin", pinned(manifest=pin_of(run="_pins")))
case(FINE, "later", "a pin of another attempt than its parent", pinned(manifest=pin_of(attempt="b2" * 16)))
case(FINE, "later", "a pin that rolls back", pinned(manifest={"rollback_to": PARENT}))
case(DAMAGED, "later", "a pin without a parent", pinned(manifest={"parents": []}, intent={"parents": []}))
other = {"parents": [PARENT | {"attempt": "b2" * 16}]}
case(DAMAGED, "later", "a pin whose parent is another attempt", pinned(manifest=other, intent=other))
case(DAMAGED, "later", "a pin of another step than its intent", pinned(manifest={"step": 21}))
case(FINE, "later", "a pin of another step than its parent", pinned(manifest={"step": 21}, intent={"step": 21}))
case(FINE, "later", "a pin of other metadata", pinned(manifest={"metadata": {"loss": 1}}))
case(DAMAGED, "later", "a pin with the totals of its parent", lambda forge: forge.pin(manifest={"totals": forge.saved[2][0]["totals"]}))
case(DAMAGED, "decision 3", "a pin in another run", put("manifest.pin", {"name": "best", "of": PARENT}))
case(FINE, "later", "a lease", leased())
case(FINE, "later", "a lease that has ended", leased(lambda forge: forge.lease_end()))
case(FINE, "later", "an end without a lease", lambda forge: forge.lease_end())
case(FINE, "later", "an end for another reason", leased(lambda forge: forge.lease_end(reason="other")))
case(DAMAGED, "later", "an end that is damaged", leased(lambda forge: forge.put(f"{LEASE}.end", b"end")))
case(DAMAGED, "later", "an end of another lease", leased(lambda forge: forge.lease_end(lease="88" * 16)))
case(UNSUPPORTED, "later", "an end of version 9", leased(lambda forge: forge.lease_end(version=9)))
case(DAMAGED, "later", "a lease that is damaged", lambda forge: forge.put(LEASE, b"lease"))
case(DAMAGED, "later", "a lease of another id", leased(lease="88" * 16))
case(UNSUPPORTED, "later", "a lease of version 9", leased(version=9))
for operation in ("read", "write", "gc"):
    case(FINE, "later", f"a lease that requires to {operation}", leased(requires={operation: ["new"]}))
for field in ("requires", "lease", "parent", "ttl", "created"):
    case(DAMAGED, "later", f"a lease without {field}", leased(**{field: None}))
case(DAMAGED, "later", "a lease of 59 seconds", leased(ttl=59))
case(FINE, "later", "a lease of 60 seconds", leased(ttl=60))
case(FINE, "later", "a lease of 30 days", leased(ttl=30 * 86_400))
case(DAMAGED, "later", "a lease of 30 days and a second", leased(ttl=30 * 86_400 + 1))
case(FINE, "later", "a lease with a holder", leased(holder="x" * 256))
case(DAMAGED, "later", "a lease with a long holder", leased(holder="x" * 257))
case(FINE, "later", "a lease of a run that is not there", leased(parent=PARENT | {"run": "q"}))
case(FINE, "later", "a lease of what has expired", leased(marked("r", 2)))
case(DAMAGED, "later", "a lease of ordinal 0", leased(parent=PARENT | {"ordinal": 0}))
case(DAMAGED, "later", "a lease of no run", leased(parent=PARENT | {"run": "../r"}))
for key in ("runs/r/intents/00000000000000000003", "runs/r/decisions/00000000000000000003", LEASE):
    case(DAMAGED, "later", f"a folder as {key}", lambda forge, key=key: forge.folder(key))
case(DAMAGED, "later", "a folder as a marker", lambda forge: forge.folder("runs/r/expired/00000000000000000002"))
case(FINE, "later", "a folder as a sign of life", lambda forge: forge.folder("alive/" + "a2" * 16))
case(FINE, "later", "a lease under no id", lambda forge: forge.put("leases/7", b"lease"))

# Page 04: rows
case(DAMAGED, "rows 2", "out of order", lambda rows: [rows[1], rows[0], *rows[2:]])
case(DAMAGED, "rows 2", "twice", instead(0, {}, {}))
case(FINE, "rows 2", "two halves", instead(0, box([0, 0], [4, 8]), box([4, 0], [4, 8], 128)))
case(DAMAGED, "rows 2", "a gap", instead(0, box([0, 0], [4, 8]), box([5, 0], [3, 8])))
case(DAMAGED, "rows 2", "an overlap", instead(0, box([0, 0], [4, 8]), box([3, 0], [5, 8])))
case(DAMAGED, "rows 2", "a box that sticks out", instead(0, box([0, 0], [4, 8]), box([4, 0], [5, 8])))
case(DAMAGED, "rows 2", "a box that wraps around", instead(0, box([0, 0], [4, 8]), box([2**64 - 1, 0], [5, 8])))
windmill = box([0, 0], [3, 5]), box([0, 5], [5, 3]), box([3, 0], [5, 3]), box([3, 3], [2, 2]), box([5, 3], [3, 5])
case(FINE, "rows 2", "a windmill", instead(0, *windmill))
case(DAMAGED, "rows 2", "a windmill without its middle", instead(0, *windmill[:3], windmill[4]))
case(DAMAGED, "rows 2", "an empty box besides", instead(0, box([0, 0], [8, 8]), box([4, 0], [0, 8])))
nothing = {"offset": [4, 0], "extent": [0, 8], **dict.fromkeys(CHUNK)}
case(DAMAGED, "rows 2", "an empty box of no chunk besides", instead(0, box([0, 0], [8, 8]), nothing))
case(DAMAGED, "rows 2", "an extent of one dimension", row(0, extent=[8]))
dimensions = {"shape": [1] * 62 + [8, 8], "offset": [0] * 64, "extent": [1] * 62 + [8, 8]}
case(FINE, "rows 2", "64 dimensions", row(0, **dimensions))
case(DAMAGED, "rows 2", "65 dimensions", row(0, **{name: [numbers[0], *numbers] for name, numbers in dimensions.items()}))
case(DAMAGED, "rows 2", "another kind", row(0, kind="other"))
case(FINE, "rows 2", "an unknown dtype", row(0, dtype="float6"))
case(FINE, "rows 2", "an object of an unknown kind", row(2, dtype="pickle"))
case(DAMAGED, "rows 2", "a long dtype", row(0, dtype="f" * 65))
case(DAMAGED, "rows 2", "a tensor of value", row(0, dtype="value"))
case(DAMAGED, "rows 2", "an object of f32", row(2, dtype="f32"))
case(DAMAGED, "rows 2", "an object without dimensions", row(2, shape=[], offset=[], extent=[]))
case(FINE, "rows 2", "a value that is none, which whoever loads it finds", row(2, shape=[24], extent=[24], chunk_offset=1))
case(DAMAGED, "rows 2", "elements without a chunk", row(0, **dict.fromkeys(CHUNK)))
case(DAMAGED, "rows 2", "two rows without elements", instead(1, {}, {"offset": [0, 1], "extent": [0, 2]}))
case(FINE, "rows 2", "an alias without elements", row(1, alias_of="a"))
case(FINE, "rows 2", "nothing of a rank", row(1, rank=2))
case(DAMAGED, "rows 2", "a part of a chunk that is not there", row(1, chunk_offset=0))
case(DAMAGED, "rows 2", "not the whole of nothing", row(1, extent=[0, 2]))
case(DAMAGED, "rows 2", "a chunk of nothing", lambda rows: [rows[0], rows[1] | {name: rows[0][name] for name in CHUNK}, *rows[2:]])
case(DAMAGED, "rows 2", "half a chunk", row(0, codec=None))
case(DAMAGED, "rows 2", "a piece beyond its chunk", row(0, chunk_offset=1))
case(DAMAGED, "rows 2", "a piece that wraps around", row(0, chunk_offset=2**64 - 1))
case(DAMAGED, "rows 2", "a chunk of more bytes", row(0, raw_len=300))
case(DAMAGED, "rows 2", "a chunk of too many bytes", row(0, raw_len=(32 << 20) + 1))
case(DAMAGED, "rows 2", "fewer stored bytes", row(0, stored_len=100))
case(DAMAGED, "rows 2", "too many stored bytes", row(0, stored_len=1 << 40))
case(DAMAGED, "rows 2", "no stored bytes", row(0, stored_len=0))
case(DAMAGED, "rows 2", "at the start of the pack", row(0, pack_offset=0))
case(DAMAGED, "rows 2", "at no multiple of 64", row(0, pack_offset=257))
case(DAMAGED, "rows 2", "at another offset", row(0, pack_offset=320))
case(DAMAGED, "rows 2", "a pack of too many bytes", all_rows(pack_len=1 << 27))
case(DAMAGED, "rows 2", "a pack of another length", all_rows(pack_len=659))
case(DAMAGED, "rows 2", "a pack of two lengths", row(0, pack_len=10000))
case(DAMAGED, "rows 2", "another codec", row(0, codec=0))
for codec in (3, 255):
    newer = lambda rows, codec=codec: [one | {"codec": codec} if one["name"] in "nr" else one for one in rows]  # noqa: E731
    case(UNSUPPORTED, "rows 3", f"codec {codec}", newer)
case(DAMAGED, "rows 2", "another chunk", row(0, chunk=bytes(32)))
case(DAMAGED, "rows 2", "another rank", all_rows(writer_rank=1))
case(DAMAGED, "rows 2", "another pack", all_rows(pack=bytes(32)))
case(DAMAGED, "rows 2", "an attempt that nobody knows", all_rows(writer_attempt=bytes(16)))
case(DAMAGED, "rows 2", "a chunk in two places", lambda rows: [*rows[:2], rows[2] | {"chunk": rows[0]["chunk"]}, rows[3]])
case(DAMAGED, "rows 3", "a chunk where no parent has it", row(0, pack_offset=320))
case(FINE, "rows 2", "an alias", instead(0, {}, {"name": "b", "alias_of": "a"}))
case(DAMAGED, "rows 2", "an alias of itself", row(0, alias_of="a"))
case(DAMAGED, "rows 2", "an alias of nothing", row(0, alias_of="q"))
case(FINE, "rows 2", "two ranks", instead(0, {"rank": 1}, {"rank": 3}))
case(FINE, "rows 2", "two ranks of two shapes", instead(0, {"rank": 1}, {"rank": 3, "shape": [64], "offset": [0], "extent": [64]}))
case(DAMAGED, "rows 2", "with and without a rank", instead(0, {}, {"rank": 3}))
case(FINE, "rows 2", "an empty name", row(0, name=""))
case(FINE, "rows 2", "control characters", row(3, name="z\0\x1b[31m\n"))
case(FINE, "rows 2", "a name of 16 KiB", row(3, name="z" * 16384))
case(DAMAGED, "rows 2", "a name of 16 KiB and a byte", row(3, name="z" * 16385))
nibbles = {"shape": [2, 4], "offset": [0, 0]}
case(FINE, "rows 3", "4 bits, cut at an even element", instead(2, box([0, 0], [2, 2]), box([0, 2], [2, 2], 2)))
case(DAMAGED, "rows 3", "4 bits, cut at an odd element", instead(2, box([0, 0], [2, 3]), box([0, 3], [2, 1], 3)))
seven = {"shape": [7]}
case(FINE, "rows 3", "4 bits, seven cut at four", instead(2, seven | box([0], [4]), seven | box([4], [3], 2)))
case(DAMAGED, "rows 3", "4 bits, seven cut at three", instead(2, seven | box([0], [3]), seven | box([3], [4], 2)))
seven = {"shape": [1, 7]}
case(DAMAGED, "rows 3", "4 bits, a row of seven cut at four", instead(2, seven | box([0, 0], [1, 4]), seven | box([0, 4], [1, 3], 2)))
case(FINE, "rows 3", "4 bits, no dimensions", row(2, shape=[], offset=[], extent=[]))

# Page 04: the file
case(UNSUPPORTED, "directory 2", "version 9", put("version", 9))
case(UNSUPPORTED, "directory 2", "version 2^32", put("version", 1 << 32))
case(UNSUPPORTED, "directory 2", "version 9 of another shape", lambda made: {"version": 9})
case(DAMAGED, "directory 2", "a list", lambda made: list(made.values()))
case(DAMAGED, "directory 2", "lists for groups", lambda made: made | {"groups": [list(one.values()) for one in made["groups"]]})
case(DAMAGED, "directory 2", "no version", put("version", GONE))
case(DAMAGED, "directory 2", "no groups", put("groups", []))
case(FINE, "directory 2", "an unknown field", put("other", 1))
case(DAMAGED, "directory 2", "a group too few", lambda made: made | {"groups": made["groups"][:1]})
case(DAMAGED, "directory 2", "another first name", group(0, first="A"))
case(DAMAGED, "directory 2", "another last name", group(0, last="f"))
case(DAMAGED, "directory 2", "fewer rows", group(0, rows=1))
case(DAMAGED, "directory 2", "no rows", group(0, rows=0))
case(DAMAGED, "directory 2", "too many rows", group(0, rows=16385))
case(DAMAGED, "directory 2", "another start", group(0, start=5))
case(DAMAGED, "directory 2", "a length that wraps around", group(1, len=1 << 63))
case(DAMAGED, "directory 2", "another hash", group(1, blake3="00" * 32))
case(FINE, "columns 2", "an unknown column", lambda columns: columns | {"other": pyarrow.int32()})
case(FINE, "columns 2", "in another order", lambda columns: dict(reversed(columns.items())))
case(DAMAGED, "columns 2", "one too few", put("alias_of", GONE))
for name, kind in {"rank": pyarrow.uint64(), "raw_len": pyarrow.int64(), "codec": pyarrow.uint32(), "name": pyarrow.binary(), "chunk": pyarrow.binary()}.items():
    case(DAMAGED, "columns 2", f"{name} as {kind}", put(name, kind))
case(FINE, "columns 2", "a shape that could have nulls", put("shape", pyarrow.list_(pyarrow.field("element", pyarrow.uint64()))))
for verdict, name, options in (
    (FINE, "uncompressed", {"compression": "none"}), (DAMAGED, "snappy", {"compression": "snappy"}),
    (FINE, "pages of version 2", {"data_page_version": "2.0"}), (FINE, "dictionaries", {"use_dictionary": True}),
    (FINE, "no dictionaries", {"use_dictionary": False}), (FINE, "the schema of Arrow", {"store_schema": True}),
    (FINE, "checksums of pages", {"write_page_checksum": True}), (DAMAGED, "page indexes", {"write_page_index": True}),
    (FINE, "DELTA_BINARY_PACKED", {"use_dictionary": False, "column_encoding": {"raw_len": "DELTA_BINARY_PACKED"}}),
    (DAMAGED, "DELTA_BYTE_ARRAY", {"use_dictionary": False, "column_encoding": {"name": "DELTA_BYTE_ARRAY"}}),
):  # fmt: skip
    case(verdict, "writer 2", name, lambda made, options=options: made | options)

# Page 05
case(DAMAGED, "refs 3", "one too many", lambda refs: sorted([*refs, (bytes(16), 5, bytes(32))]))
case(DAMAGED, "refs 3", "one too few", lambda refs: refs[:1])
case(DAMAGED, "refs 3", "out of order", lambda refs: refs[::-1])
case(DAMAGED, "refs 3", "twice", lambda refs: [refs[0], *refs])
case(DAMAGED, "refs bytes 3", "another magic", flip(0))
case(UNSUPPORTED, "refs bytes 3", "version 0 of a draft", flip(8))
case(DAMAGED, "refs bytes 3", "not zero", flip(12))
case(DAMAGED, "refs bytes 3", "a byte after the end", lambda data: data + b"\0")
case(DAMAGED, "refs bytes 3", "cut", lambda data: data[:10])

# Page 06
for number, value in ((0, b"EVSTPACX"), (2, 63), (3, 32), (4, 1), (6, 7), (7, bytes(16)), (8, 100), (8, 1 << 27), (9, b"\1" * 16)):
    case(DAMAGED, "pack 2 table", f"header field {number} is {value!r}", header(number, value))
case(UNSUPPORTED, "pack 2 table", "version 9", header(1, 9))
case(UNSUPPORTED, "pack 2 table", "a base", entry(1, base=1))
case(UNSUPPORTED, "pack 2 table", "a reserved codec", entry(2, codec=3))
case(DAMAGED, "pack 2 table", "another checksum", entry(0, crc=1))
case(DAMAGED, "pack 2 table", "another element width", entry(0, width=2))
case(DAMAGED, "pack 2 table", "a width without planes", entry(1, width=2))
case(DAMAGED, "pack 2 table", "another chunk", entry(1, chunk=bytes(32)))
case(DAMAGED, "pack 2 table", "more raw bytes", entry(2, raw_len=161))
case(DAMAGED, "pack 2 table", "too many raw bytes", entry(2, raw_len=1 << 30))
case(DAMAGED, "pack 2 table", "fewer stored bytes", entry(2, stored_len=5))
case(DAMAGED, "pack 2 bytes", "padding", flip(64 * 4 + 264))
case(DAMAGED, "pack 2 bytes", "a payload", flip(64 * 4 + 30))
case(DAMAGED, "pack 2 bytes", "a byte more", lambda data: data + b"\0")
case(DAMAGED, "pack 2 bytes", "a byte less", lambda data: data[:-1])
