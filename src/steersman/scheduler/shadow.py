"""Shadowing: what a policy would have decided beside another scheduler that decides; nothing is bound.

Two questions are answered for every pod that the other scheduler binds. Where would the policy have put it, *in the
same state of the cluster*: how often do they agree? And where in a cluster that had followed the policy since the
shadow began: what would the cluster look like now?
"""

from __future__ import annotations

import asyncio
import csv
import time
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass
from typing import TextIO

import msgspec
import numpy as np
import structlog

from steersman.cluster.arrays import CPU, MEMORY, PODS, WHOLE
from steersman.errors import SteersmanError
from steersman.kube.cache import NODES_PATH, PODS_PATH, CachedPod, ClusterCache, Listener, NodeFeed, PodFeed
from steersman.kube.client import Client
from steersman.kube.objects import PodHead
from steersman.kube.reflector import EventType, Handler, Reflector
from steersman.kube.selectors import Selectors
from steersman.policies.decider import Choice, Decider

COLUMNS = ("time", "pod", "scheduler_node", "policy_node", "agrees", "alternative_node")

log = structlog.get_logger("shadow")


@dataclass(frozen=True, slots=True)
class Picture:
    """A cluster in a few numbers.

    Attributes:
        nodes_in_use: nodes that hold a pod.
        cpu_percent, memory_percent, gpu_percent: of what is allocatable, requested.
        cpu_deviation_percent: standard deviation of the share of CPU requested, over nodes.
        fragmented_gpus: GPUs that are idle and no use to typical pods.
        unplaced: pods for which there is no node.
    """

    nodes_in_use: int
    cpu_percent: float
    memory_percent: float
    gpu_percent: float
    cpu_deviation_percent: float
    fragmented_gpus: float
    unplaced: int


@dataclass(slots=True)
class Tally:
    """How often the policy and the scheduler agreed."""

    decisions: int = 0
    agreed: int = 0
    refused: int = 0
    """Pods that the policy found no node for in the state that the scheduler bound them in (it saw another one)."""

    @property
    def agreement_percent(self) -> float:
        """Of all decisions."""
        return 100.0 * self.agreed / self.decisions if self.decisions else 0.0


MakeDecider = Callable[[ClusterCache], Decider]


class Side:
    """One of the two clusters: its cache, and the policy's decider for it."""

    def __init__(self, cache: ClusterCache, make_decider: MakeDecider) -> None:
        self.cache, self._make = cache, make_decider
        self.decider: Decider | None = None

    def renew(self) -> None:
        """Make the decider anew."""
        self.decider = self._make(self.cache)

    def choose(self, pod: CachedPod, peers: Mapping[int, int]) -> Choice | None:
        """What the policy decides here."""
        if self.decider is None:
            self.renew()
        assert self.decider is not None
        mixing = self.cache.gpu_pods.refusal(self.cache.state, pod.pod.requests)
        allowed = None if mixing is None else ~mixing[1]
        return self.decider.choose(pod.class_id, pod.labels_id, peers, pod.pod.latency, allowed)

    def picture(self, unplaced: int) -> Picture:
        """What this cluster looks like."""
        if self.decider is None:
            self.renew()
        assert self.decider is not None
        self.decider.follow()
        nodes = self.cache.state.arrays
        used, whole = nodes.allocatable - nodes.free, nodes.allocatable
        some = whole[:, CPU] > 0
        shares = used[some, CPU] / whole[some, CPU]
        return Picture(
            nodes_in_use=int((used[:, PODS] > 0).sum()),
            cpu_percent=_percent(used[:, CPU].sum(), whole[:, CPU].sum()),
            memory_percent=_percent(used[:, MEMORY].sum(), whole[:, MEMORY].sum()),
            gpu_percent=_percent(*self.cache.state.gpu_use()),
            cpu_deviation_percent=100.0 * float(shares.std()) if some.any() else 0.0,
            fragmented_gpus=float(self.decider.cluster.fragments.total.sum()) / WHOLE,
            unplaced=unplaced,
        )


class Alternative(ClusterCache):
    """A cluster in which the pods of the other scheduler are where the policy puts them.

    Pods that were bound before the shadow began are where they are, and so are those of all other schedulers.
    """

    side: Side
    shadowed: str = ""
    began: bool = False

    def _is_bound(self, pod: CachedPod, node: str, head: PodHead) -> None:
        if not self.began or pod.pod.scheduler_name != self.shadowed:
            super()._is_bound(pod, node, head)
        elif not pod.node:
            choice = self.side.choose(pod, self.peers(pod.pod))
            if choice is not None:
                chosen = self.state.nodes[choice.slot]
                assert chosen is not None
                self._put(pod, chosen.name, choice.devices)


class _Both:
    """Feeds two handlers."""

    def __init__(self, *handlers: Handler) -> None:
        self.handlers = handlers

    def keep(self, keys: Set[str]) -> None:
        """See `reflector.Handler`."""
        for handler in self.handlers:
            handler.keep(keys)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """See `reflector.Handler`."""
        for handler in self.handlers:
            handler.change(kind, obj)


