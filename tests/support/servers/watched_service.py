"""A score service beside a stand-in for the API, over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import aiohttp
import msgspec
from tests.support.servers.fake_api_server import KubeDouble
from tests.support.servers.tasks import serving

from steersman.apps.service.config import ServiceConfig
from steersman.apps.service.process import Service
from steersman.kubernetes.client import Client

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


def serve(nodes: Iterable[Object], pods: Iterable[Object], story: Story, **changes: Any) -> None:
    """Run a service that watches these, and tell a story of it once it knows them."""

    async def main() -> None:
        config = msgspec.structs.replace(
            ServiceConfig(policy="best-fit", port=0, deadline_milliseconds=60_000.0), **changes
        )
        async with KubeDouble() as api, aiohttp.ClientSession() as session, asyncio.timeout(120):
            for each in nodes:
                api.put("/api/v1/nodes", each)
            for each in pods:
                api.put("/api/v1/pods", each)
            async with Client(api.config()) as client:
                service, ports = Service(config, client), list[int]()

                async def ask(path: str, body: Any = None, method: str = "POST") -> tuple[int, Any]:
                    data = None if body is None else json.dumps(body).encode()
                    async with session.request(method, f"http://127.0.0.1:{ports[0]}{path}", data=data) as answer:
                        text = await answer.text()
                        return answer.status, json.loads(text) if answer.content_type == "application/json" else text

                def knows() -> bool:
                    return bool(ports) and service.watched is not None and service.watched._node_scorer is not None

                async with serving(service.run(ports.append), knows):
                    await story(service, api, ask)

    asyncio.run(main())
