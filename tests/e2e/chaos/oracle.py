"""What became of the pods, by the API alone: who is where, whether it fits, and whether anything ever moved."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp

from steersman.kubernetes.config import KubeConfig
from steersman.kubernetes.credentials import Credentials

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
ZONE = "topology.kubernetes.io/zone"
GPU = "alibabacloud.com/gpu-"
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}

Object = dict[str, Any]


class Api:
    """Plain requests to the API server; an asynchronous context manager. Nothing of the scheduler's own client."""

    def __init__(self, config: KubeConfig) -> None:
        self._config = config
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=Credentials(self._config).context)
        self._session = aiohttp.ClientSession(self._config.cluster.server, connector=connector)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await asyncio.sleep(0.25)  # as for the proxy: TLS connections end a moment later

    async def ask(self, method: str, path: str, obj: Object | None = None, **query: str) -> Object:
        """What the server says; raises aiohttp.ClientError where it says no."""
        async with self._session.request(method, path, json=obj, params=query, raise_for_status=True) as answer:
            found: Object = await answer.json()
            return found

    async def ready(self) -> bool:
        """Whether the server says that it is."""
        try:
            async with self._session.get("/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def changes(self, path: str, version: str) -> aiohttp.ClientResponse:
        """A watch that is open."""
        query = {"watch": "1", "resourceVersion": version}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
        return await self._session.get(path, params=query, timeout=timeout, raise_for_status=True)


class PodWatch:
    """Watches the pods from before the first to after the last binding, over every death of the server.

    Attributes:
        nodes: by a pod's uid: every node that it was seen on, in order; two are one too many.
        names: uid -> name.
        bound_at: uid -> when that was seen, in monotonic seconds.
        gone: uids of pods that were deleted.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self.nodes: dict[str, list[str]] = defaultdict(list)
        self.names: dict[str, str] = {}
        self.bound_at: dict[str, float] = {}
        self.gone: set[str] = set()
        self._version = ""

    @property
    def bound(self) -> int:
        """How many pods have been bound."""
        return len(self.bound_at)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                async with await self._api.changes(PODS, self._version) as answer:
                    async for line in answer.content:
                        self._told(json.loads(line))
            except (aiohttp.ClientError, OSError, json.JSONDecodeError):
                await asyncio.sleep(0.1)

    async def _list(self) -> None:
        found = await self._api.ask("GET", PODS)
        for pod in found["items"]:
            self._see(pod)
        there = {pod["metadata"]["uid"] for pod in found["items"]}
        self.gone |= self.names.keys() - there
        self._version = found["metadata"]["resourceVersion"]

    def _told(self, event: Object) -> None:
        if event["type"] == "ERROR":
            self._version = ""
            raise aiohttp.ClientError(str(event["object"]))
        pod = event["object"]
        self._version = pod["metadata"]["resourceVersion"]
        self._see(pod)
        if event["type"] == "DELETED":
            self.gone.add(pod["metadata"]["uid"])

    def _see(self, pod: Object) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        self.names[uid] = pod["metadata"]["name"]
        nodes = self.nodes[uid]
        if node and uid not in self.bound_at:
            self.bound_at[uid] = time.monotonic()
        if (nodes or node) and (not nodes or nodes[-1] != node):
            nodes.append(node)

    def moved(self) -> dict[str, list[str]]:
        """Pods that were seen on more than one node, or taken off theirs."""
        return {self.names[uid]: nodes for uid, nodes in self.nodes.items() if len(nodes) > 1}


@dataclass
class Verdict:
    """What became of all pods.

    Attributes:
        pods: that were made.
        bound: to nodes that exist.
        on_deleted_nodes: bound to nodes that were deleted, before or after.
        faults: everything that must not be, in words.
        events: `Scheduled` events; one for each pod at most.
        untold: bound pods without one.
    """

    pods: int
    bound: int = 0
    on_deleted_nodes: int = 0
    faults: list[str] = field(default_factory=list)
    events: int = 0
    untold: int = 0

    def __str__(self) -> str:
        apart = f", {self.on_deleted_nodes} on deleted nodes" if self.on_deleted_nodes else ""
        return (
            f"{self.pods} pods, {self.bound} bound once where they fit{apart}, "
            f"{self.events} Scheduled events ({self.untold} untold), {len(self.faults)} faults"
        )


async def judge(api: Api, watch: PodWatch, made: Iterable[str], deleted_nodes: frozenset[str] = frozenset()) -> Verdict:
    """Look at everything.

    Args:
        api: of the cluster.
        watch: has seen all of it.
        made: uids of the pods that were made.
        deleted_nodes: what they had bound may be gone, or on no node that exists.
    """
    made = set(made)
    verdict = Verdict(len(made))
    nodes = {each["metadata"]["name"]: each for each in (await api.ask("GET", "/api/v1/nodes"))["items"]}
    pods = {each["metadata"]["uid"]: each for each in (await api.ask("GET", PODS))["items"]}
    faults = verdict.faults
    faults += [f"{name} moved: {places}" for name, places in watch.moved().items()]
    on_node: dict[str, list[Object]] = defaultdict(list)
    for uid in made:
        last = pods[uid]["spec"].get("nodeName", "") if uid in pods else "".join(watch.nodes[uid][-1:])
        if last in deleted_nodes:
            verdict.on_deleted_nodes += 1
        elif uid not in pods:
            faults.append(f"{watch.names.get(uid, uid)} is lost (was on {last!r})")
        elif not last:
            faults.append(f"{watch.names[uid]} is not bound")
        elif last not in nodes:
            faults.append(f"{watch.names[uid]} is on {last}, which does not exist")
        else:
            verdict.bound += 1
            on_node[last].append(pods[uid])
    for name, there in on_node.items():
        faults += _of_node(nodes[name], there)
    if not deleted_nodes:  # pods that went with their nodes leave zones uneven
        faults += _of_zones(nodes, on_node)
    await _of_events(api, verdict, pods)
    return verdict


def _of_node(node: Object, pods: list[Object]) -> list[str]:
    name, whole = node["metadata"]["name"], node["status"]["allocatable"]
    found = []
    for resource in ("cpu", "memory"):
        asked = sum(
            amount(container["resources"]["requests"].get(resource, "0"))
            for pod in pods
            for container in pod["spec"]["containers"]
        )
        if asked > amount(whole[resource]):
            found.append(f"{name}: {asked} of {whole[resource]} {resource}")
    if len(pods) > int(whole["pods"]):
        found.append(f"{name}: {len(pods)} of {whole['pods']} pods")
    apart = [pod["metadata"]["name"] for pod in pods if pod["metadata"]["labels"]["app"] == "apart"]
    if len(apart) > 1:
        found.append(f"{name}: {apart} are not apart")
    wrong = [
        pod["metadata"]["name"]
        for pod in pods
        if pod["spec"].get("nodeSelector", {}).items() - node["metadata"]["labels"].items()
    ]
    return found + [f"{each} does not select {name}" for each in wrong] + _of_devices(node, pods)


def _of_devices(node: Object, pods: list[Object]) -> list[str]:
    devices: Counter[int] = Counter()
    found = []
    for pod in pods:
        notes = pod["metadata"].get("annotations") or {}
        if f"{GPU}count" not in notes:
            continue
        held = [int(part) for part in notes.get(f"{GPU}index", "").split("-") if part]
        if len(set(held)) != int(notes[f"{GPU}count"]):
            found.append(f"{pod['metadata']['name']} holds devices {held}")
        for device in held:
            devices[device] += int(notes[f"{GPU}milli"])
    there = int(node["status"]["allocatable"].get(f"{GPU}count", "0"))
    name = node["metadata"]["name"]
    return found + [f"{name}: device {d}: {n} milli" for d, n in devices.items() if n > 1000 or d >= there]


def _of_zones(nodes: dict[str, Object], on_node: dict[str, list[Object]]) -> list[str]:
    zones = Counter({node["metadata"]["labels"][ZONE]: 0 for node in nodes.values()})
    for name, there in on_node.items():
        zones[nodes[name]["metadata"]["labels"][ZONE]] += sum(
            pod["metadata"]["labels"]["app"] == "spread" for pod in there
        )
    skew = max(zones.values()) - min(zones.values())
    return [f"zones are uneven: {dict(zones)}"] if skew > 1 else []


async def _of_events(api: Api, verdict: Verdict, pods: dict[str, Object]) -> None:
    told: dict[str, list[Object]] = defaultdict(list)
    for event in (await api.ask("GET", EVENTS, fieldSelector="reason=Scheduled"))["items"]:
        if event["regarding"]["uid"] in pods:
            told[event["regarding"]["uid"]].append(event)
    for uid, events in told.items():
        name, node = pods[uid]["metadata"]["name"], pods[uid]["spec"].get("nodeName", "")
        count = sum(event.get("series", {}).get("count", 1) for event in events)
        verdict.events += count
        if count > 1:
            verdict.faults.append(f"{name}: Scheduled {count} times")
        wrong = [each["note"] for each in events if each["note"] != f"Successfully assigned default/{name} to {node}"]
        verdict.faults += [f"{name} is on {node}: {note}" for note in wrong]
    verdict.untold = sum(1 for uid, pod in pods.items() if pod["spec"].get("nodeName") and uid not in told)


def amount(quantity: str) -> int:
    """A quantity in milli or bytes."""
    if quantity[-2:] in UNITS:
        return int(quantity[:-2]) * UNITS[quantity[-2:]]
    return int(quantity[:-1]) if quantity.endswith("m") else int(quantity) * 1000
