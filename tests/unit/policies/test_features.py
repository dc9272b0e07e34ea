"""What a policy sees: the table of features, and the compiled encoding against a slow, obvious one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.nightly import examples
from tests.support.slow_nodes import SlowNode

from steersman.cluster.model import Constraints, Node, Pod, PodClass, Requests
from steersman.core.errors import UsageError
from steersman.envs.base import observation_space
from steersman.envs.deployments import DeploymentsCore, DeploymentsOptions
from steersman.envs.workload import WorkloadCore, WorkloadOptions
from steersman.policies.decision.description import VIEW_NUMBERS, described_view
from steersman.policies.features import CLUSTER, POD_KIND_FEATURES, VIEWS, bounds, view
from steersman.simulation.arrivals import schedule
from steersman.workloads.profile import typical_pods
from steersman.workloads.topology import Hierarchy, label_nodes
from steersman.workloads.workload import Workload

GIB = 1 << 30


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    nodes = tuple(
        Node(
            f"n{i}",
            draw(st.sampled_from([4000, 8000, 64000])),
            draw(st.sampled_from([16, 64])) * GIB,
            pods=draw(st.sampled_from([3, 110])),
            gpu_count=(gpus := draw(st.sampled_from([0, 1, 2, 8]))),
            gpu_model=draw(st.sampled_from(["T4", "P100"])) if gpus else "",
        )
        for i in range(draw(st.integers(2, 6)))
    )
    nodes = (*nodes, Node("last", 64000, 256 * GIB, gpu_count=4, gpu_model="T4"))
    kinds = [
        PodClass(
            Requests(
                draw(st.sampled_from([0, 500, 1500, 4000])),
                draw(st.sampled_from([0, 1, 8])) * GIB,
                gpu_count=(count := draw(st.sampled_from([0, 1, 1, 2]))),
                gpu_milli=draw(st.sampled_from([100, 300, 500, 1000])) if count else 0,
            ),
            Constraints(gpu_models=draw(st.sampled_from([(), (), ("T4",)])) if count else ()),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]
    kinds.append(PodClass(Requests(250, GIB, gpu_count=1, gpu_milli=200)))
    pods = tuple(
        Pod(f"p{i:02}", draw(st.sampled_from(kinds)), owner=draw(st.sampled_from(["", "Job/a", "Job/b"])))
        for i in range(draw(st.integers(1, 20)))
    )
    pods = (*pods, Pod("q", kinds[-1], owner="Job/a"))
    return Workload("drawn", label_nodes(nodes, Hierarchy(2)), pods)


class SlowCluster:
    """Nodes with what is on them, in the order of the slots."""

    def __init__(self, core: WorkloadCore) -> None:
        workload = core.simulators[0].workload
        self.nodes = [SlowNode(workload.nodes[i]) for i in core._started[0].order]
        self.profile = typical_pods(workload.pods)

    def side(self, n: int) -> dict[str, float]:
        """Features that are there before and after."""
        slow = self.nodes[n]
        node, gpus = slow.node, slow.gpus
        partial = [left for left in gpus if 0 < left < 1000]
        whole = sum(left == 1000 for left in gpus)
        return {
            "cpu_free": slow.cpu / node.cpu_milli,
            "memory_free": slow.memory / node.memory_bytes,
            "pods_free": 1 - len(slow.pods) / node.pods,
            "gpu_free": sum(gpus) / (1000 * len(gpus)) if gpus else 0,
            "cpu_left": slow.cpu / 128_000,
            "memory_left": slow.memory / (1 << 40),
            "gpu_left": sum(gpus) / 8000,
            "whole": whole / 8,
            "partial": len(partial) / 8,
            "largest_part": max(partial, default=0) / 1000,
            "fragmented": slow.fragmentation(self.profile) / 8000,
            "untouched": float(bool(gpus) and whole == len(gpus)),
        }

    def row(self, pod: Pod, n: int) -> dict[str, float]:
        """Every node feature."""
        node, before, fits = self.nodes[n], self.side(n), self.nodes[n].fits(pod)
        mean = sum(1 - self.side(k)["cpu_free"] for k in range(len(self.nodes))) / len(self.nodes)
        mates = [each for each in self.nodes for p in each.pods if pod.owner and p.owner == pod.owner]
        is_empty, devices, after = not node.pods, node.best_devices(pod), before
        if fits:
            node.take(pod, devices)
            after = self.side(n)
            node.take(pod, devices, -1)
        rack = node.node.labels["rack"]
        found = {f"{k}_before": v for k, v in before.items()} | {f"{k}_after": v for k, v in after.items()}
        found |= {k: v for k, v in after.items() if k.endswith("_left")}
        deviation = [1 - side["cpu_free"] - mean for side in (before, after)]
        gradient = 8 * (before["fragmented"] - after["fragmented"])
        return found | {
            "gpu_count": len(node.gpus) / 8,
            "empty_before": float(is_empty),
            "fgd_score": 1 / (1 + math.exp(-gradient)) if fits else 0.0,
            "cpu_deviation_before": deviation[0],
            "cpu_deviation_after": deviation[1],
            "cpu_square_before": deviation[0] ** 2,
            "cpu_square_after": deviation[1] ** 2,
            "owner_on_node": sum(each is node for each in mates) / len(mates) if mates else 0.0,
            "owner_in_rack": sum(each.node.labels["rack"] == rack for each in mates) / len(mates) if mates else 0.0,
        }


def asked(core: WorkloadCore) -> Pod:
    """The pod that the environment asks about."""
    workload, begun = core.simulators[0].workload, core._started[0]
    plan = schedule(workload, core.protocol, seed=begun.seed, ratio=begun.ratio, load=begun.load)
    return replace(workload.pods[plan.pods[core.run(0).question]], name="asked")


@settings(max_examples=examples(25))
@given(workload=workloads(), seed=st.integers(0, 1000))
def test_encoding_matches_the_feature_table_at_every_decision(workload, seed):
    core, random = WorkloadCore(1, "inflation", WorkloadOptions(workload=workload)), np.random.default_rng(seed)
    core.start(0, random, {})
    slow, space = SlowCluster(core), observation_space(core.view, core.max_nodes)
    while True:
        seen, pod = core.observation, asked(core)
        names = [feature.name for feature in CLUSTER.node]
        for n in range(len(slow.nodes)):
            assert seen.mask[0, n] == slow.nodes[n].fits(pod)
            expected = slow.row(pod, n)
            got = dict(zip(names, seen.nodes[0, n].tolist(), strict=True))
            assert got == pytest.approx({name: expected[name] for name in names}, abs=2e-5)
        check_pod_and_context(core, slow, pod)
        assert space["nodes"].contains(seen.nodes[0])
        assert space["context"].contains(seen.context[0])
        n = int(random.choice(np.flatnonzero(seen.mask[0])))
        slow.nodes[n].take(pod, slow.nodes[n].best_devices(pod))
        core.step(np.array([n]))
        if core.terminated[0]:
            return


def check_pod_and_context(core: WorkloadCore, slow: SlowCluster, pod: Pod) -> None:
    r, seen = pod.requests, core.observation
    kind = 0 if not r.gpu_count else 3 if r.gpu_count > 1 else 2 if r.gpu_milli == 1000 else 1
    running = sum(p.owner == pod.owner for node in slow.nodes for p in node.pods) if pod.owner else 0
    cores, gib = r.cpu_milli / 1000, r.memory_bytes / GIB
    logs = math.log2(1 + cores) / 7, math.log2(1 + gib) / 10
    expected = [float(i == kind) for i in range(4)]
    expected += [cores / 32, logs[0], gib / 256, logs[1], r.gpu_count / 8, r.gpu_milli / 1000, running / (running + 8)]
    assert seen.pod[0].tolist() == pytest.approx(expected, abs=1e-6)
    sides = [slow.side(n) for n in range(len(slow.nodes))]
    used = np.array([1 - side["cpu_free"] for side in sides])
    got = {f.name: v for f, v in zip(CLUSTER.context, seen.context[0].tolist(), strict=True)}
    idle = sum(sum(node.gpus) for node in slow.nodes)
    fragmented = 8000 * sum(side["fragmented"] for side in sides)
    assert got["cpu_deviation"] == pytest.approx(used.std(), abs=1e-5)
    assert got["cpu_mean"] == pytest.approx(used.mean(), abs=1e-5)
    assert got["fragmented"] == pytest.approx(fragmented / idle if idle else 0, abs=1e-5)
    assert got["nodes_used"] == pytest.approx(np.mean([bool(node.pods) for node in slow.nodes]))
    assert got["feasible"] == pytest.approx(seen.mask[0].mean())
    total = 1000 * sum(len(node.gpus) for node in slow.nodes)
    assert got["gpu_load"] == pytest.approx(1 - idle / total, abs=1e-6)


def test_the_spread_of_cpu_can_be_minimised_by_a_linear_policy_on_equal_nodes():
    core, random = DeploymentsCore(1, DeploymentsOptions(nodes=7)), np.random.default_rng(1)
    core.start(0, random, {})
    column = CLUSTER.node_column
    for _ in range(60):
        rows, cpu = core.observation.nodes[0], core.observation.pod[0, CLUSTER.pod_column("cpu")] * 32 / 64
        score = rows[:, column("cpu_square_before")] - rows[:, column("cpu_square_after")]
        used = 1 - rows[:, column("cpu_free_before")].astype(np.float64)
        spread = [np.std(used + cpu * (np.arange(7) == n)) for n in range(7)]
        assert spread[int(score.argmax())] == pytest.approx(min(spread), abs=1e-6)
        core.step(random.integers(0, 7, 1))


@pytest.mark.parametrize("name", ["cluster", "gpu"])
def test_cached_rows_equal_recomputed_ones(name):
    core, random = WorkloadCore(2, "timed", WorkloadOptions(view=name)), np.random.default_rng(3)
    simulator, parts = core.simulators[0], ("nodes", "pod", "context", "mask")
    for e in range(2):
        core.start(e, np.random.default_rng(e), {})
    for _ in range(150):
        mask = core.observation.mask
        core.step((mask * random.random(mask.shape)).argmax(axis=1))
        for e, begun in enumerate(core._started):
            plan = schedule(simulator.workload, "timed", seed=begun.seed, ratio=begun.ratio, load=begun.load)
            run = core.run(e)
            # An observer of its own, which has seen nothing before.
            again = described_view(
                core.view, simulator.places, plan.nodes, plan.pods, lambda: simulator.leftovers_with(None)
            )
            run.watch(again | {"profile.accepts": simulator.profile_arrays(None).accepts})
            fresh = [np.empty_like(getattr(core.observation, part)[e]) for part in parts]
            run.observe(*fresh)
            for part, values in zip(parts, fresh, strict=True):
                assert np.array_equal(values, getattr(core.observation, part)[e])


def test_rows_of_absent_nodes_are_zero_and_masked():
    workload = Workload("w", (Node("a", 1000, GIB, gpu_count=1, gpu_model="T4"),), (one_gpu("p"),))
    core = WorkloadCore(1, "inflation", WorkloadOptions(workload=workload, max_nodes=5))
    core.start(0, np.random.default_rng(0), {})
    assert core.observation.mask[0].tolist() == [1, 0, 0, 0, 0]
    assert not core.observation.nodes[0, 1:].any()
    assert core.observation.nodes[0, 0].any()


def one_gpu(name: str) -> Pod:
    return Pod(name, PodClass(Requests(10, 0, gpu_count=1, gpu_milli=1000)))


def test_every_view_is_a_table_of_distinct_features_with_ranges_and_a_number():
    assert set(VIEW_NUMBERS) <= set(VIEWS)
    for each in VIEWS.values():
        assert each.pod[:4] == POD_KIND_FEATURES
        for features in (each.node, each.pod, each.context):
            names = [feature.name for feature in features]
            assert len(set(names)) == len(names)
            low, high = bounds(features)
            assert (low < high).all()
            assert np.isfinite(low).all()
            assert np.isfinite(high).all()


def test_unknown_view_or_feature_error_lists_known_ones():
    with raises(UsageError, "'x'"):
        view("x")
    with raises(UsageError, "'cluster'", "'x'", "cpu_free_before"):
        CLUSTER.node_column("x")
