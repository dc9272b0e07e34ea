"""Files and folders of Kubernetes objects to nodes, pods and services, with controllers expanded, and back.

A controller (Deployment, ReplicaSet, StatefulSet, ReplicationController, Job, DaemonSet) stands for the pods that it
wants and that the input does not hold; those that it holds are counted once (see `controllers`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from steersman.cluster.model import Node, Pod
from steersman.cluster.objects.decoding import (
    PRIORITY_CLASSES,
    is_finished,
    node_from_object,
    pod_from_object,
    unmodelled,
)
from steersman.cluster.objects.fields import FieldError, Object, integer, join, mapping, text_map
from steersman.cluster.objects.manifests import node_to_object, pod_to_object
from steersman.cluster.objects.selectors import Namespaces
from steersman.core.errors import InputError
from steersman.workloads.formats.kubernetes.controllers import (
    CONTROLLERS,
    Controllers,
    Key,
    Members,
    controller_of,
    created,
    is_terminating,
    key_of,
    missing,
    succeeded,
    template_of,
)
from steersman.workloads.formats.kubernetes.spread_selectors import (
    BY_LABELS,
    BY_REQUIREMENTS,
    selector_of,
    services_of,
    services_to_objects,
)
from steersman.workloads.formats.yaml_documents import NESTED, Document, write_documents
from steersman.workloads.workload import SpreadSelectors, Workload

MAX_LIST_DEPTH = 8
MIRROR = "kubernetes.io/config.mirror"
"""Annotation of a mirror pod: a static pod that its kubelet runs."""

_GROUPS = {
    "Node": ("",),
    "Pod": ("",),
    "Namespace": ("",),
    "Service": ("",),
    "ReplicationController": ("",),
    "Deployment": ("apps", "extensions"),
    "ReplicaSet": ("apps", "extensions"),
    "DaemonSet": ("apps", "extensions"),
    "StatefulSet": ("apps",),
    "Job": ("batch",),
    "CronJob": ("batch",),
    "PriorityClass": ("scheduling.k8s.io",),
}


@dataclass(frozen=True, slots=True)
class KubernetesObject:
    """One object of a document: content, kind and position."""

    content: Object
    kind: str
    document: Document

    @property
    def name(self) -> str:
        """Return `metadata.name` as text."""
        return str(self.content.get("metadata", {}).get("name", ""))

    @property
    def namespace(self) -> str:
        """Return `metadata.namespace`, "default" if there is none."""
        return str(self.content.get("metadata", {}).get("namespace") or "default")

    def error(self, field: str, problem: str) -> InputError:
        """Return an error that names this object and a field."""
        namespace = self.content.get("metadata", {}).get("namespace")
        name = f"{namespace}/{self.name}" if namespace else self.name
        name = name if name.isprintable() else ascii(name)
        where = ", ".join(part for part in (self.document.where, f"{self.kind} {name}".strip()) if part)
        return InputError(self.document.file, where, field, problem)

    @property
    def where(self) -> str:
        """Return the position for an error message."""
        return self.error("", "").where


@dataclass(frozen=True, slots=True)
class Expanded:
    """The pods of an input, each once.

    Attributes:
        pods: in order of arrival.
        owners: by (namespace, name) of a pod its topmost controller (a Deployment, not its ReplicaSet); pods without a
            controller are not in it.
        absent: number of pods that their controller has yet to create.
        finished: number of Pods of the input that are left out because they have finished.
        terminating: (namespace, name) of pods that are being deleted.
        odd_phases: phases other than Pending and Running, and the number of pods in each.
    """

    pods: tuple[Pod, ...]
    owners: Mapping[tuple[str, str], Key]
    absent: int
    finished: int
    terminating: frozenset[tuple[str, str]]
    odd_phases: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class _Living:
    """The Pods of an input that have not finished, by their index among the objects, and what is known of them."""

    pods: dict[int, Pod] = field(default_factory=dict)
    members: dict[Key, Members] = field(default_factory=dict)
    owners: dict[tuple[str, str], Key] = field(default_factory=dict)
    terminating: set[tuple[str, str]] = field(default_factory=set)
    odd_phases: Counter[str] = field(default_factory=Counter)


class _Known(NamedTuple):
    """Objects that pods refer to: priorities by class name, and labels of namespaces (None: unknown)."""

    priorities: Mapping[str, int]
    namespaces: Namespaces | None


class Objects:
    """The Kubernetes objects of some files, decoded on demand.

    Args:
        documents: in the order in which pods arrive.

    Raises:
        InputError: a document is not a Kubernetes object. Methods raise it for content that Kubernetes would reject.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self.objects: list[KubernetesObject] = []
        self.ignored: Counter[str] = Counter()
        for obj in (o for document in documents for o in _flatten(document, "")):
            if obj.kind in _GROUPS:
                self.objects.append(obj)
            else:
                self.ignored[obj.kind] += 1

    def of_kind(self, *kinds: str) -> Iterator[KubernetesObject]:
        """Yield the objects of these kinds, in order."""
        return (o for o in self.objects if o.kind in kinds)

    def has_nodes(self) -> bool:
        """Return whether there is a Node."""
        return any(True for _ in self.of_kind("Node"))

    def has_pods(self) -> bool:
        """Return whether there is a Pod or a controller of pods."""
        return any(True for _ in self.of_kind("Pod", *CONTROLLERS))

    def nodes(self) -> tuple[Node, ...]:
        """Return the Nodes, in order."""
        seen: dict[tuple[str, str], KubernetesObject] = {}
        nodes = []
        for obj in self.of_kind("Node"):
            node = node_from_object(obj.content, file=obj.document.file, where=obj.where)
            _claim(seen, ("", node.name), obj)
            nodes.append(node)
        return tuple(nodes)

    def pods(self, nodes: Sequence[Node]) -> tuple[Pod, ...]:
        """Return the pods of `expanded`."""
        return self.expanded(nodes).pods

    def expanded(self, nodes: Sequence[Node]) -> Expanded:
        """Return the Pods that have not finished and those that controllers want and do not have.

        They are in order of creation if objects state it, else in the order of the input; pods that have yet to be
        created come last.

        Args:
            nodes: nodes that a DaemonSet is expanded over.

        Raises:
            InputError: an object is invalid, or a name occurs twice.
        """
        controllers = Controllers(self.objects)
        known = _Known({**PRIORITY_CLASSES, **dict(self._priorities())}, self._namespaces())
        there = self._living(controllers, known)
        owners = dict(there.owners)
        seen: dict[tuple[str, str], KubernetesObject] = {}
        entries: list[tuple[float, Pod]] = []
        for i, obj in enumerate(self.objects):
            pods_of_object: list[Pod] = []
            has = Members()
            if i in there.pods:
                pods_of_object = [there.pods[i]]
            elif obj.kind in CONTROLLERS:
                has = there.members.get(key_of(obj), has)
                above = controllers.owners(obj)
                if controllers.maker(above) is None:
                    template = _decode(obj, template_of(obj), "spec.template", known)
                    template = replace(template, owner=f"{obj.kind}/{obj.name}")
                    pods_of_object = list(missing(obj, template, has, nodes))
                owners.update(((pod.namespace, pod.name), [key_of(obj), *above][-1]) for pod in pods_of_object)
            for pod in pods_of_object:
                _claim(seen, (pod.namespace, pod.name), obj)
            # Pods that a controller has yet to create come after all existing ones.
            moment = created(obj) if pods_of_object and not has.pods else None
            entries += ((math.inf if moment is None else moment, pod) for pod in pods_of_object)
        entries.sort(key=lambda entry: entry[0])
        return Expanded(
            pods=tuple(pod for _, pod in entries),
            owners=owners,
            absent=len(entries) - len(there.pods),
            finished=sum(1 for each in self.of_kind("Pod") if is_finished(each.content)),
            terminating=frozenset(there.terminating),
            odd_phases=tuple(sorted(there.odd_phases.items())),
        )

    def _living(self, controllers: Controllers, known: _Known) -> _Living:
        """Decode the Pods that have not finished and find their controllers."""
        there = _Living()
        for i, obj in enumerate(self.objects):
            if obj.kind != "Pod":
                continue
            above = controllers.owners(obj)
            maker = controllers.maker(above)
            has = there.members.setdefault(maker, Members()) if maker is not None else Members()
            if is_finished(obj.content):
                has.succeeded += succeeded(obj.content)
                continue
            there.pods[i] = pod = _mirrored(obj, _decode(obj, obj.content, "", known))
            # A static pod is created by its node alone.
            there.owners.update(((pod.namespace, pod.name), key) for key in above[-1:] if key[0] != "Node")
            if is_terminating(obj.content):
                there.terminating.add((pod.namespace, pod.name))
            else:
                has.pods.append(pod)
            there.odd_phases.update(_odd_phase(obj.content))
        return there

    def services(self) -> SpreadSelectors:
        """Return the label selectors of Services and of the controllers that kube-scheduler spreads by."""
        creators = {key for key in self._creators() if key[0] == "Deployment"}
        selectors = []
        for obj in self.of_kind(*BY_LABELS, *BY_REQUIREMENTS):
            if (obj.kind, obj.namespace, obj.name) in creators:
                continue  # its ReplicaSet is in the input
            try:
                selectors.append((obj.namespace, selector_of(obj.kind, obj.content)))
            except FieldError as error:
                raise obj.error(error.field, error.problem) from None
        return services_of(selectors)

    def warnings(self) -> tuple[str, ...]:
        """Return warnings: kinds that are ignored, and constraints that are not modelled."""
        lines = []
        if self.ignored:
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.ignored.items()))
            lines.append(f"ignored objects that are neither nodes nor pods nor make pods: {kinds}")
        cron_jobs = sum(1 for _ in self.of_kind("CronJob"))
        if cron_jobs:
            lines.append(f"{cron_jobs} CronJobs stand for no pods; the Jobs that they have started do")
        beyond: Counter[str] = Counter()
        for o in self.of_kind("Pod", *CONTROLLERS):
            beyond.update(unmodelled(o.content if o.kind == "Pod" else _template(o)))
        lines += [
            f"{constraint} is not modelled and has no effect ({count} objects)"
            for constraint, count in sorted(beyond.items())
        ]
        return tuple(lines)

    def _creators(self) -> Iterator[Key]:
        """Yield the key of every controller that created another controller of the input."""
        controllers = (obj for obj in self.objects if obj.kind != "Pod")
        return (key for key in map(controller_of, controllers) if key is not None)

    def _namespaces(self) -> Namespaces | None:
        """Return the labels of the Namespaces of the input, or None if there is none."""
        labels = {}
        for obj in self.of_kind("Namespace"):
            try:
                labels[obj.name] = text_map(mapping(obj.content, "metadata", ""), "labels", "metadata")
            except FieldError as error:
                raise obj.error(error.field, error.problem) from None
        return labels or None

    def _priorities(self) -> Iterator[tuple[str, int]]:
        for obj in self.of_kind("PriorityClass"):
            try:
                yield obj.name, integer(obj.content, "value", "", -(1 << 31), (1 << 31) - 1, 0)
            except FieldError as error:
                raise obj.error(error.field, error.problem) from None


