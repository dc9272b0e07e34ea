"""Rules on telemetry, what they win against kube-scheduler's default, and what agents see."""

import math

import numpy as np
import pytest
from studies.environments.latency import BASELINE, TASKS
from tests.support.errors import raises
from tests.support.kube_decisions import KubeDecisions

from steersman.cluster.model import Constraints, Node, Pod, PodClass, Requests
from steersman.cluster.node_metrics import (
    CONNECTIONS,
    CPU_USED,
    LATENCY,
)
from steersman.cluster.state import ClusterState
from steersman.core.errors import UsageError
from steersman.envs.latency.environment import LatencyCore, LatencyOptions
from steersman.evaluation.generated import play_all
from steersman.policies.features import TELEMETRY
from steersman.policies.node_metrics.arrays import (
    HARD,
    NODES,
    POD,
    SOFT,
)
from steersman.policies.node_metrics.rules import METRIC_RULES, SIBLING_LOAD_PRIOR
from steersman.workloads.generators.latency_settings import LatencySettings
from steersman.workloads.workload import SpreadSelectors

SMALL = LatencySettings(nodes=4, max_nodes=5, pods=60)
BURSTS = LatencySettings(
    nodes=50, max_nodes=50, pods=600, replicas=10, scrape_interval=1.0, copies=30, copy_interval=0.3, copy_pause=4.0
)


def started(settings=SMALL, count=1, seed=0):
    core = LatencyCore(count, LatencyOptions(settings=settings, keep_hard_limits=False))
    for e in range(count):
        core.start(e, np.random.default_rng(0), {"seed": seed + e})
    return core


def play(core, rule, steps):
    """Follow a rule; yields before every step until an episode ends."""
    for _ in range(steps):
        yield
        core.step(core.rule_actions(rule))
        if core.terminated.any():
            return


def as_nodes(view, count):
    return [
        Node(
            name=f"node-{n}",
            cpu_milli=int(view.nodes.allocatable[n, 0]),
            memory_bytes=int(view.nodes.allocatable[n, 1]),
            pods=110,
            labels={"kubernetes.io/hostname": f"node-{n}", "topology.kubernetes.io/zone": f"zone-{view.zone[0, n]}"},
        )
        for n in range(count)
    ]


def as_pods(view, count):
    made, deployment = [], -1
    for pod in range(count):
        deployment += view.replica[0, pod, 0] == 0
        cpu, memory = (int(amount) for amount in view.pods.request[pod, :2])
        requests = Requests(cpu, memory, cpu_nonzero_milli=cpu, memory_nonzero_bytes=memory)
        labels = {"app": str(deployment)}
        made.append(Pod(name=f"pod-{pod}", pod_class=PodClass(requests, Constraints()), labels=labels))
    return made


def test_kube_default_matches_kube_scheduler():
    """It is among the best of `node_scores.kube_kernels`, spreading by default included, all along an episode."""
    core = started(LatencySettings(nodes=4, max_nodes=5, pods=60, load=1.0, lifetime=300.0), seed=4)
    simulator, view = core.simulator, core.simulator.scheduler_view
    state, pods = ClusterState(as_nodes(view, 4)), as_pods(view, 60)
    classes = [state.class_id(pod.pod_class) for pod in pods]
    labels = [state.labels_id(pod) for pod in pods]
    kube = KubeDecisions(state, SpreadSelectors(tuple(("default", (("app", str(i)),)) for i in range(60))))
    telling = left = 0
    while True:
        for name in [name for name in state.placements if simulator.slot[0, int(name[4:])] < 0]:
            state.remove(name)
            left += 1
        pod = int(view.counts[0, POD])
        chosen = int(core.rule_actions("kube-default")[0])
        best = kube.top_scorers(classes[pod], labels[pod])
        assert chosen in best
        telling += len(best) < core.observation.mask[0].sum()
        state.place(f"pod-{pod}", classes[pod], chosen, labels_id=labels[pod])
        core.step(np.array([chosen]))
        if core.terminated[0]:
            break
    assert telling > 30
    assert left > 10


