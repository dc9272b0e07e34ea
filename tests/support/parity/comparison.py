"""Random histories of clusters in which a real kube-scheduler decides, and `kube-default` is asked about all of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.parity.cluster import NODES, control_plane, listed, selecting, until, with_nodes
from tests.support.parity.objects import Maker, Object
from tests.support.parity.replay import ALL_NODES, Findings, Replay
from tests.support.parity.scheduler import Attempt, Deletion, Log, running_scheduler

from steersman.kubernetes import config
from steersman.kubernetes.client import Client

POLL_SECONDS = 0.003
SETTLE_SECONDS = 1.0
"""For what the scheduler hears of but does not log: Services and controllers."""
CONTROLLERS, SERVICES = 10, 6
MOST_REPLICAS = 6
POD_LEVEL_EVERY = 90
"""Of pods that are created alone. They cannot be compared, but others can be where they run."""
FULL = 4.0
"""Pods a node from which on more are deleted than created."""


@dataclass(frozen=True)
class History:
    """What happens is drawn with `seed`. `percentage` is `percentageOfNodesToScore`; 0: the scheduler's own choice."""

    seed: int
    nodes: int
    decisions: int
    percentage: int = ALL_NODES


SHORT = (History(1, 20, 90), History(2, 40, 80), History(3, 60, 70), History(4, 130, 60, percentage=0))
LONG = (
    *(History(seed, nodes, 200) for seed, nodes in enumerate((20, 24, 28, 32, 36, 40, 45, 50, 55, 60), start=101)),
    *(History(seed, nodes, 150) for seed, nodes in ((111, 120), (112, 150))),
    *(History(seed, nodes, 150, percentage=0) for seed, nodes in ((113, 140), (114, 260))),
)


