"""All keys of page 01, of which a reader needs few."""

import re

from everstep_reader.objects import HASH, ID, ORDINAL, RECORD, RUN, pack_key

NUMBER = "(?:0|[1-9][0-9]{0,19})"
KNOWN = re.compile(
    rf"everstep\.json|{RECORD}|index/{ID}/{HASH}\.(?:parquet|refs)"
    rf"|index/{ID}/(?:part-(?P<part>{NUMBER})-{HASH}\.parquet|failed-(?P<failed>{NUMBER})\.json)"
    rf"|packs/[0-9a-f]{{2}}/(?P<attempt>{ID})/(?P<rank>{NUMBER})-(?P<pack>{HASH})"
    rf"|(?:sessions|alive)/{ID}|cards/{ID}/(?P<save>{NUMBER})\.(?:card|outcome)|leases/{ID}(?:\.end)?"
    rf"|probe/{ID}-[0-9]+|swept/{RUN}/{ORDINAL}|runs/_(?!pins/).*"
)
MOST = {"part": 2**32 - 1, "failed": 2**32 - 1, "rank": 2**32 - 1, "save": 2**64 - 1}


def is_known(key):
    """Whether page 01 describes the key; others are strays."""
    parts = KNOWN.fullmatch(key)
    if not parts or any(parts[name] and int(parts[name]) > most for name, most in MOST.items()):
        return False
    return not parts["pack"] or key == pack_key(parts["attempt"], int(parts["rank"]), parts["pack"])
