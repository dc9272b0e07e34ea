"""Learned policies: the kernel's scores are what the features and weights say, and FGD is one of them."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.decision_states import of_run, pod_features, tables_of
from tests.support.nightly import examples
from tests.support.weights import fgd_weights

from steersman.cluster.arrays import CPU, MEMORY
from steersman.cluster.model import GPU_MILLI, Constraints, Node, Pod, PodClass, Requests
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.objectives.summary import fragmented_milli
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.features import GPU, POD_KINDS
from steersman.policies.heuristics import HeuristicPolicy
from steersman.policies.learned_weights import FEATURES, FGD, NAMES, RULE_COUNT, WEIGHTS
from steersman.policies.leftovers import PLANNED
from steersman.policies.linear import LinearPolicy
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.formats.openb import embedded
from steersman.workloads.profile import typical_pods
from steersman.workloads.workload import Workload

CPU_SIZES = (500, 3000, 8000, 12000)


@st.composite
def workloads(draw):
    gpus = draw(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(("A", "B"))), min_size=2, max_size=6))
    cpu, memory = st.sampled_from((16000, 64000)), st.sampled_from((1 << 40, 40 << 30))
    nodes = [Node(f"n{i}", draw(cpu), draw(memory), gpu_count=n, gpu_model=model) for i, (n, model) in enumerate(gpus)]
    shares = st.tuples(st.just(1), st.sampled_from((100, 190, 250, 470, 810, 1000)))
    kinds = st.one_of(st.just((0, 0)), shares, st.just((2, 1000)))
    wanted = st.tuples(kinds, st.sampled_from(CPU_SIZES), st.booleans())
    pods = []
    for i, ((count, milli), asked, of_model) in enumerate(draw(st.lists(wanted, min_size=3, max_size=30))):
        requests = Requests(cpu_milli=asked, memory_bytes=1 << 20, gpu_count=count, gpu_milli=milli)
        models = ("A",) if of_model and count else ()
        pods.append(Pod(f"p{i}", PodClass(requests, Constraints(gpu_models=models))))
    return Workload("w", tuple(nodes), tuple(pods))


def random_weights(seed):
    return np.random.default_rng(seed).normal(size=(POD_KINDS, WEIGHTS))


def kind_of(execution, c):
    classes = execution.state.class_arrays
    count, milli = classes.gpu_count[c], classes.gpu_milli[c]
    return 0 if count == 0 else 3 if count > 1 else 2 if milli == GPU_MILLI else 1


@settings(max_examples=examples(12), deadline=None)
@given(workloads(), st.integers(0, 1000))
def test_kernel_matches_numpy_scores_and_picks_the_best(workload, seed):
    weights = random_weights(seed)
    simulator = Simulator(workload)
    plan = schedule(workload, "arrivals", seed=seed, ratio=1.3, load=None)
    execution = Execution(simulator, plan, LinearPolicy("l", weights), seed, record=False)
    for arrival in range(len(workload.pods)):
        c, labels = int(execution.class_id[arrival]), int(execution.labels_id[arrival])
        rows = of_run(execution).features(c)
        feasible = execution.state.mask(c, labels)
        scores = rows @ weights[kind_of(execution, c)]
        kept = execution.engine.scores(c, labels, len(scores))
        execution.advance(arrival + 1)
        chosen = int(execution.standing.node[arrival])
        if not feasible.any():
            assert chosen == -1
            continue
        np.testing.assert_allclose(kept[feasible], scores[feasible], rtol=1e-9, atol=1e-5)
        assert scores[chosen] >= scores[feasible].max() - 1e-5


def test_fgd_weights_reproduce_fgd_exactly():
    """Of pods that ask for no memory, which FGD does not see, and a policy with its score does."""
    whole = embedded("default")
    pods = []
    for pod in whole.pods:
        bare = replace(pod.requests, memory_bytes=0, memory_nonzero_bytes=0)
        pods.append(replace(pod, pod_class=replace(pod.pod_class, requests=bare)))
    simulator = Simulator(replace(whole, pods=tuple(pods)))
    runs = [simulator.run(policy, seed=42) for policy in ("fgd", LinearPolicy("fgd", fgd_weights()))]
    assert [m.value for m in runs[0].metrics] == [m.value for m in runs[1].metrics]


def look(workload):
    """The run of FGD's weights at its end, the class of a pod of nothing, and the state features of all nodes."""
    simulator = Simulator(workload)
    plan = schedule(workload, "arrivals", seed=1, ratio=1.3, load=None)
    execution = Execution(simulator, plan, LinearPolicy("l", fgd_weights()), 1, record=False)
    execution.finish(None)
    c = execution.state.class_id(PodClass(Requests(cpu_milli=0, memory_bytes=0)))
    return execution, c, of_run(execution).features(c)


