"""The scheduling loop: pop a pod, decide, assume it on its node, and bind in the background."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Generator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog

from steersman.cluster.arrays import room_for
from steersman.cluster.constraints.node import Mask
from steersman.cluster.constraints.reasons import FurtherRefusals, other_gpus, unschedulable_message
from steersman.cluster.volumes import VolumeFit, VolumePlan, fit
from steersman.core.errors import SteersmanError
from steersman.core.event_loop import TimeSlices
from steersman.kubernetes.cache.cached_pod import CachedPod, Listener
from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.kubernetes.client import Client
from steersman.kubernetes.selectors import Selectors
from steersman.kubernetes.volumes import Volumes, storage_scores
from steersman.live.scheduler.backfill import Backfill
from steersman.live.scheduler.binder import Binder, BindOutcome
from steersman.live.scheduler.device_binder import DeviceBinder
from steersman.live.scheduler.hints import Hints
from steersman.live.scheduler.ordering import PodOrdering, QueuedPod
from steersman.live.scheduler.queue import SchedulingQueue
from steersman.live.scheduler.reporting import StatusReporter
from steersman.live.scheduler.takeover import fence
from steersman.live.scheduler.volume_binder import VolumeBinder
from steersman.orders.live_order import LiveOrder, free_share
from steersman.policies.decision.decider import Decider, NodeChoice
from steersman.policies.decision.selection import NodeRule

IN_FLIGHT = 64  # maximum number of concurrent bindings
SCHEDULER_NAME = "steersman"
FINISH_SECONDS = 4.0  # time for bindings in flight at shutdown; a lost lease is valid for 5 s more
LOST_SECONDS = 0.1
ONE_BY_ONE = "steersman schedule places its pods one by one; they start together in simulations alone"
GANGS_KEPT = 1000  # gangs that are remembered, since only one pod of each tells that it is placed alone
TELL_AGAIN_SECONDS = 30.0  # minimum time between two computations of why a pod is unschedulable
SIZE_SECONDS = 10.0  # interval of checks whether the cluster's size changed, which sizes of pods follow in orders
_NUMBER = re.compile("[0-9]+")

log = structlog.get_logger("scheduler")


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Pods of a scheduler."""

    name: str = SCHEDULER_NAME  # `schedulerName` of its pods
    in_flight: int = IN_FLIGHT  # maximum number of concurrent bindings


