"""Python's cyclic garbage collector, which scans all objects in one go and stops every thread meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 50_000  # objects that a full collection scans in 10 ms


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


@contextmanager
def short_collections() -> Iterator[None]:
    """Scan objects that survive only once inside, and never again; for a process that ends with the block.

    With 8,000 pods of 75 objects a full collection takes a quarter of a second, in which no probe is answered. Pods
    have no cycles: they are freed when they are deleted, although the collector does not scan them any more.
    """

    def freeze(phase: str, info: dict[str, int]) -> None:
        # Few survivors are scanned again, since objects in use at this moment may become garbage with cycles.
        if phase == "stop" and info["generation"] == 2 and len(gc.get_objects()) > MANY:
            gc.freeze()

    gc.freeze()
    gc.callbacks.append(freeze)
    try:
        yield
    finally:
        gc.callbacks.remove(freeze)
