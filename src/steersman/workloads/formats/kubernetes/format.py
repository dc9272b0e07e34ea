"""Kubernetes objects as YAML or JSON: `nodes.yaml`, `pods.yaml` and, with Services, `services.yaml`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steersman.cluster.model import Node, Pod
from steersman.core.errors import InputError
from steersman.workloads.files import YAML_SUFFIXES
from steersman.workloads.formats.base import FormatContent, Losses, WorkloadFormat
from steersman.workloads.formats.kubernetes.expansion import Expanded
from steersman.workloads.formats.kubernetes.objects import Objects, write_nodes, write_pods, write_services
from steersman.workloads.formats.tables import read_text
from steersman.workloads.formats.yaml_documents import read_documents
from steersman.workloads.workload import SpreadSelectors, Workload

_BEGINNING = re.compile(r"(\s|#[^\n]*\n)*(\{|\[|---|%YAML|- |[\"']?[a-zA-Z]\w*[\"']?:(\s|$))")
"""How documents of YAML or JSON begin."""


@dataclass(slots=True)
class KubernetesContent(FormatContent):
    """The Kubernetes objects of some files; objects may refer to objects in other files."""

    objects: Objects
    others: tuple[Objects, ...] = ()

    def has_nodes(self) -> bool:
        """Return whether there is a Node."""
        return self.objects.has_nodes()

    def has_pods(self) -> bool:
        """Return whether there is a Pod or a controller of pods."""
        return self.objects.has_pods()

    def is_empty(self) -> bool:
        """Return whether there is no object at all."""
        return not (self.objects.objects or self.objects.ignored or self.objects.opaque or self.objects.problems)

    def nodes(self) -> Sequence[Node]:
        """Return the Nodes, see `FormatContent`."""
        return self.objects.nodes()

    def pods(self, nodes: Sequence[Node]) -> tuple[Sequence[Pod], Expanded | None]:
        """Return the pods, controllers expanded; see `FormatContent`."""
        expanded = self.objects.expanded(nodes, self.others)
        return expanded.pods, expanded

    def refer_to(self, other: FormatContent) -> None:
        """Let pods refer to objects of another source, see `FormatContent`."""
        if isinstance(other, KubernetesContent):
            self.others += (other.objects,)

    def services(self) -> SpreadSelectors:
        """Return the selectors of Services and controllers, see `FormatContent`."""
        return self.objects.services()

    def problems(self) -> tuple[InputError, ...]:
        """Return the errors of objects that are left out, see `FormatContent`."""
        return tuple(self.objects.problems)

    def warnings(self) -> tuple[str, ...]:
        """Return warnings about objects and fields that have no effect, see `FormatContent`."""
        return self.objects.warnings()


class KubernetesYaml(WorkloadFormat):
    """The format of manifests, and of the output of `kubectl get --output yaml` and `json`."""

    name = "yaml"
    title = "YAML"
    suffixes = YAML_SUFFIXES

    def recognises(self, file: Path) -> bool:
        """Return whether a file is YAML or JSON by its suffix or its beginning, see `WorkloadFormat`."""
        return super().recognises(file) or bool(_BEGINNING.match(read_text(file, head=True)))

    def open(self, files: Sequence[Path]) -> KubernetesContent:
        """Return the objects of the files, see `WorkloadFormat`."""
        return KubernetesContent(Objects([document for file in files for document in read_documents(file)]))

    def write(self, workload: Workload, folder: Path, losses: Losses) -> None:
        """Write nodes, pods and services without losses, see `WorkloadFormat`."""
        if workload.nodes:
            write_nodes(workload.nodes, folder / "nodes.yaml")
        if workload.pods:
            write_pods(workload.pods, folder / "pods.yaml")
            write_services(workload.services, folder / "services.yaml")
