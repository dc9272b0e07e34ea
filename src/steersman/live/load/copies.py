"""The loop of Matranga's thesis: create copies of a manifest one after the other, wait, delete them all, again.

Nothing is kept in the cluster but what is created, which the end of the loop deletes, however it ends.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from steersman.cluster.model import Pod
from steersman.cluster.objects.decoding import pod_from_object
from steersman.cluster.objects.manifests import Manifest
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.core.quantities import format_bytes, format_cpu
from steersman.kubernetes.client import CONFLICT, MISSING, ApiError, Client
from steersman.live.load.driver import RowLog
from steersman.live.load.run_state import (
    APP,
    DEPLOYMENTS,
    NO_NAMESPACE,
    RUN,
    RunPodTracker,
    check_name,
    delete_pods,
    new_id,
    run_labels,
    selector,
)
from steersman.live.runtime.tasks import BackgroundTasks, retry_transient
from steersman.workloads.formats.yaml_documents import Document, read_documents
from steersman.workloads.generators.deployments import ADD, DELETE, Row

API_VERSION, KIND = "apps/v1", "Deployment"
MAX_REPLICAS = 10_000
SYNC_SECONDS = 60.0
DEFAULT_COPIES, DEFAULT_PAUSE = 30, 10.0


@dataclass(frozen=True, slots=True)
class DeploymentTemplate:
    """Deployment of a file, from which copies are made."""

    content: Manifest
    name: str
    replicas: int
    pod: Pod

    def render(self, index: int, run: str, scheduler_name: str, annotations: Mapping[str, str]) -> Manifest:
        """Return a copy with a name of its own, which selects its own pods."""
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
    for owner, place in ((of_pod, "spec.template.metadata"), (metadata, "metadata")):
        for key in ("labels", "annotations"):
            if not isinstance(owner.get(key) or {}, dict):
                raise document.error(f"{place}.{key}", "is not a mapping")
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


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """How copies are created and deleted."""

    copies: int = DEFAULT_COPIES  # copies at a time, of each Deployment
    interval: float = 2.0  # seconds from one copy to the next
    patience: float = 60.0  # longest time until all pods have nodes, after the last copy, in seconds
    pause: float = DEFAULT_PAUSE  # seconds from then to the deletion
    cycles: int | None = None  # times that this is done; None: until it is stopped
    scheduler_name: str = ""  # scheduler of the pods; "": the one that the manifest names
    annotations: Mapping[str, str] = field(default_factory=dict)  # further annotations of the pods

    def __post_init__(self) -> None:
        if self.copies < 1:
            raise UsageError(f"--copies must be at least 1, not {self.copies}")
        if self.cycles is not None and self.cycles < 1:
            raise UsageError(f"--cycles must be at least 1, not {self.cycles}")
        for name in ("interval", "patience", "pause"):
            value = getattr(self, name)
            if not 0 <= value < 1e6:
                raise UsageError(f"--{name} {value:g}: expected 0 or more seconds")


class CopyStats(NamedTuple):
    """Finished cycles, Deployments and pods created, cycles whose pods were not all bound within `patience`."""

    cycles: int = 0
    deployments: int = 0
    pods: int = 0
    timed_out_cycles: int = 0


class CopyLoop:
    """Creator and deleter of copies."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        deployments: Sequence[DeploymentTemplate],
        options: CopyOptions,
        log: RowLog,
        report: Callable[[int, int], None] = lambda _, __: None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.run_id, self.options, self.stats = new_id(), options, CopyStats()
        self.tracker = RunPodTracker(client, self.run_id)
        self._client, self._namespace, self._deployments = client, namespace, deployments
        self._path, self._log, self._report = DEPLOYMENTS.format(namespace), log, report
        self._say = say
        self._steps = 2 * options.copies
        self._created: list[tuple[DeploymentTemplate, int]] = []

    async def run(self) -> CopyStats:
        """Do all cycles; when it is cancelled or fails, delete what was created."""
        try:
            async with self.following():
                while self.options.cycles is None or self.stats.cycles < self.options.cycles:
                    await self.create()
                    await self.settle()
                    await asyncio.sleep(self.options.pause)
                    await self.delete()
                    self.stats = self.stats._replace(cycles=self.stats.cycles + 1)
        finally:
            if self._created:
                await self.delete()
        return self.stats

    def following(self) -> BackgroundTasks:
        """Return a context in which the pods of the copies are tracked, as `create` and `settle` need it."""
        return BackgroundTasks(self.tracker.reflector.run())

    async def create(self) -> None:
        """Create all copies, an interval apart. Raises SteersmanError: the API refuses one."""
        await self.tracker.until(lambda: True, SYNC_SECONDS)
        for index in range(1, self.options.copies + 1):
            if index > 1:
                await asyncio.sleep(self.options.interval)
            for deployment in self._deployments:
                await self._create(deployment, index)
            self._log.add([each.row(index) for each in self._deployments])
            self._report(index, self._steps)

    async def settle(self) -> bool:
        """Wait until all pods have nodes, for `patience` seconds at most; return whether they have."""
        expected = sum(each.replicas for each, _ in self._created)
        bound = await self.tracker.until(lambda: self.tracker.bound >= expected, self.options.patience)
        if not bound:
            if not self.stats.timed_out_cycles:
                names = dict.fromkeys(
                    self.options.scheduler_name or each.pod.scheduler_name for each, _ in self._created
                )
                self._say(self.tracker.unbound_pods_warning(expected, self.options.patience, names))
            self.stats = self.stats._replace(timed_out_cycles=self.stats.timed_out_cycles + 1)
        return bound

    async def delete(self) -> None:
        """Delete all copies and wait until their pods are gone. Raises SteersmanError: they do not go away."""
        done = self.options.copies

        def gone(count: int, total: int) -> None:
            self._report(done + (self._steps - done) * count // max(total, 1), self._steps)

        await delete_pods(self._client, self._namespace, selector(self.run_id), gone)
        self._log.add([deployment.row(index, DELETE) for deployment, index in self._created])
        self._created.clear()
        self._report(self._steps, self._steps)

    async def _create(self, deployment: DeploymentTemplate, index: int) -> None:
        manifest = deployment.render(index, self.run_id, self.options.scheduler_name, self.options.annotations)
        name = manifest["metadata"]["name"]
        self._created.append((deployment, index))  # before the request, whose answer may be lost
        try:
            await retry_transient(lambda: self._client.create(self._path, manifest))
        except ApiError as error:
            # Of a conflict, the existing Deployment may be our own.
            if error.status != 409 or not await self._is_ours(name):
                self._created.pop()
                raise self._refused(name, error) from None
        self.stats = self.stats._replace(
            deployments=self.stats.deployments + 1, pods=self.stats.pods + deployment.replicas
        )

    async def _is_ours(self, name: str) -> bool:
        """Return whether a Deployment is of this run: its creation may have succeeded without an answer."""
        result = await retry_transient(lambda: self._client.get(f"{self._path}/{name}"))
        return bool((result["metadata"].get("labels") or {}).get(RUN) == self.run_id)

    def _refused(self, name: str, error: ApiError) -> SteersmanError:
        if error.status == CONFLICT:
            return SteersmanError(
                f"Deployment {self._namespace}/{name} exists already and is not of this run; --namespace names another "
                "place, --clean removes what earlier runs made"
            )
        if error.status == MISSING:
            return SteersmanError(NO_NAMESPACE.format(self._namespace))
        return SteersmanError(f"Deployment {name}: {error.message}")
