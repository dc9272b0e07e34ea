"""Compare whom kube-scheduler and steersman preempt: `python -m tests.support.differential.preemption`.

On random clusters kube-scheduler's own plugin DefaultPreemption is asked, in its scheduling cycle, whom it preempts for
pods that fit nowhere. Of equally good nodes it takes one by chance: that must be one of ours, with the same victims.

Left out: claims and devices of DRA; nominated pods with anti-affinity (`comparison.differences`); a host port that two
pods of a node hold, which no kubelet allows; more than 12 pods of one priority and start on a node, which Go's sort
leaves in any order; pods that have not started, whose order before 1.37 is one of chance.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import structlog
from msgspec.structs import replace
from tests.support.differential.clusters import namespaces
from tests.support.differential.comparison import with_tolerations
from tests.support.differential.configurations import CONFIGURATION, arguments, configuration
from tests.support.differential.draws import Draws, RandomDraws
from tests.support.differential.explainer import Explainer, PostFilter, explainer
from tests.support.differential.nodes import Object, node
from tests.support.differential.pods import pod
from tests.support.differential.selectors import NAMESPACES, REQUIRED, pod_selector, pod_term, spread
from tests.support.kubernetes import VARIABLE, minor

from steersman.cluster.model import Pod
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.cluster.state import ClusterState
from steersman.core.handles import CoreDecider
from steersman.live.service.scoring.node_scorer import running_pod
from steersman.policies.decision.description import described_cluster
from steersman.policies.kube_scheduler.configuration import profiles_of
from steersman.policies.kube_scheduler.preemption import (
    NEVER,
    WAITS,
    ClusterPods,
    Preempting,
    Preemption,
    Slots,
    preempt,
)
from steersman.policies.kube_scheduler.spreading import scheduled_by
from steersman.workloads.formats.yaml_documents import Document
from steersman.workloads.loading import workload_of_objects
from steersman.workloads.profile import profile_arrays
from steersman.workloads.workload import RunningPods, Workload

PRIORITIES = (0, 0, 5, 10, 10, 100, 1000, -5)
PREEMPTORS = (1000, 1000, 100, 2000, 10)
STARTS = tuple(f"2026-01-01T00:{minute:02}:00Z" for minute in (0, 1, 1, 5, 30, 59))
RECORDED = range(1, 151)
"""Seeds whose answers `tests/data/preemption.json` has."""
MOST_ON_NODE = 12
"""Pods that Go sorts by insertion, which leaves equal ones in their order."""


@dataclass
class Findings:
    """What was compared: pods for which kube-scheduler's plugin was asked, by what came of it, and how it differs."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


INELIGIBLE = {
    "preemptionPolicy=Never": NEVER,
    "a terminating pod on the nominated node": WAITS.partition("{}")[0],
}
"""What kube-scheduler says of pods that may not preempt, and what steersman does."""


def cluster_of(draws: Draws) -> tuple[list[Object], list[Object]]:
    """Return the objects of a full cluster, and pods to schedule there."""
    names = [f"n{i}" for i in range(draws.choice((1, 2, 3, 4, 6, 8)))]
    rich = draws.choice((0, 10, 30))
    spaces = draws.choice((NAMESPACES, NAMESPACES[:1]))  # in a single one more pods count for each other
    objects = [_plain(draws, node(draws, name)) for name in names] + namespaces(draws)
    ports: dict[str, set[int]] = {name: set() for name in names}
    room = Counter(dict.fromkeys(names, MOST_ON_NODE))
    for i in range(draws.choice((4, 10, 20, 30))):
        running = _pod(draws, f"r{i}", names, spaces, rich)
        where = draws.choice(names)
        if draws.chance(6):
            running["status"] = {"phase": "Pending", "nominatedNodeName": where}
            running["spec"].get("affinity", {}).pop("podAntiAffinity", None)
        elif room[where]:
            room[where] -= 1
            _keep_ports_apart(running, ports[where])
            running["spec"]["nodeName"] = where
            running["status"] = {"phase": "Running", "startTime": draws.choice(STARTS)}
            if draws.chance(12):
                running["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
                if draws.chance(60):
                    reason = draws.choice(("PreemptionByScheduler", "EvictionByEvictionAPI"))
                    noted = {"type": "DisruptionTarget", "status": draws.choice(("True", "False")), "reason": reason}
                    running["status"]["conditions"] = [noted]
        else:
            continue
        objects.append(running)
    objects += [_budget(draws, i, spaces) for i in range(draws.choice((0, 1, 3, 6)))]
    pending = []
    for i in range(draws.choice((2, 4, 6))):
        new = _pod(draws, f"p{i}", names, spaces, draws.choice((0, rich)))
        new["spec"]["priority"] = draws.choice(PREEMPTORS)
        if draws.chance(50):
            new["spec"]["containers"][0]["resources"] = {"requests": {"cpu": draws.choice(("1", "2", "1500m", "4"))}}
            new["spec"].pop("resources", None)
        if draws.chance(15):
            new["spec"]["topologySpreadConstraints"] = spread(draws)
        if draws.chance(10):
            new["spec"].setdefault("affinity", {})["podAntiAffinity"] = {REQUIRED: [pod_term(draws)]}
        if draws.chance(6):
            new["spec"]["preemptionPolicy"] = "Never"
        if draws.chance(15):
            new["status"] = {"nominatedNodeName": draws.choice((*names, "gone"))}
        pending.append(new)
    return objects, pending


def _plain(draws: Draws, made: Object) -> Object:
    """Return a node that pods mostly fill, and may enter."""
    if draws.chance(85):
        made["spec"] = {}
        made["status"]["allocatable"] |= {
            "cpu": draws.choice(("2", "4", "1500m", "8")),
            "memory": draws.choice(("4Gi", "8Gi", "2Gi")),
            "pods": draws.choice(("110", "110", "4", "8")),
        }
    return made


def _pod(draws: Draws, name: str, nodes: list[str], spaces: Sequence[str], rich: int) -> Object:
    made = pod(draws, name, nodes, rich=rich)
    made["metadata"]["namespace"] = draws.choice(spaces)
    made["spec"].pop("resourceClaims", None)
    if draws.chance(70):
        cpu, memory = draws.choice(("500m", "1", "1500m", "250m", "2")), draws.choice(("256Mi", "1Gi", "2Gi"))
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu, "memory": memory}}
        made["spec"].pop("resources", None)
    made["spec"]["priority"] = draws.choice(PRIORITIES)
    if draws.chance(5):
        made["metadata"]["labels"] = {}
    return made


