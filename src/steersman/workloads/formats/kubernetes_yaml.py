"""Kubernetes objects as YAML or JSON: `nodes.yaml`, `pods.yaml` and, with Services, `services.yaml`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steersman.cluster.model import Node, Pod
from steersman.workloads.files import YAML_SUFFIXES
from steersman.workloads.formats.base import Content, Losses, WorkloadFormat
from steersman.workloads.kubernetes import Expanded, Objects, write_nodes, write_pods, write_services
from steersman.workloads.workload import Services, Workload
from steersman.workloads.yamlfile import read_documents


@dataclass(frozen=True, slots=True)
class KubernetesContent(Content):
    """Kubernetes objects of some files, which may be about each other."""

    objects: Objects

    def has_nodes(self) -> bool:
        """See `Content`."""
        return self.objects.has_nodes()

    def has_pods(self) -> bool:
        """See `Content`."""
        return self.objects.has_pods()

    def is_empty(self) -> bool:
        """See `Content`."""
        return not self.objects.objects and not self.objects.ignored

    def nodes(self) -> Sequence[Node]:
        """See `Content`."""
        return self.objects.nodes()

    def pods(self, nodes: Sequence[Node]) -> tuple[Sequence[Pod], Expanded | None]:
        """See `Content`; Deployments and the like are expanded into their pods."""
        expanded = self.objects.expanded(nodes)
        return expanded.pods, expanded

    def services(self) -> Services:
        """See `Content`."""
        return self.objects.services()

    def warnings(self) -> tuple[str, ...]:
        """See `Content`."""
        return self.objects.warnings()


class KubernetesYaml(WorkloadFormat):
    """The format of manifests, and of what `kubectl get --output yaml` and `json` print."""

    name = "yaml"
    title = "YAML"
    suffixes = YAML_SUFFIXES

    def open(self, files: Sequence[Path]) -> KubernetesContent:
        """See `WorkloadFormat`."""
        return KubernetesContent(Objects([document for file in files for document in read_documents(file)]))

    def write(self, workload: Workload, folder: Path, losses: Losses) -> None:
        """See `WorkloadFormat`; nothing is lost."""
        if workload.nodes:
            write_nodes(workload.nodes, folder / "nodes.yaml")
        if workload.pods:
            write_pods(workload.pods, folder / "pods.yaml")
            write_services(workload.services, folder / "services.yaml")
