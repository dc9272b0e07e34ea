"""Rollouts from a moment: run times and arrivals are drawn, the policy and its order decide, and a pod starts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from steersman.cluster.constraints.reasons import unschedulable_message
from steersman.cluster.model import Pod
from steersman.cluster.provisional import preemption, with_nominated
from steersman.core.handles import NOWHERE, Stop
from steersman.core.processes import default_jobs
from steersman.policies.base import Policy, default_member
from steersman.policies.decision.selection import NodeRule
from steersman.simulation.arrivals import Schedule, Units, with_controllers
from steersman.simulation.prediction.coming import coming_pods
from steersman.simulation.prediction.moment import Arrived, ClusterMoment, Spell
from steersman.simulation.prediction.run_times import RunTimeDraws
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.profile import typical_pods

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DELETION_SECONDS = 30.0
"""Time that a pod takes to end which is being deleted: Kubernetes' default grace period."""
FIRST_ARRIVALS, GROWTH = 200, 4
"""Units that a rollout draws at least, and how many times more it draws if the pod has not started by then."""
LIKELY = 0.8
"""Share of the rollouts so far that would not have needed more units than the next one draws."""
MOST_ARRIVALS = 10_000
"""Pods that arrive until the horizon of a rollout, on average; and units that it draws at most."""
GAPS, KINDS, RUNNING, LATER, HAZARDS, STRETCHES, QUEUED = range(7)
"""Streams of random numbers of a rollout."""
MOST_THREADS = 8
"""Rollouts that run at once: each has its own arrays, some 10 MB."""
MOST_KEPT = 100
"""Rollouts whose draws of what runs are kept for other pods and for changes of a pod: some 10 MB."""
NOTHING: Mapping[int, int] = {}