def slow_rates(view, e):
    """CPU used for a request, connections for a pod: as `telemetry_estimates` says."""
    used = asked = worth = connections = pods = 0.0
    for n in range(view.counts[e, NODES]):
        row = e * view.zone.shape[1] + n
        taken = view.nodes.allocatable[row] - view.nodes.free[row]
        if not np.isnan(view.measured[e, n, CPU_USED]):
            used += view.measured[e, n, CPU_USED] / 100 * view.nodes.allocatable[row, 0]
            asked += taken[0] - view.since[e, n, 0]
            worth += 0.05 * view.nodes.allocatable[row, 0]
        if not np.isnan(view.measured[e, n, CONNECTIONS]):
            connections += view.measured[e, n, CONNECTIONS]
            pods += taken[2] - view.since[e, n, 1]
    use = (used + 0.6 * worth) / (asked + worth) if worth else 0.6
    return min(max(use, 0.1), 2.0), connections / pods if pods > 0 else 0.0


def slow_after(core, e, what):
    """[N] the share of CPU used or the connections of every node with the pod; NaN where they are not known."""
    view = core.simulator.scheduler_view
    use, each = slow_rates(view, e)
    after = np.full(core.max_nodes, np.nan)
    request = view.pods.request[e * core.settings.pods + view.counts[e, POD], 0]
    for n in range(view.counts[e, NODES]):
        capacity = view.nodes.allocatable[e * core.max_nodes + n]
        taken = capacity - view.nodes.free[e * core.max_nodes + n]
        arrived, left = np.maximum(view.since[e, n], 0), np.maximum(-view.since[e, n], 0)
        if what == "cpu":
            share = view.measured[e, n, CPU_USED] / 100 * (1 - left[0] / max(taken[0] + left[0], 1))
            after[n] = share + use * (arrived[0] + request) / capacity[0]
        else:
            share = view.measured[e, n, CONNECTIONS] * (1 - left[1] / max(taken[2] + left[1], 1))
            after[n] = share + each * (arrived[1] + 1)
    return after


@pytest.mark.parametrize("settings", [BURSTS, BURSTS._replace(nodes=4, max_nodes=4, replicas=2), LatencySettings()])
def test_usage_estimates_are_closer_than_measurements(settings):
    """Where pods came or left since: the first copies on an almost empty cluster, the last ones that are deleted."""
    core = started(settings, count=4, seed=11)
    view, squares = core.simulator.scheduler_view, {"measured": [], "estimated": []}
    for _ in play(core, "least-allocated", settings.pods - 20):
        for e in range(core.count):
            changed = view.since[e, : settings.nodes, 0] != 0
            request = view.pods.request[e * settings.pods + view.counts[e, POD], 0]
            capacity = view.nodes.allocatable[e * core.max_nodes :, 0][: settings.nodes]
            estimated = slow_after(core, e, "cpu")[: settings.nodes] - slow_rates(view, e)[0] * request / capacity
            measured, truth = view.measured[e, : settings.nodes, CPU_USED] / 100, core.loads(e)[:, 0]
            known = changed & ~np.isnan(measured)
            squares["measured"].append((measured - truth)[known] ** 2)
            squares["estimated"].append((estimated - truth)[known] ** 2)
            assert (estimated[known] >= 0).all()
    errors = {name: float(np.sqrt(np.mean(np.concatenate(each)))) for name, each in squares.items()}
    assert errors["estimated"] < 0.98 * errors["measured"]


