"""A repository in a local directory: keys are relative paths."""

import os
from pathlib import Path

from .errors import NotFound, limit


class Directory:
    def __init__(self, root):
        self.root = Path(root)

    def keys(self):
        """Every key, in order."""
        files = (Path(folder, name) for folder, _, names in os.walk(self.root) for name in names)
        return sorted(file.relative_to(self.root).as_posix() for file in files)

    def names(self, prefix):
        """What lies directly below a prefix, in order."""
        folder = self.root / prefix
        return sorted(os.listdir(folder)) if folder.is_dir() else []

    def exists(self, key):
        return (self.root / key).is_file()

    def size(self, key):
        if not self.exists(key):
            raise NotFound(key, "there is no such object")
        return (self.root / key).stat().st_size

    def read(self, key, most, start=0, length=None):
        """The whole object, or `length` bytes from `start`; fewer where it ends before."""
        size = self.size(key)
        limit(size if length is None else length, most, key, "bytes")
        with open(self.root / key, "rb") as file:
            file.seek(start)
            return file.read(size if length is None else length)
