"""Telemetry of a live cluster: how old values are, and what the rules and the filter of hard limits make of them."""

import math

import numpy as np
import pytest
from tests.support.servers.fake_prometheus import CONNECTIONS, CPU, LATENCY, Told

from steersman.cluster.model import LatencyLimits, Node, PodClass, Requests, limits_of
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.node_metrics import LEAST_ALLOCATED, NodeMetricsView
from steersman.policies.registry import resolve


def cluster(count: int = 4, cpu: int = 4000) -> ClusterState:
    return ClusterState([Node(f"n{i}", cpu, 16 << 30, pods=110) for i in range(count)])


SMALL = PodClass(Requests(cpu_milli=250, memory_bytes=1 << 28))


def decide(policy: str, state: ClusterState, told: Told | None, limits: LatencyLimits = LatencyLimits()) -> str:  # noqa: B008
    decider = Decider(ClusterView(state, telemetry=told), resolve(policy))
    choice = decider.choose(PodQuery(state.class_id(SMALL), limits=limits))
    assert choice is not None
    node = state.nodes[choice.slot]
    assert node is not None
    return node.name


# Limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "soft", "hard"),
    [
        ({}, math.inf, math.inf),
        ({"latencySoftConstraint": "35", "latencyHardConstraint": "100"}, 35, 100),
        ({"latencyHardConstraint": "100", "steersman.dev/latency-hard-constraint": "80.5"}, math.inf, 80.5),
        ({"steersman.dev/latency-soft-constraint": " 20 "}, 20, math.inf),
        ({"latencyHardConstraint": 100}, math.inf, 100),
    ],
)
def test_latency_limits_are_read_from_annotations(annotations: dict[str, object], soft: float, hard: float) -> None:
    found = limits_of(annotations)
    assert (found.soft, found.hard, found.ignored) == (soft, hard, ())
    assert found.limited == (min(soft, hard) < math.inf)


@pytest.mark.parametrize("value", ["", "fast", "-5", "0", "nan", "inf", "1_000", "100ms", True, [1], "9" * 500])
def test_invalid_limit_is_ignored_with_a_warning(value: object) -> None:
    found = limits_of({"latencyHardConstraint": value, "latencySoftConstraint": "10"})
    assert (found.soft, found.hard) == (10, math.inf)
    (said,) = found.ignored
    assert said.startswith("annotation latencyHardConstraint: ")
    assert len(said) < 200


# Values and their age -------------------------------------------------------------------------------------------------


def measured(told: Told, names: list[str | None]) -> dict[str, list[float]]:
    values, taken = told.store.last_values(names)
    present = np.array([name is not None for name in names])
    found = told.store.resolve(values, taken, present, told.now).values
    return {CPU: found[:, 0].tolist(), CONNECTIONS: found[:, 4].tolist(), LATENCY: found[:, 6].tolist()}


@pytest.mark.parametrize(
    ("policy", "stale", "missing"), [("last", 10, math.nan), ("impute", 50, 50), ("neutral", math.nan, math.nan)]
)
def test_stale_and_missing_values_are_substituted(policy: str, stale: float, missing: float) -> None:
    told = Told({"features": {CPU: {"whenStale": policy, "maxAgeSeconds": 60}}})
    told.tell(CPU, {"old": 10.0}, age=61)
    told.tell(CPU, {"a": 40.0, "b": 50.0, "c": 90.0}, age=59)
    found = measured(told, ["old", "a", None, "b", "c", "missing"])[CPU]
    np.testing.assert_equal(found, [stale, 40, math.nan, 50, 90, missing])
    told.now += 2  # and now all are stale: there is nothing to impute from
    kept = [10, 40, math.nan, 50, 90, math.nan] if policy == "last" else [math.nan] * 6
    np.testing.assert_equal(measured(told, ["old", "a", None, "b", "c", "missing"])[CPU], kept)