@pytest.mark.parametrize(("rule", "what"), [("least-allocated", "cpu"), ("least-connections", "connections")])
def test_least_rules_take_the_lowest_after_the_placement(rule, what):
    core = started(SMALL._replace(missed=0.1), count=4)
    view, neutral = core.simulator.scheduler_view, 0
    for _ in play(core, rule, 50):
        for e, chosen in enumerate(core.rule_actions(rule)):
            after = slow_after(core, e, what)
            if what == "connections":
                after += SIBLING_LOAD_PRIOR * slow_rates(view, e)[1] * view.siblings[e]
            fits = core.observation.mask[e] == 1
            known = after[fits & ~np.isnan(after)]
            neutral += bool(np.isnan(after[: view.counts[e, NODES]]).any())
            filled = np.where(np.isnan(after), known.mean() if len(known) else 0.0, after)
            assert filled[chosen] == pytest.approx(filled[fits].min(), rel=1e-9, abs=1e-12)
    assert neutral > 5


def test_most_allocated_prefers_used_nodes():
    core = started(SMALL, count=4)
    view, opened = core.simulator.scheduler_view, 0
    for _ in play(core, "most-allocated", 50):
        for e, chosen in enumerate(core.rule_actions("most-allocated")):
            rows = slice(e * core.max_nodes, (e + 1) * core.max_nodes)
            holds = view.nodes.free[rows, 2] < view.nodes.allocatable[rows, 2]
            fits = core.observation.mask[e] == 1
            if holds[chosen]:
                after = slow_after(core, e, "cpu")
                if not np.isnan(after).any(where=holds & fits):
                    assert after[chosen] == pytest.approx(after[holds & fits].max())
            else:
                opened += 1
                assert not (holds & fits).any()
    assert opened > 4


def test_missing_metric_neither_favours_nor_penalises_a_node():
    core = started(SMALL._replace(missed=0.0), seed=2)
    for _ in play(core, "least-allocated", 25):
        pass
    view = core.simulator.scheduler_view
    for rule, metric in (("least-allocated", CPU_USED), ("least-connections", CONNECTIONS)):
        before = int(core.rule_actions(rule)[0])
        kept = view.measured.copy()
        view.measured[0, before, metric] = np.nan
        other = int(core.rule_actions(rule)[0])
        assert other != before
        view.measured[0, other, metric] = 1e9  # the one that it took instead is the worst now
        assert int(core.rule_actions(rule)[0]) != other
        # All others bad: the unknown one, which counts as their average, beats the worst of them.
        for n in range(view.counts[0, NODES]):
            view.measured[0, n, metric] = np.nan if n == before else 1e6 * (n + 1)
        assert int(core.rule_actions(rule)[0]) in {before, *range(view.counts[0, NODES])} - {view.counts[0, NODES] - 1}
        view.measured[:] = kept


def test_hard_limit_is_kept_where_a_node_can_keep_it():
    core = started(SMALL, seed=3)
    view, user = core.simulator.scheduler_view, core.simulator.scheduler_view.user
    while user[0, view.counts[0, POD]] < 0:
        core.step(core.rule_actions("latency-aware"))
    pod = view.counts[0, POD]
    column = LATENCY + user[0, pod]
    view.limit[0, pod, SOFT], view.limit[0, pod, HARD] = 30.0, 60.0
    for only in range(4):
        assert core.observation.mask[0, only]
        view.measured[0, :4, column] = 500.0
        view.measured[0, only, column] = 50.0  # within the hard limit
        assert core.rule_actions("latency-aware")[0] == only
        view.measured[0, (only + 1) % 4, column] = 20.0  # within the soft one
        assert core.rule_actions("latency-aware")[0] == (only + 1) % 4
        view.measured[0, :4, column] = (900.0, 800.0, 700.0, 600.0)
        assert core.rule_actions("latency-aware")[0] == 3  # nobody can: the nearest
        view.measured[0, only, column] = np.nan
        if (view.zone[0] == view.zone[0, only]).sum() == 1:
            assert core.rule_actions("latency-aware")[0] == only  # unknown is better than too far


