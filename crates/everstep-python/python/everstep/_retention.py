"""Retention beside the training: after a commit, what the policy does not keep expires, in the background."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _everstep
from .errors import InvalidArgument

#: TOML text, the path of a TOML file, or its tables; in tables, `runs` need not be given.
Policy = str | os.PathLike | Mapping[str, Any] | Sequence[Mapping[str, Any]]


def policy_text(policy: Policy) -> str:
    """As the compiled half reads it: TOML, or the same tables in JSON."""
    if isinstance(policy, str) and "[[" in policy:
        return policy
    if isinstance(policy, (str, os.PathLike)):
        try:
            return Path(policy).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"the policy {os.fspath(policy)!r} cannot be read: {error}") from error
    tables = [policy] if isinstance(policy, Mapping) else policy
    try:
        return json.dumps({"policy": [{"runs": "*", **table} for table in tables]}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"a policy is TOML, a path, or one or several dicts of rules: {error}") from None


class Retention:
    """One pass at a time, in a thread that nobody waits for. What becomes of a pass is told, and never raised."""

    def __init__(
        self,
        expirer: _everstep.Expirer,
        told: Callable[[int, list[int], BaseException | None], None],
    ):
        self._expirer, self._told = expirer, told
        self._lock = threading.Lock()
        self._due: int | None = None
        self._passing = False

    def start(self, step: int) -> None:
        """Begins a pass, after the commit of `step`; or lets the one on its way be followed by another."""
        with self._lock:
            self._due = step
            if self._passing:
                return
            self._passing = True
        threading.Thread(target=self._run, name="everstep-retention", daemon=True).start()

    def _run(self) -> None:
        while (step := self._next()) is not None:
            try:
                expired, error = self._expirer.expire(), None
            except BaseException as failed:  # whatever it is: a pass of retention ends no training
                expired, error = [], failed
            self._told(step, expired, error)

    def _next(self) -> int | None:
        with self._lock:
            step, self._due = self._due, None
            self._passing = step is not None
            return step
