"""A live cluster with the samples, requests and pods of `steersman/Latency-v0` shows policies the same observation."""

import numpy as np
import pytest
from tests.support.servers.fake_prometheus import CONNECTIONS, LATENCY, Told

from steersman.cluster.arrays import CPU, MEMORY, PODS
from steersman.cluster.model import Node, PodClass, Requests
from steersman.cluster.node_metrics import LATENCY as FIRST_LATENCY
from steersman.cluster.node_metrics import METRICS, NO_LIMITS, LatencyLimits
from steersman.cluster.pod_query import OwnerPods, PodQuery
from steersman.cluster.state import ClusterState
from steersman.envs.latency.environment import LatencyCore, LatencyOptions
from steersman.envs.latency.state import NOW
from steersman.objectives import summary
from steersman.objectives.latency import BROKEN
from steersman.objectives.registry import resolve
from steersman.policies.base import Candidates
from steersman.policies.features import TELEMETRY
from steersman.policies.node_metrics.arrays import HARD, INDEX, NODES, POD, REPLICAS, SOFT
from steersman.policies.node_metrics.view import NodeMetricsView
from steersman.policies.node_scores.kube_arrays import ZONE
from steersman.policies.observations.kernels import ObservationArrays
from steersman.policies.observations.telemetry_live import TelemetryObservations
from steersman.workloads.generators.latency_settings import LatencySettings

EVERY = np.ones(3, dtype=np.bool_)


class LiveCopy:
    """A live cluster that is told what happens in an environment, as watches and Prometheus tell it.

    Args:
        core: of one environment.
        empty_slots: slots without a node, as deleted nodes leave them.
    """

    def __init__(self, core: LatencyCore, empty_slots: tuple[int, ...] = ()) -> None:
        self.simulator, self.view = core.simulator, core.simulator.scheduler_view
        nodes = int(self.view.counts[0, NODES])
        extra = [Node(f"gone-{slot}", 1000, 1 << 30, pods=10) for slot in empty_slots]
        self.slots = [slot for slot in range(nodes + len(extra)) if slot not in empty_slots]
        own = iter(
            Node(
                f"node-{n}",
                int(self.view.nodes.allocatable[n, CPU]),
                int(self.view.nodes.allocatable[n, MEMORY]),
                pods=int(self.view.nodes.allocatable[n, PODS]),
                labels={ZONE: f"zone-{self.view.zone[0, n]}"},
            )
            for n in range(nodes)
        )
        gone = iter(extra)
        self.state = ClusterState(
            [next(gone) if slot in empty_slots else next(own) for slot in range(nodes + len(extra))]
        )
        for each in extra:
            self.state.remove_node(each.name)
        self.told = Told({"maxAgeSeconds": 60})
        self.told.now = 0.0
        self.metrics = NodeMetricsView(self.state, self.told)
        self.observations = TelemetryObservations(self.metrics)
        self.running: dict[int, float] = {}

    def follow(self, placed: tuple[int, int] | None) -> None:
        """Place the pod that was decided last, and remove those that left since."""
        if placed is not None:
            pod, slot = placed[0], self.slots[placed[1]]
            self.state.place(f"{pod}", self._class_of(pod), slot)
            self.metrics.changed(slot)
            self.running[pod] = float(self.simulator.leave[0, pod])
        now = float(self.simulator.clock[0, NOW])
        for pod, leaves in sorted(self.running.items(), key=lambda item: item[1]):
            if leaves <= now:
                self.told.now = leaves
                self.metrics.changed(self.state.remove(f"{pod}").slot)
                del self.running[pod]
        self.told.now = now

    def scrape(self) -> None:
        """Take what the environment measures; a missing value is no sample."""
        measured, age = self.view.measured[0], self.view.age[0]
        for column in range(measured.shape[1]):
            is_latency = column >= FIRST_LATENCY
            feature = LATENCY if is_latency else METRICS[column][0]
            user = f"zone-{column - FIRST_LATENCY}" if is_latency else ""
            for n in range(int(self.view.counts[0, NODES])):
                if np.isfinite(measured[n, column]):
                    self.told.tell(feature, {f"node-{n}": measured[n, column]}, float(age[n, column]), user)

    def observe(self, feasible: np.ndarray) -> tuple[ObservationArrays, np.ndarray]:
        pod, view = int(self.view.counts[0, POD]), self.view
        soft, hard = view.limit[0, pod, SOFT], view.limit[0, pod, HARD]
        limits = LatencyLimits(soft, hard, f"zone-{view.user[0, pod]}") if view.user[0, pod] >= 0 else NO_LIMITS
        running = {self.slots[n]: int(count) for n, count in enumerate(view.siblings[0]) if count}
        siblings = OwnerPods(running, int(view.replica[0, pod, REPLICAS] - view.replica[0, pod, INDEX]))
        mask = np.zeros(len(self.state.nodes), dtype=np.bool_)
        mask[self.slots] = feasible[: len(self.slots)] != 0
        return self.observations.observe(
            PodQuery(self._class_of(pod), owner_pods=siblings, limits=limits), Candidates(mask, np.ones_like(mask))
        )

    def _class_of(self, pod: int) -> int:
        request = self.view.pods.request[pod]  # of the only environment
        return self.state.class_id(PodClass(Requests(cpu_milli=int(request[CPU]), memory_bytes=int(request[MEMORY]))))


