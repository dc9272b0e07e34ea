"""A control plane whose nodes KWOK plays, for comparisons of schedulers: nodes come, and all of it goes again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
from tests.support.kubernetes import control_plane_programs
from tests.support.parity.objects import NAMESPACES, Object

from steersman.kubernetes.client import ApiError, Client
from steersman.live.local_cluster.control_plane import servers

WAIT_SECONDS = 60.0
POLL_SECONDS = 0.1
NODES = "/api/v1/nodes"
CONTROLLERS = tuple(
    f"/{group}/namespaces/{namespace}/{kind}"
    for group, kind in (
        ("apis/apps/v1", "deployments"),
        ("apis/apps/v1", "replicasets"),
        ("apis/apps/v1", "statefulsets"),
        ("api/v1", "replicationcontrollers"),
    )
    for namespace in NAMESPACES
)
PODS, SERVICES, ACCOUNTS = (
    tuple(f"/api/v1/namespaces/{namespace}/{kind}" for namespace in NAMESPACES)
    for kind in ("pods", "services", "serviceaccounts")
)
SELECTING = (
    ("Service", "v1", "/api/v1/services"),
    ("ReplicationController", "v1", "/api/v1/replicationcontrollers"),
    ("ReplicaSet", "apps/v1", "/apis/apps/v1/replicasets"),
    ("StatefulSet", "apps/v1", "/apis/apps/v1/statefulsets"),
)
"""What kube-scheduler looks up for its default topology spread."""
CLUSTER_OBJECTS: tuple[tuple[str, Object], ...] = (
    *(("/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": name}}) for name in NAMESPACES),
    *(
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            # Never: a pod that evicted others would change the cluster between two decisions.
            {"metadata": {"name": f"parity-{value}"}, "value": value, "preemptionPolicy": "Never"},
        )
        for value in (10, 1000)
    ),
    (
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "metadata": {"name": "parity"},
            "handler": "parity",
            "overhead": {"podFixed": {"cpu": "130m", "memory": "70Mi"}},
        },
    ),
)
"""What pods refer to, by collection."""


@contextmanager
def control_plane(folder: Path) -> Iterator[tuple[Path, Path]]:
    """A control plane without nodes: its kubeconfig, and the kube-scheduler of the same build."""
    programs = control_plane_programs()
    kubeconfig = folder / "kubeconfig"
    try:
        servers.start(programs, folder, folder.name, kubeconfig, None)
        yield kubeconfig, programs / "kube-scheduler"
    finally:
        servers.stop(folder)


async def listed(client: Client, path: str, query: dict[str, str] | None = None) -> list[Object]:
    """The objects of a collection."""
    return [msgspec.json.decode(each) for each in (await client.list(path, query)).items]


async def selecting(client: Client) -> list[Object]:
    """Services and controllers, with the kind that lists leave out."""
    return [
        {**each, "kind": kind, "apiVersion": version}
        for kind, version, path in SELECTING
        for each in await listed(client, path)
    ]


async def until(what: str, holds: Callable[[], Awaitable[bool]], poll: float = POLL_SECONDS) -> None:
    """Wait until something holds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + WAIT_SECONDS
    while not await holds():
        assert loop.time() < end, f"waited in vain for {what}"
        await asyncio.sleep(poll)


@asynccontextmanager
async def with_nodes(client: Client, nodes: list[Object]) -> AsyncIterator[None]:
    """A cluster of these nodes, ready, and afterwards nothing of what was there."""
    for path, obj in CLUSTER_OBJECTS:
        try:
            await client.create(path, obj)
        except ApiError as error:
            if error.status != 409:
                raise
    cordoned = sum(1 for node in nodes if node["spec"].get("unschedulable"))

    async def ready() -> bool:
        taints = [taint["key"] for node in await listed(client, NODES) for taint in node["spec"].get("taints", ())]
        given = Counter(taints)
        return given["node.kubernetes.io/unschedulable"] == cordoned and not given["node.kubernetes.io/not-ready"]

    async def welcome() -> bool:
        """Pods are refused until their namespace has a service account."""
        return all([await listed(client, path) for path in ACCOUNTS])

    try:
        for node in nodes:
            await client.create(NODES, node)
        await until("ready nodes", ready)
        await until("service accounts", welcome)
        yield
    finally:
        await _clear(client)


async def _clear(client: Client) -> None:
    """Delete everything: who makes pods first, then pods, then where they run."""
    for paths, query in (
        (CONTROLLERS, {"propagationPolicy": "Background"}),
        (PODS, {"gracePeriodSeconds": "0"}),
        (SERVICES, {}),
        ((NODES,), {}),
    ):
        for path in paths:
            await client.delete(path, query)

        async def gone(paths: tuple[str, ...] = paths) -> bool:
            return not any([await listed(client, path) for path in paths])

        await until(f"the end of {paths[0]} and the like", gone)
