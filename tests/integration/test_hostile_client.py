"""A short attack on a running score service; `python -m benchmarks service-hostile` is the long one, with figures."""

from __future__ import annotations

import pytest
from benchmarks.service.hostile import measure

pytestmark = pytest.mark.integration

NODES, PODS, PAIRS, SECONDS = 200, 2_000, 2, 4.0
GROWTH = 1.15
"""Times what the service has in memory after the first attack, which fills what is kept."""


def test_hostile_client_does_not_affect_others() -> None:
    found = measure("fgd", NODES, PODS, PAIRS, SECONDS)
    assert found["hostile_requests"] >= 100, found
    assert found["scores_changed"] == 0, found
    assert found["failed"] == 0, found
    first, most, _ = found["memory_mb"]
    assert most <= GROWTH * first, found
    answers = found["hostile_answers"]
    assert answers.get("sent 403"), "clusters that are sent are refused"
    assert answers.get("nonsense 404"), answers
    assert not [each for each in answers if " 5" in each and " 503" not in each], answers
