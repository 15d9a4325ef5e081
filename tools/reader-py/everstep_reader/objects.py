"""Objects and their keys (page 01), in a local directory. Ids and hashes are lower-case hex text."""

import re
from pathlib import Path

from blake3 import blake3

from .errors import Missing, limit, require

CHOSEN = "[a-z0-9][a-z0-9._-]{0,127}"  # a name that people give
RUN, ID, HASH, NUMBER = rf"(?:{CHOSEN}|_pins)", "[0-9a-f]{32}", "[0-9a-f]{64}", "(?:0|[1-9][0-9]{0,19})"
KNOWN = re.compile(
    rf"everstep\.json|runs/(?P<run>{RUN})/(?P<kind>intents|decisions|expired)/(?P<ordinal>(?!0{{20}})[0-9]{{20}})"
    rf"|index/{ID}/(?:part-(?P<part>{NUMBER})-{HASH}\.parquet|failed-(?P<failed>{NUMBER})\.json)"
    rf"|index/{ID}/{HASH}\.(?:parquet|refs)"
    rf"|packs/(?P<xx>[0-9a-f]{{2}})/(?P<attempt>{ID})/(?P<rank>{NUMBER})-{HASH}"
    rf"|(?:sessions|alive)/{ID}|cards/{ID}/(?P<save>{NUMBER})\.(?:card|outcome)|leases/{ID}(?:\.end)?"
    rf"|probe/{ID}-[0-9]+|swept/.*|runs/_.*"
)
MOST = {"ordinal": 10**18, "part": 2**32 - 1, "failed": 2**32 - 1, "rank": 2**32 - 1, "save": 2**64 - 1}


def parse(key):
    """What the key is made of, by name; None of a stray, which page 01 does not describe."""
    match = KNOWN.fullmatch(key)
    known = match and not any(match[name] and int(match[name]) > most for name, most in MOST.items())
    return match if known and (not match["xx"] or match["xx"] == spread(match["attempt"], match["rank"])) else None


def spread(attempt, rank):
    """`<xx>`, which spreads the packs of attempts over prefixes."""
    return blake3(bytes.fromhex(attempt) + bytes([int(rank) % 16])).hexdigest()[:2]


def pack_key(attempt, rank, pack):
    return f"packs/{spread(attempt, rank)}/{attempt}/{rank}-{pack}"


def record_key(run, kind, ordinal):
    """Of an intent, a decision or an expired marker; `kind` is the folder."""
    return f"runs/{run}/{kind}/{ordinal:020}"


class Directory:
    def __init__(self, root):
        self.root = Path(root).resolve()

    def keys(self, folder=""):
        """Every key below a folder, in order."""
        files = (path for path in (self.root / folder).rglob("*") if path.is_file())
        return sorted(path.relative_to(self.root).as_posix() for path in files)

    def exists(self, key):
        return (self.root / key).is_file()

    def read(self, key, most, start=0, length=None):
        """The whole object, or `length` bytes from `start`; fewer where it ends before."""
        path = self.root / key
        require(self.exists(key), key, "there is no such object", Missing)
        require(path.resolve() == path, key, "a link leads to it, and none is followed")
        limit(path.stat().st_size if length is None else length, most, key, "bytes")
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(length)

    def read_whole(self, key, most, expected):
        """An object whose length and hash the manifest says."""
        data = self.read(key, most)
        whole = (len(data), blake3(data).hexdigest()) == (expected["len"], expected["blake3"])
        require(whole, key, "length or hash is not that of the manifest")
        return data
