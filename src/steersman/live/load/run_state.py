"""What a run has in the cluster: the objects that it creates, its state in a ConfigMap, its pods; their deletion."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from steersman.cluster.model import Pod
from steersman.cluster.objects.api.metadata import named_object
from steersman.cluster.objects.api.pods import LivePod
from steersman.cluster.objects.decoding import PLACEHOLDER_IMAGE
from steersman.cluster.objects.fields import pod_from_json
from steersman.cluster.objects.manifests import Manifest, pod_to_object
from steersman.core.errors import InputError, SteersmanError
from steersman.kubernetes.client import CONFLICT, MISSING, ApiError, Client
from steersman.kubernetes.watch import EventType, Reflector
from steersman.live.local_cluster.cleaning import DeletionTimeoutError, until_gone
from steersman.live.runtime.tasks import delete_if_exists, get_if_exists, retry_transient
from steersman.workloads.generators.deployments import Row

DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
REPLICA_SETS = "/apis/apps/v1/namespaces/{}/replicasets"
PODS = "/api/v1/namespaces/{}/pods"
CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "steersman"
RUN = "steersman.dev/run"  # label with the id of the run that created an object
APP = "app"  # label with the name of a Deployment
IMAGE = "busybox"
SLEEP = ("sleep", "infinity")
NOTHING = ("true",)  # commands of containers and init containers
_POD_SETTINGS: Mapping[str, Any] = {
    "terminationGracePeriodSeconds": 0,  # `sleep` needs no graceful shutdown
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
}
NAME = "steersman-workload"
KEY = "state.json"
NO_NAMESPACE = "there is no namespace {!r}; create it, or name another one with --namespace"
Kind = Literal["run", "replay"]
ALL_PODS = "/api/v1/pods"
DELETION_SECONDS = 300.0
MAKERS = (DEPLOYMENTS, REPLICA_SETS)
Report = Callable[[int, int], None]  # called with the number of finished steps, and of all


def run_labels(run: str) -> dict[str, str]:
    """Return the labels of everything that a run creates."""
    return {MANAGED_BY: MANAGER, RUN: run}


def selector(run: str | None = None) -> str:
    """Return a label selector of everything that a run created; None: that any run created."""
    return f"{MANAGED_BY}={MANAGER},{RUN}" + ("" if run is None else f"={run}")


def deployment_object(
    row: Row, run: str, scheduler_name: str, image: str, annotations: Mapping[str, str] | None = None
) -> Manifest:
    """Return the apps/v1 Deployment of a row, with quantities spelled as in the row, and annotations of its pods."""
    labels = {APP: row.name, **run_labels(run)}
    resources = {
        "requests": {"cpu": row.cpu_request, "memory": row.mem_request},
        "limits": {"cpu": row.cpu_limit, "memory": row.mem_limit},
    }
    container = {"name": "main", "image": image, "command": list(SLEEP), "resources": resources}
    metadata = {"labels": labels} | ({"annotations": dict(annotations)} if annotations else {})
    spec = {"schedulerName": scheduler_name, **_POD_SETTINGS, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": row.name, "labels": labels},
        "spec": {
            "replicas": row.pod_count,
            "selector": {"matchLabels": {APP: row.name, RUN: run}},
            "template": {"metadata": metadata, "spec": spec},
        },
    }


def pod_object(pod: Pod, run: str, image: str, priority_class: str = "") -> Manifest:
    """Return the v1 Pod of a trace's pod, without its times: they decide when it is created and deleted."""
    # Priority 0: the API derives the number from the class, and refuses another one.
    result = pod_to_object(replace(pod, creation_time=None, deletion_time=None, priority=0))
    result["metadata"].setdefault("labels", {}).update(run_labels(run))
    spec: dict[str, Any] = result["spec"]
    for key, command in (("containers", SLEEP), ("initContainers", NOTHING)):
        for container in spec.get(key, ()):
            if container["image"] == PLACEHOLDER_IMAGE:
                container |= {"image": image, "command": list(command)}
    spec.update(_POD_SETTINGS)
    if priority_class:
        spec["priorityClassName"] = priority_class
    return result


