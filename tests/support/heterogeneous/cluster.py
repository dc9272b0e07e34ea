"""Play the same workloads on a fresh cluster with one scheduler after the other, and judge what each of them did.

The pods come from the controllers of a real control plane. A controller is created when the former one has made all its
pods, so that pods come in the same order whoever schedules them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.support.heterogeneous.objects import GPU, draw_nodes, draw_workloads, pods_of, scaled
from tests.support.placement_checker import Violation, check, quantity, requests_of

from steersman.live.local_cluster.control_plane import build, servers

STEERSMAN = Path(sys.executable).with_name("steersman")
NAME = "heterogeneous"
SCHEDULER = "steersman"
PODS = "/api/v1/namespaces/default/pods"
TYPICAL_SHARE = 0.1
"""Of each workload's pods that ran on the cluster the day before, and are gone."""
QUIET_SECONDS = 12.0
"""Longer than a pod that fitted nowhere waits for its next turn (10 s at most, of either scheduler)."""
PATIENCE_SECONDS = 120.0
POLL_SECONDS = 0.05
RULES = ("fgd",)
"""Policies that decide without having been compared."""
CHOSEN = (
    "the policy was compared",
    "the policy is worse than a rule on this cluster; the rule decides",
    "the policy file was compared on an equal cluster when it was written",
)
"""What `steersman schedule` logs when it is settled who decides."""

Object = dict[str, Any]
Watch = Callable[[str, Path], "subprocess.Popen[bytes]"]


@dataclass(frozen=True)
class Draw:
    """A cluster and its workloads.

    Attributes:
        nodes: how many; at 200 there are 640 GPUs and some 2,000 pods.
        seed: the same seed is the same draw.
    """

    nodes: int
    seed: int

    def node_objects(self) -> list[Object]:
        """Return the v1 Nodes."""
        return draw_nodes(self.nodes, self.seed)

    def workloads(self, scheduler: str = "") -> list[Object]:
        """Return the controllers in the order of their creation."""
        return draw_workloads(self.nodes, self.seed, scheduler)

    def typical(self, scheduler: str = "") -> list[Object]:
        """Return the same controllers with a tenth of their pods, as of the day before."""
        return scaled(self.workloads(scheduler), TYPICAL_SHARE)


@dataclass(frozen=True)
class Outcome:
    """What a scheduler made of a draw.

    Attributes:
        gpus, gpus_in_use: of all nodes, and those that bound pods hold.
        pods, bound: how many there are and how many have a node.
        violations: of constraints, by the independent checker.
        seconds: from the first controller to the last binding.
        choices: what `steersman schedule` logged about who decides, in time.
    """

    gpus: int
    gpus_in_use: int
    pods: int
    bound: int
    violations: tuple[Violation, ...]
    seconds: float
    choices: tuple[Object, ...] = ()

    @property
    def violations_by_kind(self) -> dict[str, int]:
        """How many violations there are of each kind of constraint."""
        return dict(Counter(each.kind for each in self.violations))

    @property
    def deciders(self) -> list[str]:
        """Who was chosen to decide by each comparison: a member of the portfolio, a rule, or the policy itself."""
        keys = ("rule", "member", "decides", "policy")
        return [next(line[key] for key in keys if line.get(key)) for line in self.choices]


class Recording:
    """The history of all pods: what a watch of the API says, in its order.

    Args:
        watch: starts the watch of pods after a resource version, a process that prints one event a line to a file.
        path: of that file.
        version: the resource version that the history begins after.
    """

    def __init__(self, watch: Watch, path: Path, version: str) -> None:
        path.touch()
        self._watch, self._path, self._version = watch, path, version
        self._file: IO[str] = path.open(encoding="utf-8")
        self._process = watch(version, path)
        self._rest = ""
        self.pods: dict[str, Object] = {}
        self.order: list[str] = []
        self.deleted = 0
        self.last_binding = time.monotonic()

    def read(self) -> None:
        """Read what happened since the last call."""
        has_ended = self._process.poll() is not None
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        for line in lines:
            self._read_event(json.loads(line))
        if has_ended:  # the server ends watches of those who are slow, as anybody is on a busy machine
            self._rest = ""
            self._process = self._watch(self._version, self._path)

    def _read_event(self, event: Object) -> None:
        pod, kind = event["object"], event["type"]
        if kind == "ERROR":
            raise RuntimeError(f"the watch of pods ended: {pod.get('message')}")
        self._version = pod["metadata"]["resourceVersion"]
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self.pods.pop(uid, None)
            self.deleted += 1
            return
        was_bound = "nodeName" in self.pods.get(uid, {"spec": {}})["spec"]
        self.pods[uid] = pod
        if "nodeName" in pod["spec"] and not was_bound:
            self.order.append(uid)
            self.last_binding = time.monotonic()

    def close(self) -> None:
        """End the watch."""
        self._process.kill()
        self._process.wait()
        self._file.close()

    def count(self, app: str) -> int:
        """Return how many pods a controller has made."""
        return sum(1 for pod in self.pods.values() if pod["metadata"]["labels"].get("app") == app)

    @property
    def untried(self) -> int:
        """How many pods have neither a node nor a condition that says why."""
        return sum(1 for pod in self.pods.values() if "nodeName" not in pod["spec"] and not _was_refused(pod))


