"""The compiled core decides as the kernels do: nodes, devices and scores, after every placement and removal."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from tests.support.compiled_core import arrays_of, both_begun, both_runs, captured_episodes, decider_of
from tests.support.differential.clusters import Cluster
from tests.support.differential.configurations import configuration_of
from tests.support.differential.draws import RandomDraws
from tests.support.differential.sequences import sequence
from tests.support.differential.sides import FileCluster
from tests.support.nightly import examples

from steersman.cluster import arrays
from steersman.cluster.constraints import inter_pod
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.core.errors import SteersmanError
from steersman.core.handles import NOWHERE, Batch, Decider, Singles
from steersman.core.library import LIBRARY
from steersman.envs.environment import SchedulingEnv
from steersman.envs.inflation.episodes import InflationEnv, TimedEnv
from steersman.objectives import registry as objectives
from steersman.policies.base import Policy
from steersman.policies.decision import kernels
from steersman.policies.decision.context import build_decision_state
from steersman.policies.features import CLUSTER, GPU, POD_KINDS, View
from steersman.policies.files.kube_configuration import profiles_of
from steersman.policies.gpu_state.arrays import WEIGHTS, empty_learned
from steersman.policies.heuristics import HEURISTIC_IDS
from steersman.policies.kube_scheduler import KubeSchedulerPolicy
from steersman.policies.linear import LinearPolicy
from steersman.policies.networks.policy import NetworkPolicy
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.event_arrays import ANSWER, DONE, NEEDS_ACTION, QUESTION
from steersman.simulation.protocols import Protocol
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.formats.openb import embedded
from steersman.workloads.profile import profile_arrays, typical_pods
from steersman.workloads.workload import Workload

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="`make core` builds it (needs Rust)")

SUMS = ("fgd=500,best-fit=500", "gpu-packing=3,dot-product=2,best-fit=1")
PODS = 100
REMOVED = 0.3
"""Share of the steps after which a pod ends."""


class Twins:
    """A cluster of the kernels, and the same one of the core."""

    def __init__(self, cluster: Cluster, policy: Policy, seed: int) -> None:
        profile = policy.profile if isinstance(policy, KubeSchedulerPolicy) else None
        files = FileCluster(cluster, profile) if profile else FileCluster(cluster)
        self.state, self.selection = files.state, policy.selection
        pods = [pod for pod in files.workload.pods if pod.name.startswith("p")]
        self.pods = [(self.state.class_id(pod.pod_class), self.state.labels_id(pod)) for pod in pods]
        self.kernels = build_decision_state(
            policy,
            self.state,
            profile_arrays(typical_pods(files.workload.pods), self.state.gpu_types),
            classes=len(self.state.classes),
            changes=10_000,
            selectors=files.workload.services,
            known=empty_learned,
        )
        self.core = decider_of(self.kernels, self.selection, seed)
        self.changed: list[int] = []
        self.rng = np.array([seed], dtype=np.uint64)
        self.mask = np.zeros(len(self.state.nodes), dtype=np.bool_)

    def decide(self, c: int, labels: int) -> tuple[int, int]:
        """Decide about a pod twice, compare, and return the choice."""
        answer, changed = np.zeros(2, dtype=np.int64), np.array(self.changed, dtype=np.int64)
        rules = (self.selection.node, self.selection.devices)
        kernels.decide(self.kernels, changed, self.mask, self.rng, *rules, c, labels, answer)
        self.changed.clear()
        assert self.core.decide(c, labels) == tuple(answer.tolist())
        if self.selection.node == kernels.SELECT_BEST:
            scored = kernels.ScoreTableContext(*(getattr(self.kernels, f) for f in kernels.ScoreTableContext._fields))
            scores = np.empty(len(self.mask))
            masked = inter_pod.has_inter_pod_rules(self.kernels.terms, c, labels)
            kernels.score_nodes(scored, np.zeros(0, dtype=np.int64), self.mask, masked, c, scores)
            assert self.core.scores(c, labels).tolist() == scores.tolist()
        return int(answer[0]), int(answer[1])

    def account(self, c: int, labels: int, node: int, devices: int, *, is_placed: bool) -> None:
        """Place or remove a pod in both."""
        nodes = arrays.place if is_placed else arrays.remove
        terms = inter_pod.terms_place if is_placed else inter_pod.terms_remove
        nodes(self.kernels.nodes, self.kernels.classes, c, node, devices)
        terms(self.kernels.terms, c, labels, node)
        (self.core.place if is_placed else self.core.remove)(c, labels, node, devices)
        self.changed.append(node)


def play(twins: Twins, seed: int) -> tuple[int, int]:
    """Let pods come and end; return how many were placed, and how many fitted nowhere."""
    draws, running, placed, refused = random.Random(seed), [], 0, 0
    for c, labels in twins.pods:
        node, devices = twins.decide(c, labels)
        if node == NOWHERE:
            refused += 1
        else:
            placed += 1
            running.append((c, labels, node, devices))
            twins.account(*running[-1], is_placed=True)
        if running and draws.random() < REMOVED:
            twins.account(*running.pop(draws.randrange(len(running))), is_placed=False)
    return placed, refused


@pytest.mark.parametrize("name", [*HEURISTIC_IDS, *SUMS, "random", "kube-default"])
def test_core_decides_as_the_kernels_on_random_clusters(name: str) -> None:
    placed = refused = 0
    for seed in range(examples(40)):
        more = play(Twins(sequence(RandomDraws(seed), PODS), resolve(name), seed), seed)
        placed, refused = placed + more[0], refused + more[1]
    assert placed > 100
    assert refused > 50


def test_core_decides_as_the_kernels_by_any_configuration_of_kube_scheduler() -> None:
    for seed in range(1_000, 1_000 + examples(160)):
        draws = RandomDraws(seed)
        cluster, configuration = sequence(draws, PODS), configuration_of(draws)
        profiles = profiles_of(configuration)
        name = draws.choice(tuple(profiles)) if len(profiles) > 1 else DEFAULT_SCHEDULER
        play(Twins(cluster, KubeSchedulerPolicy(name, profiles[name], name), seed), seed)


ORDERS = (
    *("", "smallest", "largest", "fair", "shortest", "area@history", "wfp3", "unicef", "f1@history"),
    *("easy", "wfp3:easy", "wfp3:easy@history", "area:easy@history", "shortest:easy", "fcfs", "f1:none", "fair:easy"),
    *("age:any@ageing:10m", "smallest@ageing:20m", "wfp3:easy@ageing:1h"),
)


def random_workload(seed: int, *, runs: bool) -> Workload:
    """Return a small cluster and pods with times, priorities, gangs and controllers of few pods at a time.

    `runs`: some run from the start, and stay.
    """
    draws = RandomDraws(seed)
    workload = FileCluster(sequence(draws, PODS)).workload
    priorities, has_gangs, has_controllers = draws.choice((1, 1, 3)), draws.chance(40), draws.chance(30)
    pods, now = [], 0.0
    for i, pod in enumerate(workload.pods):
        now += draws.choice((0, 0, 1, 30, 300))
        gang, size = i // 5, draws.choice((2, 4, 5))
        is_member = has_gangs and gang % 3 == 0
        pods.append(
            replace(
                pod,
                priority=gang % priorities if is_member else draws.number(0, priorities - 1),
                creation_time=now,
                deletion_time=None if draws.chance(5) else now + draws.choice((1, 60, 600, 600, 9000)),
                gang=f"gang-{gang}" if is_member else "",
                gang_minimum=size if is_member and draws.chance(40) else 0,
                at_once=2 if has_controllers and i % 4 == 0 and not is_member else None,
                owner=f"Deployment/{draws.choice(('a', 'b', 'c'))}",
            )
        )
    if runs:
        return replace(workload, pods=tuple(pods))
    coming = tuple(pod for pod in pods if pod.name.startswith("p"))
    return Workload("cluster", workload.nodes, coming, services=workload.services)


def compare_runs(workload: Workload, protocol: Protocol, policy: Policy, seed: int, load: float | None) -> int:
    """Compare all events of a run; return their number."""
    plan = schedule(workload, protocol, seed=seed, ratio=1.3, load=load, mean_duration=None)
    execution, engine = both_runs(Simulator(workload), plan, policy, seed)
    record = execution._record()
    times, numbers, sums = engine.events()
    assert times.tolist() == record.time.tolist()
    assert numbers.tolist() == record.numbers.tolist()
    assert sums.tolist() == record.sums.tolist()
    return len(times)


@pytest.mark.parametrize("order", ORDERS)
def test_core_runs_as_the_event_loop_on_random_clusters(order: str) -> None:
    events, policies = 0, ("fgd", "best-fit", SUMS[0], "random", "kube-default")
    for seed in range(2_000, 2_000 + examples(60)):
        protocol: Protocol = "timed" if order or seed % 2 else "arrivals"
        workload = random_workload(seed, runs=protocol == "arrivals")
        name = policies[seed % len(policies)]
        events += compare_runs(workload, protocol, resolve(f"{name}+{order}" if order else name), seed, None)
    assert events > 500


def learned_policy(kind: str, seed: int) -> LinearPolicy:
    """Return a policy with random weights: of features alone, also of rules, or with a network."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(POD_KINDS, WEIGHTS))
    if kind == "rules":
        return LinearPolicy(kind, weights, rules=rng.normal(size=(POD_KINDS, len(HEURISTIC_IDS))) / 10)
    sizes = (WEIGHTS + len(GPU.pod), 6, 5, 1) if kind == "network" else ()
    layers = [(rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in pairwise(sizes)]
    return LinearPolicy(kind, weights, network=tuple(layers))


@pytest.mark.parametrize("kind", ["features", "rules", "network"])
def test_core_computes_learned_scores_as_the_kernels(kind: str) -> None:
    for seed in range(3_000, 3_000 + examples(40)):
        workload = random_workload(seed, runs=bool(seed % 2))
        compare_runs(workload, "arrivals" if seed % 2 else "timed", learned_policy(kind, seed), seed, None)
    assert compare_runs(embedded("gpushare40"), "inflation", learned_policy(kind, 1), 42, None) > 10_000


class RecordingNetwork:
    """Network with arbitrary scores; keeps the last observation."""

    def __init__(self) -> None:
        self.last: tuple[npt.NDArray[np.generic], ...] = ()

    def scores(self, nodes: Singles, pod: Singles, context: Singles, mask: npt.NDArray[np.bool_], _: object) -> Singles:
        self.last = (nodes.copy(), pod.copy(), context.copy(), mask.astype(np.int8))
        return np.sin(1e3 * nodes.sum(axis=1) + np.arange(len(nodes))).astype(np.float32)


@pytest.mark.parametrize("view", [CLUSTER, GPU], ids=lambda view: view.name)
def test_core_observes_what_the_encoder_does(view: View) -> None:
    decisions = 0
    for seed in range(4_000, 4_000 + examples(40)):
        protocol: Protocol = "timed" if seed % 2 else "arrivals"
        workload = random_workload(seed, runs=protocol == "arrivals")
        plan = schedule(workload, protocol, seed=seed, ratio=1.3, load=None, mean_duration=None)
        network = RecordingNetwork()
        policy = NetworkPolicy("recording", view, network)  # type: ignore[arg-type]
        execution, engine = both_begun(Simulator(workload), plan, policy, seed, view)
        while (status := execution.advance(1 << 40)) != DONE:
            assert engine.advance(1 << 40) == status == NEEDS_ACTION
            execution.answer()
            buffers = tuple(np.full_like(part, 7) for part in network.last)
            engine.observe(*buffers)  # type: ignore[arg-type]
            for ours, theirs in zip(buffers, network.last, strict=True):
                np.testing.assert_array_equal(ours, theirs)
            assert engine.question == execution.run.question[QUESTION]
            engine.answer(int(execution.run.question[ANSWER]))
            decisions += 1
        assert engine.advance(1 << 40) == DONE
        assert engine.events()[1].tolist() == execution._record().numbers.tolist()
    assert decisions > 300


@pytest.mark.parametrize(
    ("kind", "view", "objective"),
    [
        (InflationEnv, CLUSTER, "allocation"),
        (InflationEnv, GPU, "fragmentation=2,balance=0.5"),
        (TimedEnv, CLUSTER, "waiting-time"),
        (TimedEnv, CLUSTER, "locality=2,most-allocated=1"),
        (TimedEnv, GPU, "least-allocated"),
    ],
)
def test_core_steps_as_the_environments(kind: type[SchedulingEnv], view: View, objective: str) -> None:
    draws, rewards = random.Random(3), set()
    small = embedded("default-small")
    workload = replace(small, pods=tuple(replace(pod, owner=f"Job/{i % 9}") for i, pod in enumerate(small.pods)))
    options = {"workload": workload, "objective": objective, "view": view.name, "servers_per_rack": 4, "penalty": 0.5}
    env = kind(**options)
    resolved = objectives.resolve(objective)
    with captured_episodes(resolved) as started:
        for episode in range(2):
            observation, _ = env.reset(seed=episode)
            batch = Batch(1, len(workload.nodes), (len(view.node), len(view.pod), len(view.context)))
            assert batch.begin(0, started[-1])
            for _ in range(400):
                for name, rows in (("nodes", batch.nodes), ("pod", batch.pods), ("context", batch.contexts)):
                    np.testing.assert_array_equal(rows[0], observation[name])
                assert batch.masks[0].tolist() == observation["mask"].tolist()
                legal = np.flatnonzero(observation["mask"]).tolist()
                action = draws.choice(legal) if draws.random() < 0.95 else draws.randrange(len(workload.nodes))
                observation, reward, terminated, truncated, _ = env.step(action)
                batch.step(np.array([action]))
                assert (batch.rewards[0], batch.terminated[0], batch.truncated[0]) == (reward, terminated, truncated)
                rewards.add(reward)
                if terminated or truncated:
                    break
    assert len(rewards) > 10


def test_core_steps_many_episodes_as_it_steps_one() -> None:
    draws, options = np.random.default_rng(1), {"workload": "default-small", "objective": "allocation"}
    env, features = InflationEnv(**options), (len(CLUSTER.node), len(CLUSTER.pod), len(CLUSTER.context))
    with captured_episodes(objectives.resolve("allocation")) as started:
        for seed in range(3):
            env.reset(seed=seed)
    many, ones = Batch(24, 64, features), [Batch(1, 64, features) for _ in range(24)]
    for e, one in enumerate(ones):
        assert many.begin(e, started[e % 3]) == one.begin(0, started[e % 3])
    for _ in range(60):
        actions = np.array([draws.choice(np.flatnonzero(mask)) for mask in many.masks])
        many.step(actions)
        for e, one in enumerate(ones):
            one.step(actions[e : e + 1])
            assert one.rewards[0] == many.rewards[e]
            np.testing.assert_array_equal(one.nodes[0], many.nodes[e])
            assert many.states(e).tolist() == one.states(0).tolist()


def test_core_runs_the_forecast_as_the_event_loop() -> None:
    assert compare_runs(embedded("default"), "inflation", resolve("greedy-forecast"), 42, None) == 10_866


@pytest.mark.parametrize("order", ["", "area@history", "wfp3:easy", "fair", "age:any@ageing:1h"])
def test_core_runs_openb_as_the_event_loop(order: str) -> None:
    policy = resolve(f"fgd+{order}" if order else "fgd")
    assert compare_runs(embedded("default"), "timed", policy, 42, 1.1) > 20_000


@pytest.mark.parametrize("name", ["fgd", "random", "kube-default"])
def test_core_fills_openb_as_the_event_loop_does(name: str) -> None:
    workload, policy = embedded("default"), resolve(name)
    plan = schedule(workload, "inflation", seed=42, ratio=1.3, load=None, mean_duration=None)
    execution = Execution(Simulator(workload), plan, policy, 42, record=False)
    core = decider_of(execution.cluster, policy.selection, 42)
    arrivals = execution.arrivals
    nodes, devices = core.fill(arrivals.class_id, arrivals.labels_id)
    execution.finish(None)
    assert nodes.tolist() == execution.run.slot.tolist()
    is_placed = nodes != NOWHERE
    assert len(nodes) == 10_866
    assert devices[is_placed].tolist() == execution.run.devices[is_placed].tolist()


@pytest.fixture
def cluster() -> dict[str, np.ndarray]:
    """The arrays of a small cluster."""
    twins = Twins(sequence(RandomDraws(3), 5), resolve("kube-default"), 1)
    return arrays_of(twins.kernels, twins.selection, 1)


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("nodes.free", None, "nodes.free: missing"),
        ("nodes.free", lambda a: a.astype(np.int32), "nodes.free: expected I64, is I32"),
        ("nodes.free", lambda a: a[:, 1:], r"nodes.free: expected \d+ columns, has \d+"),
        ("nodes.free", lambda a: a[1:], r"nodes.free: expected \d+ rows, has \d+"),
        ("nodes.gpu_count", lambda a: a + 100, r"nodes.gpu_count: 1\d\d is not in 0..\d+"),
        ("nodes.gpu_free", lambda a: a + 2000, r"nodes.gpu_free: expected at most 1000 milli, has \d+"),
        ("classes.gpu_milli", lambda a: a - 1001, r"classes.gpu_count: class \d+ requests \d+ devices of -\d+ milli"),
        ("classes.constraint", lambda a: a + 100, r"classes.constraint: 1\d\d is not in 0..\d+"),
        ("terms.rule_start", lambda a: a[::-1], "terms.rule_start: expected|terms.rule_start: .* is not in"),
        ("kube.lists", lambda a: a - 50, r"kube.lists: -\d+ is not in 0..\d+"),
        ("policy.node", lambda _: np.array(9), "policy.node: 9 is no rule"),
        ("profile.share", lambda a: a[None], "profile.share: expected 1 dimensions, has 2"),
    ],
)
def test_core_names_the_array_that_is_wrong(cluster, name, change, text) -> None:  # type: ignore[no-untyped-def]
    changed = {key: value for key, value in cluster.items() if key != name}
    if change is not None:
        changed[name] = change(cluster[name])
    with pytest.raises(SteersmanError, match=text):
        Decider(changed)


def test_core_refuses_what_does_not_exist(cluster: dict[str, np.ndarray]) -> None:
    core = Decider(cluster)
    for call in (lambda: core.decide(10_000), lambda: core.decide(0, -1), lambda: core.place(0, 0, 10_000, 0)):
        with pytest.raises(SteersmanError, match=r"(class|labels|node): -?\d+ is not in 0..\d+"):
            call()
    with pytest.raises(SteersmanError, match="the policy has no table of scores"):
        core.scores(0)
