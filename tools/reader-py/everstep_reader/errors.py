"""What can be wrong with a stored object, and the exit status that tells it (page 15)."""


class ReaderError(Exception):
    """Names the object, by its key or a reference, and what is wrong with it."""

    status = 1

    def __init__(self, object, what):
        super().__init__(f"{object}: {type(self).__name__}: {what}")
        self.object, self.what = object, what


class Corrupt(ReaderError):
    """The bytes are not what the format, a hash or the key says."""


class TooLarge(Corrupt):
    """A number in the object exceeds a limit of page 12."""


class Incomplete(ReaderError):
    """An object is missing that a checkpoint promises (I4), or that nobody may delete (I1)."""


class Unsupported(ReaderError):
    """A later format: upgrade, nothing is damaged."""

    status = 5


class NotFound(ReaderError):
    """Nothing has this name."""

    status = 4


class Expired(NotFound):
    """The checkpoint was given up by an expired marker."""


def require(holds, where, what):
    if not holds:
        raise Corrupt(where, what)


def limit(number, most, where, what):
    if number > most:
        raise TooLarge(where, f"{what}: {number}, at most {most} are allowed")


def known(holds, where, what):
    if not holds:
        raise Unsupported(where, f"{what} is not known to this reader")
