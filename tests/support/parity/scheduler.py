"""A real kube-scheduler with settings that make it deterministic, and what its log says of every decision.

`parallelism: 1`, no batches, nothing tried again. The log has every plugin's score of every node, and is the order of
what happened, deletions included.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.parity.objects import SCHEDULER

GATES = "OpportunisticBatching=false,SchedulerPopFromBackoffQ=false"
VERBOSITY = ("--v=2", "--vmodule=schedule_one=10,eventhandlers=4")
NEVER_SECONDS = 7200

_SCORED = re.compile(r'"Plugin scored node for pod" pod="([^"]+)" plugin="([^"]+)" node="([^"]+)" score=(-?\d+)')
_TOTAL = re.compile(r'"Calculated node\'s final score for pod" pod="([^"]+)" node="([^"]+)" score=(-?\d+)')
_BOUND = re.compile(r'"Successfully bound pod to node" pod="([^"]+)" node="([^"]+)" .*feasibleNodes=(\d+)')
_REFUSED = re.compile(r'"Unable to schedule pod; no fit; waiting" pod="([^"]+)" err=("(?:[^"\\]|\\.)*")')
_EVENT = re.compile(r'"(Attempting to schedule|Delete event for (?:un)?scheduled) pod" pod="([^"]+)"')
_NODE = re.compile(r'"(Add|Update) event for node" node="([^"]+)"')
_BROKEN = ("Error scheduling pod", "Failed to bind pod", "panic", "fatal error")


@dataclass
class Attempt:
    """One decision.

    Attributes:
        pod: namespace and name.
        parts: plugin -> node -> score times weight; nothing where only one node was feasible.
        total: node -> their sum.
        node: where the pod was bound, "" if nowhere.
        feasible: how many nodes were found feasible.
        message: why it was bound nowhere.
        decided: whether the log has said how it ended.
    """

    pod: str
    parts: dict[str, dict[str, int]] = field(default_factory=dict)
    total: dict[str, int] = field(default_factory=dict)
    node: str = ""
    feasible: int = 0
    message: str = ""
    decided: bool = False


@dataclass(frozen=True)
class Deletion:
    """The scheduler heard that a pod is gone."""

    pod: str


class Log:
    """Reads a scheduler's log as it grows.

    Attributes:
        events: attempts and deletions in order.
        nodes: in the order in which the scheduler heard of them, which is any order.
        updates: node -> how often the scheduler heard of a change of it.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""
        self.events: list[Attempt | Deletion] = []
        self.nodes: list[str] = []
        self.updates: Counter[str] = Counter()
        self._attempts: dict[str, Attempt] = {}

    def close(self) -> None:
        self._file.close()

    def read(self) -> None:
        """Take in what is new."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            self._take(line.decode())

    def _take(self, line: str) -> None:
        if found := _SCORED.search(line):
            self._attempts[found[1]].parts.setdefault(found[2], {})[found[3]] = int(found[4])
        elif found := _TOTAL.search(line):
            self._attempts[found[1]].total[found[2]] = int(found[3])
        elif found := _BOUND.search(line):
            attempt = self._attempts[found[1]]
            attempt.node, attempt.feasible, attempt.decided = found[2], int(found[3]), True
        elif found := _REFUSED.search(line):
            attempt = self._attempts[found[1]]
            attempt.message, attempt.decided = json.loads(found[2]), True
        elif found := _EVENT.search(line):
            self._take_event(found[1], found[2])
        elif found := _NODE.search(line):
            if found[1] == "Add":
                self.nodes.append(found[2])
            else:
                self.updates[found[2]] += 1
        elif any(each in line for each in _BROKEN):
            raise AssertionError(f"kube-scheduler: {line}")

    def _take_event(self, what: str, pod: str) -> None:
        if what.startswith("Attempting"):
            self._attempts[pod] = attempt = Attempt(pod)
            self.events.append(attempt)
        # A pod that is bound leaves those that are not, which is no deletion.
        elif what.endswith(" scheduled") or self._attempts[pod].message:
            self.events.append(Deletion(pod))


@contextmanager
def running_scheduler(program: Path, kubeconfig: Path, folder: Path, percentage: int) -> Iterator[Log]:
    """A kube-scheduler for pods that ask for it.

    Args:
        program: kube-scheduler.
        kubeconfig: of the cluster.
        folder: for its settings and log.
        percentage: `percentageOfNodesToScore`, 0 for its own choice.
    """
    settings = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "parallelism": 1,
        "percentageOfNodesToScore": percentage,
        # Between two attempts at a pod the cluster would be another.
        "podInitialBackoffSeconds": NEVER_SECONDS,
        "podMaxBackoffSeconds": NEVER_SECONDS,
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 10000},
        "profiles": [{"schedulerName": SCHEDULER}],
    }
    configured, log = folder / "scheduler.json", folder / "scheduler.log"
    configured.write_text(json.dumps(settings))
    command: list[str | Path] = [
        program,
        "--config",
        configured,
        "--secure-port=0",
        f"--feature-gates={GATES}",
        *VERBOSITY,
    ]
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as process:
        read = Log(log)
        try:
            yield read
        finally:
            process.kill()
            read.close()
