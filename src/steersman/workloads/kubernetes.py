"""Files and folders of Kubernetes objects to nodes, pods and services, controllers expanded, and back.

A controller (Deployment, ReplicaSet, StatefulSet, ReplicationController, Job, DaemonSet) stands for the pods that it
would create, unless the input holds something that it created already: then that is what counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steersman.cluster.constraints import allowed_nodes
from steersman.cluster.fields import FieldError, Object, integer, items, join, mapping
from steersman.cluster.manifests import node_to_object, pod_to_object
from steersman.cluster.model import Node, NodeSelectorTerm, Pod, Requirement, Toleration
from steersman.cluster.objects import (
    PRIORITY_CLASSES,
    is_finished,
    node_from_object,
    pod_from_object,
    unmodelled,
)
from steersman.errors import InputError
from steersman.workloads.files import YAML_SUFFIXES, folder_files
from steersman.workloads.selecting import BY_LABELS, BY_REQUIREMENTS, selector_of, services_of, services_to_objects
from steersman.workloads.workload import Services, Workload
from steersman.workloads.yamlfile import NESTED, Document, read_documents, write_documents

MAX_REPLICAS = 10_000_000
MAX_LIST_DEPTH = 8

_GROUPS = {
    "Node": ("",),
    "Pod": ("",),
    "Service": ("",),
    "ReplicationController": ("",),
    "Deployment": ("apps", "extensions"),
    "ReplicaSet": ("apps", "extensions"),
    "DaemonSet": ("apps", "extensions"),
    "StatefulSet": ("apps",),
    "Job": ("batch",),
    "PriorityClass": ("scheduling.k8s.io",),
}
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


@dataclass(frozen=True, slots=True)
class KubernetesObject:
    """One object of a document: its content, its kind and its place."""

    content: Object
    kind: str
    document: Document

    @property
    def name(self) -> str:
        """`metadata.name`, as text."""
        return str(self.content.get("metadata", {}).get("name", ""))

    @property
    def namespace(self) -> str:
        """`metadata.namespace`, "default" where there is none."""
        return str(self.content.get("metadata", {}).get("namespace") or "default")

    def error(self, field: str, problem: str) -> InputError:
        """An error at this object."""
        namespace = self.content.get("metadata", {}).get("namespace")
        name = f"{namespace}/{self.name}" if namespace else self.name
        name = name if name.isprintable() else ascii(name)
        where = ", ".join(part for part in (self.document.where, f"{self.kind} {name}".strip()) if part)
        return InputError(self.document.file, where, field, problem)

    @property
    def where(self) -> str:
        """Its place for an error message."""
        return self.error("", "").where


class Objects:
    """The Kubernetes objects of some files, decoded as asked for.

    Args:
        documents: in the order in which pods shall arrive.

    Raises:
        InputError: a document is no Kubernetes object. The methods raise it for content that Kubernetes would refuse.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self.objects: list[KubernetesObject] = []
        self.ignored: Counter[str] = Counter()
        for found in (o for document in documents for o in _flatten(document, "")):
            if found.kind in _GROUPS:
                self.objects.append(found)
            else:
                self.ignored[found.kind] += 1

    def of_kind(self, *kinds: str) -> Iterator[KubernetesObject]:
        """The objects of these kinds, in order."""
        return (o for o in self.objects if o.kind in kinds)

    def has_nodes(self) -> bool:
        """Whether there is a Node."""
        return any(True for _ in self.of_kind("Node"))

    def has_pods(self) -> bool:
        """Whether there is a Pod or something that makes pods."""
        return any(True for _ in self.of_kind("Pod", *CONTROLLERS))

    def nodes(self) -> tuple[Node, ...]:
        """The Nodes, in order."""
        seen: dict[tuple[str, str], KubernetesObject] = {}
        nodes = []
        for found in self.of_kind("Node"):
            node = node_from_object(found.content, file=found.document.file, where=found.where)
            _claim(seen, ("", node.name), found)
            nodes.append(node)
        return tuple(nodes)

    def pods(self, nodes: Sequence[Node]) -> tuple[Pod, ...]:
        """The Pods and those that the controllers stand for, in order. Finished pods are left out (see `warnings`).

        Args:
            nodes: what a DaemonSet is expanded over.
        """
        seen: dict[tuple[str, str], KubernetesObject] = {}
        creators = set(self._creators())
        priorities = {**PRIORITY_CLASSES, **dict(self._priorities())}
        pods: list[Pod] = []
        for found in self.of_kind("Pod", *CONTROLLERS):
            if found.kind == "Pod":
                made = [] if is_finished(found.content) else [_decode(found, found.content, "", priorities)]
            elif (found.kind, found.namespace, found.name) in creators:
                made = []
            else:
                made = list(_expand(found, nodes, priorities))
            for pod in made:
                _claim(seen, (pod.namespace, pod.name), found)
            pods += made
        return tuple(pods)

    def services(self) -> Services:
        """The label selectors of Services and of the controllers that kube-scheduler spreads by."""
        creators = {found for found in self._creators() if found[0] == "Deployment"}
        selectors = []
        for found in self.of_kind(*BY_LABELS, *BY_REQUIREMENTS):
            if (found.kind, found.namespace, found.name) in creators:
                continue  # its ReplicaSet is there
            try:
                selectors.append((found.namespace, selector_of(found.kind, found.content)))
            except FieldError as error:
                raise found.error(error.field, error.problem) from None
        return services_of(selectors)

    def warnings(self) -> tuple[str, ...]:
        """What a user should know: kinds that were ignored, pods left out, what restricts pods and is not modelled."""
        found = []
        if self.ignored:
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.ignored.items()))
            found.append(f"ignored objects that are neither nodes nor pods nor make pods: {kinds}")
        finished = sum(1 for o in self.of_kind("Pod") if is_finished(o.content))
        if finished:
            found.append(f"{finished} pods have finished (status.phase Succeeded or Failed) and are left out")
        beyond: Counter[str] = Counter()
        for o in self.of_kind("Pod", *CONTROLLERS):
            beyond.update(unmodelled(o.content if o.kind == "Pod" else _template(o)))
        found += [
            f"{what} is not modelled and has no effect ({count} objects)" for what, count in sorted(beyond.items())
        ]
        return tuple(found)

    def _creators(self) -> Iterator[tuple[str, str, str]]:
        """(kind, namespace, name) of every controller that made an object of the input."""
        for found in self.objects:
            try:
                references = list(items(mapping(found.content, "metadata", ""), "ownerReferences", "metadata"))
            except FieldError as error:
                raise found.error(error.field, error.problem) from None
            for reference, _ in references:
                if reference.get("controller") is True:
                    yield str(reference.get("kind")), found.namespace, str(reference.get("name"))

    def _priorities(self) -> Iterator[tuple[str, int]]:
        for found in self.of_kind("PriorityClass"):
            try:
                yield found.name, integer(found.content, "value", "", -(1 << 31), (1 << 31) - 1, 0)
            except FieldError as error:
                raise found.error(error.field, error.problem) from None