class _Told(Listener):
    """Passes what a cache tells on to the side's decider."""

    def __init__(self) -> None:
        self.side: Side | None = None
        self.bound: Callable[[CachedPod], None] | None = None
        self.came: Callable[[CachedPod], None] | None = None

    def pod_came(self, pod: CachedPod) -> None:
        """See `kube.cache.Listener`."""
        if self.came is not None:
            self.came(pod)

    def pod_bound(self, pod: CachedPod) -> None:
        """See `kube.cache.Listener`."""
        if self.bound is not None:
            self.bound(pod)

    def node_changed(self, slot: int, *, more: bool) -> None:
        """See `kube.cache.Listener`."""
        if self.side is not None and self.side.decider is not None:
            self.side.decider.changed(slot)

    def rebuilt(self) -> None:
        """See `kube.cache.Listener`."""
        if self.side is not None and self.side.decider is not None:
            self.side.renew()


class Shadow:
    """Follows another scheduler.

    Args:
        client: the connection.
        make_decider: makes the policy's decider for a cache.
        shadowed: pods with this `schedulerName`.
        selectors: what selects pods to be spread by default, for a policy that does.
        came: is told of every pod that comes.
        output: decisions are written to it as CSV.

    Attributes:
        tally: agreement so far.
    """

    def __init__(
        self,
        client: Client,
        make_decider: MakeDecider,
        shadowed: str,
        *,
        selectors: Selectors | None = None,
        came: Callable[[CachedPod], None] | None = None,
        output: TextIO | None = None,
    ) -> None:
        told, told_other = _Told(), _Told()
        actual, alternative = ClusterCache(client, told, selectors), Alternative(client, told_other, selectors)
        self.actual, self.alternative = Side(actual, make_decider), Side(alternative, make_decider)
        told.side, told_other.side = self.actual, self.alternative
        told.bound, told.came = self._bound, came
        alternative.side, alternative.shadowed = self.alternative, shadowed
        self._alternative, self.shadowed = alternative, shadowed
        # What both look at, and what one of them alone does once a pod needs it. Claims of volumes are left out.
        others = {each: None for cache in (actual, alternative) for each in cache.reflectors[2:]}
        self.reflectors: tuple[Reflector, ...] = (
            Reflector(client, NODES_PATH, _Both(NodeFeed(actual), NodeFeed(alternative))),
            # The alternative first: what it decided is written down with what the scheduler did.
            Reflector(client, PODS_PATH, _Both(PodFeed(alternative), PodFeed(actual))),
            *others,
        )
        self.tally = Tally()
        self._writer = csv.writer(output) if output is not None else None
        if self._writer is not None:
            self._writer.writerow(COLUMNS)

    async def run(self, prepare: Callable[[], Awaitable[object]]) -> None:
        """Follow until cancelled; `prepare` is awaited when the cluster is known. Raises ApiError: we may not list."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run())
            for reflector in self.reflectors:
                await reflector.synced.wait()
            await prepare()
            self.renew()
            self._alternative.began = True
            log.info("shadowing", scheduler=self.shadowed, nodes=len(self.actual.cache.state.slots))

    def renew(self) -> None:
        """The policy or its mix is another."""
        self.actual.renew()
        self.alternative.renew()

    def pictures(self) -> tuple[Picture, Picture]:
        """What the cluster looks like, and what it would look like."""
        ours = [pod for pod in self.alternative.cache.pods.values() if pod.pod.scheduler_name == self.shadowed]
        lost = sum(1 for pod in ours if not pod.node and self.actual.cache.pods[pod.key].node)
        waiting = sum(1 for pod in self.actual.cache.pods.values() if not pod.node)
        return self.actual.picture(waiting), self.alternative.picture(waiting + lost)

    def _bound(self, pod: CachedPod) -> None:
        """The scheduler bound a pod: ask the policy about the state before that."""
        if not self._alternative.began or pod.pod.scheduler_name != self.shadowed:
            return
        state = self.actual.cache.state
        placed = state.placements.get(pod.key)
        if placed is None or self.actual.decider is None:
            return
        state.remove(pod.key)
        self.actual.decider.changed(placed.slot)
        peers = self.actual.cache.peers(pod.pod)
        if peers.get(placed.slot):
            peers[placed.slot] -= 1
        try:
            choice = self.actual.choose(pod, {slot: count for slot, count in peers.items() if count})
        except SteersmanError as error:
            log.error("no decision", pod=pod.key, error=str(error))
            choice = None
        finally:
            state.place(pod.key, pod.class_id, placed.slot, placed.devices, pod.labels_id, force=True)
            self.actual.decider.changed(placed.slot)
        self._count(pod, choice)

    def _count(self, pod: CachedPod, choice: Choice | None) -> None:
        node = self.actual.cache.state.nodes[choice.slot] if choice is not None else None
        ours = "" if node is None else node.name
        other = self.alternative.cache.pods.get(pod.key)
        self.tally.decisions += 1
        self.tally.agreed += ours == pod.node
        self.tally.refused += choice is None
        log.debug("decision", pod=pod.key, scheduler=pod.node, policy=ours)
        if self._writer is not None:
            there = other.node if other is not None else ""
            agrees = str(ours == pod.node).lower()
            self._writer.writerow([f"{time.time():.3f}", pod.key, pod.node, ours, agrees, there])


def _percent(part: np.int64 | int, whole: np.int64 | int) -> float:
    return 100.0 * float(part) / float(whole) if whole else 0.0