def _keep_ports_apart(made: Object, taken: set[int]) -> None:
    """Take the ports from a pod if another one of its node has one of them."""
    containers = [*made["spec"]["containers"], *made["spec"].get("initContainers", ())]
    wanted = {port["containerPort"] for each in containers for port in each.get("ports", ())}
    if wanted & taken:
        for each in containers:
            each.pop("ports", None)
    taken |= wanted


def _budget(draws: Draws, number: int, spaces: Sequence[str]) -> Object:
    selector = pod_selector(draws) if not draws.chance(4) else None
    status: Object = {"disruptionsAllowed": draws.choice((0, 1, 1, 2)), "currentHealthy": 0, "desiredHealthy": 0}
    status["expectedPods"] = 0
    if draws.chance(20):
        status["disruptedPods"] = {f"r{draws.number(0, 9)}": "2026-01-01T00:00:00Z"}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"b{number}", "namespace": draws.choice(spaces)},
        "spec": {"minAvailable": 1, **({} if selector is None else {"selector": selector})},
        "status": status,
    }


class Case:
    """The cluster of a seed, and the configuration of kube-scheduler; `start`: which potential node comes first."""

    def __init__(self, seed: int) -> None:
        draws = RandomDraws(seed)
        self.seed = seed
        self.objects, self.pending = cluster_of(draws)
        few = arguments(
            "DefaultPreemption",
            minCandidateNodesPercentage=draws.choice((10, 0, 50)),
            minCandidateNodesAbsolute=draws.choice((100, 1, 2)),
        )
        self.configuration = configuration(few) if draws.chance(40) else {**CONFIGURATION}
        self.start = draws.number(0, 9)
        self.profile = profiles_of(self.configuration, minor())[DEFAULT_SCHEDULER]

    def ask(self, scheduler: Explainer) -> list[PostFilter | None]:
        """Return what kube-scheduler's plugin makes of each pod, None for one that it is not asked about."""
        objects, pods = (
            [with_tolerations(each) if each["kind"] == "Pod" else each for each in of]
            for of in (self.objects, self.pending)
        )
        answer = scheduler.ask(objects, pods, configuration=self.configuration, preemptFrom=self.start)
        assert answer.pods is not None, answer.error
        return [each.preemption for each in answer.pods]

    def side(self) -> Side:
        """Return the cluster as steersman reads it."""
        documents = [Document(obj, "cluster.yaml", "") for obj in (*self.objects, *self.pending)]
        loaded = workload_of_objects("cluster", documents, running=RunningPods.AS_WRITTEN)
        return Side(scheduled_by(loaded, self.profile))

    def compare(self, answers: Sequence[PostFilter | None], findings: Findings) -> None:
        """Compare what steersman says with these answers."""
        side = self.side()
        for obj, theirs in zip(self.pending, answers, strict=True):
            name = obj["metadata"]["name"]
            if theirs is None:
                findings.counts["not asked: it fits"] += 1
                continue
            order = _Order(side.state, theirs.potential)
            found = preempt(side.state, side.core, side.pods(), side.pod(name), self.profile, order)
            findings.counts["compared"] += 1
            findings.counts[_outcome(theirs)] += 1
            findings.differences += [
                f"seed {self.seed}, {name}: {each}" for each in _differences(theirs, found, order.differs)
            ]


