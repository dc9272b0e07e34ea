"""Unequal GPU nodes and pods of controllers with constraints: what each scheduler makes of the same pods."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.heterogeneous.cluster import Draw, play

pytestmark = pytest.mark.e2e

DRAW = Draw(nodes=40, seed=0)
TOLERANCE = 4
"""GPUs of 128 by which the shipped policy may be below fgd. Ties between nodes and the order of pods that are made at
the same time differ from run to run: over six orders of ties a simulation of this draw ends with 124 to 126 by fgd, and
with 121 to 128 by the members of the shipped policy, each of which has 2 to 3 between its best and its worst."""


@pytest.mark.nightly
def test_schedulers_keep_constraints_and_shipped_policy_matches_fgd(tmp_path: Path) -> None:
    outcomes = {}
    for name, policy in (("stock", ""), ("fgd", "fgd"), ("steersman", "steersman")):
        folder = tmp_path / name
        folder.mkdir()
        outcomes[name] = play(DRAW, folder, policy, day_before=name == "steersman")
    for name, outcome in outcomes.items():
        assert not outcome.violations, (name, outcome.violations[:3])
        assert outcome.pods == outcomes["stock"].pods
        assert outcome.gpus == 128
    used = {name: outcome.gpus_in_use for name, outcome in outcomes.items()}
    assert used["fgd"] > used["stock"], used
    assert used["steersman"] >= used["fgd"] - TOLERANCE, (used, outcomes["steersman"].choices)