def test_rules_do_not_observe_future_pods():
    one, other = started(seed=5), started(seed=5)
    later = slice(30, None)
    view = other.simulator.scheduler_view
    view.pods.request[later, :2] = (100, 1 << 20)
    view.user[:, later], view.limit[:, later], view.replica[:, later] = 2, 999.0, 7
    other.simulator.pod_use[:, later] = 12345
    for step in range(30):
        for name in ("nodes", "pod", "context", "mask"):
            assert (getattr(one.observation, name) == getattr(other.observation, name)).all(), name
        chosen = {rule: int(one.rule_actions(rule)[0]) for rule in METRIC_RULES}
        assert chosen == {rule: int(other.rule_actions(rule)[0]) for rule in METRIC_RULES}
        action = np.array([list(chosen.values())[step % len(METRIC_RULES)]])
        one.step(action)
        other.step(action)
    assert (one.observation.pod != other.observation.pod).any()


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

    results = play_all(
        {"first": first, "kube-default": "kube-default"}, [1, 2], LatencyOptions(settings=SMALL._replace(warmup=0.0))
    )
    assert results["first"]["empty_nodes"].mean() > results["kube-default"]["empty_nodes"].mean()
    with raises(UsageError):
        play_all({"first": first}, [])


def test_features_match_their_table():
    """A sample of every group of features, from what is view, by name."""
    core = started(SMALL._replace(missed=0.1), count=3, seed=7)
    view, checked = core.simulator.scheduler_view, 0
    for _ in play(core, "kube-default", 40):
        for e in range(3):
            pod, count = view.counts[e, POD], view.counts[e, NODES]
            use, _ = slow_rates(view, e)
            after, connections = slow_after(core, e, "cpu"), slow_after(core, e, "connections")
            request = view.pods.request[e * core.settings.pods + pod]
            soft, hard = view.limit[e, pod]
            row = {feature.name: core.observation.pod[e, i] for i, feature in enumerate(TELEMETRY.pod)}
            context = {feature.name: core.observation.context[e, i] for i, feature in enumerate(TELEMETRY.context)}
            assert row["no_gpu"] == 1.0
            assert row["cpu_log"] == pytest.approx(math.log2(1 + request[0] / 1000) / 7)
            assert row["limited"] == np.isfinite(soft)
            assert row["hard"] == pytest.approx(min(hard / 100, 10) if np.isfinite(hard) else 0.0)
            assert context["use"] == pytest.approx(use)
            assert context["feasible"] == pytest.approx(core.observation.mask[e].sum() / count)
            for n in range(count):
                node = {feature.name: core.observation.nodes[e, n, i] for i, feature in enumerate(TELEMETRY.node)}
                slot = e * core.max_nodes + n
                allocatable, free = view.nodes.allocatable[slot], view.nodes.free[slot]
                taken = allocatable - free + request
                assert node["cpu_requested_after"] == pytest.approx(taken[0] / allocatable[0], rel=1e-6)
                assert node["memory_requested_after"] == pytest.approx(taken[1] / allocatable[1], rel=1e-6)
                assert node["empty"] == (free[2] == allocatable[2])
                assert node["cpu_missing"] == np.isnan(after[n])
                assert node["cpu_after"] == pytest.approx(0.0 if np.isnan(after[n]) else min(after[n], 2), abs=1e-6)
                assert node["cpu_age"] == pytest.approx(view.age[e, n, CPU_USED] / 60, rel=1e-5)
                assert node["gauges_missing"] == np.isnan(connections[n])
                scaled = 0.0 if np.isnan(connections[n]) else connections[n] / (connections[n] + 1000)
                assert node["connections_after"] == pytest.approx(scaled, abs=1e-6)
                there = view.measured[e, n, LATENCY + view.user[e, pod]] if np.isfinite(soft) else np.nan
                assert node["latency_missing"] == (np.isfinite(soft) and np.isnan(there))
                assert node["latency"] == pytest.approx(0.0 if np.isnan(there) else there / 100, abs=1e-6)
                assert node["within_soft"] == (there <= soft)
                assert node["within_hard"] == (there <= hard)
                checked += not np.isnan(there)
            assert (core.observation.nodes[e, count:] == 0).all()
    assert checked > 50
