"""The replay of kube-scheduler's decisions through `kube-default`, and what the comparison found."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from tests.support.kube_decisions import KubeDecisions
from tests.support.objects import node_from_object
from tests.support.parity.objects import Object
from tests.support.parity.scheduler import Attempt

from steersman.cluster.constraints import reasons as explaining
from steersman.cluster.model import Pod
from steersman.cluster.objects.decoding import pod_from_object
from steersman.cluster.objects.fields import FieldUse, field_use
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.kube_scheduler.policy import KubeSchedulerPolicy
from steersman.policies.kube_scheduler.profile import KubeProfile
from steersman.workloads.formats.kubernetes.objects import Objects
from steersman.workloads.formats.yaml_documents import Document
from steersman.workloads.workload import SpreadSelectors

ALL_NODES = 100
"""`percentageOfNodesToScore`."""
CLASSES_KEPT = 60
"""Classes beyond which the state is made anew without those that no pod has any more."""
SHOWN = 12

# Behind the reasons stands what the plugins for preemption and for claims of devices had to say.
_REASONS = re.compile(
    r"0/(?P<nodes>\d+) nodes are available: (?P<reasons>.*?)\.(?: (?:not found|no new claims|preemption:).*)?$"
)
POD_LEVEL = "pod-level resources: kube-scheduler counts them on nodes, but not for LeastAllocated of the pod it places"


@dataclass
class Findings:
    """What was compared and what differed.

    Attributes:
        seed, nodes: of the history.
        decisions: all of them.
        bound, refused: how they ended.
        scored: those for which nodes were scored.
        ties: those with more than one top scorer.
        same_choice: bound ones where our very choice was theirs.
        node_scores: totals of nodes that were compared.
        varied: plugin -> decisions in which it told nodes apart.
        reasons: reason to refuse a node -> decisions in which it was given.
        not_comparable: reason -> how many.
        differences: what differed -> how many decisions; examples of them.
    """

    seed: int
    nodes: int
    decisions: int = 0
    bound: int = 0
    refused: int = 0
    scored: int = 0
    ties: int = 0
    same_choice: int = 0
    node_scores: int = 0
    varied: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    not_comparable: Counter[str] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def differs(self, what: str, attempt: Attempt, detail: str) -> None:
        self.differences[what] += 1
        if len(self.examples) < SHOWN:
            self.examples.append(f"seed {self.seed}, {attempt.pod}: {what}: {detail}")


def counts(message: str) -> Counter[str]:
    """Reason -> for how many nodes a message gives it; one without a number holds for all."""
    found = _REASONS.fullmatch(message)
    assert found is not None, message
    reasons: Counter[str] = Counter()
    for each in found["reasons"].split(", "):
        number, _, reason = each.partition(" ")
        if not number.isdecimal():
            number, reason = found["nodes"], each
        reasons[reason] = int(number)
    return reasons


class Replay:
    """A ClusterState in step with what the scheduler knows, and `kube-default` on it.

    Args:
        nodes: in the order in which the scheduler heard of them.
        findings: are added to.
        percentage: `percentageOfNodesToScore`.
    """

    def __init__(self, nodes: list[Object], findings: Findings, percentage: int) -> None:
        self.percentage = percentage
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self.findings = findings
        self.services = SpreadSelectors()
        self.placed: dict[str, tuple[Pod, str]] = {}
        self._make(0)

    def _make(self, start: int) -> None:
        self.state = ClusterState([node_from_object(node) for node in self.nodes.values()])
        ids = {key: (self.state.class_id(p.pod_class), self.state.labels_id(p)) for key, (p, _) in self.placed.items()}
        for key, (_, node) in self.placed.items():
            self._place(key, node, *ids[key])
        self.kube = KubeDecisions(self.state, self.services, KubeProfile(percentage=self.percentage))
        self.kube.start = start
        # Where its search starts is its own; so it looks at all nodes whatever the scheduler does.
        self.decider = Decider(
            ClusterView(self.state, selectors=lambda: self.services),
            KubeSchedulerPolicy(profile=KubeProfile(percentage=ALL_NODES)),
        )

    def _place(self, key: str, node: str, class_id: int, labels_id: int) -> None:
        self.state.place(key, class_id, self.state.slot(node), None, labels_id, force=True)

    @property
    def start(self) -> int:
        """Where the next search starts."""
        return int(self.kube.start)

    def use_services(self, objects: list[Object]) -> None:
        """Services and controllers are these."""
        self.services = Objects(Document(obj, "", "") for obj in objects).services()
        self._make(self.start)

    def update_node(self, node: Object) -> None:
        """A node is another."""
        self.nodes[node["metadata"]["name"]] = node
        self._make(self.start)

    def remove(self, key: str) -> None:
        """A pod is gone."""
        if self.placed.pop(key, None) is not None:
            self.decider.changed(self.state.remove(key).slot)

    def compare(self, attempt: Attempt, obj: Object) -> None:
        """Decide as the scheduler did, say what differs, and do as it did."""
        self.findings.decisions += 1
        spec = {key: value for key, value in obj["spec"].items() if key != "nodeName"}
        pod = pod_from_object({**obj, "spec": spec})
        assert field_use(obj) == FieldUse()
        if spec.get("resources"):
            self.findings.not_comparable[POD_LEVEL] += 1
            self.kube.choose(self.state.class_id(pod.pod_class), self.state.labels_id(pod))
        else:
            self._compare(attempt, pod)
        if attempt.node:
            self.placed[attempt.pod] = (pod, attempt.node)
            ids = self.state.class_id(pod.pod_class), self.state.labels_id(pod)
            self._place(attempt.pod, attempt.node, *ids)
            self.decider.changed(self.state.slot(attempt.node))
        if len(self.state.classes) > CLASSES_KEPT + len({p.pod_class for p, _ in self.placed.values()}):
            self._make(self.start)

    def _compare(self, attempt: Attempt, pod: Pod) -> None:
        state, findings = self.state, self.findings
        c, labels = state.class_id(pod.pod_class), state.labels_id(pod)
        mask = state.mask(c, labels)
        feasible = self._names(mask if self.percentage == ALL_NODES else self.kube.scores(c, labels, mask) >= 0)
        findings.bound += bool(attempt.node)
        findings.refused += not attempt.node
        expected = set(attempt.total) or ({attempt.node} if attempt.node else set())
        if feasible != expected:
            detail = f"ours alone {sorted(feasible - expected)}, theirs alone {sorted(expected - feasible)}"
            findings.differs("feasibility", attempt, detail)
        if not attempt.node:
            self._compare_message(attempt, c, labels)
            self.kube.choose(c, labels, mask)
            return
        if attempt.total:
            self._compare_scores(attempt, c, labels, mask)
        top = {self._name(slot) for slot in self.kube.top_scorers(c, labels, mask)}
        if attempt.node not in top:
            findings.differs("choice", attempt, f"{attempt.node} is not among {sorted(top)}")
        findings.ties += len(top) > 1
        live = self.decider.choose(PodQuery(c, labels))
        if live is None or (self._name(live.slot) not in top and self.percentage == ALL_NODES):
            findings.differs("decider", attempt, f"{live} is not among {sorted(top)}")
        findings.same_choice += self._name(self.kube.choose(c, labels, mask)) == attempt.node

    def _compare_scores(self, attempt: Attempt, c: int, labels: int, mask: npt.NDArray[np.bool_]) -> None:
        findings = self.findings
        findings.scored += 1
        findings.node_scores += len(attempt.total)
        findings.varied.update(plugin for plugin, scores in attempt.parts.items() if len(set(scores.values())) > 1)
        ours = self.kube.breakdown(c, labels, mask)
        for plugin in sorted({*ours, *attempt.parts}):
            theirs = attempt.parts.get(plugin, dict.fromkeys(attempt.total, 0))
            known = ours.get(plugin)
            found = {node: 0 if known is None else int(known[self.state.slots[node]]) for node in theirs}
            if found != theirs:
                self._list(plugin, attempt, found, theirs)
        total = self.kube.scores(c, labels, mask)
        found = {node: int(total[self.state.slots[node]]) for node in attempt.total}
        if found != attempt.total:
            self._list("total", attempt, found, attempt.total)

    def _list(self, what: str, attempt: Attempt, ours: dict[str, int], theirs: dict[str, int]) -> None:
        differing = [f"{node} {ours[node]} not {score}" for node, score in theirs.items() if ours[node] != score]
        self.findings.differs(what, attempt, f"{len(differing)} of {len(theirs)} nodes: {', '.join(differing[:4])}")

    def _compare_message(self, attempt: Attempt, c: int, labels: int) -> None:
        ours, theirs = counts(explaining.unschedulable_message(self.state, c, labels)), counts(attempt.message)
        self.findings.reasons.update(theirs.keys())
        if ours != theirs:
            self.findings.differs("message", attempt, f"{dict(ours)} is not {dict(theirs)}")

    def _name(self, slot: int) -> str:
        node = self.state.nodes[slot] if slot >= 0 else None
        return "" if node is None else node.name

    def _names(self, mask: npt.NDArray[np.bool_]) -> set[str]:
        return {self._name(slot) for slot in np.flatnonzero(mask).tolist()}