def test_newest_valid_value_counts() -> None:
    told = Told()
    told.tell(CONNECTIONS, {"a": 5.0}, age=10)
    told.tell(CONNECTIONS, {"a": 7.0}, age=20)
    told.tell(CONNECTIONS, {"a": math.nan})
    told.tell(CONNECTIONS, {"a": math.inf})
    told.tell(CONNECTIONS, {"b": -1.0})
    assert measured(told, ["a", "b"])[CONNECTIONS] == [5, 0]
    assert told.store.dropped == {"not finite": 2}


def test_overall_latency_is_the_largest_with_the_oldest_age() -> None:
    told = Told({"maxAgeSeconds": 60})
    told.tell(LATENCY, {"a": 10.0, "b": 20.0}, user="rome")
    told.tell(LATENCY, {"a": 30.0}, user="oslo", age=59)
    told.tell(LATENCY, {"b": 30.0}, user="oslo")
    assert measured(told, ["a"])[LATENCY] == [30]
    told.now += 2
    np.testing.assert_equal(measured(told, ["a", "b"])[LATENCY], [math.nan, 30])


def test_vanished_probe_counts_until_its_maximum_age() -> None:
    told = Told({"maxAgeSeconds": 60})
    told.tell(LATENCY, {"a": 30.0, "b": 30.0}, user="oslo", age=59)
    told.tell(LATENCY, {"a": 10.0, "b": 10.0}, user="rome")
    assert measured(told, ["a", "b"])[LATENCY] == [30, 30]
    told.now += 2  # between two rounds of queries
    assert measured(told, ["a", "b"])[LATENCY] == [10, 10]
    told.tell(LATENCY, {"a": 10.0, "b": 10.0}, user="rome")
    told.store.prune({"a", "b"})
    assert list(told.store.users) == ["rome"]
    assert measured(told, ["a", "b"])[LATENCY] == [10, 10]


def test_removed_nodes_are_forgotten() -> None:
    told = Told({"maxAgeSeconds": 60})
    told.tell(CPU, {"a": 40.0, "b": 50.0})
    told.tell(LATENCY, {"a": 10.0, "b": 10.0}, user="rome")
    told.tell(LATENCY, {"a": 30.0, "b": 30.0}, user="oslo", age=61)
    told.store.prune({"a"})
    found = measured(told, ["a", "b"])
    np.testing.assert_equal((found[CPU], found[LATENCY]), ([40, 40], [10, math.nan]))  # oslo no longer spoils it
    assert list(told.store.users) == ["rome"]
    told.now += 3600  # but if nobody is measured, nobody is forgotten
    told.store.prune({"a"})
    assert list(told.store.users) == ["rome"]


def test_future_timestamp_is_ignored() -> None:
    told = Told()
    told.tell(CPU, {"a": 40.0, "b": 50.0}, age=-61)
    told.tell(CPU, {"b": 60.0}, age=-59)
    assert measured(told, ["a", "b"])[CPU] == [60, 60]
    assert told.store.dropped == {"in the future": 2}


# Rules ----------------------------------------------------------------------------------------------------------------


def test_objectives_use_measured_values() -> None:
    told = Told()
    told.tell(CPU, {"n0": 50.0, "n1": 20.0, "n2": 70.0, "n3": 60.0})
    told.tell(CONNECTIONS, {"n0": 50.0, "n1": 20.0, "n2": 70.0, "n3": 10.0})
    state = cluster()
    assert decide("la", state, told) == "n1"
    assert decide("lc", state, told) == "n3"
    assert decide("ma", state, told) == "n2"
    state.place("p", state.class_id(SMALL), 0)
    assert decide("ma", state, told) == "n0"  # a node that is in use, so that the others stay empty


@pytest.mark.parametrize("told", [None, Told()])
def test_objectives_use_requests_without_telemetry(told: Told | None) -> None:
    state = cluster()
    big = state.class_id(PodClass(Requests(cpu_milli=2000, memory_bytes=1 << 28)))
    c = state.class_id(SMALL)
    for i, (class_id, slot) in enumerate([(c, 0), (c, 0), (big, 1), (c, 2)]):
        state.place(str(i), class_id, slot)
    assert decide("ma", state, told) == "n1"
    assert decide("la", state, told) == "n3"
    assert decide("lc", state, told) == "n3"
    assert decide("p0", state, told) == "n1"