def read_objects(path: str | Path) -> Objects:
    """The objects of a YAML or JSON file, or of all those in a folder, recursively and in the order of their names.

    Raises:
        InputError: nothing there, not YAML, or not Kubernetes.
    """
    path = Path(path)
    files = folder_files(path, YAML_SUFFIXES)[0] if path.is_dir() else [path]
    objects = Objects(document for file in files for document in read_documents(file))
    if not objects.objects and not objects.ignored:
        empty = "is a folder without .yaml, .yml or .json files that are not hidden"
        raise InputError(path, "", "", "holds no Kubernetes object" if files else empty)
    return objects


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


def write_services(services: Services, path: Path) -> None:
    """Write what selects pods into one YAML file; nothing, no file."""
    if services:
        write_documents(path, services_to_objects(services))


def _flatten(
    document: Document, path: str, kind: str = "", version: str = "", depth: int = 0
) -> Iterator[KubernetesObject]:
    """The objects of a document: itself, or the items of a List."""
    if depth > MAX_LIST_DEPTH:  # a YAML alias can put a list into itself
        raise document.error("", NESTED)
    content = document.content
    if not isinstance(content, dict):
        shape = "a list" if isinstance(content, list) else f"{type(content).__name__} {str(content)[:40]!r}"
        raise document.error(
            path, f"is not a Kubernetes object but {shape}; an object has apiVersion, kind and metadata"
        )
    kind = content.get("kind") or kind
    version = content.get("apiVersion") or version
    for field, value in (("apiVersion", version), ("kind", kind)):
        if not value or not isinstance(value, str):
            raise document.error(join(path, field), "is missing; is this a Kubernetes object?")
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


