"""Reading what is large without Python's collector of cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Leave the collector off inside; also a decorator.

    The millions of objects of a large file make it look at all of them, again and again: at 20,000 pods for 2.5 s in
    one go, in which no signal is heard. What files hold has no cycles, so there is nothing for it to find.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.unfreeze()  # what is new counts as old: else all of it would be looked at now
            gc.enable()
