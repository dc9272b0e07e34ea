"""What policies observe of a live cluster's metrics, and the rewards that are estimated from them."""

import numpy as np
import pytest
from tests.support.servers.fake_prometheus import CONNECTIONS, LATENCY, Told

from steersman.cluster.model import METRICS, LatencyLimits, Node, PodClass, Requests
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.objectives.registry import resolve
from steersman.policies.base import Candidates
from steersman.policies.features import TELEMETRY
from steersman.policies.live_observations import TelemetryObservations
from steersman.policies.node_metrics import NodeMetricsView

BROKEN = -10.0
EVERY = np.ones(3, dtype=np.bool_)


def test_without_any_sample_every_metric_is_flagged_as_missing() -> None:
    state = ClusterState([Node(f"n{i}", 4000, 16 << 30, pods=110) for i in range(3)])
    c = state.class_id(PodClass(Requests(cpu_milli=250, memory_bytes=1 << 28)))
    for told in (None, Told()):
        observation, _ = TelemetryObservations(NodeMetricsView(state, told)).observe(
            PodQuery(c, limits=LatencyLimits(20, 60, "rome")), Candidates(EVERY, EVERY)
        )
        assert np.isfinite(observation.nodes).all()
        assert np.isfinite(observation.context).all()
        for name in ("cpu_missing", "gauges_missing", "latency_missing"):
            assert (observation.nodes[:, TELEMETRY.node_column(name)] == 1).all()
        for name in ("cpu_age", "latency_age"):
            assert (observation.nodes[:, TELEMETRY.node_column(name)] == 5).all()
        assert not observation.nodes[:, TELEMETRY.node_column("near_users")].any()


def test_single_missing_metrics_are_tolerated() -> None:
    state = ClusterState([Node("n0", 4000, 16 << 30, pods=110), Node("virtual", 0, 0, pods=110)])
    c = state.class_id(PodClass(Requests()))
    for missing in METRICS:
        told = Told()
        for name, _ in METRICS:
            if name != missing[0]:
                told.tell(name, {"n0": 10.0})
        observation, _ = TelemetryObservations(NodeMetricsView(state, told)).observe(
            PodQuery(c), Candidates(np.ones(2, np.bool_), np.ones(2, np.bool_))
        )
        assert np.isfinite(observation.nodes).all()
        assert np.isfinite(observation.context).all()
        assert observation.mask.all()


def told_of(connections: dict[str, float], latency: dict[str, float]) -> tuple[TelemetryObservations, int]:
    """Return what is observed of three nodes, and the class of a pod."""
    told, state = Told(), ClusterState([Node(f"n{i}", 4000, 16 << 30, pods=110) for i in range(3)])
    told.tell(CONNECTIONS, connections)
    told.tell(LATENCY, latency, user="rome")
    c = state.class_id(PodClass(Requests(cpu_milli=1000)))
    return TelemetryObservations(NodeMetricsView(state, told)), c


@pytest.mark.parametrize(
    ("slot", "kept"),
    [(0, 1.0), (1, 0.5), (2, BROKEN)],
    ids=["within the soft limit", "within the hard limit", "beyond it, though others keep it"],
)
def test_latency_reward_uses_measured_latency(slot: int, kept: float) -> None:
    observations, c = told_of({}, {"n0": 10.0, "n1": 40.0, "n2": 90.0})
    query = PodQuery(c, limits=LatencyLimits(20, 60, "rome"))
    _, reward = observations.outcome(query, Candidates(EVERY, EVERY), slot, resolve("latency-aware"))
    assert reward == pytest.approx((2 / 3 + 0.25 + kept) / 3)
    _, reward = observations.outcome(query, Candidates(np.arange(3) == 2, EVERY), 2, resolve("latency-aware"))
    assert reward == pytest.approx((2 / 3 + 0.25 + 0.0) / 3), "no feasible node keeps it"


def test_connections_reward_uses_measured_connections() -> None:
    observations, c = told_of({"n0": 10.0, "n1": 40.0}, {})
    query, nodes = PodQuery(c), Candidates(EVERY, EVERY)
    for slot in range(3):
        _, reward = observations.outcome(query, nodes, slot, resolve("least-connections"))
        assert reward == pytest.approx(25.0 / 40.0), "a node without a number is left out"
    unmeasured, _ = told_of({}, {})
    _, reward = unmeasured.outcome(query, nodes, 0, resolve("least-connections"))
    assert reward == 1.0
