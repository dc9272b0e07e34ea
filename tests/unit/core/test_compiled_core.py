"""The compiled core decides as the kernels of live clusters do, and runs as the event loop in Python did."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from tests.support.differential.clusters import Cluster
from tests.support.differential.configurations import configuration_of
from tests.support.differential.draws import RandomDraws
from tests.support.differential.sequences import sequence
from tests.support.differential.sides import FileCluster
from tests.support.event_digests import FILE, RUNS, digest
from tests.support.nightly import examples

from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.core.errors import SteersmanError
from steersman.core.handles import NOWHERE, CoreDecider
from steersman.core.library import call
from steersman.envs.workload import InflationEnv, InflationVectorEnv
from steersman.policies.base import Policy
from steersman.policies.decision.description import described_decisions
from steersman.policies.decision.selection import NodeRule
from steersman.policies.heuristics import HEURISTIC_IDS
from steersman.policies.kube_scheduler.configuration import profiles_of
from steersman.policies.kube_scheduler.policy import KubeSchedulerPolicy
from steersman.policies.leftovers import LeftoverTables
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.formats.openb import embedded
from steersman.workloads.profile import profile_arrays, typical_pods

SUMS = ("fgd=500,best-fit=500", "gpu-packing=3,dot-product=2,best-fit=1")
PODS = 100
DECISIONS = Path(__file__).parents[2] / "data" / "decision_digests.json"
REMOVED = 0.3
"""Share of the steps after which a pod ends."""


class RandomCluster:
    """A random cluster, as ClusterState has it and as the core has it, and pods that come."""

    def __init__(self, cluster: Cluster, policy: Policy, seed: int) -> None:
        profile = policy.profile if isinstance(policy, KubeSchedulerPolicy) else None
        files = FileCluster(cluster, profile) if profile else FileCluster(cluster)
        self.state, self.selection = files.state, policy.selection
        pods = [pod for pod in files.workload.pods if pod.name.startswith("p")]
        self.pods = [(self.state.class_id(pod.pod_class), self.state.labels_id(pod)) for pod in pods]
        profiles = profile_arrays(typical_pods(files.workload.pods), self.state.gpu_types)
        services = files.workload.services
        # The policies here read no leftover tables.
        self.described = described_decisions(policy, self.state, profiles, services, _no_tables, seed)
        self.core = CoreDecider(self.described)

    def decide(self, c: int, labels: int) -> tuple[int, int]:
        """Decide about a pod, check what can be checked, and return the choice."""
        feasible, core = self.state.mask(c, labels), self.core
        np.testing.assert_array_equal(core.mask(c, labels), feasible)
        node, devices = core.decide(c, labels)
        assert (node == NOWHERE) == (not feasible.any())
        assert node == NOWHERE or feasible[node]
        if self.selection.node == NodeRule.BEST:
            scores = core.scores(c, labels)
            np.testing.assert_array_equal(scores > -np.inf, feasible)
            assert node == NOWHERE or node == scores.argmax()
        return node, devices


def _no_tables() -> LeftoverTables:
    raise AssertionError


Choices = list[tuple[int, int]]


def play(cluster: RandomCluster, seed: int) -> Choices:
    """Let pods come and end; return the choices."""
    draws, running, choices = random.Random(seed), [], []
    for i, (c, labels) in enumerate(cluster.pods):
        node, devices = cluster.decide(c, labels)
        choices.append((node, devices))
        if node != NOWHERE:
            running.append((f"{i}", (c, labels, node, devices)))
            cluster.core.place(c, labels, node, devices)
            cluster.state.place(f"{i}", c, node, devices, labels)
        if running and draws.random() < REMOVED:
            name, placed = running.pop(draws.randrange(len(running)))
            cluster.core.remove(*placed)
            cluster.state.remove(name)
    return choices


def check_digests(name: str, choices: list[Choices]) -> None:
    """Compare with what kernels in Python decided before the core did; see `event_digests`."""
    known = json.loads(DECISIONS.read_text())[name]
    digests = [sha256(repr(each).encode()).hexdigest()[:16] for each in choices]
    assert digests[: len(known)] == known[: len(digests)]


@pytest.mark.parametrize("name", [*HEURISTIC_IDS, *SUMS, "random", "kube-default"])
def test_core_decides_as_before_on_random_clusters(name: str) -> None:
    seeds = range(examples(40))
    choices = [play(RandomCluster(sequence(RandomDraws(seed), PODS), resolve(name), seed), seed) for seed in seeds]
    nodes = np.array([node for each in choices for node, _ in each])
    assert (nodes != NOWHERE).sum() > 100
    assert (nodes == NOWHERE).sum() > 50
    check_digests(name, choices)


def test_core_decides_as_before_by_any_configuration_of_kube_scheduler() -> None:
    choices = []
    for seed in range(1_000, 1_000 + examples(160)):
        draws = RandomDraws(seed)
        cluster, configuration = sequence(draws, PODS), configuration_of(draws)
        profiles = profiles_of(configuration)
        name = draws.choice(tuple(profiles)) if len(profiles) > 1 else DEFAULT_SCHEDULER
        choices.append(play(RandomCluster(cluster, KubeSchedulerPolicy(name, profiles[name], name), seed), seed))
    check_digests("configurations", choices)


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
    return RandomCluster(sequence(RandomDraws(3), 5), resolve("kube-default"), 1).described


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
    for ask in (lambda: core.decide(10_000), lambda: core.decide(0, -1), lambda: core.place(0, 0, 10_000, 0)):
        with pytest.raises(SteersmanError, match=r"(class|labels|node): -?\d+ is not in 0..\d+"):
            ask()
    with pytest.raises(SteersmanError, match="the policy has no table of scores"):
        CoreDecider(cluster | {"policy.node": np.array(NodeRule.EXTERNAL)}).scores(0)


# In its own process: Hypothesis registers a callback of the garbage collector, where an exception of a signal is lost.
INTERRUPTED = """
import random, signal, sys
import numpy as np
from steersman.core.handles import CoreDecider

core, steps = CoreDecider(dict(np.load(sys.argv[1]))), random.Random(5)
signal.signal(signal.SIGALRM, signal.default_int_handler)
for number in range(100):
    # Anywhere in a call, and again if it came where no exception can be raised, as in `__del__`.
    signal.setitimer(signal.ITIMER_REAL, steps.uniform(1e-4, 1e-3), 0.25)
    try:
        while True:
            core.scores(0)
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
print(number + 1)
"""


def test_a_signal_while_arguments_are_converted_interrupts(cluster: dict[str, np.ndarray], tmp_path: Path) -> None:
    np.savez(tmp_path / "cluster.npz", **cluster)  # type: ignore[arg-type]
    command = [sys.executable, "-c", INTERRUPTED, tmp_path / "cluster.npz"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (run.stdout, run.returncode) == ("100\n", 0), run.stderr


def test_an_array_of_another_type_is_no_interruption() -> None:
    with pytest.raises(TypeError, match="array must have data type float64"):
        call("fragments", b"", 0, np.zeros(3, dtype=np.float32), 3)
