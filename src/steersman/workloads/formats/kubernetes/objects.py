"""Files and folders of Kubernetes objects to nodes, pods and services, with controllers expanded, and back.

A controller (Deployment, ReplicaSet, StatefulSet, ReplicationController, Job, DaemonSet) stands for the pods that it
wants and that the input does not hold; those that it holds are counted once (see `expansion`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from steersman.cluster.model import Node, Pod
from steersman.cluster.objects.decoding import COMPARISONS, decode_node
from steersman.cluster.objects.fields import FieldError, Object, field_use, join, kubernetes_table, required
from steersman.cluster.objects.gpus import shared_node
from steersman.cluster.objects.manifests import node_to_object, pod_to_object
from steersman.cluster.objects.replicas import mapping_or_empty
from steersman.core.counting import counted, first_names
from steersman.core.errors import InputError
from steersman.workloads.files import YAML_SUFFIXES
from steersman.workloads.formats.base import FormatContent, Losses, WorkloadFormat
from steersman.workloads.formats.kubernetes import admission, budgets, claims, controllers
from steersman.workloads.formats.kubernetes.admission import limits_of, quantities
from steersman.workloads.formats.kubernetes.custom_resources import CustomResources, is_described
from steersman.workloads.formats.kubernetes.expansion import MADE, Expanded, Expansion
from steersman.workloads.formats.kubernetes.unpacking import KINDS, KubernetesObject, resource_table, unpack
from steersman.workloads.formats.tables import read_text
from steersman.workloads.formats.yaml_documents import Document, read_documents, write_documents
from steersman.workloads.workload import SpreadSelectors, Workload

# Names and labels that kube-apiserver refuses.
# Source: Kubernetes 1.37, apimachinery/pkg/util/validation (IsDNS1123Subdomain, IsDNS1123Label, IsValidLabelValue).

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = (_LABEL, 63, "lower-case letters, digits and hyphens")
_SUBDOMAIN = (rf"{_LABEL}(\.{_LABEL})*", 253, "lower-case letters, digits, '-' and '.'")
_WORD = ("[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", 63, "letters, digits, '-', '_' and '.'")


def check_names(obj: KubernetesObject) -> None:
    """Check name, namespace and labels of an object, and labels of its pod template. Raises FieldError."""
    _check_name(obj.name, _DNS_LABEL if obj.kind in ("Namespace", "Service") else _SUBDOMAIN, "metadata.name")
    _check_name(obj.metadata.get("namespace"), _DNS_LABEL, "metadata.namespace")
    template = mapping_or_empty(mapping_or_empty(obj.content.get("spec")).get("template"))
    for metadata, path in (
        (obj.metadata, "metadata"),
        (mapping_or_empty(template.get("metadata")), "spec.template.metadata"),
    ):
        for key, value in mapping_or_empty(metadata.get("labels")).items():
            prefix, _, word = str(key).rpartition("/")
            _check_name(word, _WORD, f"{path}.labels")
            _check_name(prefix, _SUBDOMAIN, f"{path}.labels")
            _check_name(value, _WORD, join(f"{path}.labels", str(key)))


def _check_name(text: object, rule: tuple[str, int, str], field: str) -> None:
    pattern, most, letters = rule
    if isinstance(text, str) and text and (len(text) > most or not re.fullmatch(pattern, text, re.ASCII)):
        shown = text if len(text) < 80 else f"{text[:60]}..."
        expected = f"expected at most {most} {letters}, with a letter or digit at both ends"
        raise FieldError(field, f"{shown!r} is refused by Kubernetes; {expected}")


REFERABLE = (
    *admission.KINDS,
    *claims.DEVICE_KINDS,
    *claims.VOLUME_KINDS,
    controllers.KIND,
    "HorizontalPodAutoscaler",
    "Namespace",
)
"""Kinds of objects of another input that pods and controllers may refer to."""
CLAIM_PATH, GROUP_PATH = "spec.volumes[].persistentVolumeClaim", "spec.schedulingGroup"
HOOKS = ("helm.sh/hook", "argocd.argoproj.io/hook")
"""Annotations of objects that are made at certain moments of a release and deleted again."""


class Objects(FormatContent):
    """The Kubernetes objects of some files, which may refer to objects in other ones.

    One that Kubernetes would refuse is left out, and its error is kept.

    Args:
        documents: in the order in which pods arrive.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        # Those of kinds that are read. Pods and templates of pods may yet turn out to be invalid (`expanded`).
        self.objects: list[KubernetesObject] = []
        self.ignored: Counter[str] = Counter()  # number of objects of each other kind
        # The same of those that say what containers request, and have no pod template
        self.opaque: Counter[str] = Counter()
        self._problems: list[InputError] = []
        self._others: list[Objects] = []
        self.hooks: list[str] = []  # hooks of Helm and Argo CD, which do not run with the rest, and when they do
        self.empty: list[str] = []  # custom resources of the table that describe no pods
        self.invalid_nodes: list[str] = []  # names of the nodes among these
        self._nodes: list[Node] = []
        self._names: dict[controllers.Key, KubernetesObject] = {}
        self._generated: Counter[controllers.Key] = Counter()
        self._claims, self._volumes = claims.PodClaims(()), claims.PodVolumes((), ())
        self._groups = controllers.PodGroups({})
        every = [each for document in documents for each in unpack(document)]
        # What custom resources make
        self.resources = CustomResources([each for each in every if isinstance(each, KubernetesObject)])
        for obj in [each if isinstance(each, InputError) else self.resources.resolved(each) for each in every]:
            if isinstance(obj, InputError):
                self._problems.append(obj)
            elif obj.kind not in KINDS and not self._has_pods(obj):
                if self.resources.is_empty(obj):
                    self.empty.append(f"{obj.kind} {obj.namespace}/{obj.name}")
                elif not is_described(obj):
                    (self.opaque if self.resources.may_make_pods(obj) else self.ignored)[obj.kind] += 1
            elif hook := _hook(obj):
                self.hooks.append(f"{obj.kind} {obj.namespace}/{obj.name} ({hook})")
            else:
                self._add(self._named(obj))

    def _add(self, obj: KubernetesObject) -> None:
        try:
            _check(obj)
            node = decode_node(obj.typed) if obj.kind == "Node" else None
            _claim(self._names, obj)
        except (FieldError, InputError) as error:
            self._problems.append(obj.error(error.field, error.problem) if isinstance(error, FieldError) else error)
            self.invalid_nodes += [obj.name] if obj.kind == "Node" else []
        else:
            self.objects.append(obj)
            self._nodes += [] if node is None else [shared_node(node, obj.metadata.get("annotations") or {})]

    def _has_pods(self, obj: KubernetesObject) -> bool:
        try:
            return any(True for _ in self.resources.parts(obj))
        except FieldError:  # it is said when its pods are read
            return True

    def _named(self, obj: KubernetesObject) -> KubernetesObject:
        """Return the object with a name like the one that the API server generates from `metadata.generateName`."""
        prefix = obj.metadata.get("generateName")
        if obj.name or not isinstance(prefix, str) or not prefix:
            return obj
        key = obj.kind, obj.namespace, prefix
        self._generated[key] += 1
        metadata = {**obj.metadata, "name": f"{prefix}{self._generated[key]:04}"}
        return replace(obj, content={**obj.content, "metadata": metadata})

    def of_kind(self, *kinds: str) -> Iterator[KubernetesObject]:
        return (o for o in self.objects if o.kind in kinds)

    @classmethod
    def checked(cls, objects: Iterable[KubernetesObject]) -> Objects:
        result = cls(())
        result.objects += objects
        return result

    def has_nodes(self) -> bool:
        return any(True for _ in self.of_kind("Node"))

    def has_pods(self) -> bool:
        return any(obj.kind in ("Pod", *controllers.CONTROLLERS) or obj.kind not in KINDS for obj in self.objects)

    def has_ended(self) -> bool:
        """Return whether a Pod has finished or a Job is complete."""
        return any(
            obj.pod.finished if obj.kind == "Pod" else controllers.completion(obj) is not None
            for obj in self.of_kind("Pod", "Job")
        )

    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._nodes)

    def is_empty(self) -> bool:
        return not (self.objects or self.ignored or self.opaque or self.empty or self._problems)

    def problems(self) -> tuple[InputError, ...]:
        return tuple(self._problems)

    def refer_to(self, other: FormatContent) -> None:
        self._others += [other] if isinstance(other, Objects) else []

    def pods(self, nodes: Sequence[Node]) -> tuple[Sequence[Pod], Expanded]:
        expanded = self.expanded(nodes)
        return expanded.pods, expanded

    def expanded(self, nodes: Sequence[Node]) -> Expanded:
        """Return the Pods that have not finished and those that controllers want, DaemonSets on these nodes."""
        every = (self, *self._others)
        read_by_admission = (obj for each in every for obj in each.of_kind(*admission.KINDS))
        autoscalers = (obj for each in every for obj in each.of_kind("HorizontalPodAutoscaler"))
        self._claims = claims.PodClaims(obj for each in every for obj in each.of_kind("Pod", *claims.DEVICE_KINDS))
        self._volumes = claims.PodVolumes((obj for each in every for obj in each.of_kind(*claims.VOLUME_KINDS)), nodes)
        self._groups = controllers.PodGroups.of(
            obj for each in reversed(every) for obj in each.of_kind(controllers.KIND)
        )
        namespaces = {name: labels for each in reversed(every) for name, labels in each._namespaces().items()}
        return Expansion(
            self.objects,
            nodes,
            admission.Admission.of(read_by_admission, nodes),
            namespaces or None,
            dict(map(controllers.scaled, autoscalers)),
            self.resources,
            self._groups,
            self._claims,
            self._volumes,
        ).expand()

    def services(self) -> SpreadSelectors:
        creators = set(map(controllers.controller_of, self.of_kind(*controllers.CONTROLLERS)))
        return controllers.services_of(
            (obj.namespace, controllers.selector_of(obj))
            for obj in self.of_kind(*controllers.BY_LABELS, *controllers.BY_REQUIREMENTS)
            if controllers.key_of(obj) not in creators  # else its ReplicaSet is in the input
        )

    def warnings(self) -> tuple[str, ...]:
        """Return warnings: kinds that are ignored, and constraints that are not modelled."""
        table = resource_table()
        ignored = {kind: count for kind, count in self.ignored.items() if kind not in table.clock}
        quotas = ignored.pop("ResourceQuota", 0)
        unmodelled = {kind: ignored.pop(kind) for kind in table.unmodelled if kind in ignored}
        lines = [f"{quotas} ResourceQuotas are not applied: pods that they would refuse count"] if quotas else []
        lines += [
            f"{what}: {', '.join(f'{kind} {count}' for kind, count in sorted(kinds.items()))}"
            for what, kinds in (
                ("pods of these kinds are not known and left out", self.opaque),
                ("objects of these kinds are not modelled and have no effect", unmodelled),
                ("ignored objects that are neither nodes nor pods nor make pods", ignored),
            )
            if kinds
        ]
        if self.hooks:
            lines.append(f"hooks do not run with the rest and are left out: {', '.join(self.hooks)}")
        if self.empty:
            lines.append(f"these resources describe no pods: {', '.join(self.empty)}")
        lines += self.resources.warnings()
        for kind, started in table.clock.items():
            count = sum(1 for _ in self.of_kind(kind)) or self.ignored[kind]
            if count:
                lines.append(f"{counted(count, kind)} left out: pods come from the {started}s that exist")
        tolerations = (each.pod.spec.tolerations or () for each in self.of_kind("Pod", *controllers.CONTROLLERS))
        compared = sum(any(each.operator in COMPARISONS for each in of_pod) for of_pod in tolerations)
        if compared:
            lines.append(
                "tolerations by Lt and Gt tolerate nothing: the feature TaintTolerationComparisonOperators of "
                f"kube-scheduler is off by default ({compared} objects)"
            )
        return (*lines, *self._ignored_fields())

    def _ignored_fields(self) -> Iterator[str]:
        """Yield a warning for each field that is not modelled, or that Kubernetes does not have, with its objects."""
        unmodelled: dict[str, list[str]] = {}
        unknown: dict[str, list[str]] = {}
        for obj in self.of_kind("Node", "Pod", *controllers.CONTROLLERS):
            if obj.kind == "Pod" and obj.pod.finished:
                continue
            is_whole = obj.kind in ("Node", "Pod")
            use = field_use(obj.content if is_whole else _template(obj), obj.kind if is_whole else "Pod")
            before = "" if is_whole else "spec.template."
            for paths, users in (((*use.unmodelled, *use.watched), unmodelled), (use.unknown, unknown)):
                for path in paths:
                    if path == "spec.resourceClaims" and self._claims.amounts(obj.pod, obj.namespace) is not None:
                        continue
                    if path == CLAIM_PATH and self._volumes.is_modelled(obj.pod, obj):
                        continue
                    if path == GROUP_PATH and self._groups.has_group_of(obj.pod, obj.namespace):
                        continue
                    users.setdefault(before + path, []).append(f"{obj.kind} {obj.name}")
        for obj in self.of_kind(controllers.KIND):
            if obj.typed.spec.scheduling_constraints:
                unmodelled.setdefault("spec.schedulingConstraints", []).append(f"PodGroup {obj.name}")
        for path, objects in sorted(unmodelled.items()):
            yield f"{path} is not modelled and has no effect ({_named(objects)})"
        for path, objects in sorted(unknown.items()):
            minor = kubernetes_table().minor
            yield f"{path} is not a field of Kubernetes {minor} and has no effect ({_named(objects)})"

    def _namespaces(self) -> dict[str, dict[str, str]]:
        return {obj.name: obj.typed.metadata.labels or {} for obj in self.of_kind("Namespace")}


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
        write_documents(path, controllers.services_to_objects(services))