def test_pods_bound_since_the_sample_count() -> None:
    told = Told()
    state = cluster(2)
    node_metrics, c = NodeMetricsView(state, told), state.class_id(SMALL)
    told.now += 20
    told.tell(CPU, {"n0": 10.0, "n1": 11.0}, age=0)
    feasible = np.ones(2, np.bool_)
    assert node_metrics.scores(LEAST_ALLOCATED, PodQuery(c), feasible).argmax() == 0
    told.now += 5
    for i in range(4):
        state.place(str(i), c, 0)
        node_metrics.changed(0)
    assert node_metrics.scores(LEAST_ALLOCATED, PodQuery(c), feasible).argmax() == 1
    told.now += 20  # the next sample has seen them
    told.tell(CPU, {"n0": 10.0, "n1": 11.0}, age=0)
    assert node_metrics.scores(LEAST_ALLOCATED, PodQuery(c), feasible).argmax() == 0


def test_bindings_count_beside_samples_from_before_the_start() -> None:
    told = Told()
    told.tell(CPU, {"n0": 10.0, "n1": 11.0, "n2": 12.0}, age=0)
    told.now += 3
    state = cluster(3)
    node_metrics, c = NodeMetricsView(state, told), state.class_id(SMALL)
    slots = []
    for i in range(9):
        slots.append(int(node_metrics.scores(LEAST_ALLOCATED, PodQuery(c), np.ones(3, np.bool_)).argmax()))
        state.place(str(i), c, slots[-1])
        node_metrics.changed(slots[-1])
    assert sorted(slots) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_sample_within_the_window_covers_a_part() -> None:
    told = Told()
    state = cluster(2)
    node_metrics, c = NodeMetricsView(state, told), state.class_id(SMALL)
    told.now += 60
    for i in range(4):
        state.place(str(i), c, 0)
    node_metrics.changed(0)
    told.now += 5
    told.tell(CPU, {"n0": 10.0, "n1": 10.0})  # of the last 15 s
    scores = node_metrics.scores(LEAST_ALLOCATED, PodQuery(c), np.ones(2, np.bool_))
    worth = 0.05 * 2 * 4000
    rate = (0.1 * 4000 + 0.1 * 4000 + 0.6 * worth) / (1000 / 3 + worth)
    assert scores[1] - scores[0] == pytest.approx(rate * (1000 - 1000 / 3) / 4000)


# Hard limits ----------------------------------------------------------------------------------------------------------


POLICIES = ("fgd", "random", "kube-default", "steersman", "ma", "la", "lc", "p0", "dot-product")
LIMITED = LatencyLimits(soft=35, hard=100)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_chooses_a_node_that_keeps_the_limit(policy: str) -> None:
    for near in range(4):
        told, state = Told(), cluster()
        told.tell(LATENCY, {f"n{i}": 20.0 if i == near else 150.0 for i in range(4)})
        assert decide(policy, state, told, LIMITED) == f"n{near}"
        assert told.limits == {"kept safely": 1}


@pytest.mark.parametrize("policy", POLICIES)
def test_limit_is_ignored_if_unknown_or_unsatisfiable(policy: str) -> None:
    chosen = decide(policy, cluster(), Told())
    for age, latency, outcome in ((0, 150.0, "kept by no node"), (3600, 20.0, "not measured")):
        told = Told()
        told.tell(LATENCY, {f"n{i}": latency for i in range(4)}, age)
        assert decide(policy, cluster(), told, LIMITED) == chosen
        assert told.limits == {outcome: 1}


def test_a_node_just_within_the_limit_is_better_than_none() -> None:
    told = Told()
    told.tell(LATENCY, {"n0": 120.0, "n1": 99.0, "n2": 101.0, "n3": 500.0})
    assert decide("la", cluster(), told, LIMITED) == "n1"
    assert told.limits == {"kept": 1}


