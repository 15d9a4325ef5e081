"""What a checkpoint has, by name; and the names that a caller uses for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from .errors import InvalidArgument

Rename = Mapping[str, str] | Callable[[str], str] | None
Select = str | Sequence[str] | None

#: What wrappers put into names.
_WRAPPERS = ("_orig_mod.", "module.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")

#: What is noted beside a state that was saved through torch.distributed.checkpoint: how to put it together again, as
#: {name: keys that lead there}.
PLANNER_DATA = "torch.distributed.checkpoint:planner_data"


class Stored:
    """Entries of a checkpoint, looked up by the caller's names."""

    def __init__(self, entries: list[dict[str, Any]], rename: Rename, select: Select):
        self.entries = {entry["name"]: entry for entry in entries}
        self._rename = _renaming(rename)
        self._select = [select] if isinstance(select, str) else select
        self._below: dict[str, list[str]] | None = None

    def name(self, wanted: str) -> str:
        """What the caller's `wanted` is called in the checkpoint."""
        return self._rename(wanted)

    def get(self, wanted: str) -> dict[str, Any] | None:
        """The entry of the caller's name."""
        return self.entries.get(self._rename(wanted))

    def selected(self, wanted: str) -> bool:
        """Whether the caller wants this name at all."""
        return self._select is None or any(fnmatchcase(wanted, pattern) for pattern in self._select)

    def directly_below(self, prefix: str) -> dict[str, dict[str, Any]]:
        """Entries called `prefix` and one more part, by that part."""
        if self._below is None:
            self._below = {}
            for name in self.entries:
                self._below.setdefault(name.rpartition(".")[0], []).append(name)
        names = self._below.get(self._rename(prefix[:-1]), [])
        return {name.rpartition(".")[2]: self.entries[name] for name in names}

    def has_below(self, wanted: str) -> bool:
        """Whether anything is stored below the caller's name."""
        prefix = self._rename(wanted) + "."
        return any(name.startswith(prefix) for name in self.entries)

    def unexpected(self, asked: set[str]) -> list[str]:
        """Stored names that count as wanted and were not asked for (`asked`: stored names)."""
        asked = asked | {PLANNER_DATA}
        return sorted(name for name in self.entries if name not in asked and self.selected(name))

    def hint(self, missing: Sequence[str]) -> str:
        """What may be wrong when names are missing, if wrappers explain it."""
        bare = {_bare(name): name for name in self.entries}
        for name in missing:
            other = bare.get(_bare(name))
            if other is not None and other != name:
                return f'; {name!r} may be stored as {other!r}: give rename={{"{name}": "{other}"}} or a function of names'
        return ""


def _bare(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _renaming(rename: Rename) -> Callable[[str], str]:
    if rename is None:
        return lambda name: name
    if callable(rename):
        return rename
    if not isinstance(rename, Mapping):
        raise InvalidArgument("rename is a dict {name in the state: name in the checkpoint}, of names or of prefixes, or a function")
    prefixes = sorted(rename.items(), key=lambda item: -len(item[0]))

    def renamed(name: str) -> str:
        if name in rename:
            return rename[name]
        for prefix, stored in prefixes:
            if name.startswith(prefix) and (prefix == "" or prefix.endswith(".") or name[len(prefix) :][:1] == "."):
                return stored + name[len(prefix) :]
        return name

    return renamed
