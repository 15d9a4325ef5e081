"""Objects and their keys (page 01), in a local directory, and what can be wrong with them (page 15).

Ids and hashes are lower-case hex text."""

from pathlib import Path

from blake3 import blake3

CHOSEN = "[a-z0-9][a-z0-9._-]{0,127}"  # a name that people give
RUN, ORDINAL = rf"(?:{CHOSEN}|_pins)", "(?!0{20})(?:00[0-9]{18}|010{18})"  # from 1 to 10^18
ID, HASH = "[0-9a-f]{32}", "[0-9a-f]{64}"
RECORD = rf"runs/(?P<run>{RUN})/(?:intents|decisions|expired)/(?P<ordinal>{ORDINAL})"


class Wrong(Exception):
    """Names the object, by its key or a reference, and what is wrong with it."""

    def __init__(self, object, what):
        super().__init__(f"{object}: {type(self).__name__}: {what}")
        self.object, self.what = object, what


class Corrupt(Wrong):
    """The bytes are not what the format, a hash or the key says."""


class TooLarge(Corrupt):
    """A number in the object exceeds a limit of page 12."""


class Missing(Wrong):
    """An object does not exist that a checkpoint promises (I4), or that nobody may delete (I1)."""


class Unsupported(Wrong):
    """A later format: upgrade, nothing is damaged."""


class NotFound(Wrong):
    """No checkpoint has this name."""


class Expired(NotFound):
    """The checkpoint was given up by an expired marker."""


def require(holds, object, what, error=Corrupt):
    if not holds:
        raise error(object, what)


def limit(number, most, object, what):
    require(number <= most, object, f"{what}: {number}, at most {most} are allowed", TooLarge)


def known(holds, object, what):
    require(holds, object, f"{what} is not known to this reader", Unsupported)


def pack_key(attempt, rank, pack):
    spread = blake3(bytes.fromhex(attempt) + bytes([rank % 16])).hexdigest()[:2]
    return f"packs/{spread}/{attempt}/{rank}-{pack}"


class Directory:
    def __init__(self, root):
        self.root = Path(root).resolve()

    def keys(self, folder=""):
        """The paths of everything below a folder, in order, also of folders and links."""
        return sorted(path.relative_to(self.root).as_posix() for path in (self.root / folder).rglob("*"))

    def is_link(self, key):
        return (self.root / key).is_symlink()

    def exists(self, key):
        """Whether anything is there, also a link or a folder, which are in the place of an object."""
        path = self.root / key
        require(path.parent.resolve() == path.parent, key, "a folder above it is a link, not followed")
        return path.is_symlink() or path.exists()

    def read(self, key, most, start=0, length=None):
        """The whole object, or `length` bytes from `start`; fewer where it ends before."""
        path = self.root / key
        require(self.exists(key), key, "there is no such object", Missing)
        plain = path.is_file() and not path.is_symlink()
        require(plain, key, "a link, not followed, or something else that is no plain file")
        limit(path.stat().st_size if length is None else length, most, key, "bytes")
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(length)

    def read_whole(self, key, most, expected):
        """An object whose length and hash the manifest says."""
        data = self.read(key, most)
        found = {"len": len(data), "blake3": blake3(data).hexdigest()}
        require(found.items() <= expected.items(), key, "length or hash is not that of the manifest")
        return data
