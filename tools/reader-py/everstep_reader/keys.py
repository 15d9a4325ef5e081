"""Keys of objects, in their only spelling (page 01). Ids and hashes are lower-case hex text."""

import re

from blake3 import blake3

from .limits import ORDINAL

CHOSEN = "[a-z0-9][a-z0-9._-]{0,127}"  # a name that people give
RUN, ID, HASH, NUMBER = rf"(?:{CHOSEN}|_pins)", "[0-9a-f]{32}", "[0-9a-f]{64}", "(?:0|[1-9][0-9]{0,19})"
KNOWN = re.compile(
    rf"everstep\.json|runs/{RUN}/(?:intents|decisions|expired)/(?P<ordinal>[0-9]{{20}})"
    rf"|index/{ID}/(?:part-(?P<part>{NUMBER})-{HASH}\.parquet|failed-(?P<failed>{NUMBER})\.json)"
    rf"|index/{ID}/{HASH}\.(?:parquet|refs)"
    rf"|packs/(?P<xx>[0-9a-f]{{2}})/(?P<attempt>{ID})/(?P<rank>{NUMBER})-{HASH}"
    rf"|(?:sessions|alive)/{ID}|cards/{ID}/(?P<save>{NUMBER})\.(?:card|outcome)|leases/{ID}(?:\.end)?"
    rf"|probe/{ID}-[0-9]+|swept/.*|runs/_.*"
)
MOST = {"ordinal": ORDINAL, "part": 2**32 - 1, "failed": 2**32 - 1, "rank": 2**32 - 1, "save": 2**64 - 1}


def is_stray(key):
    """Whether page 01 does not describe the key."""
    match = KNOWN.fullmatch(key)
    if not match or any(match[name] and int(match[name]) > most for name, most in MOST.items()):
        return True
    misplaced = match["xx"] and match["xx"] != spread(match["attempt"], match["rank"])
    return match["ordinal"] == "0" * 20 or bool(misplaced)


def spread(attempt, rank):
    """`<xx>`, which spreads the packs of attempts over prefixes."""
    return blake3(bytes.fromhex(attempt) + bytes([int(rank) % 16])).hexdigest()[:2]


def pack(attempt, rank, pack_id):
    return f"packs/{spread(attempt, rank)}/{attempt}/{rank}-{pack_id}"


def record(run, kind, ordinal):
    """Of an intent, a decision or an expired marker; `kind` is the folder."""
    return f"runs/{run}/{kind}/{ordinal:020}"
