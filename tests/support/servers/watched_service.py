"""A score service beside a stand-in for the API, over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from tests.support.kubeconfig import unreachable
from tests.support.servers.fake_api_server import KubeDouble, listed
from tests.support.servers.tasks import serving, until

from steersman.kubernetes.cache.cluster_cache import NodeFeed, PodFeed
from steersman.kubernetes.client import Client
from steersman.live.service.config import ServiceConfig
from steersman.live.service.process import Service, WatchedCluster

Object = dict[str, Any]
Ask = Callable[..., Awaitable[tuple[int, Any]]]
Story = Callable[[Service, KubeDouble, Ask], Awaitable[None]]


def node(name: str, cpu: str = "8", gpus: int = 0, **labels: str) -> Object:
    there = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    if gpus:
        there |= {"alibabacloud.com/gpu-count": str(gpus), "alibabacloud.com/gpu-milli": str(1000 * gpus)}
    named = {"kubernetes.io/hostname": name, **labels}
    return {"metadata": {"name": name, "uid": name, "labels": named}, "status": {"allocatable": there}}


def pod(name: str, cpu: str = "1", share: int = 0, where: str = "", **labels: str) -> Object:
    notes = {"alibabacloud.com/gpu-count": "1", "alibabacloud.com/gpu-milli": str(share)} if share else {}
    wanted = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    spec: Object = {"containers": [wanted]} | ({"nodeName": where} if where else {})
    meta = {"name": name, "namespace": "default", "uid": name, "generation": 1, "labels": labels, "annotations": notes}
    return {"metadata": meta, "spec": spec}


def spread(made: Object, key: str, value: str) -> Object:
    """A pod that spreads over hosts from those with a label."""
    selects = {"labelSelector": {"matchLabels": {key: value}}}
    rule = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"} | selects
    made["spec"]["topologySpreadConstraints"] = [rule]
    return made


def watched_cluster(nodes: Iterable[Object], pods: Iterable[Object] = (), policy: str = "best-fit") -> WatchedCluster:
    """What a service knows that has listed these, and hears no more."""
    found = Service(ServiceConfig(policy=policy, unchecked=True), unreachable()).watched
    assert found is not None
    for feed, objects in ((NodeFeed(found.cache), nodes), (PodFeed(found.cache), pods)):
        listed(feed, [msgspec.Raw(msgspec.json.encode(each)) for each in objects])
    found.renew()
    return found


@asynccontextmanager
async def served(client: Client | None = None, **changes: Any) -> AsyncIterator[tuple[Service, int]]:
    """Run a service in the block, which watches a cluster if there is a client of it: the service and its port."""
    config = msgspec.structs.replace(
        ServiceConfig(policy="best-fit", port=0, deadline_milliseconds=60_000.0), **changes
    )
    service, ports = Service(config, client), list[int]()
    async with serving(service.run(ports.append), lambda: bool(ports)):
        yield service, ports[0]


@asynccontextmanager
async def asking(client: Client | None = None, **changes: Any) -> AsyncIterator[tuple[Service, Ask]]:
    """The same, with a function that asks it: a path, a body, and what aiohttp takes; status and content come back."""
    async with aiohttp.ClientSession() as session, served(client, **changes) as (service, port):

        async def ask(path: str, body: Any = None, method: str = "POST", **more: Any) -> tuple[int, Any]:
            data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
            async with session.request(method, f"http://127.0.0.1:{port}{path}", data=data, **more) as answer:
                text = await answer.text()
                return answer.status, json.loads(text) if answer.content_type == "application/json" else text

        yield service, ask


@asynccontextmanager
async def watching(
    nodes: Iterable[Object], pods: Iterable[Object], **changes: Any
) -> AsyncIterator[tuple[Service, KubeDouble, Ask]]:
    """A service that watches these, once it knows them."""
    async with KubeDouble() as api, asyncio.timeout(120):
        for each in nodes:
            api.put("/api/v1/nodes", each)
        for each in pods:
            api.put("/api/v1/pods", each)
        async with Client(api.config()) as client, asking(client, **changes) as (service, ask):
            await until(lambda: service.watched is not None and service.watched._node_scorer is not None)
            yield service, api, ask


def serve(nodes: Iterable[Object], pods: Iterable[Object], story: Story, **changes: Any) -> None:
    """Tell a story of a service that watches these."""

    async def main() -> None:
        async with watching(nodes, pods, **changes) as told:
            await story(*told)

    asyncio.run(main())
