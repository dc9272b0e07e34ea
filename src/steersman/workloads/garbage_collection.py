"""Reading large inputs without Python's cyclic garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable the collector inside; also a decorator.

    The millions of objects of a large file make it scan all of them again and again: at 20,000 pods for 2.5 s in one
    go, in which no signal is handled. Parsed files have no cycles, so there is nothing for it to collect.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.unfreeze()  # new objects count as old: otherwise all of them would be scanned now
            gc.enable()
