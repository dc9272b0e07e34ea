"""The manifest that is copied: Deployments of a file, and their copies with names and labels of their own."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steersman.apps.load.objects import APP, check_name, run_labels
from steersman.cluster.model import Pod
from steersman.cluster.objects.decoding import pod_from_object
from steersman.cluster.objects.manifests import Manifest
from steersman.core.errors import InputError
from steersman.core.quantities import format_bytes, format_cpu
from steersman.workloads.formats.yaml_documents import Document, read_documents
from steersman.workloads.generators.deployments import ADD, Row

API_VERSION, KIND = "apps/v1", "Deployment"
MAX_REPLICAS = 10_000


@dataclass(frozen=True, slots=True)
class DeploymentTemplate:
    """Deployment of a file, from which copies are made.

    Attributes:
        content: the object.
        name: its name.
        replicas: number of its pods.
        pod: its pod, as the model reads it.
    """

    content: Manifest
    name: str
    replicas: int
    pod: Pod

    def render(self, index: int, run: str, scheduler_name: str, annotations: Mapping[str, str]) -> Manifest:
        """Return a copy with a name of its own, which selects its own pods.

        Args:
            index: number of the copy, the suffix of its name.
            run: id of the run.
            scheduler_name: scheduler of its pods; "": the one that it names.
            annotations: further annotations of its pods.
        """
        result, name = copy.deepcopy(self.content), f"{self.name}-{index}"
        labels = {APP: name, **run_labels(run)}
        template = result["spec"]["template"]
        result["metadata"] = {
            "name": name,
            "labels": {**(result["metadata"].get("labels") or {}), **labels},
            "annotations": result["metadata"].get("annotations") or {},
        }
        selector = result["spec"].setdefault("selector", {})
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **labels}
        metadata = template["metadata"] = template.get("metadata") or {}
        metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
        if scheduler_name:
            template["spec"]["schedulerName"] = scheduler_name
        result.pop("status", None)
        return result

    def row(self, index: int, action: str = ADD) -> Row:
        """Return the line of the CSV for a copy."""
        requests, cpu_limit, memory_limit = self.pod.requests, self.pod.cpu_limit_milli, self.pod.memory_limit_bytes
        return Row(
            f"{self.name}-{index}",
            self.replicas,
            format_cpu(requests.cpu_milli),
            format_cpu(cpu_limit or requests.cpu_milli),
            format_bytes(requests.memory_bytes),
            format_bytes(memory_limit or requests.memory_bytes),
            action,
        )


def read_manifest(path: Path) -> tuple[DeploymentTemplate, ...]:
    """Return the Deployments of a file.

    Raises:
        InputError: it cannot be read, holds something else, or the API would refuse it.
    """
    result = tuple(_deployment(each) for each in read_documents(path))
    names = [each.name for each in result]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(path, "", "metadata.name", f"{twice!r} is there twice; names must differ")
    if not result:
        raise InputError(path, "", "", f"has no {KIND}")
    return result


def check_names(deployments: Sequence[DeploymentTemplate], copies: int, path: Path) -> None:
    """Raise InputError if Kubernetes would refuse the name of a copy."""
    for each in deployments:
        check_name(f"{each.name}-{copies}", str(path), "")


def _deployment(document: Document) -> DeploymentTemplate:
    content = document.content
    if not isinstance(content, dict) or (content.get("apiVersion"), content.get("kind")) != (API_VERSION, KIND):
        what = content.get("kind") if isinstance(content, dict) else type(content).__name__
        raise document.error("kind", f"{what!r} is not copied; expected a {KIND} of {API_VERSION}")
    metadata, spec = _mapping(document, content, "metadata"), _mapping(document, content, "spec")
    template = _mapping(document, spec, "template", "spec.")
    pod_spec = _mapping(document, template, "spec", "spec.template.")
    name, replicas = metadata.get("name"), spec.get("replicas", 1)
    if not isinstance(name, str) or not name:
        raise document.error("metadata.name", "is missing; the copies are called by it")
    if not isinstance(replicas, int) or isinstance(replicas, bool) or not 0 <= replicas <= MAX_REPLICAS:
        raise document.error("spec.replicas", f"{replicas!r} is not a number of pods; expected 0 to {MAX_REPLICAS}")
    of_pod = template.get("metadata") or {}
    if not isinstance(of_pod, dict):
        raise document.error("spec.template.metadata", "is not a mapping")
    for owner, field in ((of_pod, "spec.template.metadata"), (metadata, "metadata")):
        for key in ("labels", "annotations"):
            if not isinstance(owner.get(key) or {}, dict):
                raise document.error(f"{field}.{key}", "is not a mapping")
    selector = spec.get("selector") or {}
    if not isinstance(selector, dict) or not isinstance(selector.get("matchLabels") or {}, dict):
        raise document.error("spec.selector", "is not a selector; expected matchLabels")
    pod = pod_from_object(
        {"metadata": {"name": name, **of_pod}, "spec": pod_spec},
        file=document.file,
        where=document.where,
        path="spec.template",
    )
    return DeploymentTemplate(content, name, replicas, pod)


def _mapping(document: Document, content: dict[str, Any], key: str, path: str = "") -> dict[str, Any]:
    value = content.get(key)
    if not isinstance(value, dict):
        raise document.error(f"{path}{key}", "is missing" if value is None else "is not a mapping")
    return value