def test_full_node_within_the_limit_does_not_block_a_pod() -> None:
    told, state = Told(), cluster()
    told.tell(LATENCY, {"n0": 20.0, "n1": 150.0, "n2": 150.0, "n3": 150.0})
    state.place("big", state.class_id(PodClass(Requests(cpu_milli=4000))), 0)
    assert decide("fgd", state, told, LIMITED) != "n0"
    assert told.limits == {"kept by no node": 1}


def test_latencies_are_kept_per_user() -> None:
    told = Told()
    told.tell(LATENCY, {"n0": 20.0, "n1": 90.0, "n2": 300.0, "n3": 300.0}, user="rome")
    told.tell(LATENCY, {"n0": 300.0, "n1": 80.0, "n2": 20.0, "n3": 300.0}, user="oslo")
    assert decide("p0", cluster(), told, LatencyLimits(30, 100, "rome")) == "n0"
    assert decide("p0", cluster(), told, LatencyLimits(30, 100, "oslo")) == "n2"
    assert decide("p0", cluster(), told, LatencyLimits(30, 100)) == "n1"
    assert decide("p0", cluster(), told, LatencyLimits(30, 100, "unheard-of")) == decide("p0", cluster(), Told())
    assert told.limits["not measured"] == 1


def test_p0_packs_nodes_within_the_soft_limit_first() -> None:
    told, state = Told(), cluster()
    told.tell(LATENCY, {"n0": 60.0, "n1": 20.0, "n2": 20.0, "n3": 150.0})
    told.tell(CPU, {"n0": 70.0, "n1": 20.0, "n2": 30.0, "n3": 70.0})
    assert decide("p0", state, told, LIMITED) == "n2"
    state.place("p", state.class_id(SMALL), 1)
    assert decide("p0", state, told, LIMITED) == "n1"
    assert decide("p0", state, told) == "n1"


def test_nodes_that_break_the_limit_have_no_score() -> None:
    told, state = Told(), cluster()
    told.tell(LATENCY, {"n0": 20.0, "n1": 150.0, "n2": 30.0, "n3": 150.0})
    for policy in POLICIES:
        decider = Decider(ClusterView(state, telemetry=told), resolve(policy))
        scores = decider.scores(PodQuery(state.class_id(SMALL), limits=LIMITED))
        assert np.isfinite(scores).tolist() == [True, False, True, False]
    assert not told.limits  # nothing was decided


def test_contributions_explain_the_difference_of_two_nodes() -> None:
    told, state = Told(), cluster(3)
    told.tell(LATENCY, {"n0": 20.0, "n1": 60.0, "n2": 500.0})
    told.tell(CPU, {"n0": 20.0, "n1": 40.0, "n2": 20.0})
    state.place("p", state.class_id(SMALL), 1)
    decider, c = Decider(ClusterView(state, telemetry=told), resolve("p0")), state.class_id(SMALL)
    found = {each.name: each for each in decider.contributions(PodQuery(c, limits=LIMITED), 0, 1)}
    assert (found["latency_milliseconds"].value, found["latency_milliseconds"].other) == (20, 60)
    assert found["latency_milliseconds"].contribution == 100  # within the soft limit
    assert found["cpu_used_percent"].contribution == pytest.approx(-0.2, abs=0.05)
    assert found["cpu_requested"].contribution == pytest.approx(-10)  # the other one is in use
    assert found["pods_of_the_owner"].contribution == 0


def test_telemetry_follows_added_and_removed_nodes() -> None:
    told, state = Told(), cluster(2)
    told.tell(CPU, {"n0": 20.0, "n1": 30.0, "late": 1.0})
    decider, c = Decider(ClusterView(state, telemetry=told), resolve("la")), state.class_id(SMALL)

    def chosen() -> int:
        choice = decider.choose(PodQuery(c))
        assert choice is not None
        return choice.slot

    assert chosen() == 0
    slot = state.add_node(Node("late", 4000, 16 << 30, pods=110))
    decider.changed(slot)
    assert chosen() == slot
    state.remove_node("n0")
    decider.changed(0)
    assert chosen() == slot
    again = state.add_node(Node("other", 4000, 16 << 30, pods=110))
    decider.changed(again)
    told.tell(CPU, {"other": 0.5})
    assert chosen() == again
