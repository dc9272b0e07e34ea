"""Rules on telemetry, what they win against kube-scheduler's default, and what agents see."""

import math
import re

import numpy as np
import pytest
from studies.environments.latency import BASELINE, TASKS
from tests.support.errors import raises
from tests.support.kube_decisions import KubeDecisions
from tests.support.nightly import examples

from steersman.cluster.model import CONNECTIONS, CPU_USED, LATENCY, Constraints, Node, Pod, PodClass, Requests
from steersman.cluster.state import ClusterState
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.handles import MetricsQuestion
from steersman.envs.latency import LatencyCore, LatencyOptions
from steersman.evaluation.generated import play_all
from steersman.policies.features import TELEMETRY
from steersman.policies.node_metrics import (
    KUBE_DEFAULT,
    LATENCY_AWARE,
    LEAST_ALLOCATED,
    LEAST_CONNECTIONS,
    METRIC_RULES,
    MOST_ALLOCATED,
)
from steersman.workloads.generators.latency_settings import LatencySettings
from steersman.workloads.workload import SpreadSelectors

SMALL = LatencySettings(nodes=4, max_nodes=5, pods=60)
BURSTS = LatencySettings(
    nodes=50, max_nodes=50, pods=600, replicas=10, scrape_interval=1.0, copies=30, copy_interval=0.3, copy_pause=4.0
)
GIB = 1 << 30