async def create_own(client: Client, path: str, manifest: Manifest, run: str, what: str, taken: str) -> None:
    """Create an object of a run, unless an earlier attempt has. Raises SteersmanError: it failed; `taken` says why."""
    try:
        await retry_transient(lambda: client.create(path, manifest))
    except ApiError as error:
        if error.status != CONFLICT:
            raise SteersmanError(f"{what}: {error.message}") from None
        existing = await retry_transient(lambda: client.get(f"{path}/{manifest['metadata']['name']}"))
        if (existing["metadata"].get("labels") or {}).get(RUN) != run:
            raise SteersmanError(taken) from None


def check_name(name: str, file: str, where: str) -> None:
    """Raise InputError if Kubernetes would refuse the name of a Deployment, which is also a label value."""
    if not re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name):
        raise InputError(file, where, "name", f"{name!r} is not a name: expected a-z, 0-9 and - inside, at most 63")


class RemovedError(SteersmanError):
    """The active run was removed with `--clean`."""


class RunState(msgspec.Struct, forbid_unknown_fields=True):
    """State of an active or stopped run."""

    kind: Kind  # command that it is of
    id: str  # value of the label of everything that it creates
    digest: str  # digest of all its steps
    options: dict[str, Any]  # its options
    total: int  # number of its steps
    done: int = 0  # number of finished steps


def new_id() -> str:
    return secrets.token_hex(4)