def _check(obj: KubernetesObject) -> None:
    """Check what is read of an object besides nodes and pods. Raises FieldError or InputError."""
    typed = obj.typed
    check_names(obj)
    if obj.kind in MADE or obj.kind not in KINDS:
        controllers.created(obj)
    if obj.kind in (*controllers.BY_LABELS, *controllers.BY_REQUIREMENTS):
        controllers.selector_of(obj)
    elif obj.kind == "LimitRange":
        limits_of(typed, obj.name)
    elif obj.kind == budgets.KIND:
        budgets.check(obj)
    elif obj.kind == "RuntimeClass":
        quantities(typed.overhead.pod_fixed, "overhead.podFixed")
    elif obj.kind in claims.DEVICE_KINDS:
        required(obj.name, "metadata.name")


def _hook(obj: KubernetesObject) -> str:
    """Return when an object that has not been created yet runs as a hook; empty: it is none."""
    notes = obj.metadata.get("annotations")
    if not isinstance(notes, dict) or controllers.is_created(obj):
        return ""
    return next((str(notes[key])[:80] for key in HOOKS if notes.get(key)), "")


def _claim(names: dict[controllers.Key, KubernetesObject], obj: KubernetesObject) -> None:
    """Note the name of an object as taken. Raises InputError if it is taken already."""
    if (obj.kind in KINDS and obj.kind not in ("Node", "Pod", *controllers.CONTROLLERS)) or not obj.name:
        return
    first = names.setdefault(controllers.key_of(obj), obj)
    if first is not obj:
        place = ", ".join(part for part in (first.document.file, first.document.where) if part)
        name = obj.name if obj.kind == "Node" else f"{obj.namespace}/{obj.name}"
        raise obj.error("metadata.name", f"{name!r} is there already ({place}); names must be unique")


