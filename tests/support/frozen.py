"""Moments of simulated histories: what a prediction may know then, and when the waiting pods really started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Pod
from steersman.core.handles import Standing
from steersman.orders.run_time_history import RunTimeHistory
from steersman.policies.base import Policy
from steersman.simulation.arrivals import Schedule, schedule
from steersman.simulation.prediction.moment import RECENT_SECONDS, Arrived, ClusterMoment, Spell
from steersman.simulation.prediction.prediction import HORIZON, P10, P90, start_rank
from steersman.simulation.prediction.rollouts import Rollouts
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Recorded, Workload

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SimulatedHistory:
    """A run, all of whose pods are known: A arrivals.

    Attributes:
        workload: the trace.
        plan: its arrivals.
        run: how the pods stand at its end.
        ran: [A] seconds that each pod had run before time 0.
        start: [A] when it started, inf: never.
        end: [A] when it ended, inf: never.
    """

    workload: Workload
    plan: Schedule
    run: Standing
    ran: Floats
    start: Floats
    end: Floats

    def moment(self, now: float) -> tuple[ClusterMoment, Floats]:
        """Return the cluster at a time, and [M] the seconds after which the pods that wait then started.

        Nothing later than that is in it: neither ends of pods that run then, nor arrivals.
        """
        plan, names = self.plan, [self.workload.nodes[i].name for i in self.plan.nodes]
        # Names are unique, though a pod of the trace may arrive several times.
        pods = [
            replace(self.workload.pods[i], name=f"{k}", creation_time=None, deletion_time=None)
            for k, i in enumerate(plan.pods)
        ]
        came = np.flatnonzero(plan.time <= now)
        ended = [int(k) for k in came if self.end[k] <= now]
        ended.sort(key=lambda k: self.end[k])
        runs = [int(k) for k in came if self.start[k] <= now < self.end[k]]
        waits = [int(k) for k in came if self.start[k] > now]
        history = RunTimeHistory()
        for k in ended:
            history.note(pods[k], self._ran(k, self.end[k]))
        recorded = [Recorded(names[self.run.node[k]], int(self.run.devices[k])) for k in runs]
        there = replace(
            self.workload,
            pods=tuple(pods[k] for k in (*runs, *waits)),
            recorded=(*recorded, *(None for _ in waits)),
            from_now=True,
        )
        began = [*(-self._ran(k, now) for k in runs), *(plan.time[k] - now for k in waits)]
        window, age, gone = min(now, RECENT_SECONDS), (now - plan.time).tolist(), {*ended}
        until = np.minimum(self.end, now).tolist()
        moment = ClusterMoment(
            there,
            np.array(began),
            history,
            spells=(
                *(
                    Spell(pods[k], float(self.ran[k]), self._ran(k, until[k]), k in gone, age[k] + float(self.ran[k]))
                    for k in (*ended, *runs)
                ),
            ),
            arrived=tuple(
                Arrived(pods[k], age[k], self._ran(k, until[k]) if self.start[k] <= now else 0.0, k in gone)
                for k in came.tolist()
                if 0.0 < plan.time[k] > now - window
            ),
            observed=window,
        )
        return moment, self.start[waits] - now

    def _ran(self, k: int, until: float) -> float:
        return float(max(until - self.start[k] + self.ran[k], 1.0))


def simulated_history(workload: Workload, policy: Policy, load: float, seed: int) -> SimulatedHistory:
    """Return the run of a policy at a load. Pods of the steady state that find no room at its beginning are left out.

    They are longer than pods that arrive, so that their waiting, which no real queue knows, could not be foreseen.
    Every owner is a Job here: pods of Deployments would be replaced when they end, and these are not.
    """
    pods = (replace(pod, owner=pod.owner and f"Job/{pod.owner.rpartition('/')[2]}") for pod in workload.pods)
    workload = replace(workload, pods=tuple(pods))
    simulator = Simulator(workload)
    plan = schedule(workload, "timed", seed=seed, ratio=1.0, load=load)
    first = simulator.play(policy, plan, seed).standing
    kept = np.arange(len(plan.pods)) >= plan.warm
    kept |= (first.node >= 0) & (first.started <= 0.0)
    columns = {name: getattr(plan, name)[kept] for name in ("pods", "time", "duration", "members")}
    plan = replace(plan, **columns, warm=int(kept[: plan.warm].sum()))
    run = simulator.play(policy, plan, seed).standing
    whole = np.array([_duration(workload.pods[i]) for i in plan.pods])
    start = np.where(run.node >= 0, run.started, np.inf)
    ran = np.where(np.arange(len(plan.pods)) < plan.warm, np.maximum(whole - plan.duration, 0.0), 0.0)
    return SimulatedHistory(workload, plan, run, ran, start, start + plan.duration)


def _duration(pod: Pod) -> float:
    assert pod.deletion_time is not None
    return pod.deletion_time - (pod.creation_time or 0.0)


def recorded_history(workload: Workload, policy: Policy) -> SimulatedHistory:
    """Return the run of a policy at the arrival times of a trace, from an empty cluster on."""
    plan = schedule(workload, "timed", seed=1, ratio=1.0, load=None)
    run = Simulator(workload).play(policy, plan, 1).standing
    start = np.where(run.node >= 0, run.started, np.inf)
    return SimulatedHistory(workload, plan, run, np.zeros(len(start)), start, start + plan.duration)


class Outcome(NamedTuple):
    """Whether a pod started before, or after, the interval from P10 to P90, and whether it has several GPUs."""

    before: bool
    after: bool
    several_gpus: bool


def ranks(history: SimulatedHistory, policy: Policy, moments: int, pods: int, rollouts: int) -> Iterator[Outcome]:
    """Yield how pods that wait at random moments, in order of time, started.

    Args:
        history: the run.
        policy: who decided in it.
        moments: number of moments, from 20 to 80 % of the time of the arrivals.
        pods: number of pods that wait, at each of them: of one GPU and of several, half each where there are enough.
        rollouts: of each prediction.
    """
    random = np.random.default_rng(len(history.plan.pods))
    last = float(history.plan.time[-1])
    for now in np.sort(random.uniform(0.2 * last, 0.8 * last, moments)):
        moment, starts = history.moment(now)
        first = len(moment.workload.pods) - len(starts)
        several = np.array([pod.requests.gpu_count > 1 for pod in moment.workload.pods[first:]], dtype=np.bool_)
        order = random.permutation(len(starts))
        # The first ones of each kind in turn.
        turn = np.argsort(
            np.where(several[order], np.cumsum(several[order]), np.cumsum(~several[order])), kind="stable"
        )
        some = order[turn[:pods]]
        # Nothing arrives after the last arrival, which no prediction knows.
        played = Rollouts(moment, policy, (), min(HORIZON, last - now))
        drawn = played.starts([int(first + i) for i in some], [(int(now), k) for k in range(rollouts)])
        if not len(some):
            continue
        real = np.where(starts[some] <= played.horizon, starts[some], np.inf)
        # Beyond the horizon nothing is told apart, so that whoever starts there has any of the ranks that are left.
        later = np.isinf(drawn).sum(axis=0)
        rank = np.where(np.isinf(real), rollouts - later + random.integers(0, later + 1), (drawn < real).sum(axis=0))
        low, high = (start_rank(rollouts, share) for share in (P10, P90))
        yield from map(Outcome, (rank < low).tolist(), (rank >= high).tolist(), several[some].tolist())