def _claim(seen: dict[tuple[str, str], KubernetesObject], key: tuple[str, str], found: KubernetesObject) -> None:
    """Note a name as taken. Raises InputError where it is."""
    if key in seen:
        first = seen[key].document
        place = ", ".join(part for part in (first.file, first.where) if part)
        raise found.error(
            "metadata.name", f"{'/'.join(filter(None, key))!r} is there already ({place}); names must be unique"
        )
    seen[key] = found


def _template(found: KubernetesObject) -> Object:
    spec = found.content.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    return template if isinstance(template, dict) else {}


def _decode(found: KubernetesObject, content: Object, path: str, priorities: Mapping[str, int]) -> Pod:
    return pod_from_object(content, file=found.document.file, where=found.where, path=path, priority_classes=priorities)


def _expand(found: KubernetesObject, nodes: Sequence[Node], priorities: Mapping[str, int]) -> Iterator[Pod]:
    """The pods that a controller stands for: NAME-0001 and on; of a DaemonSet one a node that it may run on."""
    if not found.name:
        raise found.error("metadata.name", "is missing")
    try:
        spec = mapping(found.content, "spec", "")
        template = mapping(spec, "template", "spec")
        count = _replicas(found.kind, spec)
        metadata = mapping(template, "metadata", "spec.template")
    except FieldError as error:
        raise found.error(error.field, error.problem) from None
    named: dict[str, Any] = {**metadata, "name": found.name, "namespace": found.namespace}
    pod = _decode(found, {**template, "metadata": named}, "spec.template", priorities)
    pod = replace(pod, owner=f"{found.kind}/{found.name}")
    if found.kind == "DaemonSet":
        yield from _daemons(pod, nodes)
    else:
        yield from (replace(pod, name=replica_name(pod.name, i)) for i in range(1, count + 1))


def replica_name(name: str, number: int) -> str:
    """The name of a controller's pod; numbers start at 1."""
    return f"{name}-{number:04}"


def _replicas(kind: str, spec: Object) -> int:
    """How many pods a controller makes. All completions of a Job count; a work queue has as many as run at once."""
    if kind != "Job":
        return integer(spec, "replicas", "spec", 0, MAX_REPLICAS, 1)
    parallelism = integer(spec, "parallelism", "spec", 0, MAX_REPLICAS, 1)
    return integer(spec, "completions", "spec", 0, MAX_REPLICAS, parallelism)


def _daemons(pod: Pod, nodes: Sequence[Node]) -> Iterator[Pod]:
    constraints = replace(pod.constraints, tolerations=(*pod.constraints.tolerations, *_DAEMON_TOLERATIONS))
    number = 0
    for node, allowed in zip(nodes, allowed_nodes(nodes, constraints), strict=True):
        if allowed:
            number += 1
            pinned = (NodeSelectorTerm(fields=(Requirement("metadata.name", "In", (node.name,)),)),)
            pod_class = replace(pod.pod_class, constraints=replace(constraints, node_affinity=pinned))
            yield replace(pod, name=replica_name(pod.name, number), pod_class=pod_class)
