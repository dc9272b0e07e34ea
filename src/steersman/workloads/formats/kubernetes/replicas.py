"""The pods that kube-controller-manager makes from templates: how many, their names, and what it adds to them.

Random parts of names are numbers here. Hashes of templates are other values than the real ones, equal for equal
templates; those of an input are kept.
"""

from __future__ import annotations

import hashlib
import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from steersman.cluster.constraints.node import allowed_nodes, restricted_names
from steersman.cluster.model import Node, NodeSelectorTerm, Pod, Requirement
from steersman.cluster.objects.decoding import is_finished
from steersman.cluster.objects.fields import Object, boolean, choice, integer, items, mapping, text, text_map
from steersman.workloads.formats.kubernetes.controllers import Key, is_terminating
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

MAX_REPLICAS = 10_000_000
HASH = "pod-template-hash"
REVISION = "controller-revision-hash"
GENERATION = "pod-template-generation"
POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAMES = ("job-name", "batch.kubernetes.io/job-name")
JOB_UIDS = ("controller-uid", "batch.kubernetes.io/controller-uid")
JOB_CONTROLLER = "kubernetes.io/job-controller"
_HASH_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_OVER = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")

# What the DaemonSet controller adds to its pods.
_DAEMON_TOLERATIONS = tuple(
    {"key": f"node.kubernetes.io/{condition}", "operator": "Exists", "effect": effect}
    for condition, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
_HOST_NETWORK_TOLERATION = {
    "key": "node.kubernetes.io/network-unavailable",
    "operator": "Exists",
    "effect": "NoSchedule",
}


@dataclass(slots=True)
class Members:
    """The pods of one controller in the input.

    Attributes:
        pods: those that the controller counts: neither finished nor being deleted.
        succeeded: number of pods that have succeeded (of a Job).
        indices: completion indices of the pods that it counts or that have succeeded.
        elsewhere: number of pods that ReplicaSets of the input have or make (of a Deployment).
        newest: the ReplicaSet of a Deployment that makes further pods, if the input holds one.
    """

    pods: list[Pod] = field(default_factory=list)
    succeeded: int = 0
    indices: set[int] = field(default_factory=set)
    elsewhere: int = 0
    newest: KubernetesObject | None = None


@dataclass(frozen=True, slots=True)
class Maker:
    """A controller of the input and what its pods depend on.

    Attributes:
        controller: the controller.
        members: the pods that it has.
        nodes: nodes that a DaemonSet is expanded over; each that it may run on gets a pod.
        there: objects of the input by their keys; the name of a Pod among them is not used again.
        decode: makes a pod of a template with a name, after admission or before.
        replicas: least and most replicas that an autoscaler allows.
    """

    controller: KubernetesObject
    members: Members
    nodes: Sequence[Node]
    there: Mapping[Key, KubernetesObject]
    decode: Callable[[Object, bool], Pod]
    replicas: tuple[int, int] | None = None

    def missing(self) -> Iterator[Pod]:
        """Yield the pods that the controller wants and does not have.

        Raises:
            FieldError: the controller is invalid.
            InputError: its template is invalid.
        """
        if is_terminating(self.controller.content):
            return
        match self.controller.kind:
            case "StatefulSet":
                pods = self._ordinals()
            case "Job":
                pods = self._completions()
            case "DaemonSet":
                pods = self._daemons()
            case _:
                pods = self._equal_pods(self._deployment_labels(), self.wanted() - len(self.members.pods))
        owner = self._owner()
        yield from (replace(pod, owner=owner) for pod in pods)

    def wanted(self) -> int:
        """Return how many pods a controller of replicas wants besides those of `Members.elsewhere`."""
        count = integer(self._spec, "replicas", "spec", 0, MAX_REPLICAS, 1)
        return within(count, self.replicas) - self.members.elsewhere

    @property
    def _spec(self) -> Object:
        return mapping(self.controller.content, "spec", "")

    @property
    def _status(self) -> Object:
        status = self.controller.content.get("status")
        return status if isinstance(status, dict) else {}

    def _owner(self) -> str:
        if self.members.pods:
            return self.members.pods[-1].owner
        above = self.members.newest or self.controller
        return f"{above.kind}/{above.name}"

    # What all kinds have in common

    def _template(self, labels: Mapping[str, str], **spec: Any) -> Object:
        """Return the template with further labels and fields of its spec."""
        template = mapping(self._spec, "template", "spec")
        metadata = mapping(template, "metadata", "spec.template")
        stated = mapping(template, "spec", "spec.template")
        named = {"name": self.controller.name, "namespace": self.controller.namespace}
        labels = {**text_map(metadata, "labels", "spec.template.metadata"), **labels}
        return {"metadata": {**metadata, **named, "labels": labels}, "spec": {**stated, **spec}}

    def _names(self, prefix: str) -> Iterator[str]:
        """Yield NAME-0001 and so on, after the pods that the controller has."""
        possible = (replica_name(prefix, i) for i in itertools.count(len(self.members.pods) + 1))
        return (name for name in possible if ("Pod", self.controller.namespace, name) not in self.there)

    def _equal_pods(self, labels: Mapping[str, str], count: int) -> Iterator[Pod]:
        if count > 0:
            pod = self.decode(self._template(labels), True)
            above = self.members.newest or self.controller
            yield from (replace(pod, name=name) for name in itertools.islice(self._names(above.name), count))

    def _numbered_pods(self, made: Iterable[tuple[str, Mapping[str, str]]], volumes: Sequence[Object]) -> Iterator[Pod]:
        """Yield a pod for each name and its labels."""
        pod = None
        for name, labels in made:
            template = self._template(labels, **({"volumes": volumes} if volumes else {}))
            if pod is None or _selects_by_own_labels(template["spec"]):
                pod = self.decode(template, True)
            yield replace(pod, name=name, labels=template["metadata"]["labels"])

    def _member_label(self, key: str) -> str:
        return self.members.pods[-1].labels.get(key, "") if self.members.pods else ""

    # Deployments

    def _deployment_labels(self) -> dict[str, str]:
        """Return the hash that a Deployment's ReplicaSet adds to its pods; other controllers add nothing."""
        if self.controller.kind != "Deployment":
            return {}
        newest = self.members.newest
        known = text_map(newest.metadata, "labels", "metadata").get(HASH, "") if newest is not None else ""
        return {HASH: known or self._member_label(HASH) or self._hash()}

    def _hash(self) -> str:
        return template_hash(self._spec.get("template"))

    # StatefulSets

    def _ordinals(self) -> Iterator[Pod]:
        """Return the pods of a StatefulSet, NAME-0 and so on, with the claims of its volume claim templates."""
        name, there = self.controller.name, {pod.name for pod in self.members.pods}
        start = integer(mapping(self._spec, "ordinals", "spec"), "start", "spec.ordinals", 0, MAX_REPLICAS, 0)
        wanted = self.wanted()
        ordinals = (i for i in range(start, start + wanted) if f"{name}-{i}" not in there)
        revision = text(self._status, "updateRevision", "status") or self._member_label(REVISION)
        labels = {REVISION: revision or f"{name}-{self._hash()}"}
        made = (
            (self._ordinal_name(i), {**labels, POD_NAME: f"{name}-{i}", POD_INDEX: str(i)})
            for i in ordinals
            if self._ordinal_name(i)
        )
        return self._numbered_pods(itertools.islice(made, max(wanted - len(self.members.pods), 0)), self._volumes())

    def _volumes(self) -> list[Object]:
        """Return the volumes of a StatefulSet's pods if they have claims; all of them name those of one pod."""
        claims = {
            text(mapping(entry, "metadata", where), "name", f"{where}.metadata"): None
            for entry, where in items(self._spec, "volumeClaimTemplates", "spec")
        }
        stated = mapping(mapping(self._spec, "template", "spec"), "spec", "spec.template")
        others = [each for each, _ in items(stated, "volumes", "spec.template.spec") if each.get("name") not in claims]
        own = [{"name": n, "persistentVolumeClaim": {"claimName": f"{n}-{self.controller.name}-0"}} for n in claims]
        return [*own, *others] if claims else []

    def _ordinal_name(self, ordinal: int) -> str:
        """Return the name of a pod that is missing; empty: a pod without an owner has its name."""
        name = f"{self.controller.name}-{ordinal}"
        other = self.there.get(("Pod", self.controller.namespace, name))
        if other is None or is_finished(other.content):
            return name
        return replica_name(name, 1) if is_terminating(other.content) else ""

    # Jobs

    def _completions(self) -> Iterator[Pod]:
        spec, name = self._spec, self.controller.name
        wanted = self._wanted_completions() - len(self.members.pods)
        labels = {} if boolean(spec, "manualSelector", "spec") else self._job_labels()
        if choice(spec, "completionMode", "spec", ("NonIndexed", "Indexed"), "NonIndexed") == "NonIndexed":
            return self._equal_pods(labels, wanted)
        done = self.members.indices | _index_list(text(self._status, "completedIndexes", "status"))
        done |= _index_list(text(self._status, "failedIndexes", "status"))
        most = integer(spec, "completions", "spec", 0, MAX_REPLICAS, 0)
        indices = itertools.islice((i for i in range(most) if i not in done), max(wanted, 0))
        made = ((self._index_name(f"{name}-{i}"), {**labels, COMPLETION_INDEX: str(i)}) for i in indices)
        return self._numbered_pods(made, ())

    def _index_name(self, name: str) -> str:
        return next(self._names(name)) if ("Pod", self.controller.namespace, name) in self.there else name

    def _job_labels(self) -> dict[str, str]:
        """Return the labels that select a Job's pods; the API server adds them to the template where it lacks them."""
        key = f"{self.controller.namespace}/{self.controller.name}"
        uid = text(self.controller.metadata, "uid", "metadata") or str(uuid.uuid5(uuid.NAMESPACE_OID, key))
        template = mapping(self._spec, "template", "spec")
        stated = text_map(mapping(template, "metadata", "spec.template"), "labels", "spec.template.metadata")
        return {**dict.fromkeys(JOB_NAMES, self.controller.name), **dict.fromkeys(JOB_UIDS, uid), **stated}

    def _wanted_completions(self) -> int:
        """Return how many pods a Job wants now."""
        spec, status = self._spec, self._status
        parallelism = integer(spec, "parallelism", "spec", 0, MAX_REPLICAS, 1)
        completions = integer(spec, "completions", "spec", 0, MAX_REPLICAS, -1)
        succeeded = max(self.members.succeeded, integer(status, "succeeded", "status", 0, MAX_REPLICAS, 0))
        managed_by = text(spec, "managedBy", "spec", JOB_CONTROLLER)
        if boolean(spec, "suspend", "spec") or _is_over(status) or managed_by != JOB_CONTROLLER:
            return 0
        if completions < 0:  # a work queue: no other pod starts once one has succeeded
            return 0 if succeeded else parallelism
        if status.get("startTime") or self.members.pods or succeeded:  # the remaining ones start when these end
            return min(parallelism, completions - succeeded)
        return completions

    # DaemonSets

    def _daemons(self) -> Iterator[Pod]:
        """Yield a pod tied to its node for each node that a DaemonSet may run on and has no pod on."""
        stated = mapping(mapping(self._spec, "template", "spec"), "spec", "spec.template")
        tolerations = [entry for entry, _ in items(stated, "tolerations", "spec.template.spec")]
        added = list(_DAEMON_TOLERATIONS)
        if boolean(stated, "hostNetwork", "spec.template.spec"):
            added.append(_HOST_NETWORK_TOLERATION)
        tolerations += [each for each in added if each not in tolerations]
        annotations = mapping(self.controller.metadata, "annotations", "metadata")
        generation = text(annotations, "deprecated.daemonset.template.generation", "metadata.annotations", "1")
        labels = {GENERATION: generation, REVISION: self._member_label(REVISION) or self._hash()}
        template = self._template(labels, tolerations=tolerations)
        pod, plain = self.decode(template, True), self.decode(template, False)
        has = {name for each in self.members.pods for name in _node_names(each)}
        names = self._names(self.controller.name)
        for node, allowed in zip(self.nodes, allowed_nodes(self.nodes, plain.constraints), strict=True):
            if allowed and node.name not in has:
                tied = (NodeSelectorTerm(fields=(Requirement("metadata.name", "In", (node.name,)),)),)
                constraints = replace(pod.constraints, node_affinity=tied)
                yield replace(pod, name=next(names), pod_class=replace(pod.pod_class, constraints=constraints))


def within(count: int, replicas: tuple[int, int] | None) -> int:
    """Return a number of replicas within the bounds of an autoscaler, which leaves none as they are."""
    return count if replicas is None or not count else min(max(count, replicas[0]), replicas[1])


def replica_name(name: str, number: int) -> str:
    """Return the name of a controller's pod; numbers start at 1."""
    return f"{name}-{number:04}"


def template_hash(template: object) -> str:
    """Return a hash of a pod template, made of the letters of Kubernetes' hashes."""
    digest = int.from_bytes(hashlib.sha256(repr(_canonical(template)).encode(errors="backslashreplace")).digest()[:8])
    letters = []
    for _ in range(10):
        digest, letter = divmod(digest, len(_HASH_LETTERS))
        letters.append(_HASH_LETTERS[letter])
    return "".join(letters)


def completion_index(content: Object) -> int | None:
    """Return the completion index of a pod of an indexed Job."""
    notes = (content.get("metadata") or {}).get("annotations")
    stated = notes.get(COMPLETION_INDEX) if isinstance(notes, dict) else None
    return int(stated) if isinstance(stated, str) and stated.isascii() and stated.isdigit() else None


def succeeded(content: Object) -> bool:
    """Return whether a pod has succeeded."""
    status = content.get("status")
    return is_finished(content) and isinstance(status, dict) and status.get("phase") == "Succeeded"


def _canonical(value: object) -> object:
    """Return a value in which the order of keys does not matter."""
    if isinstance(value, dict):
        return sorted((str(key), _canonical(each)) for key, each in value.items())
    return [_canonical(each) for each in value] if isinstance(value, list) else value


def _selects_by_own_labels(spec: Object) -> bool:
    """Return whether selectors of a pod depend on its own labels."""
    return any(key in repr(spec) for key in ("matchLabelKeys", "mismatchLabelKeys"))


def _index_list(stated: str) -> set[int]:
    """Return the completion indices of a text such as 0,2-4."""
    found: set[int] = set()
    for part in stated.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            found.update(range(int(first), min(int(last or first), MAX_REPLICAS) + 1))
    return found


def _is_over(status: Object) -> bool:
    conditions = status.get("conditions")
    return isinstance(conditions, list) and any(
        isinstance(condition, dict) and condition.get("type") in _OVER and condition.get("status") == "True"
        for condition in conditions
    )


def _node_names(pod: Pod) -> Iterable[str]:
    """Return the node that a DaemonSet's pod runs on or is to go to."""
    if pod.constraints.node_name:
        return (pod.constraints.node_name,)
    return restricted_names(pod.constraints) or ()
