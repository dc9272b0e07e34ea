"""A real control plane that random Deployments fill: agents learn there, or every binding is recorded."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from prometheus_client.parser import text_string_to_metric_families

from steersman.cluster.objects.decoding import decode_requests
from steersman.cluster.objects.fields import pod_from_json
from steersman.core.errors import SteersmanError
from steersman.core.quantities import cpu_milli
from steersman.envs.deployments import DeploymentsOptions
from steersman.kubernetes.client import Client
from steersman.kubernetes.watch import EventType, Reflector
from steersman.live.load import commands
from steersman.live.load.driver import FillOptions
from steersman.live.local_cluster import cluster, nodes, record
from steersman.live.local_cluster.nodes import parse_shape
from steersman.live.runtime.listing import ALL_PODS
from steersman.live.runtime.tasks import BackgroundTasks, run
from steersman.training.run import METRICS
from steersman.workloads.generators.deployments import DeploymentSettings
from studies.common import Json, Say
from studies.live.cluster import SCHEDULER, metrics_of, scheduling

READY = "the agent is ready"
"""What the agent's process logs when it can be asked."""
QUESTIONS = "steersman_agent_questions"
WAIT_SECONDS = 1.0
"""From the last Deployment of a filling to its deletion, and from there to the next filling."""
PARTS = 5
"""What came in the first of so many parts of a training is compared with what came in the last."""
CURVE_POINTS = 40


class FillSettings(NamedTuple):
    """What is filled, with what.

    Attributes:
        nodes: number of nodes.
        cpu, memory, pods: capacity of each.
        load: share of the cluster's CPU, memory or pods that ends a filling.
        replicas: fewest and most pods of a Deployment.
    """

    nodes: int = 10
    cpu: str = "64"
    memory: str = "256Gi"
    pods: int = 110
    load: float = 0.5
    replicas: tuple[int, int] = (1, 3)

    @property
    def shape(self) -> str:
        """Shape of a node as `cluster up --node-shape` has it."""
        return f"{self.cpu}cpu,{self.memory},{self.pods}pods"

    @property
    def deployments(self) -> DeploymentSettings:
        """The Deployments of one filling."""
        fewest, most = self.replicas
        return DeploymentSettings(self.load, self.load, self.load, min_replicas=fewest, max_replicas=most)

    @property
    def environment(self) -> DeploymentsOptions:
        """The same clusters and Deployments in the simulator."""
        settings = self.deployments
        return DeploymentsOptions(self.nodes, self.cpu, self.memory, self.pods, settings=settings)