def write_workload(workload: Workload, folder: Path) -> None:
    """Write `nodes.yaml`, `pods.yaml` and, where there are any, `services.yaml` into an existing folder."""
    write_nodes(workload.nodes, folder / "nodes.yaml")
    write_pods(workload.pods, folder / "pods.yaml")
    write_services(workload.services, folder / "services.yaml")


def write_nodes(nodes: Iterable[Node], path: Path) -> None:
    """Write v1 Nodes as one YAML file."""
    write_documents(path, (node_to_object(node) for node in nodes))


def write_pods(pods: Iterable[Pod], path: Path) -> None:
    """Write v1 Pods as one YAML file."""
    write_documents(path, (pod_to_object(pod) for pod in pods))


def write_services(services: SpreadSelectors, path: Path) -> None:
    """Write selectors of pods into one YAML file, or no file if there are none."""
    if services:
        write_documents(path, services_to_objects(services))


def _flatten(
    document: Document, path: str, kind: str = "", version: str = "", depth: int = 0
) -> Iterator[KubernetesObject]:
    """Yield the objects of a document: itself, or the items of a List."""
    if depth > MAX_LIST_DEPTH:  # a YAML alias can make a list contain itself
        raise document.error("", NESTED)
    content = document.content
    if not isinstance(content, dict):
        shape = "a list" if isinstance(content, list) else f"{type(content).__name__} {str(content)[:40]!r}"
        raise document.error(
            path, f"is not a Kubernetes object but {shape}; an object has apiVersion, kind and metadata"
        )
    kind = content.get("kind") or kind
    version = content.get("apiVersion") or version
    for name, value in (("apiVersion", version), ("kind", kind)):
        if not value or not isinstance(value, str):
            raise document.error(join(path, name), "is missing; is this a Kubernetes object?")
    if kind.endswith("List") and isinstance(content.get("items"), list):
        for i, item in enumerate(content["items"]):
            where = ", ".join(part for part in (document.where, f"items[{i}]") if part)
            yield from _flatten(Document(item, document.file, where), "", kind.removesuffix("List"), version, depth + 1)
        return
    if not isinstance(content.get("metadata", {}), dict):
        raise document.error(join(path, "metadata"), "must be a mapping of fields")
    group = version.rpartition("/")[0]
    known = group in _GROUPS.get(kind, ())
    yield KubernetesObject(content, kind if known or kind not in _GROUPS else f"{kind}.{group}", document)