def _named(objects: Sequence[str]) -> str:
    return objects[0] if len(objects) == 1 else f"{len(objects)} objects: {first_names(objects)}"


def _template(obj: KubernetesObject) -> Object:
    """Return a controller's pod template, with a volume for claims that a StatefulSet makes."""
    spec = obj.typed.spec
    template: Object = spec.template or {}
    stated = template.get("spec")
    if obj.kind == "StatefulSet" and spec.volume_claim_templates and isinstance(stated, dict):
        return {**template, "spec": {**stated, "volumes": [{"persistentVolumeClaim": {"claimName": "made"}}]}}
    return template


_BEGINNING = re.compile(r"(\s|#[^\n]*\n)*(\{|\[|---|%YAML|- |[\"']?[a-zA-Z]\w*[\"']?:(\s|$))")
"""How documents of YAML or JSON begin."""


class KubernetesYaml(WorkloadFormat):
    """The format of manifests, and of the output of `kubectl get --output yaml` and `json`."""

    name = "yaml"
    title = "YAML"
    suffixes = YAML_SUFFIXES

    def recognises(self, file: Path) -> bool:
        return super().recognises(file) or bool(_BEGINNING.match(read_text(file, head=True)))

    def open(self, files: Sequence[Path]) -> Objects:
        return Objects(document for file in files for document in read_documents(file))

    def write(self, workload: Workload, folder: Path, losses: Losses) -> None:
        """Write nodes, pods and services without losses, see `WorkloadFormat`."""
        if workload.nodes:
            write_nodes(workload.nodes, folder / "nodes.yaml")
        if workload.pods:
            write_pods(workload.pods, folder / "pods.yaml")
            write_services(workload.services, folder / "services.yaml")