class StateStore:
    """State of the one run of a namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self._path = CONFIG_MAPS.format(namespace)
        self._version = ""

    async def load(self) -> RunState | None:
        """Return the state; None if no run is active or stopped."""
        value = await get_if_exists(self.client, f"{self._path}/{NAME}")
        if value is None:
            return None
        try:
            state = msgspec.json.decode(value["data"][KEY], type=RunState)
        except (KeyError, TypeError, msgspec.MsgspecError):
            raise SteersmanError(
                f"ConfigMap {self.namespace}/{NAME} is not what this version of steersman writes; --clean removes it"
            ) from None
        self._version = value["metadata"]["resourceVersion"]
        return state

    async def begin(self, state: RunState) -> None:
        """Create the state of a new run. Raises SteersmanError: the namespace has a run, or does not exist."""
        try:
            self._version = _version(await self.client.create(self._path, self._object(state)))
        except ApiError as error:
            if error.status == MISSING:
                raise SteersmanError(NO_NAMESPACE.format(self.namespace)) from None
            if error.status != 409:
                raise
            running = await self.load()
            far = f"{running.done} of {running.total} steps" if running else "it has just ended"
            what = f"a workload {running.kind}" if running else "a run"
            raise SteersmanError(
                f"{what} is under way or was stopped in namespace {self.namespace!r} ({far}): --resume continues "
                f"it, --clean removes what it made"
            ) from None

    async def save(self, state: RunState) -> None:
        """Save the state. Raises RemovedError: the run was removed; SteersmanError: another process resumed it."""
        try:
            self._version = _version(await retry_transient(lambda: self._replace(state)))
        except ApiError as error:
            # The version in the request refuses a state that another process wrote.
            if error.status not in (404, 409):
                raise
            if error.status == MISSING:
                raise RemovedError(f"this run was removed meanwhile (namespace {self.namespace!r})") from None
            raise SteersmanError(f"another process continues this run (namespace {self.namespace!r})") from None

    async def end(self) -> None:
        await delete_if_exists(self.client, f"{self._path}/{NAME}")

    async def _replace(self, state: RunState) -> Any:
        manifest = self._object(state)
        manifest["metadata"]["resourceVersion"] = self._version
        try:
            return await self.client.replace(f"{self._path}/{NAME}", manifest)
        except ApiError as error:
            if error.status != 409:
                raise
            # Our last request may have succeeded without an answer.
            value = await self.client.get(f"{self._path}/{NAME}")
            if value.get("data") != manifest["data"]:
                raise
            return value

    def _object(self, state: RunState) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "labels": run_labels(state.id)},
            "data": {KEY: msgspec.json.encode(state).decode()},
        }


def _version(result: Any) -> str:
    return str(result["metadata"]["resourceVersion"])


@dataclass(frozen=True, slots=True)
class RunPodStatus:
    """Status of a pod: its Deployment ("" if none), and whether it has a node."""

    app: str
    bound: bool


class RunPodTracker:
    """Pods of a run, kept by a watch."""

    def __init__(
        self,
        client: Client,
        run: str,
        on_came: Callable[[str], None] = lambda _: None,
        on_bound: Callable[[str], None] = lambda _: None,
        on_gone: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.pods: dict[str, RunPodStatus] = {}
        self.bound = 0
        self.by_app: Counter[str] = Counter()
        self.reflector = Reflector(client, ALL_PODS, self, {"labelSelector": selector(run)})
        self._on_came, self._on_bound, self._on_gone = on_came, on_bound, on_gone
        self._changed = asyncio.Event()

    def unbound_pods_warning(self, expected: int, seconds: float, schedulers: Collection[str]) -> str:
        """Return the warning that some of the expected pods have no node after so many seconds."""
        plural = "s" if len(schedulers) > 1 else ""
        return (
            f"{expected - self.bound} of {expected} pods have no node after {seconds:g} s; do{'' if plural else 'es'} "
            f"scheduler{plural} {', '.join(map(repr, schedulers))} run, and have the nodes room? The run goes on"
        )

    @property
    def waiting(self) -> int:
        """Return the number of pods without a node."""
        return len(self.pods) - self.bound

    async def until(self, holds: Callable[[], bool], seconds: float | None) -> bool:
        """Wait at most `seconds` (None: forever) until a condition on the pods holds, and return whether it does."""
        try:
            async with asyncio.timeout(seconds):
                # Before the first list a condition such as "no pod waits" would hold of no pods.
                await self.reflector.synced.wait()
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def notify(self) -> None:
        self._changed.set()

    def keep(self, keys: Set[str]) -> None:
        """Keep these pods alone, after a list."""
        for key in self.pods.keys() - keys:
            self._lose(key)
        self._changed.set()

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        head = pod_from_json(obj)
        if kind == "DELETED":
            self._lose(head.key)
        else:
            self._see(head)
        self._changed.set()

    def _see(self, head: LivePod) -> None:
        bound = bool(head.node)
        known = self.pods.get(head.key)
        if known is None:
            app = (head.metadata.labels or {}).get(APP, "")
            self.by_app[app] += 1
            self._on_came(head.key)
        else:
            app = known.app
        self.pods[head.key] = RunPodStatus(app, bound)
        if bound and (known is None or not known.bound):
            self.bound += 1
            self._on_bound(head.key)

    def _lose(self, key: str) -> None:
        known = self.pods.pop(key, None)
        if known is not None:
            self.bound -= known.bound
            self.by_app[known.app] -= 1
            self._on_gone(key)


async def delete_collection(client: Client, path: str, labels: str, **options: str) -> None:
    """Delete the objects of a collection that have these labels."""
    await retry_transient(lambda: client.delete(path, {"labelSelector": labels, **options}))


async def delete_pods(client: Client, namespace: str, labels: str, report: Report) -> int:
    """Delete Deployments and pods with these labels, wait until the pods are gone, and return their number."""

    async def delete() -> None:
        for collection in MAKERS:
            await delete_collection(client, collection.format(namespace), labels, propagationPolicy="Background")
        # After their controllers, which would create them again.
        await delete_collection(client, PODS.format(namespace), labels, gracePeriodSeconds="0")

    try:
        return await until_gone(delete, lambda: _count(client, namespace, labels), report, DELETION_SECONDS)
    except DeletionTimeoutError as error:
        where = f"namespace {namespace!r}, and no fewer for {DELETION_SECONDS:.0f} s"
        raise SteersmanError(f"{error.left} pods are still in {where}") from None


async def clean(client: Client, report: Report) -> int:
    """Delete what runs created in any namespace; return the number of pods. Raises SteersmanError: as `delete_pods`."""
    labels, namespaces = selector(), set()
    for collection in (CONFIG_MAPS, *MAKERS, PODS):
        namespaces |= await _namespaces(client, collection, labels)
    count = 0
    for namespace in sorted(namespaces):
        count += await delete_pods(client, namespace, labels, report)
        await delete_collection(client, CONFIG_MAPS.format(namespace), labels)
    try:
        await delete_collection(client, PRIORITY_CLASSES, labels)
    except ApiError as error:
        if error.status != 403:  # whoever may not delete them did not create any
            raise
    return count


async def _count(client: Client, namespace: str, labels: str) -> int:
    listed = await retry_transient(lambda: client.list(PODS.format(namespace), {"labelSelector": labels}))
    return len(listed.items)


async def _namespaces(client: Client, collection: str, labels: str) -> set[str]:
    path = collection.replace("/namespaces/{}", "")
    listed = await retry_transient(lambda: client.list(path, {"labelSelector": labels}))
    return {named_object(raw).metadata.namespace or "" for raw in listed.items}
