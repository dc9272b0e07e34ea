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
from functools import cached_property
from typing import Any

from msgspec import structs

from steersman.cluster.constraints.node import allowed_nodes, holds, restricted_names
from steersman.cluster.model import JOB_NAME, Node, NodeSelectorTerm, Pod, Requirement
from steersman.cluster.objects.api import controllers
from steersman.cluster.objects.api.pods import ClaimSource, PodObject, PodToleration, PodVolume
from steersman.cluster.objects.fields import FieldError, converted, one_of
from steersman.workloads.formats.kubernetes.controllers import Key, is_terminating, selector_of
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

HASH = "pod-template-hash"
REVISION = "controller-revision-hash"
GENERATION = "pod-template-generation"
POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAMES = ("job-name", JOB_NAME)
JOB_UIDS = ("controller-uid", "batch.kubernetes.io/controller-uid")
JOB_CONTROLLER = "kubernetes.io/job-controller"
_HASH_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_OVER = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")

# What the DaemonSet controller adds to its pods.
_DAEMON_TOLERATIONS = tuple(
    PodToleration(f"node.kubernetes.io/{condition}", "Exists", effect=effect)
    for condition, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
_HOST_NETWORK_TOLERATION = PodToleration("node.kubernetes.io/network-unavailable", "Exists", effect="NoSchedule")


@dataclass(slots=True)
class Members:
    """The pods of one controller in the input."""

    # Those that the controller counts: neither finished nor being deleted
    pods: list[Pod] = field(default_factory=list)
    leaving: list[Pod] = field(default_factory=list)  # those that are being deleted
    succeeded: int = 0  # number of pods that have succeeded (of a Job)
    # Completion indices of the pods that it counts or that have succeeded
    indices: set[int] = field(default_factory=set)
    elsewhere: int = 0  # number of pods that ReplicaSets of the input have or make (of a Deployment)
    # The ReplicaSet of a Deployment that makes further pods, if the input holds one
    newest: KubernetesObject | None = None


@dataclass(frozen=True)
class Maker:
    """A controller of the input and what its pods depend on."""

    controller: KubernetesObject  # the controller
    members: Members  # the pods that it has
    nodes: Sequence[Node]  # nodes that a DaemonSet is expanded over; each that it may run on gets a pod
    # Objects of the input by their keys; the name of a Pod among them is not used again
    there: Mapping[Key, KubernetesObject]
    decode: Callable[[PodObject, bool], Pod]  # makes a pod of a template, after admission or before
    replicas: tuple[int, int] | None = None  # least and most replicas that an autoscaler allows

    def missing(self) -> Iterator[Pod]:
        """Yield the pods that the controller wants and does not have."""
        if is_terminating(self.controller):
            return
        typed = self.controller.typed
        labels = self._template.metadata.labels or {}
        is_selecting = self.controller.kind not in ("Job", "DaemonSet")
        if is_selecting and not all(holds(each, labels) for each in selector_of(self.controller)):
            raise FieldError("spec.selector", "does not match the labels of the template")
        match self.controller.kind:
            case "StatefulSet":
                pods = self._ordinals(typed)
            case "Job":
                pods = self._completions(typed)
            case "DaemonSet":
                pods = self._daemons()
            case _:
                pods = self._equal_pods(self._deployment_labels(), self._wanted(typed.spec) - len(self.members.pods))
        owner = self._owner()
        is_job = self.controller.kind == "Job"
        deadline = job_deadline(typed.spec) if is_job else None
        is_limited = is_job and (typed.spec.completions or 0) > parallelism_of(typed.spec)
        at_once = parallelism_of(typed.spec) if is_limited else None
        for pod in pods:
            estimate = deadline if pod.estimated_seconds is None else pod.estimated_seconds
            yield replace(pod, owner=owner, estimated_seconds=estimate, at_once=at_once)

    def _owner(self) -> str:
        if self.members.pods:
            return self.members.pods[-1].owner
        above = self.members.newest or self.controller
        return f"{above.kind}/{above.name}"

    # What all kinds have in common

    def _wanted(self, spec: controllers.DeploymentSpec | controllers.ReplicationControllerSpec) -> int:
        """Return how many pods a controller of replicas wants besides those of `Members.elsewhere`."""
        count = 1 if spec.replicas is None else spec.replicas
        return within(count, self.replicas) - self.members.elsewhere

    @cached_property
    def _template(self) -> PodObject:
        template = converted(self.controller.typed.spec.template or {}, PodObject, "spec.template")
        name, namespace = self.controller.name, self.controller.namespace
        return structs.replace(template, metadata=structs.replace(template.metadata, name=name, namespace=namespace))

    def _labelled(self, labels: Mapping[str, str], **spec: Any) -> PodObject:
        """Return the template with further labels and other fields of its spec."""
        metadata = self._template.metadata
        return PodObject(
            structs.replace(metadata, labels={**(metadata.labels or {}), **labels}),
            structs.replace(self._template.spec, **spec),
        )

    def _names(self, prefix: str) -> Iterator[str]:
        possible = (replica_name(prefix, i) for i in itertools.count(len(self.members.pods) + 1))
        return (name for name in possible if ("Pod", self.controller.namespace, name) not in self.there)

    def _equal_pods(self, labels: Mapping[str, str], count: int) -> Iterator[Pod]:
        if count > 0:
            pod = self.decode(self._labelled(labels), True)
            above = self.members.newest or self.controller
            yield from (replace(pod, name=name) for name in itertools.islice(self._names(above.name), count))

    def _numbered_pods(self, made: Iterable[tuple[str, Mapping[str, str]]], **spec: Any) -> Iterator[Pod]:
        return numbered_pods(self._labelled({}, **spec), made, lambda pod: self.decode(pod, True))

    def _member_label(self, key: str) -> str:
        return self.members.pods[-1].labels.get(key, "") if self.members.pods else ""

    # Deployments

    def _deployment_labels(self) -> dict[str, str]:
        """Return the hash that a Deployment's ReplicaSet adds to its pods; other controllers add nothing."""
        if self.controller.kind != "Deployment":
            return {}
        newest = self.members.newest
        known = (newest.typed.metadata.labels or {}).get(HASH) if newest is not None else ""
        return {HASH: known or self._member_label(HASH) or self._hash()}

    def _hash(self) -> str:
        return template_hash(self.controller.typed.spec.template)

    # StatefulSets

    def _ordinals(self, stateful_set: controllers.Deployment) -> Iterator[Pod]:
        """Return the pods of a StatefulSet, NAME-0 and so on, with the claims of its volume claim templates."""
        name, there = self.controller.name, {pod.name for pod in self.members.pods}
        ordinals, wanted = stateful_set.spec.ordinals, self._wanted(stateful_set.spec)
        if wanted <= len(there):
            return iter(())
        start = (ordinals.start if ordinals is not None else None) or 0
        ordinals_wanted: Iterable[int] = range(start, start + wanted)
        if stateful_set.spec.pod_management_policy != "Parallel":  # one after another: a pod that leaves stops the rest
            leaving = {pod.name for pod in self.members.leaving}
            ordinals_wanted = itertools.takewhile(lambda i: f"{name}-{i}" not in leaving, ordinals_wanted)
        missing = (i for i in ordinals_wanted if f"{name}-{i}" not in there)
        revision = stateful_set.status.update_revision or self._member_label(REVISION)
        labels = {REVISION: revision or f"{name}-{self._hash()}"}
        made = (
            (self._ordinal_name(i), {**labels, POD_NAME: f"{name}-{i}", POD_INDEX: str(i)})
            for i in missing
            if self._ordinal_name(i)
        )
        first = itertools.islice(made, wanted - len(there))
        claims = dict.fromkeys(each.metadata.name for each in stateful_set.spec.volume_claim_templates or ())
        return self._numbered_pods(first, volumes=self._volumes(claims)) if claims else self._numbered_pods(first)

    def _volumes(self, claims: Mapping[str, None]) -> list[PodVolume]:
        own = [PodVolume(name=n, persistent_volume_claim=ClaimSource(f"{n}-{self.controller.name}-0")) for n in claims]
        return [*own, *(each for each in self._template.spec.volumes or () if each.name not in claims)]

    def _ordinal_name(self, ordinal: int) -> str:
        """Return the name of a pod that is missing; empty: another pod has its name, be it that it terminates."""
        name = f"{self.controller.name}-{ordinal}"
        other = self.there.get(("Pod", self.controller.namespace, name))
        return name if other is None or (other.kind == "Pod" and other.pod.finished) else ""

    # Jobs

    def _completions(self, job: controllers.Job) -> Iterator[Pod]:
        spec, status, name = job.spec, job.status, self.controller.name
        mode = one_of(spec.completion_mode, ("NonIndexed", "Indexed"), "spec.completionMode", "NonIndexed")
        if mode == "Indexed" and spec.completions is None:
            raise FieldError("spec.completions", "is missing: an Indexed Job needs it")
        is_failed_needed = spec.pod_failure_policy is not None and spec.pod_replacement_policy is None
        waits = is_failed_needed or spec.pod_replacement_policy == "Failed"
        existing = len(self.members.pods) + (len(self.members.leaving) if waits else 0)
        wanted = self._wanted_completions(job) - existing
        if wanted <= 0:
            return iter(())
        labels = {} if spec.manual_selector else self._job_labels()
        if mode == "NonIndexed":
            return self._equal_pods(labels, wanted)
        done = self.members.indices | _index_list(status.completed_indexes) | _index_list(status.failed_indexes)
        indices = itertools.islice((i for i in range(spec.completions or 0) if i not in done), wanted)
        made = ((self._index_name(f"{name}-{i}"), {**labels, COMPLETION_INDEX: str(i)}) for i in indices)
        return self._numbered_pods(made)

    def _index_name(self, name: str) -> str:
        return next(self._names(name)) if ("Pod", self.controller.namespace, name) in self.there else name

    def _job_labels(self) -> dict[str, str]:
        """Return the labels that select a Job's pods; the API server adds them to the template where it lacks them."""
        key = f"{self.controller.namespace}/{self.controller.name}"
        uid = str(self.controller.metadata.get("uid") or uuid.uuid5(uuid.NAMESPACE_OID, key))
        stated = self._template.metadata.labels or {}
        return {**dict.fromkeys(JOB_NAMES, self.controller.name), **dict.fromkeys(JOB_UIDS, uid), **stated}

    def _wanted_completions(self, job: controllers.Job) -> int:
        spec, status = job.spec, job.status
        is_over = any(each.type in _OVER and each.status == "True" for each in status.conditions or ())
        if spec.suspend or is_over or spec.managed_by not in (None, JOB_CONTROLLER):
            return 0
        parallelism = parallelism_of(spec)
        succeeded = max(self.members.succeeded, status.succeeded or 0)
        if spec.completions is None:  # a work queue: no other pod starts once one has succeeded
            return 0 if succeeded else parallelism
        if status.start_time or self.members.pods or succeeded or not parallelism:  # the others start when these end
            return min(parallelism, spec.completions - succeeded)
        return spec.completions

    # DaemonSets

    def _daemons(self) -> Iterator[Pod]:
        """Yield a pod tied to its node for each node that a DaemonSet may run on and has no pod on."""
        spec, notes = self._template.spec, self.controller.typed.metadata.annotations or {}
        added = (*_DAEMON_TOLERATIONS, *((_HOST_NETWORK_TOLERATION,) if spec.host_network else ()))
        stated = spec.tolerations or []
        generation = str(notes.get("deprecated.daemonset.template.generation") or 1)
        labels = {GENERATION: generation, REVISION: self._member_label(REVISION) or self._hash()}
        template = self._labelled(labels, tolerations=[*stated, *(each for each in added if each not in stated)])
        pod, plain = self.decode(template, True), self.decode(template, False)
        has = {name for each in (*self.members.pods, *self.members.leaving) for name in _node_names(each)}
        names = self._names(self.controller.name)
        for node, allowed in zip(self.nodes, allowed_nodes(self.nodes, plain.constraints), strict=True):
            if allowed and node.name not in has:
                tied = (NodeSelectorTerm(fields=(Requirement("metadata.name", "In", (node.name,)),)),)
                constraints = replace(pod.constraints, node_affinity=tied)
                yield replace(pod, name=next(names), pod_class=replace(pod.pod_class, constraints=constraints))


def parallelism_of(spec: controllers.JobSpec) -> int:
    return 1 if spec.parallelism is None else spec.parallelism


def numbered_pods(
    template: PodObject, made: Iterable[tuple[str, Mapping[str, str]]], decode: Callable[[PodObject], Pod]
) -> Iterator[Pod]:
    """Yield a pod of a template for each name and its labels. Raises FieldError."""
    pod = None
    for name, labels in made:
        metadata = structs.replace(template.metadata, labels={**(template.metadata.labels or {}), **labels})
        # Selectors with matchLabelKeys or mismatchLabelKeys depend on the pod's own labels.
        if pod is None or "match_label_keys=[" in repr(template.spec):
            pod = decode(structs.replace(template, metadata=metadata))
        yield replace(pod, name=name, labels=metadata.labels or {})


def job_deadline(spec: controllers.JobSpec) -> float | None:
    """Return the longest run time of a Job's only pod in seconds; None: no deadline, or several pods share it."""
    count = parallelism_of(spec) if spec.completions is None else spec.completions
    return float(spec.active_deadline_seconds) if spec.active_deadline_seconds and count == 1 else None


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


def completion_index(pod: PodObject) -> int | None:
    stated = (pod.metadata.annotations or {}).get(COMPLETION_INDEX)
    return int(stated) if isinstance(stated, str) and stated.isascii() and stated.isdigit() else None


def _canonical(value: object) -> object:
    """Return a value in which the order of keys does not matter."""
    if isinstance(value, dict):
        return sorted((str(key), _canonical(each)) for key, each in value.items())
    return [_canonical(each) for each in value] if isinstance(value, list) else value


def _index_list(stated: str | None) -> set[int]:
    found: set[int] = set()
    for part in (stated or "").split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            found.update(range(int(first), min(int(last or first), controllers.MAX_REPLICAS) + 1))
    return found


def _node_names(pod: Pod) -> Iterable[str]:
    if pod.constraints.node_name:
        return (pod.constraints.node_name,)
    return restricted_names(pod.constraints) or ()