def question(seed, **changes):
    """What may be known of some nodes and a pod, by name as `MetricsQuestion` takes it."""
    draws = np.random.default_rng(seed)
    count, users = int(draws.integers(2, 9)), 3
    cpu = draws.choice([4000, 8000, 16000], count)
    allocatable = np.stack([cpu, cpu * (GIB // 250), np.full(count, 110)], axis=1).astype(np.int64)
    pods = draws.integers(0, 9, count) * (draws.random(count) < 0.7)
    taken = np.stack([pods * draws.integers(50, 400, count), pods * draws.integers(1, 512, count) << 20, pods], axis=1)
    scale = np.array([90.0, 8e9, 90.0, 4e7, 2000.0, 9.0, *[90.0] * users])
    measured = draws.random((count, len(scale))) * scale
    measured[draws.random(measured.shape) < 0.1] = np.nan
    since = np.stack([draws.integers(-400, 400, count), draws.integers(-3, 4, count)], axis=1).astype(np.float64)
    limited = draws.random() < 0.6
    known = {
        "view.allocatable": allocatable,
        "view.free": allocatable - taken,
        "view.nonzero": taken[:, :2].copy(),
        "view.measured": measured,
        "view.age": draws.random(measured.shape) * 400,
        "view.since": since,
        "view.siblings": draws.integers(0, 4, count),
        "view.zone": draws.integers(0, 2, count),
        "view.assumed": np.array([2.0, 125e6, 0.15]),
        "pod.request": np.array([500, GIB, 1]),
        "pod.nonzero": np.array([500, GIB]),
        "pod.user": np.array(int(draws.integers(users)) if limited else -1),
        "pod.limits": np.array([35.0, 70.0] if limited else [math.inf] * 2),
        "pod.replicas": np.array([2, 5]),
        "mask": draws.random(count) < 0.8,
    }
    return known | changes


def slow_rates(known):
    """CPU used for a request, connections for a pod: as `core/src/telemetry.rs` says."""
    allocatable, measured, since = known["view.allocatable"], known["view.measured"], known["view.since"]
    taken = allocatable - known["view.free"]
    used = asked = worth = connections = pods = 0.0
    for n in range(len(allocatable)):
        if not np.isnan(measured[n, CPU_USED]):
            used += measured[n, CPU_USED] / 100 * allocatable[n, 0]
            asked += taken[n, 0] - since[n, 0]
            worth += 0.05 * allocatable[n, 0]
        if not np.isnan(measured[n, CONNECTIONS]):
            connections += measured[n, CONNECTIONS]
            pods += taken[n, 2] - since[n, 1]
    use = (used + 0.6 * worth) / (asked + worth) if worth else 0.6
    return min(max(use, 0.1), 2.0), connections / pods if pods > 0 else 0.0


def slow_after(known, what):
    """[N] the share of CPU used or the connections of every node with the pod; NaN where they are not known."""
    use, each = slow_rates(known)
    after = []
    for capacity, free, measured, since in zip(
        *(known[f"view.{name}"] for name in ("allocatable", "free", "measured", "since")), strict=True
    ):
        taken, arrived, left = capacity - free, np.maximum(since, 0), np.maximum(-since, 0)
        if what == "cpu":
            share = measured[CPU_USED] / 100 * (1 - left[0] / max(taken[0] + left[0], 1))
            after.append(share + use * (arrived[0] + known["pod.request"][0]) / capacity[0])
        else:
            share = measured[CONNECTIONS] * (1 - left[1] / max(taken[2] + left[1], 1))
            after.append(share + each * (arrived[1] + 1))
    return np.array(after)


def filled(known, what):
    """[N] the same, the mean of the feasible nodes where it is not known."""
    after = slow_after(known, what)
    if what == "connections":
        after += 3.0 * slow_rates(known)[1] * known["view.siblings"]
    values = after[known["mask"] & ~np.isnan(after)]
    return np.where(np.isnan(after), values.mean() if len(values) else 0.0, after)


def holds_pods(known):
    return known["view.free"][:, 2] < known["view.allocatable"][:, 2]


@pytest.mark.parametrize(("rule", "what"), [(LEAST_ALLOCATED, "cpu"), (LEAST_CONNECTIONS, "connections")])
def test_least_rules_score_what_there_is_after_the_placement(rule, what):
    neutral = 0
    for seed in range(examples(100)):
        known = question(seed)
        scores, mask = MetricsQuestion(known).scores(rule), known["mask"]
        np.testing.assert_allclose(scores[mask], -filled(known, what)[mask], rtol=1e-9)
        assert np.isneginf(scores[~mask]).all()
        neutral += bool(np.isnan(slow_after(known, what)[mask]).any())
    assert neutral > 5


def test_most_allocated_prefers_used_nodes():
    for seed in range(examples(100)):
        known = question(seed)
        scores, mask = MetricsQuestion(known).scores(MOST_ALLOCATED), known["mask"]
        expected = 10.0 * holds_pods(known) + filled(known, "cpu")
        np.testing.assert_allclose(scores[mask], expected[mask], rtol=1e-9)


def test_hard_limit_is_kept_where_a_node_can_keep_it():
    for seed in range(examples(40)):
        known = question(seed, **{"pod.user": np.array(0), "pod.limits": np.array([30.0, 60.0])})
        count = len(known["mask"])
        known |= {"mask": np.ones(count, np.bool_), "view.zone": np.arange(count)}
        known["view.since"][:] = known["view.siblings"][:] = 0
        known["view.measured"][:, :LATENCY] = [10.0, 8e9, 10.0, 1e6, 100.0, 1.0]
        latency, only = known["view.measured"][:, LATENCY], seed % count
        latency[:] = 500.0
        latency[only] = 50.0  # within the hard limit
        assert MetricsQuestion(known).scores(LATENCY_AWARE).argmax() == only
        left, outcome = MetricsQuestion(known).within_hard_limit()
        assert (left.nonzero()[0].tolist(), outcome) == ([only], 1)
        latency[(only + 1) % count] = 20.0  # within the soft one
        assert MetricsQuestion(known).scores(LATENCY_AWARE).argmax() == (only + 1) % count
        latency[:] = 900.0 - 50.0 * np.arange(count)
        assert MetricsQuestion(known).scores(LATENCY_AWARE).argmax() == count - 1  # nobody can: the nearest
        assert MetricsQuestion(known).within_hard_limit()[0].all()
        latency[only] = np.nan
        assert MetricsQuestion(known).scores(LATENCY_AWARE).argmax() == only  # unknown is better than too far


def test_a_filter_of_hard_limits_only_removes_nodes_and_keeps_one():
    narrowed = 0
    for seed in range(examples(200)):
        known = question(seed)
        left, outcome = MetricsQuestion(known).within_hard_limit()
        assert (left <= known["mask"]).all()
        assert left.any() == known["mask"].any()
        if int(known["pod.user"]) < 0:
            assert (outcome, left.tolist()) == (0, known["mask"].tolist())
        narrowed += (left < known["mask"]).any()
    assert narrowed > 20


def test_kube_default_matches_kube_scheduler():
    """It is among the best of kube-scheduler's plugins, spreading by default included."""
    telling = 0
    for seed in range(examples(60)):
        draws, count = np.random.default_rng(seed), 5
        zones = draws.integers(0, 3, count)
        nodes = []
        for n in range(count):
            labels = {"kubernetes.io/hostname": f"node-{n}", "topology.kubernetes.io/zone": f"zone-{zones[n]}"}
            nodes.append(Node(f"node-{n}", int(draws.choice([8000, 16000])), 64 * GIB, pods=110, labels=labels))
        state, siblings = ClusterState(nodes), np.zeros(count, dtype=np.int64)
        kube = KubeDecisions(state, SpreadSelectors(tuple(("default", (("app", str(i)),)) for i in range(2))))
        for i in range(int(draws.integers(1, 30))):
            cpu, memory = int(draws.choice([250, 1000])), int(draws.choice([1, 4])) * GIB
            requests, app = Requests(cpu, memory, cpu_nonzero_milli=cpu, memory_nonzero_bytes=memory), i % 2
            pod = Pod(name=f"pod-{i}", pod_class=PodClass(requests, Constraints()), labels={"app": str(app)})
            c, labels = state.class_id(pod.pod_class), state.labels_id(pod)
            arrays = state.arrays
            known = question(
                seed,
                **{f"view.{name}": getattr(arrays, name) for name in ("allocatable", "free", "nonzero")},
                **{"view.measured": np.full((count, 9), np.nan), "view.age": np.zeros((count, 9))},
                **{"view.since": np.zeros((count, 2)), "view.siblings": siblings * (app == 0), "view.zone": zones},
                **{"pod.request": state.class_arrays.request[c], "pod.nonzero": state.class_arrays.nonzero[c]},
                **{"pod.user": np.array(-1), "mask": np.ones(count, np.bool_)},
            )
            node = int(draws.integers(count))
            if app == 0:
                best = kube.top_scorers(c, labels)
                assert MetricsQuestion(known).scores(KUBE_DEFAULT).argmax() in best
                telling += len(best) < count
                siblings[node] += 1
            state.place(pod.name, c, node, labels_id=labels)
    assert telling > 50


def observed(known):
    nodes = np.zeros((len(known["mask"]), len(TELEMETRY.node)), np.float32)
    pod, context = np.zeros(len(TELEMETRY.pod), np.float32), np.zeros(len(TELEMETRY.context), np.float32)
    MetricsQuestion(known).observe(nodes, pod, context)
    return nodes, pod, context


def test_features_match_their_table():
    """A sample of every group of features, by name."""
    checked = 0
    for seed in range(examples(60)):
        known = question(seed)
        nodes, pod, context = observed(known)
        count, user = len(known["mask"]), int(known["pod.user"])
        use, _ = slow_rates(known)
        after, connections = slow_after(known, "cpu"), slow_after(known, "connections")
        soft, hard = known["pod.limits"]
        row = {feature.name: pod[i] for i, feature in enumerate(TELEMETRY.pod)}
        whole = {feature.name: context[i] for i, feature in enumerate(TELEMETRY.context)}
        assert row["no_gpu"] == 1.0
        assert row["cpu_log"] == pytest.approx(math.log2(1 + 0.5) / 7)
        assert row["limited"] == np.isfinite(soft)
        assert row["hard"] == pytest.approx(min(hard / 100, 10) if np.isfinite(hard) else 0.0)
        assert (row["replicas"], row["to_come"]) == (pytest.approx(5 / 13), pytest.approx(2 / 10))
        assert whole["use"] == pytest.approx(use)
        assert whole["feasible"] == pytest.approx(known["mask"].sum() / count)
        for n in range(count):
            node = {feature.name: nodes[n, i] for i, feature in enumerate(TELEMETRY.node)}
            allocatable, free = known["view.allocatable"][n], known["view.free"][n]
            taken = allocatable - free + known["pod.request"]
            assert node["cpu_requested_after"] == pytest.approx(taken[0] / allocatable[0], rel=1e-6)
            assert node["memory_requested_after"] == pytest.approx(taken[1] / allocatable[1], rel=1e-6)
            assert node["empty"] == (free[2] == allocatable[2])
            assert node["cpu_missing"] == np.isnan(after[n])
            assert node["cpu_after"] == pytest.approx(0.0 if np.isnan(after[n]) else min(after[n], 2), abs=1e-6)
            assert node["cpu_age"] == pytest.approx(min(known["view.age"][n, CPU_USED] / 60, 5), rel=1e-5)
            assert node["gauges_missing"] == np.isnan(connections[n])
            scaled = 0.0 if np.isnan(connections[n]) else connections[n] / (connections[n] + 1000)
            assert node["connections_after"] == pytest.approx(max(scaled, 0.0), abs=1e-6)
            there = known["view.measured"][n, LATENCY + user] if user >= 0 else np.nan
            assert node["latency_missing"] == (user >= 0 and np.isnan(there))
            assert node["latency"] == pytest.approx(0.0 if np.isnan(there) else there / 100, abs=1e-6)
            assert node["within_soft"] == (there <= soft)
            assert node["within_hard"] == (there <= hard)
            checked += not np.isnan(there)
    assert checked > 20


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("view.zone", np.array([0, -1]), "view.zone: -1 is not in 0..1048576"),
        ("pod.user", np.array(9), "pod.user: 9 is not in 0..3"),
        ("view.age", np.zeros((2, 4)), "view.age: expected 2 rows of 9, has [2, 4]"),
        ("mask", np.ones(3, np.bool_), "mask: expected 2 values, has 3"),
    ],
)
def test_a_wrong_description_fails_in_one_line(name, changed, message):
    known = next(each for each in map(question, range(100)) if len(each["mask"]) == 2)
    with pytest.raises(SteersmanError, match=re.escape(message)):
        MetricsQuestion(known | {name: changed}).within_hard_limit()


def started(settings=SMALL, count=1, seed=0):
    core = LatencyCore(count, LatencyOptions(settings=settings, keep_hard_limits=False))
    for e in range(count):
        core.start(e, np.random.default_rng(0), {"seed": seed + e})
    return core


@pytest.mark.parametrize("settings", [BURSTS, BURSTS._replace(nodes=4, max_nodes=4, replicas=2), LatencySettings()])
def test_usage_estimates_are_closer_than_measurements(settings):
    """Where pods came or left since: the first copies on an almost empty cluster, the last ones that are deleted."""
    core = started(settings, count=4, seed=11)
    squares = {"measured": [], "estimated": []}
    names = ("cpu_used", "cpu_before", "cpu_since", "cpu_missing")
    used, before, since, missing = map(TELEMETRY.node_column, names)
    for _ in range(settings.pods - 20):
        for e in range(core.count):
            rows, truth = core.observation.nodes[e, : settings.nodes], core.loads(e)[:, 0]
            known = (rows[:, since] != 0) & (rows[:, missing] == 0)
            squares["measured"].append((rows[:, used] - truth)[known] ** 2)
            squares["estimated"].append((rows[:, before] - truth)[known] ** 2)
        core.step(core.rule_actions("least-allocated"))
        if core.terminated.any():
            break
    errors = {name: float(np.sqrt(np.mean(np.concatenate(each)))) for name, each in squares.items()}
    assert errors["estimated"] < 0.98 * errors["measured"]


def test_an_unknown_rule_fails_in_one_line():
    with raises(UsageError, "'least'"):
        started().rule_actions("least")


def achieved(results, task):
    """By figure, whether the rule of a task's name does on average what the task wants of it, against the baseline."""
    made = {}
    for aim in TASKS[task]:
        mine, theirs = results[task][aim.figure], results[BASELINE][aim.figure]
        made[aim.figure] = bool((aim.sign * (mine - theirs)).mean() > 0) if aim.sign else bool((mine == 0).all())
    return made


def test_rules_beat_kube_default_on_their_objectives():
    """On the mean of 20 seeds, and not a single avoidable breach of a hard limit in them."""
    results = play_all({rule: rule for rule in METRIC_RULES}, range(20))
    for task in TASKS:
        assert all(achieved(results, task).values()), (task, achieved(results, task))
    again = play_all({"one": "least-allocated"}, range(2))
    for name, values in again["one"].items():
        assert values.tolist() == results["least-allocated"][name][:2].tolist(), name


def test_a_function_of_observations_can_be_compared():
    def first(observation):
        return observation["mask"].argmax(axis=1)

    options = LatencyOptions(settings=SMALL._replace(warmup=0.0))
    results = play_all({"first": first, "kube-default": "kube-default"}, [1, 2], options)
    assert results["first"]["empty_nodes"].mean() > results["kube-default"]["empty_nodes"].mean()
    with raises(UsageError):
        play_all({"first": first}, [])
