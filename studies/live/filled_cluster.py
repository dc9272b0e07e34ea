"""A real control plane whose kube-scheduler, started with a configuration, places pods until no more fit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from steersman.cluster.model import Node, Pod
from steersman.cluster.objects.fields import pod_from_json
from steersman.cluster.objects.manifests import pod_to_object
from steersman.cluster.state import ClusterState
from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import Client
from steersman.kubernetes.watch import EventType, Reflector
from steersman.live.local_cluster import cluster, record
from steersman.live.local_cluster.cleaning import StallTimeout
from steersman.live.local_cluster.control_plane import servers
from steersman.live.runtime.listing import ALL_PODS
from steersman.live.runtime.tasks import BackgroundTasks
from steersman.workloads.formats.yaml_documents import write_documents
from studies.common import Say

PROGRAM = "kube-scheduler"
PODS = "/api/v1/namespaces/default/pods"
CONNECTION = {"qps": 5_000.0, "burst": 10_000}
"""Limits of the scheduler's own requests, so high that they do not delay bindings."""
BACKLOG = 50
"""Most pods that wait for their first attempt."""
QUIET_SECONDS = 12.0
"""Longer than a pod that fits nowhere waits for its next attempt (10 s at most)."""
STALL_SECONDS = 60.0
POLL_SECONDS = 0.005

Manifest = dict[str, Any]


class Fill(NamedTuple):
    """What a scheduler made of a sequence of pods.

    Attributes:
        nodes: name of the node that each pod was bound to, "" for none; in the order of arrival.
        seconds: from the first pod to the last binding or refusal.
        problems: what must not happen: pods that were deleted, or moved, and nodes with more than they offer.
        fitting: number of refused pods for which there is room in the end.
    """

    nodes: list[str]
    seconds: float
    problems: list[str]
    fitting: int