class Scheduler(Listener):
    """Scheduler of one cluster."""

    def __init__(
        self,
        client: Client,
        make_decider: Callable[[ClusterCache], Decider],  # builds the policy's decider for the state of the cache
        reporter: StatusReporter,  # reports results
        options: SchedulerOptions,  # pods of this scheduler
        # Returns, before each decision and binding, whether we still hold the lease. If it is false when `watch`
        # starts, another scheduler leads, and all is listed again before leading.
        may_decide: Callable[[], bool] = lambda: True,
        # Returns, when `schedule` starts, our identity if the last leader has not released the lease, else "". Its
        # bindings are invalidated then.
        succeeds: Callable[[], str] = lambda: "",
        selectors: Selectors | None = None,  # what selects pods for default spreading, for policies that use it
        clock: Callable[[], float] = time.monotonic,
        order: LiveOrder | None = None,  # who goes next among the waiting pods; None: the oldest
    ) -> None:
        self.options, self.reporter, self.may_decide, self.succeeds = options, reporter, may_decide, succeeds
        self.client = client
        self.queue = SchedulingQueue(clock, None if order is None else PodOrdering(order, clock))
        self.binder = Binder(client, self._pre_bind_check)
        self.cache = ClusterCache(client, self, selectors, ranked=True)
        self.volumes = Volumes(client, self._volumes_changed)
        self.cache.reflectors += self.volumes.reflectors
        self.volume_binder = VolumeBinder(client, self.volumes.objects)
        self.device_binder = DeviceBinder(client, self.cache.device_claims)
        self.backfill: Backfill | None = None
        if self.queue.ordering is not None and self.queue.ordering.order.reserves:
            self.backfill = Backfill(self.queue.ordering, self.cache, clock)
        if order is not None:
            order.free = lambda: free_share(self.cache.state, order.size)
            order.use = self.cache.use
        self._sized_at = -math.inf
        self._make_decider = make_decider
        self.decider: Decider | None = None
        self._relist_before_leading = False
        self._clock, self._hints = clock, Hints(clock)
        self._capacity_generation = self._changes = 0
        self._told_gangs: dict[tuple[str, str], None] = {}
        self._unlisted_claims: set[str] = set()  # claims of pods that wait until claims are listed
        self._is_displacing = False  # changes of nodes will be undone
        # By class and labels of pods that fit nowhere: when that was found (a stamp), and why ("": not computed yet).
        self._unschedulable_cache: dict[tuple[int, int], tuple[tuple[bool, int], str]] = {}
        self._binding: set[asyncio.Task[Any]] = set()
        self._binding_volumes: set[asyncio.Task[Any]] = set()
        self._free = asyncio.Event()
        self.all_bindings_ended = True  # whether none had to be cancelled when `schedule` ended

    # Callbacks of the cache -------------------------------------------------------------------------------------------

    def on_pod_pending(self, pod: CachedPod) -> None:
        """Queue a pod that waits for a node."""
        if pod.pod.scheduler_name != self.options.name:
            return
        # Volumes are listed only once a pod needs them, and early, so that the pod waits less.
        if pod.claims:
            self.volumes.need()
        if pod.deleting:
            self.queue.remove(pod.key)
        else:
            self.queue.add(pod)

    def on_pod_bound(self, pod: CachedPod) -> None:
        self.queue.remove(pod.key)

    def on_pod_deleted(self, pod: CachedPod) -> None:
        """Remove a deleted or finished pod from the queue."""
        self.queue.remove(pod.key)

    def on_node_changed(self, slot: int, *, may_have_grown: bool) -> None:
        """Note a change of a node or of the pods on it, and that the loop is to look which waiting pods it may help."""
        if self.decider is not None:
            # Also while nominated pods are displaced: the decider must see the nodes as they are at the decision.
            self.decider.changed(slot)
        if self._is_displacing:
            return
        self._changes += 1
        self._capacity_generation += may_have_grown
        self._hints.node_changed(slot, may_have_grown=may_have_grown)
        self.queue.nudge()

    def on_node_problem(self, name: str, problem: str) -> None:
        """Report a node whose object makes no sense, or is valid again."""
        self.reporter.on_node_problem(name, problem)

    def on_rebuilt(self) -> None:
        # The slots in it are those of the old state.
        self._hints.forget()
        self.queue.regroup()
        self.queue.move_all_to_backoff()
        self.renew()

    # -----------------------------------------------------------------------------------------------------------------

    def renew(self) -> None:
        """Rebuild the decider after the policy, the workload profile or the state changed."""
        self._unschedulable_cache.clear()
        # None while another scheduler leads; `schedule` makes one then.
        if self.decider is not None:
            self.decider = self._make_decider(self.cache)

    @property
    def in_flight(self) -> int:
        return len(self._binding) + len(self._binding_volumes)

    async def watch(self) -> None:
        """Keep the cache up to date until cancelled. Raises ApiError: the API server refuses to list or watch."""
        self._relist_before_leading = not self.may_decide()
        async with asyncio.TaskGroup() as group:
            for reflector in self.cache.reflectors:
                group.create_task(reflector.run())

    async def schedule(self) -> None:
        """Decide and bind until cancelled, beside `watch`; bindings in flight then get some time."""
        for reflector in self.cache.reflectors:
            await reflector.synced.wait()
        if self._relist_before_leading:
            # A watch may lag behind bindings of the last leader, or of our own whose answer was lost.
            await asyncio.gather(*(reflector.relist() for reflector in self.cache.reflectors))
        await self.client.open_connections(self.options.in_flight)
        if leader := self.succeeds():
            await fence(self.client, self.cache, self.options.name, leader, self.options.in_flight)
        self.decider = self._make_decider(self.cache)
        log.info(
            "scheduling", name=self.options.name, policy=self.decider.name, order=self.queue.order_name,
            nodes=len(self.cache.state.slots),
        )  # fmt: skip
        try:
            await self._loop()
        finally:
            self.decider = None
            await self._finish()

    async def _finish(self) -> None:
        """Cancel bindings in flight, after some time if we still lead; the watch will report what became of them."""
        for task in self._binding_volumes:  # these may take minutes
            task.cancel()
        if self._binding and self.may_decide():
            await asyncio.wait(self._binding, timeout=FINISH_SECONDS)
        self.all_bindings_ended = not self._binding
        for task in self._binding:
            task.cancel()
        await asyncio.gather(*self._binding, *self._binding_volumes, return_exceptions=True)

    async def _loop(self) -> None:
        slices = TimeSlices()
        while True:
            await slices.give_way()
            self.refresh()
            # Before `pop`: a pod of higher priority that arrives during the wait is then tried first.
            while len(self._binding) >= self.options.in_flight:
                self._free.clear()
                await self._free.wait()
            queued = self.queue.pop()
            if queued is None:
                await self.queue.wait(self.wait_seconds())
                continue
            if not self.may_decide():  # the lease is lost; the election will cancel us
                self.queue.add(queued.pod)
                await asyncio.sleep(LOST_SECONDS)
                continue
            if self.decider is not None and self.decider.asks_first and not await self._ask(queued):
                continue
            self.schedule_one(queued)

    def wait_seconds(self) -> float | None:
        """Return how long to wait for a pod to be tried before changes, or the reservation, are looked at again."""
        waits = [self._hints.wait_seconds() if self.queue.unschedulable else None]
        if self.backfill is not None:
            waits.append(self.backfill.wait_seconds())
        return min((seconds for seconds in waits if seconds is not None), default=None)

    def refresh(self) -> None:
        """Requeue the unschedulable pods that recorded changes, or the end of a reservation, help."""
        if self._clock() - self._sized_at >= SIZE_SECONDS:
            self._sized_at = self._clock()
            self.queue.follow_cluster(self.cache.state)
        if self.backfill is not None:
            self.queue.retry(self.backfill.refresh())
        if self._unlisted_claims and self.volumes.synced:
            for claim in self._unlisted_claims:
                self._hints.volumes_changed(claim)
            self._unlisted_claims.clear()
        if not self.queue.unschedulable:
            # Nobody waits for them.
            self._hints.forget()  # the next decisions see these changes
        elif self._hints.wait_seconds() == 0.0:
            self.queue.wake(self._hints.helped(self.queue.groups(), self.queue.singles, self._room))

    def _room(self, pod: CachedPod, freed: Set[int]) -> int:
        """Return how many pods like this one to try: as many as fit now, at least.

        Only nodes in `freed` can help a pod without rules about other pods, host ports or claims. Of pods with such
        rules one for each node is tried; when it is placed, that change is looked at in turn.
        """
        state = self.cache.state
        with self.cache.numbered(pod):
            if not state.room(pod.class_id).any() and not self.cache.nominated:
                return 0
            return self._numbered_room(pod, freed)

    def _numbered_room(self, pod: CachedPod, freed: Set[int]) -> int:
        state = self.cache.state
        with self._nominated_displaced(pod) as allowed:
            if pod.claims or state.has_inter_pod_constraints(pod.class_id, pod.labels_id):
                feasible = self._feasible(pod)
                return int(np.count_nonzero(feasible if allowed is None else feasible & allowed))
            slots = np.array(sorted(slot for slot in freed if slot < len(state.nodes)), dtype=np.int64)
            if allowed is not None:
                slots = slots[allowed[slots]]
            if mixing := self.cache.gpu_pods.refusal(state, pod.pod.requests):
                slots = slots[~mixing[1][slots]]
            return room_for(state.arrays, state.class_arrays, pod.class_id, slots)

    def _feasible(self, pod: CachedPod) -> Mask:
        state = self.cache.state
        feasible = state.mask(pod.class_id, pod.labels_id)
        if mixing := self.cache.gpu_pods.refusal(state, pod.pod.requests):
            feasible &= ~mixing[1]
        if pod.claims and feasible.any():
            feasible &= self._fit_volumes(pod).allowed(state.table) if self.volumes.synced else False
        return feasible

    @contextmanager
    def _nominated_displaced(self, pod: CachedPod) -> Generator[Mask | None]:
        self._is_displacing = True
        try:
            with self.cache.expected.without_nominated(pod) as allowed:
                yield allowed
        finally:
            self._is_displacing = False

    async def _ask(self, queued: QueuedPod) -> bool:
        """Let a server, an agent or a thread prepare a decision; return whether the pod still waits for it."""
        assert self.decider is not None
        pod = queued.pod
        if not pod.unmodelled:
            self.decider.waiting = self.queue.unschedulable
            try:
                await self.decider.ask(self.cache.query(pod))
            except BaseException:  # cancelled: we lead no longer, or end
                if queued.place == "tried":
                    self.queue.add(pod)
                raise
        return queued.place == "tried"  # else it was bound, deleted or changed meanwhile

    def schedule_one(self, queued: QueuedPod) -> None:
        """Decide on a pod, and begin to bind it."""
        pod, cache, began = queued.pod, self.cache, self._clock()
        if pod.unmodelled:
            used = " and ".join(pod.unmodelled)
            why = (
                f"steersman does not place pods that use {used}; kube-scheduler does (schedulerName default-scheduler)"
            )
            self._mark_unschedulable(queued, lambda: why, began, hopeful=False)
            return
        if pod.claims and not self.volumes.synced:  # claims are being listed; an event would be premature
            self.queue.wait_for_change(queued)
            self.queue.let_overtake(queued)
            self._unlisted_claims.update(claim.key for claim in pod.claims)
            return
        # At the first attempt only, or each retry would write the events again.
        if not queued.attempts:
            self._report_ignored(queued)
        volumes = self._fit_volumes(pod) if pod.claims else None
        if volumes is not None and volumes.problem:
            why = f"0/{len(cache.state.slots)} nodes are available: {volumes.problem}."
            self._mark_unschedulable(queued, lambda: why, began, waits_for_room=False)
            return
        if not cache.number_waiting(pod) and not self._fits_somewhere(queued, volumes, began):
            return
        cache.number(pod)
        # The cached answer does not hold for a pod with claims, or one that nominated pods yield to.
        if volumes is None and not cache.expected.displaces(pod) and self._is_known_unschedulable(pod):
            self._mark_unschedulable(queued, lambda: self._why(pod), began)
            return
        closed = None if self.backfill is None else self.backfill.closed(queued)
        if (
            closed is not None
            and self.backfill is not None
            and self.backfill.is_known(queued, self._capacity_generation)
        ):
            self._refuse(queued, began)
            return
        is_refused = False
        with self._nominated_displaced(pod) as allowed:
            mixing = cache.gpu_pods.refusal(cache.state, pod.pod.requests)
            assert self.decider is not None
            self.decider.waiting = self.queue.unschedulable
            cpu = time.thread_time()
            try:
                if volumes is not None:
                    fitting = volumes.allowed(cache.state.table)
                    allowed = fitting if allowed is None else allowed & fitting
                if mixing is not None:
                    allowed = ~mixing[1] if allowed is None else allowed & ~mixing[1]
                choice, is_refused = self._choose(queued, volumes, allowed, closed)
            except SteersmanError as error:
                self.queue.requeue_with_backoff(queued)
                self.reporter.failed(queued, "", str(error), self._clock() - began)
                return
        self.reporter.decided(self._clock() - began, time.thread_time() - cpu)
        if is_refused:
            self._refuse(queued, began)
            return
        if choice is None and (volumes is not None or mixing is not None):
            refusals = self._refusals(pod, volumes)
            # GPUs that pods of another kind hold are free once these end.
            waits_for_room = None if mixing is None else cache.state.fits_when_empty(pod.class_id)
            self._mark_unschedulable(queued, lambda: self._why(pod, refusals), began, waits_for_room=waits_for_room)
            return
        if choice is None:
            self._unschedulable_cache[pod.class_id, pod.labels_id] = self._stamp(pod), ""
            self._mark_unschedulable(queued, lambda: self._why(pod), began)
            return
        node = cache.state.nodes[choice.slot]
        assert node is not None
        # Before anything is awaited, so that the next decision counts them.
        cache.expected.assume(pod, choice.slot, choice.devices)
        self.queue.note_success(pod)
        plan = VolumePlan() if volumes is None else volumes.plan(choice.slot)
        if plan:
            self.volume_binder.assume(plan, node.name)
            waits = asyncio.create_task(self._bind_volumes(queued, plan, node.name, choice.devices, began))
            # Not among `_binding`: it may take minutes, and must not use up the concurrent bindings.
            self._binding_volumes.add(waits)
            waits.add_done_callback(self._done)
        elif resources := cache.offered_devices(pod.pod, node.name):
            claims = asyncio.create_task(self._bind_devices(queued, resources, node.name, choice.devices, began))
            self._binding.add(claims)
            claims.add_done_callback(self._done)
        else:
            self._begin_binding(queued, node.name, choice.devices, began)

    def _fits_somewhere(self, queued: QueuedPod, volumes: VolumeFit | None, began: float) -> bool:
        """Return whether a pod that has no numbers fits on a node; mark it unschedulable if not."""
        pod, why = queued.pod, queued.message
        with self.cache.numbered(pod):
            with self._nominated_displaced(pod) as allowed:
                feasible = self._feasible(pod)
            if bool((feasible if allowed is None else feasible & allowed).any()):
                return True
            waits_for_room = self.queue.holds_back and self._waits_for_room(pod)
            if self._reason_is_due(queued):
                why = self._why(pod, self._refusals(pod, volumes), shared=False)
        self._mark_unschedulable(queued, lambda: why, began, waits_for_room=waits_for_room)
        return False

    def _refusals(self, pod: CachedPod, volumes: VolumeFit | None) -> FurtherRefusals:
        mixing = self.cache.gpu_pods.refusal(self.cache.state, pod.pod.requests)
        return [*([[mixing]] if mixing is not None else []), *(volumes.refusals if volumes is not None else [])]

    def _report_ignored(self, queued: QueuedPod) -> None:
        pod = queued.pod.pod
        if pod.latency.ignored:
            self.reporter.ignored(queued, "LatencyLimitIgnored", pod.latency.ignored)
        if pod.ignored:
            self.reporter.ignored(queued, "AnnotationIgnored", pod.ignored)
        if pod.gang and (gang := (pod.namespace, pod.gang)) not in self._told_gangs:
            self._told_gangs[gang] = None
            if len(self._told_gangs) > GANGS_KEPT:
                del self._told_gangs[next(iter(self._told_gangs))]
            self.reporter.ignored(queued, "GangIgnored", [f"gang {pod.gang}: {ONE_BY_ONE}"])

    def _choose(
        self, queued: QueuedPod, volumes: VolumeFit | None, allowed: Mask | None, closed: Mask | None
    ) -> tuple[NodeChoice | None, bool]:
        """Return the policy's choice, and whether only a reservation refused the pod.

        Args:
            volumes: what its claims get on nodes; None: it has none.
            allowed: nodes that it may take, [N]; None: all.
            closed: nodes that it may take only if it leaves room for the pod that goes next, [N]; None: none.
        """
        assert self.decider is not None
        query, others = self.cache.query(queued.pod), allowed
        if volumes is not None:
            query = replace(query, storage=self._storage_scores(volumes))
        if closed is not None:
            assert self.backfill is not None
            others = ~closed if allowed is None else allowed & ~closed
            # A server or an agent is asked once, so it gets none of the closed nodes.
            if not self.decider.answers_once:
                choice = self.decider.choose(query.within(allowed))
                if choice is None or self.backfill.lets(queued, choice):
                    return choice, False
        choice = self.decider.choose(query.within(others))
        return choice, choice is None and closed is not None and bool(self._feasible(queued.pod).any())

    def _refuse(self, queued: QueuedPod, began: float) -> None:
        assert self.backfill is not None
        why = self.backfill.refuse(queued, self._capacity_generation)
        self._mark_unschedulable(queued, lambda: why, began, waits_for_room=True)

    def _begin_binding(self, queued: QueuedPod, node: str, devices: int, began: float) -> None:
        task: asyncio.Task[Any] = asyncio.create_task(self._bind(queued, node, devices, began))
        self._binding.add(task)
        task.add_done_callback(self._done)

    def _fit_volumes(self, pod: CachedPod) -> VolumeFit:
        if problem := self.volumes.problem:
            return VolumeFit(problem)
        return fit(self.volumes.objects, pod.claims, pod.uid, self.cache.state.table, self.cache.claims_on)

    def _storage_scores(self, volumes: VolumeFit) -> npt.NDArray[np.int64] | None:
        """Return what kube-scheduler's VolumeBinding adds to the scores of nodes, [N], if the policy is one of its."""
        assert self.decider is not None
        profile = self.decider.selection.kube
        if self.decider.selection.node != NodeRule.KUBE_SCHEDULER or not profile.storage_weight:
            return None
        scores = storage_scores(volumes, profile.storage_shape)
        return None if scores is None else profile.storage_weight * scores

    def _volumes_changed(self, claim: str) -> None:
        self._hints.volumes_changed(claim)
        self.queue.nudge()

    def _stamp(self, pod: CachedPod) -> tuple[bool, int]:
        """Return what changes whenever a pod that fits nowhere may fit somewhere."""
        has_rules = self.cache.state.has_inter_pod_constraints(pod.class_id, pod.labels_id)
        return has_rules, self._changes if has_rules else self._capacity_generation

    def _is_known_unschedulable(self, pod: CachedPod) -> bool:
        known = self._unschedulable_cache.get((pod.class_id, pod.labels_id))
        return known is not None and known[0] == self._stamp(pod)

    def _why(self, pod: CachedPod, refusals: FurtherRefusals = (), *, shared: bool = True) -> str:
        """Return why a pod fits nowhere.

        Args:
            refusals: what its volumes and GPU pods on nodes refuse.
            shared: whether pods with its numbers share the reason; not if they are taken back.
        """
        key = pod.class_id, pod.labels_id
        stamp, why = self._unschedulable_cache.get(key, (None, ""))
        if refusals or not shared:
            why = self._reason(pod, refusals)
        elif stamp != self._stamp(pod) or not why:
            if self.cache.state.mask(*key).any():  # beside nominated pods alone, which may not come
                with self._nominated_displaced(pod):
                    why = self._reason(pod)
            else:
                why = self._reason(pod)
            self._unschedulable_cache[key] = self._stamp(pod), why
        return why + (" steersman does not preempt pods." if pod.pod.priority > 0 else "")

    def _reason(self, pod: CachedPod, refusals: FurtherRefusals = ()) -> str:
        state = self.cache.state
        parts = [unschedulable_message(state, pod.class_id, pod.labels_id, refusals), other_gpus(state, pod.class_id)]
        if self.cache.node_problems:
            parts.append(node_problems_sentence(self.cache.node_problems))
        return " ".join(filter(None, parts))

    def _pre_bind_check(self, node: str) -> str:
        """Return what forbids binding to a node that was chosen a while ago, "" for nothing."""
        if not self.may_decide():
            return "we lead no longer"
        return "" if node in self.cache.state.slots else f"node {node} was deleted"

    def _mark_unschedulable(
        self,
        queued: QueuedPod,
        why: Callable[[], str],
        began: float,
        *,
        hopeful: bool = True,  # whether a change of the cluster may help it
        # Whether it starts once enough other pods have ended; None: the state tells
        waits_for_room: bool | None = None,
    ) -> None:
        """Mark a pod unschedulable; compute and report the reason unless that was done recently."""
        self.queue.mark_unschedulable(queued, hopeful=hopeful)
        if self.queue.holds_back:
            if waits_for_room is None:
                waits_for_room = self._waits_for_room(queued.pod)
            if not waits_for_room:
                self.queue.let_overtake(queued)
        # After a restart the API has the last message; it is not written again.
        message = queued.message = queued.message or queued.pod.refusal
        if self._reason_is_due(queued):
            reason, queued.reported_at = why(), self.queue.clock()
            if _NUMBER.sub("", reason) != _NUMBER.sub("", message):  # else only the number of nodes differs
                message = reason
        self.reporter.unschedulable(queued, message, self._clock() - began)
        queued.message = message

    def _waits_for_room(self, pod: CachedPod) -> bool:
        # Where it has room its volumes or other pods refuse it, and no reservation would change that.
        return self.cache.state.fits_when_empty(pod.class_id) and not self.cache.state.room(pod.class_id).any()

    def _reason_is_due(self, queued: QueuedPod) -> bool:
        return not queued.message or self.queue.clock() - queued.reported_at >= TELL_AGAIN_SECONDS

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._binding.discard(task)
        self._binding_volumes.discard(task)
        self._free.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("binding failed", error=repr(error))

    async def _bind_volumes(self, queued: QueuedPod, plan: VolumePlan, node: str, devices: int, began: float) -> None:
        try:
            await self.volume_binder.bind(plan, node)
        except SteersmanError as error:
            self._requeue(queued)
            self.reporter.failed(queued, node, str(error), self._clock() - began)
            return
        except BaseException:
            self._requeue(queued)
            raise
        finally:
            # In every case: the watch shows bound claims by now, and others are free again.
            self.volume_binder.forget(plan)
        # The pod may have been deleted, or created again, while its volumes were bound.
        if self.cache.pods.get(queued.pod.key) is queued.pod:
            self._begin_binding(queued, node, devices, began)

    async def _bind_devices(
        self, queued: QueuedPod, resources: list[str], node: str, devices: int, began: float
    ) -> None:
        try:
            claim = await self.device_binder.bind(queued.pod, node, resources)
        except SteersmanError as error:
            self._requeue(queued)
            self.reporter.failed(queued, node, str(error), self._clock() - began)
            return
        except BaseException:
            self._requeue(queued)
            raise
        if not await self._bind(queued, node, devices, began):
            await self.device_binder.release(queued.pod, claim)

    async def _bind(self, queued: QueuedPod, node: str, devices: int, began: float) -> bool:
        pod = queued.pod
        try:
            outcome, message = await self.binder.bind(pod, node, devices)
        except BaseException:
            self._requeue(queued)
            raise
        seconds = self._clock() - began
        if outcome is BindOutcome.BOUND:
            if self.cache.pods.get(pod.key) is pod:  # else the name belongs to a new pod
                self.queue.remove(pod.key)
            self.reporter.scheduled(queued, node, seconds)
            return True
        self._requeue(queued)
        if outcome is BindOutcome.TAKEN:
            self.reporter.taken(queued, node, message)
        elif outcome is BindOutcome.REFUSED:
            self.reporter.failed(queued, node, message, seconds)
        else:
            log.info("not bound", pod=pod.key, node=node, why=message)
        return False

    def _requeue(self, queued: QueuedPod) -> None:
        """Forget where a pod was assumed, and retry it after a backoff, unless it is bound or deleted meanwhile."""
        pod = queued.pod
        self.cache.expected.forget(pod)
        if self.cache.pods.get(pod.key) is pod and not pod.node and not pod.deleting:
            self.queue.requeue_with_backoff(queued)


def node_problems_sentence(problems: Mapping[str, str]) -> str:
    """Return a sentence about nodes that take no pods since their objects make no sense."""
    first = min(problems)
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"No pods are placed on nodes that are not understood: {first} ({problems[first]}){more}."