class FilledCluster:
    """A cluster whose Deployments are placed by one scheduler after the other.

    Args:
        name: of the local cluster.
        settings: its nodes and Deployments.
        folder: for logs.
        say: prints progress.
    """

    def __init__(self, name: str, settings: FillSettings, folder: Path, say: Say) -> None:
        self.name, self.settings, self.folder, self.say = name, settings, folder, say

    @contextmanager
    def up(self) -> Iterator[None]:
        """Run the cluster in the block."""
        node_list = nodes.prepared(nodes.equal_nodes(self.settings.nodes, parse_shape(self.settings.shape)))
        control_plane = cluster.find_control_plane(lambda *_: None, self.say)
        cluster.bring_up(self.name, control_plane, node_list, lambda *_: None, self.say)
        try:
            self.say(f"cluster {self.name} is up")
            yield
        finally:
            cluster.take_down(self.name, self.say)

    def learn(self, folder: Path, arguments: Sequence[str], resets: int, seed: int) -> Json:
        """Let an agent learn from nothing while it places the Deployments of some fillings.

        Args:
            folder: of its run; what is there is removed.
            arguments: of `steersman schedule --learn FOLDER`.
            resets: number of fillings.
            seed: of their Deployments.

        Returns:
            `seconds` from the first Deployment to the last deletion, `deployments`, `bindings`, `questions` by result,
            `answered_share` of the questions, and what `learning_curve_of` returns.

        Raises:
            SteersmanError: the agent does not become ready, or the load cannot be played.
        """
        shutil.rmtree(folder, ignore_errors=True)
        log = self.folder / f"{folder.name}.log"
        log.unlink(missing_ok=True)
        command = ["--name", self.name, "--learn", str(folder), *arguments]
        with scheduling(command, log, lambda metrics: bool(metrics) and READY in log.read_text()) as url:
            began = time.monotonic()
            rows = self._load(folder.with_suffix(".csv"), resets, seed)
            seconds = time.monotonic() - began
            questions = questions_of(metrics_of(url))
        added = [int(row["pod_count"]) for row in rows if row["action"] == "add"]
        return {
            "seconds": seconds,
            "deployments": len(added),
            "bindings": sum(added),
            "questions": questions,
            "answered_share": questions["answered"] / sum(questions.values()),
            **learning_curve_of(folder / METRICS),
        }

    def _load(self, output: Path, resets: int, seed: int) -> list[dict[str, str]]:
        """Run `steersman workload run`; return the rows of its file."""
        settings = self.settings
        fewest, most = settings.replicas
        command = [sys.executable, "-m", "steersman", "workload", "run", "--name", self.name]
        for load in ("cpu", "memory", "pod"):
            command += [f"--{load}-load", f"{settings.load:g}"]
        command += ["--cluster-resets", str(resets), "--replicas", f"{fewest}-{most}", "--seed", str(seed)]
        command += ["--interval", "0", "--wait", f"{WAIT_SECONDS:g}", "--scheduler-name", SCHEDULER]
        done = subprocess.run([*command, "--output", str(output)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SteersmanError(f"the load of {output.stem} failed: {done.stderr.strip().splitlines()[-1]}")
        with output.open(newline="") as file:
            return list(csv.DictReader(file))

    @contextmanager
    def decided_by(self, policy: str) -> Iterator[None]:
        """Run `steersman schedule` with a policy in the block; "": kube-scheduler, which runs anyway, decides."""
        if not policy:
            yield
            return
        arguments = ["--name", self.name, "--policy", policy, "--unchecked"]
        with scheduling(arguments, self.folder / "rules.log", bool):
            yield

    def fill(self, scheduler_name: str, seed: int) -> Json:
        """Play one filling; return `variance_figures` of it."""
        recorder = UseRecorder(self.settings.nodes, cpu_milli(self.settings.cpu))

        async def play() -> None:
            async with cluster.client(record.require(self.name)) as client:
                reflector = Reflector(client, ALL_PODS, recorder)
                async with BackgroundTasks(reflector.run()):
                    await reflector.synced.wait()
                    await self._fill(client, scheduler_name, seed)

        run(play())
        return variance_figures(np.array(recorder.deviations))

    async def _fill(self, client: Client, scheduler_name: str, seed: int) -> None:
        options = FillOptions(scheduler_name, interval=0.0, wait=WAIT_SECONDS)
        place = commands.RunTarget(client, "default")
        await commands.fill(place, self.settings.deployments, (seed,), options, None, lambda *_: None)


class UseRecorder:
    """Handler of a watch of pods that records how even CPU use is after every binding.

    Args:
        count: number of nodes.
        milli: milli-CPU of each.

    Attributes:
        deviations: the standard deviation over nodes of the requested share of CPU, in percent, after each binding.
    """

    def __init__(self, count: int, milli: int) -> None:
        self.deviations: list[float] = []
        self._count, self._milli = count, milli
        self._used: dict[str, int] = {}
        self._bound: set[str] = set()

    def keep(self, keys: Set[str]) -> None:
        """Handle the end of a list, see `Handler`: pods are not deleted before all are bound."""

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """Handle an event of a pod, see `Handler`."""
        head = pod_from_json(obj)
        if kind == "DELETED" or not head.node or head.key in self._bound:
            return
        self._bound.add(head.key)
        request = decode_requests(head).cpu_milli
        self._used[head.node] = self._used.get(head.node, 0) + request
        used = np.zeros(self._count)
        used[: len(self._used)] = list(self._used.values())
        self.deviations.append(float(100.0 * (used / self._milli).std()))


def variance_figures(deviations: npt.NDArray[np.float64]) -> Json:
    """Return the variance of CPU use over nodes, in squared points, as the mean over a filling and at its end.

    Args:
        deviations: [K] standard deviations after the decisions of a filling, in percent.
    """
    return {
        "variance_mean": float(np.mean(deviations**2)),
        "variance_end": float(deviations[-1] ** 2),
        "deviation_mean": float(np.mean(deviations)),
        "deviation_end": float(deviations[-1]),
    }


def questions_of(metrics: str) -> dict[str, int]:
    """Return how many questions an agent was asked, by result, from a scheduler's metrics."""
    families = text_string_to_metric_families(metrics)
    samples = [sample for family in families if family.name == QUESTIONS for sample in family.samples]
    return {sample.labels["result"]: int(sample.value) for sample in samples if sample.name.endswith("_total")}


def learning_curve_of(file: Path) -> Json:
    """Return how an agent fared while it learned, from the metrics of its run.

    Returns:
        `decisions` of the agent; `rise`: mean `reward` and `node_variance` of a decision in the `first` and the `last`
        of `PARTS` parts of them; `curve`: means by decisions, of equal parts.
    """
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    steps = _column(rows, "steps")
    weights = np.diff(steps, prepend=0.0)

    def mean_of(name: str, inside: npt.NDArray[np.bool_]) -> float:
        values = _column(rows, name)[inside]
        known = ~np.isnan(values)
        return float(np.average(values[known], weights=weights[inside][known])) if known.any() else np.nan

    part = steps[-1] / PARTS
    first, last = steps <= max(part, steps[0]), steps > steps[-1] - part
    each = np.minimum((CURVE_POINTS * (steps - weights) / steps[-1]).astype(np.int64), CURVE_POINTS - 1)
    names = [
        name for name in ("reward", "node_variance", "epsilon", "entropy", "loss", "policy_loss") if name in rows[-1]
    ]
    places = [inside for i in range(CURVE_POINTS) if (inside := each == i).any()]
    return {
        "decisions": int(steps[-1]),
        "rise": {name: [mean_of(name, first), mean_of(name, last)] for name in ("reward", "node_variance")},
        "curve": {
            "steps": [float(steps[inside][-1]) for inside in places],
            "cumulative_reward": [float(_column(rows, "cumulative_reward")[inside][-1]) for inside in places],
            **{name: [mean_of(name, inside) for inside in places] for name in names},
        },
    }


def _column(rows: Sequence[Mapping[str, str]], name: str) -> npt.NDArray[np.float64]:
    return np.array([float(row[name] or "nan") for row in rows])