class FillRecorder:
    """Handler of a watch of pods that records where each is bound, and which were refused.

    Attributes:
        nodes: node by name of a bound pod.
        refused: names of pods that were tried and not bound.
        problems: see `Fill`.
        changed: when a pod was last bound or refused, on the monotonic clock.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self.refused: set[str] = set()
        self.problems: list[str] = []
        self.changed = time.monotonic()

    @property
    def tried(self) -> int:
        """Number of pods that were bound or refused."""
        return len(self.nodes) + len(self.refused)

    def keep(self, keys: Set[str]) -> None:
        """Handle the end of a list, see `Handler`: nothing is deleted during a fill."""

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """Handle an event of a pod, see `Handler`."""
        pod = pod_from_json(obj)
        name = pod.metadata.name
        if kind == "DELETED":
            self.problems.append(f"{name} was deleted")
        elif name in self.nodes:
            if pod.node != self.nodes[name]:
                self.problems.append(f"{name} moved from {self.nodes[name]} to {pod.node}")
        elif pod.node:
            self.nodes[name] = pod.node
            self.refused.discard(name)
            self.changed = time.monotonic()
        elif pod.scheduled_condition.status == "False" and name not in self.refused:
            self.refused.add(name)
            self.changed = time.monotonic()


def fill(
    name: str, nodes: Sequence[Node], pods: Sequence[Pod], configuration: Mapping[str, Any], folder: Path, say: Say
) -> Fill:
    """Let kube-scheduler place pods on a new cluster, which is gone afterwards.

    Args:
        name: of the local cluster.
        nodes: as `local_cluster.nodes.prepared` returns them.
        pods: in order of arrival.
        configuration: KubeSchedulerConfiguration; only the connection to the cluster is added.
        folder: for the scheduler's files.
        say: prints progress.

    Raises:
        SteersmanError: the cluster or the scheduler does not start, or pods stay untried.
    """
    control_plane = cluster.find_control_plane(lambda *_: None, say)
    if control_plane.programs is None:
        raise SteersmanError("this study needs a control plane of processes, and there is a container engine")
    cluster.take_down(name, say)  # of a study that was killed
    cluster.bring_up(name, control_plane, nodes, lambda *_: None, say)
    try:
        _stop_own_scheduler(name)
        program = control_plane.programs / PROGRAM
        kubeconfig = Path(record.require(name).kubeconfig)
        with _scheduler(program, configuration, kubeconfig, folder) as process:
            manifests = [_manifest(i, pod) for i, pod in enumerate(pods)]
            recorder, seconds = asyncio.run(_play(name, manifests, process))
    finally:
        cluster.take_down(name, say)
    where = [recorder.nodes.get(pod_name(i), "") for i in range(len(pods))]
    problems, fitting = examine(nodes, pods, where)
    return Fill(where, seconds, recorder.problems + problems, fitting)


def pod_name(i: int) -> str:
    """Return the name of the pod that arrives as number `i`."""
    return f"pod-{i:05}"


def examine(nodes: Sequence[Node], pods: Sequence[Pod], where: Sequence[str]) -> tuple[list[str], int]:
    """Return bindings that the nodes do not allow, and the number of unbound pods that some node has room for.

    Args:
        nodes: of the cluster.
        pods: in order of arrival.
        where: name of the node of each pod, "" for none.
    """
    state, problems = ClusterState(nodes), []
    slots = {node.name: slot for slot, node in enumerate(nodes)}
    classes = state.class_ids(pods).tolist()
    for i, node in enumerate(where):
        if node:
            try:
                state.place(pod_name(i), classes[i], slots[node])
            except SteersmanError as error:
                problems.append(str(error))
    unbound = [classes[i] for i, node in enumerate(where) if not node]
    has_room = {each: bool(state.mask(each).any()) for each in set(unbound)}
    return problems, sum(has_room[each] for each in unbound)


def _manifest(i: int, pod: Pod) -> Manifest:
    result = pod_to_object(pod)
    result["metadata"]["name"] = pod_name(i)
    return result


def _stop_own_scheduler(name: str) -> None:
    """Stop the kube-scheduler that came with the cluster, whose place is taken."""
    folder = record.folder_of(name)
    os.kill(servers.running(folder)[PROGRAM], signal.SIGKILL)
    until = time.monotonic() + servers.STOP_SECONDS
    while PROGRAM in servers.running(folder):
        if time.monotonic() > until:
            raise SteersmanError(f"the {PROGRAM} of cluster {name} cannot be stopped")
        time.sleep(POLL_SECONDS)


@contextmanager
def _scheduler(
    program: Path, configuration: Mapping[str, Any], kubeconfig: Path, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run kube-scheduler with a configuration in the block."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "configuration.yaml"
    connection = {"kubeconfig": str(kubeconfig), **CONNECTION}
    write_documents(file, [{**configuration, "clientConnection": connection}])
    command = [str(program), "--config", str(file), "--secure-port=0", "--leader-elect=false", "--v=1"]
    with (
        (folder / "kube-scheduler.log").open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


async def _play(name: str, pods: Sequence[Manifest], scheduler: subprocess.Popen[bytes]) -> tuple[FillRecorder, float]:
    """Create the pods, each when few wait for their first attempt, and wait until no more are bound."""
    recorder = FillRecorder()
    async with cluster.client(record.require(name)) as client:
        reflector = Reflector(client, ALL_PODS, recorder)
        async with BackgroundTasks(reflector.run()):
            await reflector.synced.wait()
            began = time.monotonic()
            for i, pod in enumerate(pods, start=1):
                await client.create(PODS, pod)
                # One before the scheduler is ready: what waits at its start is tried in any order.
                await _until_tried(recorder, scheduler, i - (BACKLOG if recorder.tried else 0))
            await _until_tried(recorder, scheduler, len(pods))
            while time.monotonic() - recorder.changed < QUIET_SECONDS:
                await asyncio.sleep(QUIET_SECONDS / 10)
        seconds = recorder.changed - began
        await _compare(client, recorder, len(pods))
    return recorder, seconds


async def _until_tried(recorder: FillRecorder, scheduler: subprocess.Popen[bytes], count: int) -> None:
    """Wait until so many pods were tried. Raises SteersmanError: the scheduler ended, or tries no more."""
    patience = StallTimeout(STALL_SECONDS)
    while recorder.tried < count:
        if scheduler.poll() is not None:
            raise SteersmanError(f"{PROGRAM} ended with status {scheduler.returncode}")
        if patience.ends(count - recorder.tried):
            raise SteersmanError(f"{PROGRAM} has tried {recorder.tried} pods and tries no more")
        await asyncio.sleep(POLL_SECONDS)


async def _compare(client: Client, recorder: FillRecorder, count: int) -> None:
    """Note where the API's list of pods differs from what the watch said."""
    items = [pod_from_json(each) for each in (await client.list(PODS)).items]
    listed = {pod.metadata.name: pod.node for pod in items if pod.node}
    if len(items) != count or listed != recorder.nodes:
        recorder.problems.append(f"{len(items)} pods, {len(listed)} of them bound, differ from what the watch said")
