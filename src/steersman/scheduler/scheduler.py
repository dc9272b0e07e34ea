"""The scheduler's loop: take the pod that is next, decide, count it where it goes, and bind in the background."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from steersman.cluster.explaining import message
from steersman.errors import SteersmanError
from steersman.kube.cache import CachedPod, ClusterCache, Listener
from steersman.kube.client import Client
from steersman.kube.selectors import Selectors
from steersman.kube.volume_rules import VolumeFit, VolumePlan, fit
from steersman.kube.volumes import Volumes
from steersman.policies.decider import Decider
from steersman.scheduler.binder import Binder, Outcome
from steersman.scheduler.hints import Hints
from steersman.scheduler.queue import QueuedPod, SchedulingQueue
from steersman.scheduler.telling import Teller
from steersman.scheduler.volume_binder import VolumeBinder

IN_FLIGHT = 64
"""Bindings at a time."""
SCHEDULER_NAME = "steersman"
FINISH_SECONDS = 4.0
"""For bindings under way when we are to stop. A lost lease is good for 5 s more (`kube.lease`)."""
LOST_SECONDS = 0.1
TELL_AGAIN_SECONDS = 30.0
"""Why a pod waits is not found out more often."""
_NUMBER = re.compile("[0-9]+")
DECISIONS_BETWEEN_BREATHS = 8
"""Decisions after which watches and answers get their turn."""

log = structlog.get_logger("scheduler")


@dataclass(frozen=True, slots=True)
class Options:
    """What a scheduler is responsible for.

    Attributes:
        name: pods with this `schedulerName`.
        in_flight: bindings at a time.
    """

    name: str = SCHEDULER_NAME
    in_flight: int = IN_FLIGHT


class Scheduler(Listener):
    """Schedules the pods of one cluster.

    Args:
        client: the connection.
        make_decider: makes the policy's decider for the state of the cache.
        witness: tells what happens.
        options: which pods.
        may_decide: asked before each decision and each binding: whether we still hold the lease. Where it says no when
            `watch` begins, others decide, too, each in its turn.
        selectors: what selects pods to be spread by default, for a policy that does.
    """

    def __init__(
        self,
        client: Client,
        make_decider: Callable[[ClusterCache], Decider],
        witness: Teller,
        options: Options,
        may_decide: Callable[[], bool] = lambda: True,
        selectors: Selectors | None = None,
    ) -> None:
        self.options, self.witness, self.may_decide = options, witness, may_decide
        self.queue = SchedulingQueue()
        self.binder = Binder(client, self._objection)
        self.cache = ClusterCache(client, self, selectors)
        self.volumes = Volumes(client, self._volumes_changed)
        self.cache.reflectors += self.volumes.reflectors
        self.volume_binder = VolumeBinder(client, self.volumes.objects)
        self._make_decider = make_decider
        self.decider: Decider | None = None
        self._in_turns = False
        self._hints = Hints()
        self._room = self._changes = 0
        # Why pods of a class and labels fit nowhere ("" until somebody asks), and since which changes that is so.
        self._hopeless: dict[tuple[int, int], tuple[int, str]] = {}
        self._binding: set[asyncio.Task[None]] = set()
        self._binding_volumes: set[asyncio.Task[None]] = set()
        self._free = asyncio.Event()

    # Told by the cache -----------------------------------------------------------------------------------------------

    def pod_waits(self, pod: CachedPod) -> None:
        """A pod waits for a node."""
        if pod.pod.scheduler_name != self.options.name:
            return
        if pod.claims:
            self.volumes.need()
        if pod.deleting:
            self.queue.remove(pod.key)
        else:
            self.queue.add(pod)

    def pod_bound(self, pod: CachedPod) -> None:
        """A pod is on its node."""
        self.queue.remove(pod.key)

    def pod_gone(self, pod: CachedPod) -> None:
        """A pod is no more."""
        self.queue.remove(pod.key)

    def node_changed(self, slot: int, *, more: bool) -> None:
        """A node is another than it was."""
        if self.decider is not None:
            self.decider.changed(slot)
        self._changes += 1
        if more:
            self._room += 1
            self._hints.more_room(slot)
        else:
            self._hints.pod_placed()
        self.queue.nudge()

    def node_problem(self, name: str, problem: str) -> None:
        """A node makes no sense, or does again."""
        self.witness.node_problem(name, problem)

    def rebuilt(self) -> None:
        """The state is another object."""
        self._hints.forget()
        self.queue.regroup()
        self.queue.room()
        self.renew()

    # -----------------------------------------------------------------------------------------------------------------

    def renew(self) -> None:
        """Make the decider anew: the policy, the mix or the state is another."""
        self._hopeless.clear()
        if self.decider is not None:
            self.decider = self._make_decider(self.cache)

    @property
    def in_flight(self) -> int:
        """Bindings under way."""
        return len(self._binding) + len(self._binding_volumes)

    async def watch(self) -> None:
        """Keep the cache in step for as long as this runs. Raises ApiError: we may not list or watch."""
        self._in_turns = not self.may_decide()
        async with asyncio.TaskGroup() as group:
            for reflector in self.cache.reflectors:
                group.create_task(reflector.run())

    async def schedule(self) -> None:
        """Decide and bind until cancelled; needs `watch` beside it. Bindings under way are then waited for, a while."""
        for reflector in self.cache.reflectors:
            await reflector.synced.wait()
        if self._in_turns:
            # A watch may be behind what the last leader bound, or we bound without having had an answer.
            await asyncio.gather(*(reflector.relist() for reflector in self.cache.reflectors))
        self.decider = self._make_decider(self.cache)
        self._hints.warm(self.cache.state)
        log.info("scheduling", name=self.options.name, policy=self.decider.name, nodes=len(self.cache.state.slots))
        try:
            await self._loop()
        finally:
            self.decider = None
            await self._finish()

    async def _finish(self) -> None:
        """Give bindings under way some time, then give them up; what became of them the watch will tell."""
        for task in self._binding_volumes:  # these may take minutes
            task.cancel()
        if self._binding:
            await asyncio.wait(self._binding, timeout=FINISH_SECONDS)
        for task in self._binding:
            task.cancel()
        await asyncio.gather(*self._binding, *self._binding_volumes, return_exceptions=True)

    async def _loop(self) -> None:
        decisions = 0
        while True:
            self._wake()
            while len(self._binding) >= self.options.in_flight:
                self._free.clear()
                await self._free.wait()
            queued = self.queue.pop()
            if queued is None:
                await self.queue.wait(self._hints.wait_seconds() if self.queue.unschedulable else None)
                continue
            if not self.may_decide():  # whoever waits for the lease will stop us
                self.queue.add(queued.pod)
                await asyncio.sleep(LOST_SECONDS)
                continue
            self._try(queued)
            decisions += 1
            if decisions % DECISIONS_BETWEEN_BREATHS == 0:
                await asyncio.sleep(0)

    def _wake(self) -> None:
        """Have the pods tried again that what has changed may help."""
        if self.queue.unschedulable and self._hints.wait_seconds() == 0.0:
            self.queue.wake(self._hints.helped(self.cache.state, self.queue.groups))

    def _try(self, queued: QueuedPod) -> None:
        """Decide about one pod."""
        pod, cache, began = queued.pod, self.cache, time.monotonic()
        if pod.unmodelled:
            used = " and ".join(pod.unmodelled)
            why = (
                f"steersman does not place pods that use {used}; kube-scheduler does (schedulerName default-scheduler)"
            )
            self._no(queued, lambda: why, began, hopeful=False)
            return
        if pod.claims and not self.volumes.synced:  # listed in a moment; an event would say nothing
            self.queue.rest(queued)
            return
        volumes = self._fit_volumes(pod) if pod.claims else None
        if volumes is not None and volumes.problem:
            why = f"0/{len(cache.state.slots)} nodes are available: {volumes.problem}."
            self._no(queued, lambda: why, began)
            return
        others = cache.without_nominated(pod)
        if not others and volumes is None and self._is_hopeless(pod):
            self._no(queued, lambda: self._why(pod), began)
            return
        mixing = cache.gpu_pods.refusal(cache.state, pod.pod.requests)
        if pod.pod.latency.ignored and not queued.attempts:
            self.witness.ignored(queued, "; ".join(pod.pod.latency.ignored))
        assert self.decider is not None
        self.decider.waiting = self.queue.unschedulable
        cpu = time.thread_time()
        try:
            allowed = None if volumes is None else volumes.allowed(cache.state.table)
            if mixing is not None:
                allowed = ~mixing[1] if allowed is None else allowed & ~mixing[1]
            peers = cache.peers(pod.pod)
            choice = self.decider.choose(pod.class_id, pod.labels_id, peers, pod.pod.latency, allowed)
        except SteersmanError as error:
            self.queue.rest(queued)
            self.witness.failed(queued, "", str(error), time.monotonic() - began)
            return
        finally:
            cache.nominate_again(others)
        self.witness.decided(time.monotonic() - began, time.thread_time() - cpu)
        if choice is None and (volumes is not None or mixing is not None):
            refusals = [*([[mixing]] if mixing is not None else []), *(volumes.refusals if volumes is not None else [])]
            self._no(queued, lambda: message(cache.state, pod.class_id, pod.labels_id, refusals), began)
            return
        if choice is None:
            self._hopeless[pod.class_id, pod.labels_id] = self._stamp(pod), ""
            self._no(queued, lambda: self._why(pod), began)
            return
        node = cache.state.nodes[choice.slot]
        assert node is not None
        cache.assume(pod, choice.slot, choice.devices)
        plan = VolumePlan() if volumes is None else volumes.plan(choice.slot)
        if plan:
            self.volume_binder.assume(plan, node.name)
            waits = asyncio.create_task(self._bind_volumes(queued, plan, node.name, choice.devices, began))
            self._binding_volumes.add(waits)
            waits.add_done_callback(self._done)
        else:
            self._begin_binding(queued, node.name, choice.devices, began)

    def _begin_binding(self, queued: QueuedPod, node: str, devices: int, began: float) -> None:
        task = asyncio.create_task(self._bind(queued, node, devices, began))
        self._binding.add(task)
        task.add_done_callback(self._done)

    def _fit_volumes(self, pod: CachedPod) -> VolumeFit:
        """Return where a pod's claims let it go."""
        if problem := self.volumes.problem:
            return VolumeFit(problem)
        return fit(self.volumes.objects, pod.claims, pod.uid, self.cache.state.table, self.cache.claims_on)

    def _volumes_changed(self) -> None:
        self._hints.volumes_changed()
        self.queue.nudge()

    def _stamp(self, pod: CachedPod) -> int:
        """A number that is another once a pod that fits nowhere may fit somewhere."""
        return self._changes if self.cache.state.sees_others(pod.class_id, pod.labels_id) else self._room

    def _is_hopeless(self, pod: CachedPod) -> bool:
        """Whether a pod of its class and labels was tried, and nothing has changed since that may help it."""
        known = self._hopeless.get((pod.class_id, pod.labels_id))
        return known is not None and known[0] == self._stamp(pod)

    def _why(self, pod: CachedPod) -> str:
        """Why a pod fits nowhere."""
        key = pod.class_id, pod.labels_id
        stamp, why = self._hopeless.get(key, (-1, ""))
        if stamp != self._stamp(pod) or not why:
            why = message(self.cache.state, *key)
            if self.cache.node_problems:
                why += " " + node_problems_said(self.cache.node_problems)
            self._hopeless[key] = self._stamp(pod), why
        return why + (" steersman does not preempt pods." if pod.pod.priority > 0 else "")

    def _objection(self, node: str) -> str:
        """What speaks against binding to a node that was chosen a while ago."""
        if not self.may_decide():
            return "we lead no longer"
        return "" if node in self.cache.state.slots else f"node {node} was deleted"

    def _no(self, queued: QueuedPod, why: Callable[[], str], began: float, *, hopeful: bool = True) -> None:
        """A pod fits nowhere. Why is found out, and told, when that was not done a while ago."""
        self.queue.failed(queued, began, hopeful=hopeful)
        now, said = self.queue.clock(), queued.message
        if not said or now - queued.told_at >= TELL_AGAIN_SECONDS:
            found, queued.told_at = why(), now
            if _NUMBER.sub("", found) != _NUMBER.sub("", said):  # else only how many nodes there are is another
                said = found
        self.witness.unschedulable(queued, said, time.monotonic() - began)
        queued.message = said

    def _done(self, task: asyncio.Task[None]) -> None:
        self._binding.discard(task)
        self._binding_volumes.discard(task)
        self._free.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("binding failed", error=repr(error))

    async def _bind_volumes(self, queued: QueuedPod, plan: VolumePlan, node: str, devices: int, began: float) -> None:
        """Bind the claims of an assumed pod, then the pod. Other pods are decided about meanwhile."""
        try:
            await self.volume_binder.bind(plan, node)
        except SteersmanError as error:
            self._again(queued)
            self.witness.failed(queued, node, str(error), time.monotonic() - began)
            return
        except BaseException:
            self._again(queued)
            raise
        finally:
            self.volume_binder.forget(plan)
        if self.cache.pods.get(queued.pod.key) is queued.pod:
            self._begin_binding(queued, node, devices, began)

    async def _bind(self, queued: QueuedPod, node: str, devices: int, began: float) -> None:
        pod = queued.pod
        try:
            outcome, said = await self.binder.bind(pod, node, devices)
        except BaseException:
            self._again(queued)
            raise
        seconds = time.monotonic() - began
        if outcome is Outcome.BOUND:
            if self.cache.pods.get(pod.key) is pod:  # else the name is another pod's by now
                self.queue.remove(pod.key)
            self.witness.scheduled(queued, node, seconds)
            return
        self._again(queued)
        if outcome is Outcome.TAKEN:
            self.witness.taken(queued, node, said)
        elif outcome is Outcome.REFUSED:
            self.witness.failed(queued, node, said, seconds)
        else:
            log.info("not bound", pod=pod.key, node=node, why=said)

    def _again(self, queued: QueuedPod) -> None:
        """Take back where a pod was assumed, and try it again after a rest, unless it is bound or goes meanwhile."""
        pod = queued.pod
        self.cache.forget(pod)
        if self.cache.pods.get(pod.key) is pod and not pod.node and not pod.deleting:
            self.queue.rest(queued)


def node_problems_said(problems: Mapping[str, str]) -> str:
    """Return a sentence about nodes that take no pods, since they make no sense."""
    first = min(problems)
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"No pods are placed on nodes that are not understood: {first} ({problems[first]}){more}."