@settings(max_examples=examples(12), deadline=None)
@given(workloads())
def test_features_match_their_names(workload):
    execution, _, rows = look(workload)
    nodes = execution.state.arrays
    profile, tables = tables_of(execution.policy, execution.state, execution.simulator.profile)
    features = {feature.name: rows[:, i] for i, feature in enumerate(GPU.node)}
    left = nodes.gpu_free / GPU_MILLI
    there = np.arange(left.shape[1])[None, :] < nodes.gpu_count[:, None]
    partial = (left > 0) & (left < 1)
    np.testing.assert_allclose(features["idle_after"], left.sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(features["whole_devices_after"], ((left == 1) & there).sum(axis=1))
    np.testing.assert_allclose(features["part_devices_after"], partial.sum(axis=1))
    np.testing.assert_allclose(features["part_idle_after"], (left * partial).sum(axis=1), atol=1e-5)
    typical = typical_pods(workload.pods)
    cpu, memory = (sum(pod.share * getattr(pod, name) for pod in typical) for name in ("cpu_milli", "memory_bytes"))
    gpu = sum(pod.share * pod.gpu_count * pod.gpu_milli for pod in typical)
    usable = nodes.free[:, CPU].astype(float)
    if memory:  # memory, where it runs out first, at the mix's CPU for a byte of it
        usable = np.minimum(usable, np.trunc(nodes.free[:, MEMORY] * (cpu / memory)))
    unit = GPU_MILLI * cpu / gpu if gpu else 12000
    np.testing.assert_allclose(features["cpu_left_after"], usable / unit, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(features["fragmented_after"], fragmented_milli(profile, nodes) / GPU_MILLI, atol=1e-4)
    np.testing.assert_allclose(features["left_squares_after"], (left**2).sum(axis=1), atol=1e-5)
    table = tables.by_left[:, PLANNED]
    expected = (table[nodes.gpu_free] * there).sum(axis=1)
    np.testing.assert_allclose(features["lost_planned_after"], expected, rtol=1e-4, atol=1e-4)
    for low, column in zip([f.low for f in GPU.node], rows.T, strict=True):
        assert (column >= low - 1e-6).all()
    np.testing.assert_allclose(rows[:, FEATURES : 2 * FEATURES], 0, atol=1e-6)  # a pod of nothing changes nothing


@settings(max_examples=8, deadline=None)
@given(workloads(), st.integers(0, 100))
def test_the_order_of_devices_does_not_matter(workload, seed):
    execution, c, rows = look(workload)
    nodes = execution.state.arrays
    rng = np.random.default_rng(seed)
    for n, count in enumerate(nodes.gpu_count):
        nodes.gpu_free[n, :count] = rng.permutation(nodes.gpu_free[n, :count])
    np.testing.assert_allclose(of_run(execution).features(c), rows, atol=1e-5)


@pytest.mark.parametrize("name", ["gpuspec25", "multigpu40"])
def test_runs_are_independent_of_earlier_runs(name):
    policy = LinearPolicy("l", random_weights(5) * 0.01 + fgd_weights())
    fresh = Simulator(embedded(name)).run(policy, seed=43)
    used = Simulator(embedded(name))
    used.run(LinearPolicy("other", random_weights(6)), seed=42)
    again = used.run(policy, seed=43)
    assert [m.value for m in fresh.metrics] == [m.value for m in again.metrics]


def random_network(seed, *hidden):
    """Layers whose outputs stay within a few units."""
    rng = np.random.default_rng(seed)
    widths = (WEIGHTS + len(GPU.pod), *hidden, 1)
    return tuple(
        (rng.normal(size=(outputs, inputs)) / np.sqrt(inputs), rng.normal(size=outputs) / 4)
        for inputs, outputs in pairwise(widths)
    )


def network_scores(network, rows, pod):
    values = np.concatenate([rows, np.broadcast_to(pod, (len(rows), len(pod)))], axis=1)
    for weight, bias in network[:-1]:
        values = np.maximum(values @ weight.T + bias, 0.0)
    weight, bias = network[-1]
    return (values @ weight.T + bias)[:, 0]


@settings(max_examples=10, deadline=None)
@given(workloads(), st.integers(0, 1000), st.sampled_from(((1,), (4,), (6, 3), (5, 8, 2))))
def test_network_output_is_added_to_the_linear_score(workload, seed, hidden):
    simulator, weights = Simulator(workload), random_weights(seed)
    network = random_network(seed, *hidden)
    plan = schedule(workload, "arrivals", seed=seed, ratio=1.0, load=None)
    execution = Execution(simulator, plan, LinearPolicy("m", weights, network=network), seed, record=False)
    pods = pod_features(execution.state.class_arrays)
    for step, (c, labels) in enumerate(zip(execution.class_id, execution.labels_id, strict=True)):
        rows = of_run(execution).features(int(c))
        kept = execution.engine.scores(int(c), int(labels), len(rows))
        execution.advance(step + 1)
        fit = rows.any(axis=1)
        expected = rows @ weights[kind_of(execution, c)] + network_scores(network, rows, pods[c])
        scale = 1.0 + np.abs(rows) @ np.abs(weights[kind_of(execution, c)])
        seen = fit & (kept > -np.inf)
        assert (np.abs(kept - expected)[seen] <= 1e-5 * scale[seen]).all()


@pytest.mark.parametrize("number", [number for number in range(len(NAMES)) if number != FGD], ids=lambda n: NAMES[n])
def test_weight_of_a_rule_scores_like_the_heuristic(number):
    workload, rules = embedded("default-small"), np.zeros((POD_KINDS, RULE_COUNT))
    rules[:, number] = 2.0
    state, profile = ClusterState(workload.nodes), typical_pods(workload.pods)
    classes = state.class_ids(workload.pods)[:20].tolist()
    learned = Decider(ClusterView(state, profile), LinearPolicy("rule", np.zeros((POD_KINDS, WEIGHTS)), rules))
    heuristic = Decider(ClusterView(state, profile), HeuristicPolicy("rule", (number,), (1.0,)))
    scores = [(learned.scores(PodQuery(c)), heuristic.scores(PodQuery(c))) for c in classes]
    assert any(np.ptp(expected[np.isfinite(expected)]) > 0 for _, expected in scores)
    for found, expected in scores:
        assert found.tolist() == (2.0 * expected).tolist()
