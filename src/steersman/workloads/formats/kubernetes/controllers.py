"""Controllers and their pods, each counted once: which pod belongs to which controller, and which pods are missing.

A controller of the input stands for as many pods as it wants and the input does not hold yet. A pod belongs to it by
owner references; where the ReplicaSet between a Deployment and its pods is not in the input, by the Deployment's
selector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from steersman.cluster.constraints.node import allowed_nodes, holds, restricted_names
from steersman.cluster.model import Node, NodeSelectorTerm, Pod, Requirement, Toleration
from steersman.cluster.objects.decoding import OWNER_KEY, is_finished
from steersman.cluster.objects.fields import FieldError, Object, integer, items, mapping, text
from steersman.workloads.formats.kubernetes.spread_selectors import selector_of

if TYPE_CHECKING:
    from steersman.workloads.formats.kubernetes.objects import KubernetesObject

MAX_REPLICAS = 10_000_000
CONTROLLERS = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job", "DaemonSet")

# What the DaemonSet controller adds to its pods.
_DAEMON_TOLERATIONS = tuple(
    Toleration(f"node.kubernetes.io/{condition}", "Exists", "", effect)
    for condition, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)

Key = tuple[str, str, str]
"""Kind, namespace and name of an object."""


def key_of(obj: KubernetesObject) -> Key:
    """Return the key of an object."""
    return obj.kind, obj.namespace, obj.name


def controller_of(obj: KubernetesObject) -> Key | None:
    """Return the key of the controller that created an object, or None.

    A pod of a snapshot has no owner references; an annotation names its controller.

    Raises:
        InputError: `metadata.ownerReferences` is invalid.
    """
    try:
        metadata = mapping(obj.content, "metadata", "")
        for reference, _ in items(metadata, "ownerReferences", "metadata"):
            if reference.get("controller") is True:
                return str(reference.get("kind")), obj.namespace, str(reference.get("name"))
        stated = text(mapping(metadata, "annotations", "metadata"), OWNER_KEY, "metadata.annotations")
    except FieldError as error:
        raise obj.error(error.field, error.problem) from None
    kind, slash, name = stated.partition("/")
    return (kind, obj.namespace, name) if slash and obj.kind == "Pod" else None


def is_terminating(content: Object) -> bool:
    """Return whether an object is being deleted: its controller no longer counts it and has replaced it."""
    return bool(content.get("metadata", {}).get("deletionTimestamp"))


def created(obj: KubernetesObject) -> float | None:
    """Return when an object was created in Unix seconds, or None if it does not say.

    Raises:
        InputError: `metadata.creationTimestamp` is not a time.
    """
    stamp = obj.content.get("metadata", {}).get("creationTimestamp")
    if stamp is None:
        return None
    try:
        moment = datetime.fromisoformat(stamp)
        if moment.tzinfo is not None:
            return moment.timestamp()
    except (TypeError, ValueError, OverflowError):
        pass
    raise obj.error("metadata.creationTimestamp", f"{stamp!r} is no time; such as 2024-05-01T12:00:00Z is right")


@dataclass(slots=True)
class Members:
    """The pods of one controller in the input.

    Attributes:
        pods: those that the controller counts: neither finished nor being deleted.
        succeeded: number of pods that have succeeded (of a Job).
    """

    pods: list[Pod] = field(default_factory=list)
    succeeded: int = 0


class Controllers:
    """The controllers of an input.

    Args:
        objects: all objects of the input.
    """

    def __init__(self, objects: Iterable[KubernetesObject]) -> None:
        every = [obj for obj in objects if obj.kind in (*CONTROLLERS, "CronJob")]
        self._there = {key_of(obj): obj for obj in every}
        self._deployments: dict[str, dict[str, tuple[Requirement, ...]]] = {}
        for obj in every:
            if obj.kind == "Deployment":
                self._deployments.setdefault(obj.namespace, {})[obj.name] = _selector(obj)
        self._makers: dict[Key, Key | None] = {}

    def owners(self, obj: KubernetesObject) -> list[Key]:
        """Return the controllers above an object, nearest first, including those that the input does not hold."""
        above: list[Key] = []
        key = controller_of(obj)
        labels = obj.content.get("metadata", {}).get("labels")
        while key is not None and key not in above:
            above.append(key)
            there = self._there.get(key)
            if there is not None:
                key = controller_of(there)
            elif key[0] == "ReplicaSet":
                key = self._deployment_of(key, labels if isinstance(labels, dict) else {})
            else:
                key = None
        return above

    def maker(self, owners: Sequence[Key]) -> Key | None:
        """Return the outermost of these controllers that creates pods and is in the input: it counts the pods."""
        return next((key for key in reversed(owners) if key in self._there and key[0] in CONTROLLERS), None)

    def _deployment_of(self, replica_set: Key, labels: Mapping[str, Any]) -> Key | None:
        """Return the Deployment of a missing ReplicaSet: the one whose selector matches its pods, or by its name."""
        if replica_set not in self._makers:
            _, namespace, name = replica_set
            texts = {key: value for key, value in labels.items() if isinstance(key, str) and isinstance(value, str)}
            deployments = self._deployments.get(namespace, {})
            # Selectors should not overlap; where they do, a ReplicaSet is called after its Deployment.
            named = name.rpartition("-")[0]
            candidates = [named] if named in deployments else []
            candidates += sorted(deployments) if not candidates or not _selects(deployments[named], texts, True) else []
            chosen = [
                deployment for deployment in candidates if _selects(deployments[deployment], texts, deployment == named)
            ]
            self._makers[replica_set] = ("Deployment", namespace, chosen[0]) if chosen else None
        return self._makers[replica_set]


def _selects(selector: tuple[Requirement, ...], labels: Mapping[str, str], named: bool) -> bool:
    """Return whether a Deployment's selector matches labels; one without a selector is matched by its name alone."""
    return all(holds(requirement, labels) for requirement in selector) if selector else named


