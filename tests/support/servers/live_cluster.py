"""The server of `kube_double` with namespaces, label selectors and deletions, and who makes pods of Deployments."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from tests.support.servers.fake_api_server import KubeDouble, Story, as_test, failure, play

from steersman.kubernetes.client import Client

Object = dict[str, Any]
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
KINDS = {"namespaces", "nodes", "pods", "deployments", "replicasets", "configmaps", "priorityclasses", "services"}
KINDS |= {"replicationcontrollers", "statefulsets", "daemonsets", "jobs", "cronjobs"}
KINDS |= {"persistentvolumeclaims", "persistentvolumes", "poddisruptionbudgets"}
KINDS |= {"limitranges", "runtimeclasses"}
KINDS |= {"resourceclaims", "deviceclasses", "resourceslices"}
KINDS |= {"storageclasses", "csinodes", "csidrivers", "csistoragecapacities"}


class LiveDouble(KubeDouble):
    """Namespaces `default` and `kube-system`, to begin with.

    Attributes:
        bind_after: seconds after which a pod that comes gets the node `node-0`; None: never.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bind_after: float | None = 0.0
        self.watches: list[tuple[str, str, asyncio.Queue[bytes | None]]] = []
        for name in ("default", "kube-system"):
            self.put("/api/v1/namespaces", {"metadata": {"name": name}})

    def put(self, collection: str, obj: Object) -> Object:
        metadata = copy.deepcopy(obj["metadata"])
        new = (collection, metadata["name"]) not in self.objects
        if "/namespaces/" in collection:
            metadata.setdefault("namespace", collection.split("/")[-2])
        metadata.setdefault("uid", f"uid-{self._version}")
        metadata.setdefault("creationTimestamp", "2024-05-01T12:00:00Z")
        found = super().put(collection, {**copy.deepcopy(obj), "metadata": metadata})
        if new:
            self._came(collection, found)
        return found

    def remove(self, collection: str, name: str) -> None:
        super().remove(collection, name)
        if collection.endswith("/deployments"):
            pods = collection.replace("/apis/apps/v1", "/api/v1").replace("deployments", "pods")
            for pod, there in self.named(pods).items():
                if there["metadata"]["labels"].get("app") == name:
                    self.remove(pods, pod)

    def bind(self, name: str, node: str = "node-0", collection: str = PODS) -> None:
        """A pod gets a node, if it is still there."""
        pod = self.objects.get((collection, name))
        if pod is not None:
            self.put(collection, {**pod, "spec": {**pod["spec"], "nodeName": node}})

    def _came(self, collection: str, found: Object) -> None:
        """What controllers and schedulers do about it."""
        name = found["metadata"]["name"]
        if collection.endswith("/deployments"):
            pods = collection.replace("/apis/apps/v1", "/api/v1").replace("deployments", "pods")
            template = found["spec"]["template"]
            for i in range(found["spec"]["replicas"]):
                self.put(pods, {**template, "metadata": {**template["metadata"], "name": f"{name}-{i}"}})
        elif collection.endswith("/pods") and self.bind_after is not None and not found["spec"].get("nodeName"):
            asyncio.get_running_loop().call_later(self.bind_after, self.bind, name, "node-0", collection)

    def _tell(self, kind: str, collection: str, obj: Object) -> None:
        line = json.dumps({"type": kind, "object": obj}).encode() + b"\n"
        for path, labels, queue in self.watches:
            if _within(collection, path) and _selects(labels, obj):
                queue.put_nowait(line)

    def _listed(self, path: str, labels: str) -> list[tuple[str, str, Object]]:
        return [
            (collection, name, found)
            for (collection, name), found in self.objects.items()
            if _within(collection, path) and _selects(labels, found)
        ]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        parent, _, name = request.path.rpartition("/")
        is_collection = name in KINDS
        if request.method == "DELETE" and (is_collection or (parent, name) in self.objects):
            self.requests.append((request.method, request.path))
            if self.fault is not None and (answer := await self.fault(request)) is not None:
                return answer
            labels = request.query.get("labelSelector", "")
            gone = self._listed(request.path, labels) if is_collection else [(parent, name, {})]
            for collection, each, _ in gone:
                if (collection, each) in self.objects:
                    self.remove(collection, each)
            return web.json_response({})
        return await super()._answer(request)

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        labels = request.query.get("labelSelector", "")
        if request.path.rpartition("/")[2] not in KINDS:
            return failure(404, "NotFound")
        if "watch" not in request.query:
            items = [found for *_, found in self._listed(request.path, labels)]
            metadata: Object = {"resourceVersion": str(self._version)}
            if request.query.get("limit") == "1" and len(items) > 1:  # as who only counts asks
                items, metadata["remainingItemCount"] = items[:1], len(items) - 1
            return web.json_response({"metadata": metadata, "items": items})
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.watches.append((request.path, labels, queue))
        self.watchers.append(("", queue))
        for *_, found in self._listed(request.path, labels):  # what changed since the list
            if int(found["metadata"]["resourceVersion"]) > int(request.query["resourceVersion"]):
                queue.put_nowait(json.dumps({"type": "MODIFIED", "object": found}).encode() + b"\n")
        response = web.StreamResponse()
        await response.prepare(request)
        while (line := await queue.get()) is not None:
            await response.write(line)
        return response


def on_double(test: Callable[[LiveDouble, Client], Awaitable[None]]) -> None:
    """Play a test against a new server, in time that jumps."""

    async def main() -> None:
        async with LiveDouble() as double, Client(double.config()) as client:
            await test(double, client)

    play(main())


def with_double(test: Story) -> Callable[..., None]:
    """Play a test with a new server, `double`, and a client of it, `client`, in time that jumps."""
    return as_test(test, on_double, "double", "client")


def node(name: str, cpu: str = "64", memory: str = "256Gi", pods: str = "110", **labels: str) -> Object:
    """A v1 Node."""
    amounts = {"cpu": cpu, "memory": memory, "pods": pods}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {"allocatable": amounts}}


def pod(name: str, cpu: str = "1", scheduler: str = "default-scheduler", on: str = "", **labels: str) -> Object:
    """A v1 Pod."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    spec = {"schedulerName": scheduler, "containers": [container], **({"nodeName": on} if on else {})}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def _within(collection: str, path: str) -> bool:
    """Whether a collection is the one at `path`, or part of that over all namespaces."""
    parts = collection.split("/")
    all_nodes = "/".join([*parts[:-3], parts[-1]]) if "/namespaces/" in collection else collection
    return path in (collection, all_nodes)


def _selects(labels: str, found: Object) -> bool:
    there = found["metadata"].get("labels") or {}
    wanted = (part.partition("=") for part in filter(None, labels.split(",")))
    return all(key in there and (not equals or there[key] == value) for key, equals, value in wanted)
