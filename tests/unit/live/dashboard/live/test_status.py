"""What is read of pods beside the cache: how long one waited."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from steersman.live.dashboard.live.status import WaitingFeed

NAME = {"name": "a", "namespace": "default", "creationTimestamp": "2024-05-01T12:00:00Z"}


def waited(seen: float, condition: dict[str, str | None], **metadata: str) -> float:
    """Seconds that a pod waited that was bound so long after it was seen."""
    now, bound = 100.0, list[tuple[str, float]]()
    feed = WaitingFeed(lambda key, seconds: bound.append((key, seconds)), lambda: now)
    feed.keep(set())
    pod: dict[str, Any] = {"metadata": NAME | metadata, "spec": {}}
    feed.change("ADDED", msgspec.Raw(json.dumps(pod).encode()))
    now += seen
    pod |= {"spec": {"nodeName": "n"}, "status": {"conditions": [{"type": "PodScheduled", **condition}]}}
    for _ in range(2):
        feed.change("MODIFIED", msgspec.Raw(json.dumps(pod).encode()))
    ((key, seconds),) = bound
    assert key == "default/a"
    assert not feed.pods
    return seconds


@pytest.mark.parametrize(
    ("seen", "at", "seconds"),
    [
        (0.25, "2024-05-01T12:00:00Z", 0.25),
        (0.25, "2024-05-01T12:00:01Z", 0.25),
        (3.75, "2024-05-01T12:00:03Z", 3.75),
        (600.0, "2024-05-01T12:00:03Z", 3.0),  # its binding was heard of late
        (0.0, "2024-05-01T12:00:03Z", 3.0),  # it was
        (0.25, "2024-05-01T11:59:00Z", 0.25),  # no time at which it could have been bound
        (0.25, "yesterday", 0.25),
        (0.25, None, 0.25),
    ],
)
def test_wait_is_observed_unless_the_cluster_reports_it(seen: float, at: str | None, seconds: float) -> None:
    assert waited(seen, {"status": "True", "lastTransitionTime": at}) == pytest.approx(seconds)


def test_condition_without_binding_time_is_ignored() -> None:
    assert waited(600.0, {"status": "False", "lastTransitionTime": "2024-05-01T12:00:03Z"}) == 600.0
    assert waited(600.0, {"status": "True"}) == 600.0
    scheduled: dict[str, str | None] = {"status": "True", "lastTransitionTime": "2024-05-01T12:00:03Z"}
    assert waited(600.0, scheduled, creationTimestamp="") == 600.0