def _claim(seen: dict[tuple[str, str], KubernetesObject], key: tuple[str, str], obj: KubernetesObject) -> None:
    """Note a name as taken. Raises InputError if it is taken already."""
    if key in seen:
        first = seen[key].document
        place = ", ".join(part for part in (first.file, first.where) if part)
        raise obj.error(
            "metadata.name", f"{'/'.join(filter(None, key))!r} is there already ({place}); names must be unique"
        )
    seen[key] = obj


def _template(obj: KubernetesObject) -> Object:
    spec = obj.content.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    return template if isinstance(template, dict) else {}


def _decode(obj: KubernetesObject, content: Object, path: str, known: _Known) -> Pod:
    return pod_from_object(
        content,
        file=obj.document.file,
        where=obj.where,
        path=path,
        priority_classes=known.priorities,
        namespaces=known.namespaces,
    )


def _mirrored(obj: KubernetesObject, pod: Pod) -> Pod:
    """Return the pod; a static pod names its node as its owner, even if only its annotation says so."""
    notes = obj.content.get("metadata", {}).get("annotations")
    if not pod.owner and isinstance(notes, dict) and MIRROR in notes:
        return replace(pod, owner=f"Node/{pod.constraints.node_name}")
    return pod


def _odd_phase(content: Object) -> tuple[str, ...]:
    """Return the phase of a pod unless it is that of a waiting or running pod."""
    status = content.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    return () if phase in (None, "", "Pending", "Running") else (str(phase)[:40],)
