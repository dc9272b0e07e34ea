"""The collector does not scan what stays again and again."""

from __future__ import annotations

import gc
import weakref

from steersman.core.garbage_collection import MANY, short_collections


class Link:
    """An object that may refer to itself."""

    itself: Link | None = None


def test_survivors_are_scanned_once_and_garbage_is_collected() -> None:
    with short_collections():
        pods = [[i] for i in range(2 * MANY)]
        gc.collect()
        assert len(gc.get_objects()) < MANY
        # What is frozen is freed when it is deleted.
        frozen = gc.get_freeze_count()
        del pods
        assert gc.get_freeze_count() < frozen - MANY
        link = Link()
        link.itself, gone = link, weakref.ref(link)
        del link
        gc.collect()
        assert gone() is None


def test_few_survivors_are_scanned_again() -> None:
    with short_collections():
        links = [Link() for _ in range(100)]
        gc.collect()
        gone = weakref.ref(links[0])
        links[0].itself = links[0]
        links.clear()
        gc.collect()
        assert gone() is None
