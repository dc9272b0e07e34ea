"""`workload record`: what is written of a scheduler at work is what an environment would have given an agent."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from tests.support.errors import raises
from tests.support.servers.live_cluster import NODES, PODS, LiveDouble, node, pod, with_double

from steersman.agents.buffers import Recording
from steersman.cluster.model import Constraints, Node, Pod, PodClass, Requests
from steersman.core.errors import SteersmanError
from steersman.envs.workload import WorkloadCore, WorkloadOptions
from steersman.kubernetes.client import Client
from steersman.live.recorder import recording as recorder
from steersman.live.recorder.transitions import LoggedEvent, NodeEvent, PodEvent, save, transitions
from steersman.objectives import registry
from steersman.objectives.summary import reward
from steersman.policies.features import CLUSTER, view
from steersman.simulation import event_arrays
from steersman.simulation.arrivals import schedule
from steersman.workloads.loading import load_workload
from steersman.workloads.topology import Hierarchy, label_nodes
from steersman.workloads.workload import Workload

BALANCE = registry.resolve("balance")
GIB = 1 << 30


def timed_workload() -> Workload:
    """Nodes in racks, with GPUs of two models and without; pods of some Jobs that come and go, some of which wait."""
    rng = np.random.default_rng(5)
    shapes = [(16_000, 64 * GIB, 2, "A"), (32_000, 64 * GIB, 4, "B"), (24_000, 96 * GIB, 0, "")] * 2
    nodes = [Node(f"n{i}", c, m, gpu_count=g, gpu_model=model) for i, (c, m, g, model) in enumerate(shapes)]
    kinds = [
        PodClass(Requests(4000, 8 * GIB)),
        PodClass(Requests(2000, 4 * GIB, gpu_count=1, gpu_milli=300)),
        PodClass(Requests(3000, 8 * GIB, gpu_count=1, gpu_milli=700), Constraints(gpu_models=("A",))),
        PodClass(Requests(6000, 8 * GIB, gpu_count=2, gpu_milli=1000)),
    ]
    pods = []
    for i in range(80):
        start = float(rng.integers(0, 300))
        end = start + float(rng.integers(20, 120))
        owner = f"Job/{rng.integers(4)}" if i % 3 else ""
        pods.append(Pod(f"p{i}", kinds[rng.integers(4)], owner=owner, creation_time=start, deletion_time=end))
    return Workload("w", label_nodes(nodes, Hierarchy(2)), tuple(pods))


def journal_of(core: WorkloadCore, workload: Workload, seed: int) -> list[LoggedEvent]:
    """What a journal would say of a run that is over."""
    plan = schedule(workload, "timed", seed=seed, ratio=1.0, load=None)
    nodes = {each.name: each for each in workload.nodes}
    names = core.names(0)
    entries = [LoggedEvent(0.0, NodeEvent(name, nodes[name])) for name in names]
    came: set[int] = set()
    times, events, _ = core.run(0).events()
    for at, numbers in zip(times.tolist(), events, strict=True):
        arrival, outcome = int(numbers[event_arrays.ARRIVAL]), numbers[event_arrays.OUTCOME]
        each = workload.pods[plan.pods[arrival]]
        if arrival not in came:
            came.add(arrival)
            entries.append(LoggedEvent(at, PodEvent(each.name, each)))
        if outcome == event_arrays.BOUND:
            where, devices = names[numbers[event_arrays.SLOT]], int(numbers[event_arrays.DEVICES])
            entries.append(LoggedEvent(at, PodEvent(each.name, each, where, devices)))
        elif outcome == event_arrays.FINISHED:
            entries.append(LoggedEvent(at, PodEvent(each.name, each, gone=True)))
    return entries


def same_groups(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether nodes share racks and servers alike, whatever their numbers."""
    return all(((a[:, None] == a) == (b[:, None] == b)).all() for a, b in zip(one.T, other.T, strict=True))


