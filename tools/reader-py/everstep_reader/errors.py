"""What can be wrong with a stored object (page 15), and the exit status that tells it."""


class Wrong(Exception):
    """Names the object, by its key or a reference, and what is wrong with it."""

    status = 1

    def __init__(self, object, what):
        super().__init__(f"{object}: {type(self).__name__}: {what}")
        self.object, self.what = object, what

    def show(self):
        return {"kind": type(self).__name__, "object": self.object, "what": self.what}


class Corrupt(Wrong):
    """The bytes are not what the format, a hash or the key says."""


class TooLarge(Corrupt):
    """A number in the object exceeds a limit of page 12."""


class Missing(Wrong):
    """An object does not exist that a checkpoint promises (I4), or that nobody may delete (I1)."""


class Unsupported(Wrong):
    """A later format: upgrade, nothing is damaged."""

    status = 5


class NotFound(Wrong):
    """No checkpoint has this name."""

    status = 4


class Expired(NotFound):
    """The checkpoint was given up by an expired marker."""


def require(holds, object, what, error=Corrupt):
    if not holds:
        raise error(object, what)


def limit(number, most, object, what):
    require(number <= most, object, f"{what}: {number}, at most {most} are allowed", TooLarge)


def known(holds, object, what):
    require(holds, object, f"{what} is not known to this reader", Unsupported)