@dataclass
class Run:
    """A history as it goes on.

    Attributes:
        client: of the cluster.
        log: of the scheduler.
        maker: of what is created.
        replay: of what the scheduler decided.
        replayed: how many events of the log were.
        objects: pods by namespace and name, as they were created.
        alone: bound pods without a controller.
        controllers: namespace/name -> collection, how many pods.
        made: how many pods were created alone.
    """

    client: Client
    log: Log
    maker: Maker
    replay: Replay
    replayed: int = 0
    objects: dict[str, Object] = field(default_factory=dict)
    alone: list[str] = field(default_factory=list)
    controllers: dict[str, tuple[str, int]] = field(default_factory=dict)
    made: int = 0

    async def prepare(self) -> None:
        """Create Services, and controllers without pods."""
        for i in range(SERVICES):
            await self.client.create(*self.maker.service(f"s{i}"))
        for i in range(CONTROLLERS):
            collection, obj = self.maker.controller(f"set{i}")
            await self.client.create(collection, obj)
            self.controllers[f"{collection.split('/')[-2]}/set{i}"] = (collection, 0)
        await asyncio.sleep(SETTLE_SECONDS)  # Deployments make their ReplicaSets, too
        self.replay.use_services(await selecting(self.client))

    async def step(self) -> None:
        """Change the cluster somehow, and compare what the scheduler decided then."""
        rng = self.maker.rng
        dice = rng.random()
        if dice < (0.35 if len(self.alone) > FULL * self.maker.size else 0.7):
            await self._create_pod()
        elif dice < 0.85:
            await self._scale(rng.choice(sorted(self.controllers)), rng.randint(0, MOST_REPLICAS))
        elif dice < 0.98:
            for _ in range(min(rng.randint(1, 6), len(self.alone))):
                await self._delete(self.alone.pop(rng.randrange(len(self.alone))))
        else:
            await self._change_node()

    async def _create_pod(self) -> None:
        self.made += 1
        pod = self.maker.pod(f"p{self.made}", pod_level=self.made % POD_LEVEL_EVERY == 0)
        namespace = pod["metadata"]["namespace"]
        key = f"{namespace}/p{self.made}"
        self.objects[key] = await self.client.create(f"/api/v1/namespaces/{namespace}/pods", pod)
        await self._heard(f"a decision on {key}", lambda: len(self._decided(key)) == 1)
        refused = not self._decided(key)[0].node
        self._compare()
        if refused:
            await self._delete(key)
        else:
            self.alone.append(key)

    async def _delete(self, key: str) -> None:
        namespace, name = key.split("/")
        await self.client.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": "0"})
        await self._heard(f"the end of {key}", lambda: len(self._deleted(key)) == 1)
        self._compare()

    async def _scale(self, key: str, new: int) -> None:
        """Give a controller another number of pods; none, if not all of them have room."""
        old = self.controllers[key][1]
        await self._set_replicas(key, old, new)
        refused = any(not attempt.node for attempt in self._decided(f"{key}-"))
        self._compare()
        if refused:
            await self._set_replicas(key, new, 0)
            self._compare()

    async def _set_replicas(self, key: str, old: int, new: int) -> None:
        namespace, name = key.split("/")
        collection, _ = self.controllers[key]
        await self.client.patch(f"{collection}/{name}", {"spec": {"replicas": new}})
        self.controllers[key] = (collection, new)
        if new < old:
            await self._heard(f"fewer pods of {key}", lambda: len(self._deleted(f"{key}-")) == old - new)
            return
        await self._heard(f"decisions on {key}", lambda: len(self._decided(f"{key}-")) == new - old)
        for pod in await listed(self.client, f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": f"set={name}"}):
            self.objects[f"{namespace}/{pod['metadata']['name']}"] = pod

    async def _change_node(self) -> None:
        """Cordon a node, or give it a taint that scores; or take that back."""
        name = self.maker.rng.choice(sorted(self.replay.nodes))
        spec, seen = self.replay.nodes[name]["spec"], self.log.updates[name]
        if self.maker.chance(0.5):
            change: Object = {"unschedulable": not spec.get("unschedulable", False)}
        else:
            worn = {"key": "example.com/worn", "effect": "PreferNoSchedule"}
            taints = spec.get("taints", [])
            kept = [taint for taint in taints if taint["key"] != worn["key"]]
            change = {"taints": kept if len(kept) < len(taints) else [*taints, worn]}
        await self.client.patch(f"{NODES}/{name}", {"spec": change})
        await self._heard(f"a change of {name}", lambda: self.log.updates[name] > seen)
        await asyncio.sleep(SETTLE_SECONDS)  # a controller taints nodes that are cordoned
        self.replay.update_node(await self.client.get(f"{NODES}/{name}"))

    def _decided(self, key: str) -> list[Attempt]:
        """New decisions on a pod; on those of a controller, if the key ends in "-"."""
        new = [event for event in self.log.events[self.replayed :] if isinstance(event, Attempt) and event.decided]
        return [attempt for attempt in new if _concerns(key, attempt.pod)]

    def _deleted(self, key: str) -> list[Deletion]:
        new = [event for event in self.log.events[self.replayed :] if isinstance(event, Deletion)]
        return [deletion for deletion in new if _concerns(key, deletion.pod)]

    def _compare(self) -> None:
        for event in self.log.events[self.replayed :]:
            if isinstance(event, Deletion):
                self.replay.remove(event.pod)
                del self.objects[event.pod]
            else:
                self.replay.compare(event, self.objects[event.pod])
        self.replayed = len(self.log.events)

    async def _heard(self, what: str, holds: Callable[[], bool]) -> None:
        await heard(self.log, what, holds)


def _concerns(key: str, pod: str) -> bool:
    return pod.startswith(key) if key.endswith("-") else pod == key


async def heard(log: Log, what: str, holds: Callable[[], bool]) -> None:
    """Wait until the log says something."""

    async def says() -> bool:
        log.read()
        return holds()

    await until(what, says, POLL_SECONDS)


async def _run(kubeconfig: Path, program: Path, folder: Path, history: History) -> Findings:
    findings, maker = Findings(history.seed, history.nodes), Maker(history.seed, history.nodes)
    async with Client(config.load(kubeconfig)) as client, with_nodes(client, maker.nodes()):
        with running_scheduler(program, kubeconfig, folder, history.percentage) as log:
            nodes = {node["metadata"]["name"]: node for node in await listed(client, NODES)}
            await heard(log, "the scheduler's list of nodes", lambda: len(log.nodes) == len(nodes))
            replay = Replay([nodes[name] for name in log.nodes], findings, history.percentage)
            run = Run(client, log, maker, replay)
            await run.prepare()
            while findings.decisions < history.decisions:
                await run.step()
    return findings


def run(kubeconfig: Path, program: Path, folder: Path, histories: Iterable[History]) -> list[Findings]:
    """What comparing the decisions of histories found.

    Args:
        kubeconfig: of a cluster without nodes, played by KWOK.
        program: kube-scheduler.
        folder: for its log and settings.
        histories: one after the other.
    """
    return [asyncio.run(_run(kubeconfig, program, folder, history)) for history in histories]


def summary(found: list[Findings]) -> dict[str, Any]:
    """The counts over all histories."""
    not_comparable = sum((each.not_comparable for each in found), Counter())
    differences = sum((each.differences for each in found), Counter())
    decisions = sum(each.decisions for each in found)
    bound = sum(each.bound for each in found)
    return {
        "histories": len(found),
        "nodes_least": min(each.nodes for each in found),
        "nodes_most": max(each.nodes for each in found),
        "decisions": decisions,
        "bound": bound,
        "refused": sum(each.refused for each in found),
        "not_comparable": not_comparable.total(),
        "not_comparable_percent": round(100 * not_comparable.total() / decisions, 2),
        "not_comparable_reasons": dict(not_comparable),
        "refused_by_reason": dict(sum((each.reasons for each in found), Counter()).most_common()),
        "bound_to_top_scorer": bound - differences["choice"],
        "decisions_with_ties": sum(each.ties for each in found),
        "same_choice": sum(each.same_choice for each in found),
        "node_scores_compared": sum(each.node_scores for each in found),
        "differences": dict(differences),
    }


def benchmark() -> dict[str, Any]:
    """The long histories on a control plane of their own."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "parity"
        folder.mkdir()
        with control_plane(folder) as (kubeconfig, program):
            return summary(run(kubeconfig, program, folder, LONG))