@pytest.mark.parametrize(("seed", "nodes", "empty"), [(1, 12, ()), (2, 4, (0, 2)), (3, 16, (5,))])
def test_live_observations_equal_those_of_the_environment(seed: int, nodes: int, empty: tuple[int, ...]) -> None:
    settings = LatencySettings(missed=0.0, nodes=nodes, pods=300)
    core = LatencyCore(1, LatencyOptions(settings=settings, keep_hard_limits=False))
    core.start(0, np.random.default_rng(seed), {})
    copy, rng, compared = LiveCopy(core, empty), np.random.default_rng(seed), 0
    count, view = nodes, core.simulator.scheduler_view
    placed = None
    while not core.terminated[0]:
        copy.follow(placed)
        copy.scrape()
        shown, pod = core.observation, int(view.counts[0, POD])
        siblings_run = view.siblings[0].sum() == view.replica[0, pod, INDEX]
        user = view.user[0, pod]
        distances = np.sort(core.simulator.distance[0, :, user]) if user >= 0 else np.array([0.0, np.inf])
        clear = distances[1] - distances[0] > 3.0  # ms; measurements cannot tell nearer zones apart
        if siblings_run and clear and np.isfinite(view.measured[0, :count]).all():
            live, groups = copy.observe(shown.mask[0])
            for names, expected, observed in (
                (TELEMETRY.node, shown.nodes[0, :count].T, live.nodes[copy.slots].T),
                (TELEMETRY.pod, shown.pod[0], live.pod),
                (TELEMETRY.context, shown.context[0], live.context),
            ):
                for feature, one, other in zip(names, expected, observed, strict=True):
                    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5, err_msg=f"{feature.name}, pod {pod}")
            assert (live.mask[copy.slots] == shown.mask[0, :count]).all()
            zones, live_zones = shown.groups[0, :count, 0], groups[copy.slots, 0]
            assert ((zones[:, None] == zones) == (live_zones[:, None] == live_zones)).all()
            assert not live.nodes[list(empty)].any()
            assert (groups[list(empty)] == -1).all()
            compared += 1
        placed = pod, int(rng.choice(np.flatnonzero(shown.mask[0])))
        core.step(np.array([placed[1]]))
    assert compared > 100


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


def test_live_used_nodes_reward_matches_the_environment() -> None:
    objective = "most-allocated"
    core = LatencyCore(1, LatencyOptions(objective, LatencySettings(nodes=10, pods=200), keep_hard_limits=False))
    core.start(0, np.random.default_rng(1), {})
    copy, rng, placed = LiveCopy(core), np.random.default_rng(1), None
    while not core.terminated[0]:
        copy.follow(placed)
        copy.scrape()
        pod = int(core.simulator.scheduler_view.counts[0, POD])
        chosen = int(rng.choice(np.flatnonzero(core.observation.mask[0])))
        feasible = np.zeros(len(copy.state.nodes), dtype=np.bool_)
        feasible[copy.slots] = core.observation.mask[0, : len(copy.slots)] != 0
        query, nodes = PodQuery(copy._class_of(pod)), Candidates(feasible, np.ones_like(feasible))
        row, reward = copy.observations.outcome(query, nodes, copy.slots[chosen], resolve(objective))
        placed = pod, chosen
        core.step(np.array([chosen]))
        assert reward == pytest.approx(core.rewards[0])
        assert row[summary.NODES_USED] == core.task.row[0, summary.NODES_USED] or core.terminated[0]


def told_of(connections: dict[str, float], latency: dict[str, float]) -> TelemetryObservations:
    told = Told()
    told.tell(CONNECTIONS, connections)
    told.tell(LATENCY, latency, user="rome")
    return TelemetryObservations(NodeMetricsView(ClusterState(THREE), told))


THREE = [Node(f"n{i}", 4000, 16 << 30, pods=110) for i in range(3)]


@pytest.mark.parametrize(
    ("slot", "kept"),
    [(0, 1.0), (1, 0.5), (2, BROKEN)],
    ids=["within the soft limit", "within the hard limit", "beyond it, though others keep it"],
)
def test_latency_reward_uses_measured_latency(slot: int, kept: float) -> None:
    observations = told_of({}, {"n0": 10.0, "n1": 40.0, "n2": 90.0})
    c = observations._metrics.state.class_id(PodClass(Requests(cpu_milli=1000)))
    query = PodQuery(c, limits=LatencyLimits(20, 60, "rome"))
    _, reward = observations.outcome(query, Candidates(EVERY, EVERY), slot, resolve("latency-aware"))
    assert reward == pytest.approx((2 / 3 + 0.25 + kept) / 3)
    _, reward = observations.outcome(query, Candidates(np.arange(3) == 2, EVERY), 2, resolve("latency-aware"))
    assert reward == pytest.approx((2 / 3 + 0.25 + 0.0) / 3), "no feasible node keeps it"


def test_connections_reward_uses_measured_connections() -> None:
    observations = told_of({"n0": 10.0, "n1": 40.0}, {})
    c = observations._metrics.state.class_id(PodClass(Requests(cpu_milli=1000)))
    query, nodes = PodQuery(c), Candidates(EVERY, EVERY)
    for slot in range(3):
        _, reward = observations.outcome(query, nodes, slot, resolve("least-connections"))
        assert reward == pytest.approx(25.0 / 40.0), "a node without a number is left out"
    _, reward = told_of({}, {}).outcome(query, nodes, 0, resolve("least-connections"))
    assert reward == 1.0
