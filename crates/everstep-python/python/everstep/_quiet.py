"""Keeps Python's cycle collector out of loops that make an object or two for each tensor."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing made in such a loop is a cycle, yet its objects would set off walks through all that the trainer has: with
    20,000 tensors these cost several times as much as the loop itself."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