def _was_refused(pod: Object) -> bool:
    return any(
        each["type"] == "PodScheduled" and each["status"] == "False" for each in pod["status"].get("conditions", ())
    )


class Cluster:
    """A control plane with the nodes of a draw.

    Args:
        folder: for its files; it must exist.
        kubectl: the program.
    """

    def __init__(self, folder: Path, kubectl: Path) -> None:
        self.folder, self._kubectl = folder, kubectl
        self.environment = os.environ | {"STEERSMAN_STATE_DIR": str(folder / "state")}
        self.state = folder / "state" / "clusters" / NAME

    def steersman(self, *arguments: str | Path) -> None:
        """Run the command on the cluster, which has to succeed."""
        command: list[str | Path] = [STEERSMAN, *arguments, "--name", NAME]
        done = subprocess.run(
            command, env=self.environment, text=True, capture_output=True, check=False, timeout=PATIENCE_SECONDS
        )
        assert done.returncode == 0, f"{arguments}\n{done.stderr}"

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl, which has to succeed; what it printed."""
        done = subprocess.run(
            [self._kubectl, "--kubeconfig", self.state / "kubeconfig", *arguments],
            input=stdin,
            text=True,
            capture_output=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stderr}"
        return done.stdout

    def listed(self, path: str) -> tuple[list[Object], str]:
        """Return the objects of a collection and its resource version."""
        found = json.loads(self.kubectl("get", "--raw", path))
        return found["items"], found["metadata"]["resourceVersion"]

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Record pods from now on, when there must be none."""
        pods, version = self.listed(PODS)
        assert not pods
        path = self.folder / "pods.jsonl"
        path.unlink(missing_ok=True)
        recording = Recording(self._watch, path, version)
        try:
            yield recording
        finally:
            recording.close()

    def _watch(self, version: str, path: Path) -> subprocess.Popen[bytes]:
        query = f"{PODS}?watch=true&timeoutSeconds=7200&resourceVersion={version}"
        command: list[str | Path] = [self._kubectl, "--kubeconfig", self.state / "kubeconfig", "get", "--raw", query]
        with path.open("ab") as file:
            return subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)


@contextmanager
def cluster_of(draw: Draw, folder: Path) -> Iterator[Cluster]:
    """Start a cluster with a draw's nodes; its servers are gone afterwards."""
    programs = build.programs(lambda *_: None, print)
    cluster = Cluster(folder, programs / "kubectl")
    file = folder / "nodes.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": draw.node_objects()}))
    try:
        cluster.steersman("cluster", "up", "--nodes-from", file)
        _compare_nodes(draw.node_objects(), cluster.listed("/api/v1/nodes")[0])
        yield cluster
    finally:
        cluster.steersman("cluster", "down")
        assert not servers.running(cluster.state)


def _compare_nodes(wanted: Sequence[Object], there: Sequence[Object]) -> None:
    """Make sure that the cluster has the nodes that were drawn."""
    by_name = {node["metadata"]["name"]: node for node in there}
    assert len(by_name) == len(wanted)
    for node in wanted:
        found = by_name[node["metadata"]["name"]]
        assert node["metadata"]["labels"].items() <= found["metadata"]["labels"].items()
        offers = found["status"]["allocatable"]
        assert all(quantity(offers[key]) == quantity(value) for key, value in node["status"]["allocatable"].items())
        taints = ([(t["key"], t.get("value", ""), t["effect"]) for t in _taints(each)] for each in (node, found))
        assert next(taints) == next(taints)


def _taints(node: Object) -> list[Object]:
    taints: list[Object] = node["spec"].get("taints", [])
    return taints


