"""The compiled core decides as the kernels of live clusters do, and runs as the event loop in Python did."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from tests.support.differential.clusters import Cluster
from tests.support.differential.configurations import configuration_of
from tests.support.differential.draws import RandomDraws
from tests.support.differential.sequences import sequence
from tests.support.differential.sides import FileCluster
from tests.support.event_digests import FILE, RUNS, digest
from tests.support.nightly import examples

from steersman.cluster import arrays
from steersman.cluster.constraints import inter_pod
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.core.errors import SteersmanError
from steersman.core.handles import NOWHERE, CoreDecider
from steersman.envs.inflation.episodes import InflationEnv, InflationVectorEnv
from steersman.policies.base import Policy
from steersman.policies.decision import kernels
from steersman.policies.decision.context import build_decision_state
from steersman.policies.decision.description import described_decisions
from steersman.policies.files.kube_configuration import profiles_of
from steersman.policies.gpu_state.arrays import empty_learned
from steersman.policies.heuristics import HEURISTIC_IDS
from steersman.policies.kube_scheduler import KubeSchedulerPolicy
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.formats.openb import embedded
from steersman.workloads.profile import profile_arrays, typical_pods

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
        profiles = profile_arrays(typical_pods(files.workload.pods), self.state.gpu_types)
        self.kernels = build_decision_state(
            policy,
            self.state,
            profiles,
            classes=len(self.state.classes),
            changes=10_000,
            selectors=files.workload.services,
            known=empty_learned,
        )
        # The policies here read no such tables.
        tables = empty_learned().leftovers
        services = files.workload.services
        self.described = described_decisions(policy, self.state, profiles, services, lambda: tables, seed)
        self.core = CoreDecider(self.described)
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


@pytest.mark.parametrize("name", list(RUNS))
def test_runs_and_episodes_are_those_of_the_event_loop_in_python(name: str) -> None:
    assert digest(name) == json.loads(FILE.read_text())[name]


def test_every_number_of_a_run_counts_in_its_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    (name, run), (last, *_) = next(iter(RUNS.items())), list(next(iter(RUNS.values()))())[-1:]
    before = digest(name)
    monkeypatch.setitem(RUNS, name, lambda: [*list(run())[:-1], last + np.eye(*last.shape)[::-1] * 1e-12])
    assert digest(name) != before


def test_core_steps_many_episodes_as_it_steps_one() -> None:
    draws, many, ones = np.random.default_rng(1), InflationVectorEnv(24), [InflationEnv() for _ in range(24)]
    seen = many.reset(seed=3)[0]
    for e, one in enumerate(ones):
        np.testing.assert_array_equal(one.reset(seed=3 + e)[0]["nodes"], seen["nodes"][e])
    for _ in range(60):
        actions = np.array([draws.choice(np.flatnonzero(mask)) for mask in seen["mask"]])
        seen, rewards, *_ = many.step(actions)
        for e, one in enumerate(ones):
            alone, reward, *_ = one.step(actions[e])
            assert reward == rewards[e]
            np.testing.assert_array_equal(alone["nodes"], seen["nodes"][e])
        assert many.core.states.tolist() == [one.core.states[0].tolist() for one in ones]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["fgd", "random", "kube-default"])
def test_a_decider_fills_openb_as_a_run_does(name: str) -> None:
    workload, policy = embedded("default"), resolve(name)
    plan = schedule(workload, "inflation", seed=42, ratio=1.3, load=None, mean_duration=None)
    execution = Execution(Simulator(workload), plan, policy, 42, record=False)
    nodes, devices = CoreDecider(execution.described.arrays()).fill(execution.class_id, execution.labels_id)
    execution.finish(None)
    standing = execution.standing
    assert nodes.tolist() == standing.node.tolist()
    assert len(nodes) == 10_866
    assert devices.tolist() == standing.devices.tolist()


@pytest.fixture
def cluster() -> dict[str, np.ndarray]:
    """The arrays of a small cluster."""
    return Twins(sequence(RandomDraws(3), 5), resolve("kube-default"), 1).described


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
        ("policy.node", lambda _: np.array(9), "policy.node: 9 is not a rule"),
        ("profile.share", lambda a: a[None], "profile.share: expected 1 dimensions, has 2"),
    ],
)
def test_core_names_the_array_that_is_wrong(cluster, name, change, text) -> None:  # type: ignore[no-untyped-def]
    changed = {key: value for key, value in cluster.items() if key != name}
    if change is not None:
        changed[name] = change(cluster[name])
    with pytest.raises(SteersmanError, match=text):
        CoreDecider(changed)


def test_core_refuses_what_does_not_exist(cluster: dict[str, np.ndarray]) -> None:
    core = CoreDecider(cluster)
    for call in (lambda: core.decide(10_000), lambda: core.decide(0, -1), lambda: core.place(0, 0, 10_000, 0)):
        with pytest.raises(SteersmanError, match=r"(class|labels|node): -?\d+ is not in 0..\d+"):
            call()
    with pytest.raises(SteersmanError, match="the policy has no table of scores"):
        CoreDecider(cluster | {"policy.node": np.array(kernels.SELECT_EXTERNAL)}).scores(0)