def _selector(obj: KubernetesObject) -> tuple[Requirement, ...]:
    try:
        return selector_of(obj.kind, obj.content)
    except FieldError as error:
        raise obj.error(error.field, error.problem) from None


def missing(controller: KubernetesObject, pod: Pod, members: Members, nodes: Sequence[Node]) -> Iterator[Pod]:
    """Yield the pods that a controller wants and does not have: NAME-0001 and so on, after those it has.

    Args:
        controller: the controller.
        pod: a pod of its template, with the controller's name.
        members: the pods it has.
        nodes: nodes that a DaemonSet is expanded over; each that it may run on gets a pod.

    Raises:
        InputError: the controller's `spec` is invalid.
    """
    try:
        count = _wanted(controller, members)
    except FieldError as error:
        raise controller.error(error.field, error.problem) from None
    if members.pods:
        pod = replace(pod, owner=members.pods[-1].owner)
    first = len(members.pods) + 1
    if is_terminating(controller.content):
        return
    if controller.kind == "DaemonSet":
        yield from _daemons(pod, members.pods, nodes, first)
    else:
        yield from (replace(pod, name=replica_name(pod.name, i)) for i in range(first, count + 1))


def replica_name(name: str, number: int) -> str:
    """Return the name of a controller's pod; numbers start at 1."""
    return f"{name}-{number:04}"


def _wanted(controller: KubernetesObject, members: Members) -> int:
    """Return how many pods a controller wants now; a DaemonSet's number depends on the nodes."""
    spec = mapping(controller.content, "spec", "")
    if controller.kind != "Job":
        return integer(spec, "replicas", "spec", 0, MAX_REPLICAS, 1)
    status = controller.content.get("status")
    status = status if isinstance(status, dict) else {}
    parallelism = integer(spec, "parallelism", "spec", 0, MAX_REPLICAS, 1)
    completions = integer(spec, "completions", "spec", 0, MAX_REPLICAS, -1)
    succeeded = max(members.succeeded, integer(status, "succeeded", "status", 0, MAX_REPLICAS, 0))
    if spec.get("suspend") is True or _is_over(status):
        return 0
    if completions < 0:  # a work queue: no other pod starts once one has succeeded
        return 0 if succeeded else parallelism
    if status.get("startTime") or members.pods or succeeded:  # the remaining ones start when these end
        return min(parallelism, completions - succeeded)
    return completions


def _is_over(status: Object) -> bool:
    conditions = status.get("conditions")
    return isinstance(conditions, list) and any(
        isinstance(condition, dict)
        and condition.get("type") in ("Complete", "Failed")
        and condition.get("status") == "True"
        for condition in conditions
    )


def _daemons(pod: Pod, there: Sequence[Pod], nodes: Sequence[Node], first: int) -> Iterator[Pod]:
    """Yield a pod tied to its node for each node that a DaemonSet may run on and has no pod on."""
    constraints = replace(pod.constraints, tolerations=(*pod.constraints.tolerations, *_DAEMON_TOLERATIONS))
    has = {name for each in there for name in _node_names(each)}
    number = first
    for node, allowed in zip(nodes, allowed_nodes(nodes, constraints), strict=True):
        if allowed and node.name not in has:
            tied = (NodeSelectorTerm(fields=(Requirement("metadata.name", "In", (node.name,)),)),)
            pod_class = replace(pod.pod_class, constraints=replace(constraints, node_affinity=tied))
            yield replace(pod, name=replica_name(pod.name, number), pod_class=pod_class)
            number += 1


def _node_names(pod: Pod) -> Iterable[str]:
    """Return the node that a DaemonSet's pod runs on or is to go to."""
    if pod.constraints.node_name:
        return (pod.constraints.node_name,)
    return restricted_names(pod.constraints) or ()


def succeeded(content: Object) -> bool:
    """Return whether a pod has succeeded."""
    status = content.get("status")
    return is_finished(content) and isinstance(status, dict) and status.get("phase") == "Succeeded"


def template_of(controller: KubernetesObject) -> Object:
    """Return a controller's pod template with the controller's name.

    Raises:
        InputError: there is no name, or the template is invalid.
    """
    if not controller.name:
        raise controller.error("metadata.name", "is missing")
    try:
        template = mapping(mapping(controller.content, "spec", ""), "template", "spec")
        metadata = mapping(template, "metadata", "spec.template")
    except FieldError as error:
        raise controller.error(error.field, error.problem) from None
    return {**template, "metadata": {**metadata, "name": controller.name, "namespace": controller.namespace}}
