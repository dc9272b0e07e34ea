"""The filter of hard limits: whatever a policy chooses, hard limits that some node could keep are kept."""

import numpy as np
import pytest
from tests.unit.policies.node_metrics import test_latency_rules

from steersman.envs.latency import LatencyCore, LatencyEnv, LatencyOptions
from steersman.evaluation.generated import play_all
from steersman.policies.features import TELEMETRY

SEEDS = tuple(range(3000, 3040))
BURST_SEEDS = tuple(range(3000, 3100))
FULLEST = TELEMETRY.node_column("cpu_requested_after")
LATENCY = TELEMETRY.node_column("latency")


def highest(column):
    """A policy that takes the node with the most of a feature: as bad for limits as it gets."""
    return lambda seen: ((0.001 + seen["nodes"][:, :, column]) * seen["mask"]).argmax(axis=1)


@pytest.mark.parametrize("column", [FULLEST, LATENCY])
def test_filter_keeps_hard_limits_under_adversarial_policies(column):
    policy = {"hostile": highest(column)}
    free, kept = (
        play_all(policy, SEEDS, LatencyOptions(keep_hard_limits=kept))["hostile"]["hard_limits_broken_avoidable"]
        for kept in (False, True)
    )
    assert free.mean() > 10
    assert kept.sum() < 0.01 * free.sum()  # what is measured late and with errors is never certain


BURSTS = test_latency_rules.BURSTS._replace(warmup=4.0)
"""Deployments come faster than traffic is averaged."""


def broken_avoidably(column, kept):
    options = LatencyOptions(settings=BURSTS, keep_hard_limits=kept)
    return play_all({"hostile": highest(column)}, BURST_SEEDS, options)["hostile"]["hard_limits_broken_avoidable"].sum()


@pytest.mark.parametrize("column", [FULLEST, LATENCY])
def test_bursts_break_no_satisfiable_limit(column):
    """Use of links is told by how long users wait, and a node that is not measured is as far away as its zone."""
    assert broken_avoidably(column, kept=False) > 1000
    assert broken_avoidably(column, kept=True) <= 1


def test_rules_choose_among_filtered_nodes():
    core = LatencyCore(16, LatencyOptions())
    for e in range(16):
        core.start(e, np.random.default_rng(0), {"seed": e})
    for _ in range(150):
        actions = core.rule_actions("kube-default")
        assert core.observation.mask[np.arange(16), actions].all()
        core.step(actions)


@pytest.mark.parametrize(
    ("options", "filters"),
    [
        ({}, True),
        ({"objective": "balance"}, False),
        ({"objective": "balance=1,latency-aware=1"}, True),
        ({"objective": "balance", "keep_hard_limits": True}, True),
        ({"keep_hard_limits": False}, False),
    ],
)
def test_filter_is_active_where_limits_are_rewarded(options, filters):
    assert LatencyEnv(**options).core.filters is filters