@pytest.mark.parametrize("name", ["cluster", "gpu"])
def test_transitions_match_the_environment(name):
    workload, objective = timed_workload(), "allocation=1,balance=0.3,fragmentation=0.7,locality=0.5,waiting-time=2"
    core = WorkloadCore(1, "timed", WorkloadOptions(workload, objective, load=None, view=name))
    core.start(0, np.random.default_rng(0), {"seed": 3})
    shown, actions, rewards = [], [], []
    while not core.terminated[0]:
        seen = core.observation
        shown.append({part: getattr(seen, part)[0].copy() for part in ("nodes", "pod", "context", "mask", "groups")})
        chosen = core.rule_actions("best-fit")
        actions.append(int(chosen[0]))
        core.step(chosen)
        rewards.append(float(core.rewards[0]))
    found = transitions(journal_of(core, workload, 3), "default-scheduler", view(name))
    assert len(found.seen) == len(shown) == len(workload.pods)
    assert found.skipped_decisions == 0
    waited = core.view.context_column("waiting")
    for here, there in zip(found.seen, shown, strict=True):
        # How many wait besides one that is tried again is not known from outside: only those that came before it are.
        there["context"][waited] = here.before["context"][waited]
        for part in ("nodes", "pod", "context", "mask"):
            np.testing.assert_allclose(here.before[part], there[part], rtol=1e-5, atol=1e-6, err_msg=part)
        assert same_groups(here.before["groups"], there["groups"])
    assert [each.action for each in found.seen] == actions
    assert rewards_of(found, objective) == pytest.approx(rewards, rel=1e-4, abs=1e-5)
    assert max(rewards_of(found, "waiting-time")) == 0 > min(rewards_of(found, "waiting-time"))


def rewards_of(found, objective):
    weighted = registry.resolve(objective)
    return [reward(weighted, each.row, each.next_row) for each in found.seen]


def entries_of(*events: NodeEvent | PodEvent) -> list[LoggedEvent]:
    return [LoggedEvent(float(i), event) for i, event in enumerate(events)]


def small(name: str, cpu: int = 1000, scheduler: str = "it") -> Pod:
    return Pod(name, PodClass(Requests(cpu, GIB)), scheduler_name=scheduler)


def comes(pod: Pod, *nodes: str) -> list[PodEvent]:
    """A pod waits, and is bound."""
    return [PodEvent(pod.name, pod), *(PodEvent(pod.name, pod, node) for node in nodes)]


def gone(pod: Pod) -> PodEvent:
    return PodEvent(pod.name, pod, gone=True)


A, B, C = (NodeEvent(name, Node(name, 4000, 8 * GIB)) for name in "abc")


def test_episode_ends_when_all_its_pods_are_deleted(tmp_path):
    one, two, three, other = small("one"), small("two"), small("three"), small("other", scheduler="else")
    events = (A, B, *comes(other, "a"), *comes(one, "a"), *comes(two, "b"), gone(one), gone(two), *comes(three, "a"))
    found = transitions(entries_of(*events), "it", CLUSTER)
    assert [each.terminated for each in found.seen] == [False, True, False]
    assert [each.action for each in found.seen] == [0, 1, 0]
    assert save(found, BALANCE, tmp_path / "t.npz") == 2  # nothing followed on the last one
    written = Recording.load(tmp_path / "t.npz")
    assert (written.actions.tolist(), written.terminated.tolist()) == ([0, 1], [False, True])
    assert not written.truncated.any()
    free = CLUSTER.node_column("cpu_free_before")
    assert written.before["nodes"][:, :, free].tolist() == [[0.75, 1.0], [0.5, 1.0]]
    assert written.after["nodes"][0].tolist() == written.before["nodes"][1].tolist()
    ended = transitions(entries_of(*events, gone(three)), "it", CLUSTER)
    assert save(ended, BALANCE, tmp_path / "t.npz") == 3


def test_changing_nodes_keep_their_columns(tmp_path):
    pods = [small(f"p{i}") for i in range(4)]
    smaller = NodeEvent("b", Node("b", 2000, 8 * GIB))
    events = (
        *(A, B, *comes(pods[0], "b"), C, *comes(pods[1], "c")),
        *(NodeEvent("a", None), *comes(pods[2], "b"), smaller, *comes(pods[3], "c")),
    )
    found = transitions(entries_of(*events), "it", CLUSTER)
    assert list(found.nodes) == ["a", "b", "c"]
    assert save(found, BALANCE, tmp_path / "t.npz") == 3
    written = Recording.load(tmp_path / "t.npz")
    assert written.before["mask"].tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    assert written.after["mask"].tolist() == [[1, 1, 1], [0, 1, 1], [0, 0, 1]]
    assert written.actions.tolist() == [1, 2, 1]
    assert (written.before["groups"][0, 2] == -1).all()