def play(
    draw: Draw, folder: Path, policy: str = "", *, options: Sequence[str] = (), day_before: bool = False
) -> Outcome:
    """Let a scheduler place a draw's workloads on a fresh cluster, until no more pods are bound.

    Args:
        draw: which.
        folder: for files; it must exist and be empty.
        policy: of `steersman schedule`; "" for the cluster's own kube-scheduler as it is.
        options: further ones of `steersman schedule`.
        day_before: whether a tenth of the pods waited when the scheduler started, ran and are gone, so that a learned
            policy was compared on such pods when the first one comes.
    """
    scheduler = SCHEDULER if policy else ""
    with cluster_of(draw, folder) as cluster, ExitStack() as stack:
        if day_before:
            with cluster.recording() as recording:
                _create_all(cluster, recording, draw.typical(scheduler))
                log = stack.enter_context(_scheduling(cluster, policy, options))
                _until(lambda: _settled(recording, 0.0), "yesterday's pods are placed")
            if policy and policy not in RULES:
                _until(lambda: bool(_choices(log)), "it is settled who decides")
            _delete_all(cluster)
        else:
            log = stack.enter_context(_scheduling(cluster, policy, options))
        with cluster.recording() as recording:
            began = time.monotonic()
            _create_all(cluster, recording, draw.workloads(scheduler))
            _until(lambda: _settled(recording, QUIET_SECONDS), "all pods are bound or refused")
            nodes, _ = cluster.listed("/api/v1/nodes")
            pods, _ = cluster.listed(PODS)
            assert len(recording.pods) == len(pods)
            assert not recording.deleted  # the checker takes it for granted that nothing left
        return _outcome(nodes, pods, recording, recording.last_binding - began, _choices(log))


def _delete_all(cluster: Cluster) -> None:
    """Delete all controllers and pods, and wait until they are gone."""
    kinds = "deployments,statefulsets,jobs"
    cluster.kubectl("delete", kinds, "--all", "--cascade=background", "--wait=false")
    _until(lambda: not cluster.kubectl("get", kinds, "-o", "name"), "controllers are gone")
    cluster.steersman("cluster", "clean")
    _until(lambda: not cluster.listed(PODS)[0], "yesterday's pods are gone")


def _outcome(
    nodes: list[Object], pods: list[Object], recording: Recording, seconds: float, choices: list[Object]
) -> Outcome:
    bound = [pod for pod in pods if "nodeName" in pod["spec"]]
    assert not any("deletionTimestamp" in pod["metadata"] or pod["status"]["phase"] == "Succeeded" for pod in pods)
    return Outcome(
        gpus=sum(int(node["status"]["allocatable"].get(GPU, 0)) for node in nodes),
        gpus_in_use=sum(int(requests_of(pod).get(GPU, 0)) for pod in bound),
        pods=len(pods),
        bound=len(bound),
        violations=tuple(check(nodes, pods, recording.order)),
        seconds=seconds,
        choices=tuple(choices),
    )


def _create_all(cluster: Cluster, recording: Recording, controllers: Sequence[Object]) -> None:
    """Create controllers one after the other, each when the former one has made its pods."""
    for each in controllers:
        name, count = each["metadata"]["name"], pods_of(each)
        cluster.kubectl("create", "--validate=false", "-f", "-", stdin=json.dumps(each))

        def is_complete(name: str = name, count: int = count) -> bool:
            recording.read()
            return recording.count(name) >= count

        _until(is_complete, f"{name} has {count} pods")


def _settled(recording: Recording, quiet_seconds: float) -> bool:
    """Return whether every pod was tried and none was bound for a while."""
    recording.read()
    return not recording.untried and time.monotonic() - recording.last_binding >= quiet_seconds


def _until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(POLL_SECONDS)


@contextmanager
def _scheduling(cluster: Cluster, policy: str, options: Sequence[str]) -> Iterator[Path | None]:
    """Run `steersman schedule`; its log. None where the cluster's own scheduler is asked for, which runs anyway."""
    if not policy:
        yield None
        return
    log = cluster.folder / "scheduler.log"
    command: list[str | Path] = [STEERSMAN, "schedule", "--policy", policy, "--name", NAME, "--port", "0"]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "--scheduler-name", SCHEDULER, "--log-format", "json", *options],
            env=cluster.environment,
            stdout=stream,
            stderr=stream,
        )
    try:
        _until(lambda: process.poll() is not None or "scheduling" in _events(log), "the scheduler is ready")
        assert process.poll() is None, log.read_text()
        yield log
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(60)


def _lines(log: Path) -> list[Object]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


def _choices(log: Path | None) -> list[Object]:
    return [line for line in _lines(log) if line["event"] in CHOSEN] if log else []


def _events(log: Path) -> set[str]:
    return {line["event"] for line in _lines(log)}


def fit(draw: Draw, folder: Path, generations: int) -> Path:
    """Fit a policy to a draw's nodes and the pods of the day before; the file.

    Args:
        draw: which.
        folder: for files; it must exist.
        generations: of the search.
    """
    files = {"nodes": draw.node_objects(), "pods": draw.typical()}
    for name, items in files.items():
        (folder / f"{name}.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    output = folder / "fitted.safetensors"
    command: list[str | Path] = [STEERSMAN, "fit", "policy", "--generations", str(generations), "--output", output]
    command += ["--nodes", folder / "nodes.json", "--pods", folder / "pods.json"]
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=10 * PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    return output