class Rollouts:
    """Rollouts of a cluster.

    Args:
        moment: the cluster now.
        policy: who decides, with its order.
        extra: pods that are not there: variants of pods that wait, or pods that may be submitted now.
        horizon: seconds beyond which a pod counts as never starting.
    """

    def __init__(self, moment: ClusterMoment, policy: Policy, extra: Sequence[Pod], horizon: float) -> None:
        workload = moment.workload
        count = len(workload.pods)
        there = {(pod.namespace, pod.name): i for i, pod in enumerate(workload.pods)}
        gone = [each.pod for each in moment.arrived if (each.pod.namespace, each.pod.name) not in there]
        # Pods that arrive later are not those that ran, which name no node any more.
        # Extra ones come last, so that what is drawn for the others does not depend on them.
        pods = (*workload.pods, *gone, *extra)
        numbers = iter(range(count, len(pods)))
        index = [
            found if (found := there.get((each.pod.namespace, each.pod.name))) is not None else next(numbers)
            for each in moment.arrived
        ]
        none = (None,) * (len(pods) - count)
        recorded = (*(workload.recorded or (None,) * count), *none)
        everything = replace(workload, pods=pods, recorded=recorded, from_now=True)
        self.simulator = Simulator(
            everything, typical_pods(workload.pods[i] for i in workload.demand()), moment.history
        )
        self.moment, self.policy, self.first_extra = moment, policy, count + len(gone)
        ages = {(pod.namespace, pod.name): -began for pod, began in zip(workload.pods, moment.began, strict=True)}
        # A pod may have the name of one that ended: those that are there come last among the arrivals.
        dated: tuple[Spell | Arrived, ...] = (*moment.spells, *moment.arrived[::-1])
        ages |= {(each.pod.namespace, each.pod.name): each.age for each in dated}
        age = np.array([ages.get((pod.namespace, pod.name), 0.0) for pod in pods])
        self._draws = RunTimeDraws(pods, age, moment.history, moment.spells)
        self._coming = coming_pods(moment.arrived, index, moment.observed)
        self._lives: dict[tuple[int, ...], tuple[Floats, Floats]] = {}
        self.horizon = horizon
        if self._coming.rate:
            self.horizon = min(horizon, MOST_ARRIVALS / self._coming.pod_rate)

    @property
    def rate(self) -> float:
        """Return how many units (single pods, and pods that come together) arrive in a second; 0: none is known."""
        return self._coming.rate

    @cached_property
    def _running(self) -> Ints:
        """Return the pods that run, in the order in which they began."""
        running = np.array(self.simulator.workload.standing(), dtype=np.int64)
        return running[np.argsort(self.moment.began[running], kind="stable")]

    @cached_property
    def _lasting(self) -> npt.NDArray[np.bool_]:
        return np.array(
            [self.moment.history.lasts(self.moment.workload.pods[i]) for i in self._running], dtype=np.bool_
        )

    @cached_property
    def _deleted(self) -> npt.NDArray[np.bool_]:
        return np.array([self.moment.workload.pods[i].terminating for i in self._running], dtype=np.bool_)

    @cached_property
    def waiting(self) -> Ints:
        """Return the pods that wait."""
        count = len(self.moment.workload.pods)
        return np.array([i for i in range(count) if not self.moment.runs(i)], dtype=np.int64)

    @cached_property
    def _begun(self) -> Execution:
        """Return a run with all that runs now, from whose state rollouts begin."""
        return self._with(self._running)

    def refused(self, pod: Pod) -> str:
        """Return why one of the pods fits on no node now, "" if it fits on one."""
        state = self._begun.state
        c, labels = state.class_id(pod.pod_class), state.labels_id(pod)
        pods = self.simulator.workload.pods
        with with_nominated(state, (pods[i] for i in self.waiting), pod):
            return "" if state.mask(c, labels).any() else unschedulable_message(state, c, labels)

    def preemption(self, pod: Pod) -> str:
        """Return the sentence of `preemption` about a pod that waits, "": it fits, or no other is preempted for it."""
        return preemption(self._begun.state, self._begun.running(), pod) if not pod.gang and self.refused(pod) else ""

    def nodes(self, pod: Pod) -> int:
        """Return how many nodes could hold one of the pods beside the pods that stay."""
        state = self._with(self._running[self._lasting]).state
        return int(state.mask(state.class_id(pod.pod_class), state.labels_id(pod)).sum())

    def _with(self, running: Ints) -> Execution:
        """Return a run with some of the pods that run, which stay."""
        nothing = np.zeros(len(running))
        plan = Schedule(running, nothing, nothing + np.inf, self._nodes, True, len(running))
        return Execution(self.simulator, plan, self.policy, 0, record=False)

    @cached_property
    def _nodes(self) -> Ints:
        """Return the nodes in the order of the cluster, eligible ones first."""
        eligible = self.simulator.workload.eligible
        return np.concatenate([np.flatnonzero(eligible), np.flatnonzero(~eligible)])

    def starts(
        self,
        pods: Sequence[int],
        seeds: Sequence[Sequence[int]],
        instead_of: Mapping[int, int] = NOTHING,
        *,
        by: float = math.inf,
    ) -> Floats:
        """Return [R, M] the seconds after which each pod starts in each rollout, inf: not by the horizon.

        Args:
            pods: [M] pods that wait, or extra ones.
            seeds: [R] of each rollout.
            instead_of: pods that wait, and the extra ones that wait in their place; other extra ones arrive now.
            by: seconds beyond which nobody asks: later starts are inf, too.
        """
        horizon, first = min(self.horizon, by), FIRST_ARRIVALS / self._coming.rate if self._coming.rate else math.inf
        found: list[Floats] = []
        with ThreadPoolExecutor(self._threads) as threads:
            for begin in range(0, len(seeds), self._threads):
                batch = seeds[begin : begin + self._threads]
                # Most rollouts last as long as those before them did.
                last = [each.max(initial=0.0) for each in found]
                likely = float(np.quantile(last, LIKELY, method="higher")) if last else 0.0
                until = min(horizon, max(first, likely))
                starts = self._play(threads, pods, batch, instead_of, until)
                while until < horizon and (late := [k for k, each in enumerate(starts) if np.isinf(each).any()]):
                    until = min(horizon, until * GROWTH)
                    longer = self._play(threads, pods, [batch[k] for k in late], instead_of, until)
                    for k, each in zip(late, longer, strict=True):
                        starts[k] = each
                found += starts
        return np.array(found)

    @cached_property
    def _threads(self) -> int:
        """Return how many rollouts run at once: those of policies in Python, and of agents, share arrays."""
        is_external = default_member(self.policy).selection.node == NodeRule.EXTERNAL
        return 1 if is_external else min(default_jobs(), MOST_THREADS)

    def _play(
        self,
        threads: ThreadPoolExecutor,
        pods: Sequence[int],
        seeds: Sequence[Sequence[int]],
        instead_of: Mapping[int, int],
        until: float,
    ) -> list[Floats]:
        """Return by rollout [M] when the pods start, inf: not by `until`."""
        playing = []
        for seed in seeds:
            plan, targets = self.plan(pods, seed, until, instead_of)
            # Python runs in this thread alone; only the core runs in parallel.
            execution = Execution(self.simulator, plan, self.policy, 0, record=False, begun=self._begun)
            playing.append(threads.submit(_starts, execution, targets, until))
        return [each.result() for each in playing]

    def _running_until(self, seed: tuple[int, ...]) -> tuple[Floats, Floats]:
        """Return the hazards of a rollout, and the run times of what runs; those of many rollouts are kept."""
        if seed not in self._lives:
            random = [np.random.default_rng([*seed, stream]) for stream in (HAZARDS, RUNNING)]
            hazards, began = self._draws.hazards(random[0]), self.moment.began[self._running]
            duration = self._draws.draw(hazards, self._running, -began, random[1].random(len(began)))
            duration[self._deleted] = DELETION_SECONDS - began[self._deleted]
            duration[self._lasting] = np.inf
            if len(self._lives) < MOST_KEPT:
                self._lives[seed] = hazards, duration
            return hazards, duration
        return self._lives[seed]

    def plan(
        self, pods: Sequence[int], seed: Sequence[int], until: float, instead_of: Mapping[int, int] = NOTHING
    ) -> tuple[Schedule, Ints]:
        """Return the arrivals of a rollout until a time, and which of them are some pods; see `starts`."""
        random = [np.random.default_rng([*seed, stream]) for stream in (GAPS, KINDS, STRETCHES, QUEUED, LATER)]
        hazards, duration = self._running_until(tuple(seed))
        running, began = self._running, self.moment.began[self._running]
        workload, waiting = self.simulator.workload, self.waiting
        queued = Units.of(workload, np.array([instead_of.get(i, i) for i in waiting.tolist()], dtype=np.int64))
        now = Units.of(workload, np.setdiff1d(np.array(pods, dtype=np.int64), queued.pods))
        coming = self._coming.draw(until, MOST_ARRIVALS, random[:3])
        later = np.concatenate([queued.pods, now.pods, coming.pods])
        sizes = len(later) - len(coming.pods), len(coming.pods)
        ran, ended = (
            np.append(np.zeros(sizes[0]), coming.ran),
            np.append(np.zeros(sizes[0], dtype=np.bool_), coming.ended),
        )
        # Those of what arrives are the same whoever is submitted now.
        share = np.concatenate([each.random(size) for each, size in zip(random[3:], sizes, strict=True)])
        lives = np.where(ended, ran, self._draws.draw(hazards, later, ran, share))
        since = np.zeros(len(workload.pods))
        since[: len(self.moment.began)] = self.moment.began
        for old, new in instead_of.items():
            since[new] = since[old]
        alone = np.ones(len(running), dtype=np.int64)
        plan = Schedule(
            pods=np.concatenate([running, later]),
            time=np.concatenate([began, since[queued.pods], np.zeros(len(now.pods)), coming.time]),
            duration=np.concatenate([duration, lives]),
            nodes=self._nodes,
            waits=True,
            standing=len(running),
            members=np.concatenate([alone, queued.members, now.members, coming.members]),
            least=np.concatenate([alone, queued.least, now.least, coming.least]),
            queued=len(queued.pods),
        )
        begins, ends = len(running), len(running) + len(queued.pods) + len(now.pods)
        plan = with_controllers(plan, workload, ends)
        place = {int(pod): k for k, pod in enumerate(plan.pods[begins:ends], begins)}
        return plan, np.array([place[pod] for pod in pods], dtype=np.int64)


def _starts(execution: Execution, targets: Ints, until: float) -> Floats:
    """Return [M] when each of the arrivals `targets` starts, inf: not by `until`."""
    while execution.advance_to(targets, until) == Stop.NEEDS_NODE:
        execution.answer()
    standing = execution.standing
    starts = np.where(standing.node[targets] != NOWHERE, standing.started[targets], np.inf)
    return np.where(starts <= until, starts, np.inf)