def test_infeasible_choice_is_skipped_and_counted():
    big, late = small("big", 3000), small("late", 3000)
    events = (A, B, *comes(big, "a"), *comes(late, "a"), *comes(small("x"), "b"), *comes(small("y"), "unknown"))
    found = transitions(entries_of(*events), "it", CLUSTER)
    assert ([each.action for each in found.seen], found.skipped_decisions) == ([0, 1], 2)


def test_retried_pending_pod_counts_as_waiting():
    infeasible_at_retry, young = PodEvent("stuck", small("stuck", 9000)), PodEvent("young", small("young"))
    found = transitions(
        entries_of(A, infeasible_at_retry, *comes(small("p"), "a"), young, *comes(small("q"), "a")), "it", CLUSTER
    )
    column = CLUSTER.context_column("waiting")
    assert [each.before["context"][column] for each in found.seen] == pytest.approx([1 / 17, 2 / 18])


def test_pod_lifetimes_form_a_trace():
    pods = [small("one"), small("two"), small("other", scheduler="else")]
    events = (A, *comes(pods[0], "a"), *comes(pods[2], "a"), PodEvent("two", pods[1]), gone(pods[0]), *comes(pods[0]))
    found = recorder.pods_from_log(entries_of(*events), "it")
    assert [(pod.name, pod.creation_time, pod.deletion_time) for pod in found] == [
        ("one", 0.0, 4.0),  # came at 1, was bound at 2, went at 6
        ("two", 4.0, None),
        ("one-2", 6.0, None),
    ]


@with_double
async def test_a_watched_cluster_becomes_a_recording_and_a_workload(double: LiveDouble, client: Client, tmp_path: Path):
    output = tmp_path / "seen"
    for i in range(3):
        double.put(NODES, node(f"node-{i}", cpu="8", rack="r"))
    double.bind_after = None
    double.put(PODS, pod("before", on="node-2"))
    double.put(PODS, pod("waits"))
    started = asyncio.Event()

    async def schedule_them() -> None:
        await started.wait()
        double.bind("waits", "node-1")
        for i in range(6):
            double.put(PODS, pod(f"p{i}", scheduler="default-scheduler" if i != 3 else "another"))
            await asyncio.sleep(1)
            double.bind(f"p{i}", f"node-{i % 3}")
        double.remove(PODS, "p0")
        double.put(NODES, node("node-0", cpu="16", rack="r"))

    counted: list[int] = []
    background = asyncio.create_task(schedule_them())
    journal = await recorder.watch(client, "default-scheduler", 100, 20.0, counted.append, started.set)
    await background
    assert counted == [1, 2, 3, 4, 5, 6]
    written = recorder.write(journal, CLUSTER, BALANCE, output)
    assert written == recorder.RecordingSummary(5, 3, 7, 0)
    watching = asyncio.create_task(recorder.watch(client, "default-scheduler", 1, None, counted.append))
    await asyncio.sleep(3)
    watching.cancel()  # as Ctrl-C does
    enough = await watching
    with raises(SteersmanError, "0", "'default-scheduler'"):
        recorder.write(enough, CLUSTER, BALANCE, tmp_path / "nothing")
    recording = Recording.load(output / recorder.TRANSITIONS)
    assert recording.actions.tolist() == [1, 0, 1, 2, 1]
    assert recording.before["nodes"].shape[1] == 3
    assert recording.before["context"][0, CLUSTER.context_column("nodes_used")] == pytest.approx(1 / 3)
    workload = load_workload(output / recorder.NODES, output / recorder.PODS)
    assert [each.cpu_milli for each in workload.nodes] == [16000, 8000, 8000]
    assert sorted(each.name for each in workload.pods) == ["before", "p0", "p1", "p2", "p4", "p5", "waits"]
    assert not (tmp_path / "nothing").exists()