class _Order:
    """The order of kube-scheduler's potential nodes, and how they differ from ours, "" if they do not."""

    def __init__(self, state: ClusterState, names: Sequence[str]) -> None:
        self.slots = np.array([state.slots[each] for each in names], dtype=np.int64)
        self.differs = ""

    def __call__(self, potential: Slots) -> Slots:
        ours, theirs = set(potential.tolist()), set(self.slots.tolist())
        self.differs = f"potential nodes: ours alone {ours - theirs}, theirs alone {theirs - ours}" * (ours != theirs)
        return self.slots


class Side:
    """A workload as `explain` asks about it; `asked`: the last decider of its cluster."""

    def __init__(self, workload: Workload) -> None:
        self.asked: CoreDecider | None = None
        self.workload, self.state = workload, ClusterState(workload.nodes)
        self.running = [each for each in workload.pods if each.constraints.node_name in self.state.slots]
        self.state.place_running([running_pod(self.state, each) for each in self.running])

    def core(self) -> CoreDecider:
        described = described_cluster(self.state, profile_arrays((), self.state.gpu_types))
        no_policy = {"policy.node": 3, "policy.devices": 0, "policy.seed": 0}
        self.asked = CoreDecider(described | {key: np.array(value) for key, value in no_policy.items()})
        return self.asked

    def pod(self, name: str) -> Pod:
        return next(each for each in self.workload.pods if each.name == name)

    def pods(self) -> ClusterPods:
        # Each of the pods to schedule is asked about in the same cluster, without the others.
        waiting = [each for each in self.workload.pods if each.name.startswith("r") and not each.constraints.node_name]
        return ClusterPods(self.running, waiting, self.workload.budgets)


def _outcome(theirs: PostFilter) -> str:
    if not theirs.node:
        return "not eligible" if "not eligible" in theirs.message else "no node helps"
    tried = next(each for each in theirs.tried or () if each.node == theirs.node)
    return "preempts against a budget" if tried.violations else "preempts"


def _differences(theirs: PostFilter, found: Preemption, potential: str) -> Iterator[str]:
    if potential:
        yield potential
        return
    tried = {each.node: each for each in theirs.tried or () if each.victims}
    if not theirs.node:
        said = [text for part, text in INELIGIBLE.items() if part in theirs.message]
        is_other = said and not found.why_not.startswith(said[0])
        if found.choices or is_other or (not said and found.why_not.startswith(tuple(INELIGIBLE.values()))):
            yield f"ours {_shown(found.choices)} {found.why_not}, kube-scheduler's none: {theirs.message}"
        return
    ours = {each.node: each for each in found.choices}
    if theirs.node not in ours:
        yield f"ours {_shown(found.choices)} ({found.why_not}), kube-scheduler's {theirs.node} of {tried}"
        return
    for name, each in ours.items():
        victims = [f"{victim.namespace}/{victim.name}" for victim in each.victims]
        if name not in tried or (victims, each.violations) != (tried[name].victims, tried[name].violations):
            yield f"victims on {name}: ours {victims}, {each.violations}; kube-scheduler's {tried.get(name)}"
    if len({_merit(each) for each in ours.values()}) > 1:
        yield f"not equally good: {_shown(found.choices)}"


def _merit(choice: Preempting) -> tuple[object, ...]:
    """Return by what kube-scheduler chooses, in words of its own documentation."""
    highest = max(each.priority for each in choice.victims)
    starts = [each.started for each in choice.victims if each.priority == highest]
    priorities = sum(each.priority + 2**31 for each in choice.victims)
    return choice.violations, highest, priorities, len(choice.victims), min(filter(None, starts))


def _shown(choices: tuple[Preempting, ...]) -> str:
    return str({each.node: [victim.name for victim in each.victims] for each in choices})


def _short(answer: PostFilter | None) -> PostFilter | None:
    """Return an answer without the reasons of nodes, and without nodes where preemption does not help."""
    if answer is None:
        return None
    message = answer.message if "not eligible" in answer.message else ""
    return replace(answer, message=message, tried=[each for each in answer.tried or () if each.victims])


def main() -> int:
    """Compare, print what was found, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="how many pods that fit nowhere are compared")
    parser.add_argument("--kubernetes", help="minor, such as 1.36; the newest by default")
    parser.add_argument("--record", type=Path, help="file for kube-scheduler's answers about `RECORDED`")
    parser.add_argument("--seed", type=int, default=1, help="the first one; each has its cluster")
    options = parser.parse_args()
    if options.kubernetes:
        os.environ[VARIABLE] = options.kubernetes
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    findings, seed = Findings(), options.seed
    with explainer() as scheduler:
        if options.record is not None:
            answers = [[_short(each) for each in Case(number).ask(scheduler)] for number in RECORDED]
            options.record.write_bytes(msgspec.json.encode(answers) + b"\n")
        while findings.counts["compared"] < options.cases:
            case = Case(seed)
            case.compare(case.ask(scheduler), findings)
            seed += 1
    print(f"Kubernetes {minor()}, seeds {options.seed} to {seed - 1}:", json.dumps(findings.counts, indent=2))
    print(f"{len(findings.differences)} differences", *findings.differences[:20], sep="\n")
    return int(bool(findings.differences))


if __name__ == "__main__":
    sys.exit(main())
