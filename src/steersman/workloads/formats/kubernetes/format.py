"""Kubernetes objects as YAML or JSON: `nodes.yaml`, `pods.yaml` and, with Services, `services.yaml`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from steersman.workloads.files import YAML_SUFFIXES
from steersman.workloads.formats.base import Losses, WorkloadFormat
from steersman.workloads.formats.kubernetes.objects import Objects, write_nodes, write_pods, write_services
from steersman.workloads.formats.tables import read_text
from steersman.workloads.formats.yaml_documents import read_documents
from steersman.workloads.workload import Workload

_BEGINNING = re.compile(r"(\s|#[^\n]*\n)*(\{|\[|---|%YAML|- |[\"']?[a-zA-Z]\w*[\"']?:(\s|$))")
"""How documents of YAML or JSON begin."""


class KubernetesYaml(WorkloadFormat):
    """The format of manifests, and of the output of `kubectl get --output yaml` and `json`."""

    name = "yaml"
    title = "YAML"
    suffixes = YAML_SUFFIXES

    def recognises(self, file: Path) -> bool:
        """Return whether a file is YAML or JSON by its suffix or its beginning, see `WorkloadFormat`."""
        return super().recognises(file) or bool(_BEGINNING.match(read_text(file, head=True)))

    def open(self, files: Sequence[Path]) -> Objects:
        """Return the objects of the files, see `WorkloadFormat`."""
        return Objects(document for file in files for document in read_documents(file))

    def write(self, workload: Workload, folder: Path, losses: Losses) -> None:
        """Write nodes, pods and services without losses, see `WorkloadFormat`."""
        if workload.nodes:
            write_nodes(workload.nodes, folder / "nodes.yaml")
        if workload.pods:
            write_pods(workload.pods, folder / "pods.yaml")
            write_services(workload.services, folder / "services.yaml")
