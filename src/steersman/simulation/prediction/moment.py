"""A cluster at a moment: what runs and since when, what waits, what arrived lately, and what is known of run times."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Pod
from steersman.orders.run_time_history import RunTimeHistory
from steersman.workloads.workload import Life, Workload

Floats = npt.NDArray[np.float64]

DAY = 86_400.0
RECENT_SECONDS = 7 * DAY
"""Pods that arrived longer ago say nothing of the arrivals to come."""
RECENT_ARRIVALS = 2000
"""Of more arrivals only the latest count, see `coming`."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A pod that arrived lately."""

    pod: Pod
    age: float  # seconds since its arrival
    ran: float = 0.0  # seconds that it has run so far, or ran until it ended
    ended: bool = False  # whether it has ended


@dataclass(frozen=True, slots=True)
class Spell:
    """The time during which a pod was seen to run."""

    pod: Pod
    entered: float  # seconds that it had run when it was first seen: 0 if it began later
    left: float  # seconds that it had run when it ended, or has run by now
    ended: bool  # whether it has ended
    age: float = 0.0  # seconds since its arrival


@dataclass(frozen=True)
class ClusterMoment:
    """A cluster at time 0; nothing in it is known from later."""

    workload: Workload  # nodes and pods; those that run stay where they are (`Workload.from_now`)
    began: Floats  # [P] when each pod began to run, or to wait, in seconds: at most 0
    history: RunTimeHistory  # run times of pods that ended, as the order knows them
    # pods that were seen to run, those that ended first; () : the history alone is known
    spells: tuple[Spell, ...] = ()
    arrived: tuple[Arrived, ...] = ()  # pods that arrived lately, whatever became of them
    observed: float = field(default=RECENT_SECONDS)  # seconds for which arrivals were observed, inf: since they began
    undated: tuple[int, int] = (0, 0)  # number of running pods, and of waiting ones, of which nothing says since when

    def runs(self, i: int) -> bool:
        """Return whether a pod runs."""
        return bool(self.workload.recorded) and self.workload.recorded[i] is not None


def moment_of(workload: Workload, now: float, history: RunTimeHistory | None = None) -> ClusterMoment:
    """Return a cluster now, as far as the lives of its pods tell.

    Args:
        workload: nodes and pods with their lives; running pods stay (`Workload.from_now`).
        now: seconds since 1970.
        history: run times of what ended; None: learned from the pods that ended.
    """
    lives = workload.lives
    present = [lives.present.get((pod.namespace, pod.name), Life(None, None)) for pod in workload.pods]
    recorded = workload.recorded or (None,) * len(present)
    since_when = [
        life.created if where is None else life.started or life.created
        for life, where in zip(present, recorded, strict=True)
    ]
    began = [min(time or now, now) - now for time in since_when]
    undated = [where is None for time, where in zip(since_when, recorded, strict=True) if time is None]
    # What ended before the first end that is still listed has been deleted.
    since = min((each.ended for each in lives.ended), default=-math.inf) - now
    every = [
        *(
            Arrived(pod, now - life.created, 0.0 if where is None else -time)
            for pod, life, where, time in zip(workload.pods, present, recorded, began, strict=True)
            if life.created is not None
        ),
        *(Arrived(each.pod, now - each.created, each.ended - each.started, True) for each in lives.ended),
    ]
    observed = min(RECENT_SECONDS, -since, max((each.age for each in every), default=0.0))
    listed = _history(workload)
    known = listed if history is None else history
    if not known.ratios:
        # Older files keep nothing of stated run times.
        known.ratios.update(listed.ratios)
    of_each = len(undated) - sum(undated), sum(undated)
    moment = ClusterMoment(workload, np.array(began), known, observed=observed, undated=of_each)
    arrived = (each for each in every if 0.0 <= each.age <= observed and not moment.history.lasts(each.pod))
    if history is not None:
        return replace(moment, arrived=tuple(arrived))
    return replace(moment, arrived=tuple(arrived), spells=tuple(_spells(moment, now, since)))


def _history(workload: Workload) -> RunTimeHistory:
    history = RunTimeHistory()
    for each in workload.lives.ended:
        history.note(each.pod, each.ended - each.started)
    return history


def _spells(moment: ClusterMoment, now: float, since: float) -> Iterator[Spell]:
    """Yield the spells of the pods that ended, and then of those that run, as seen from `since` on."""
    for each in moment.workload.lives.ended:
        # The first one counts whole, or nothing could be learned from it.
        entered = max(since + now - each.started, 0.0) if each.ended - now > since else 0.0
        yield Spell(each.pod, entered, each.ended - each.started, True, now - each.created)
    for i in moment.workload.standing():
        pod, ran = moment.workload.pods[i], -float(moment.began[i])
        if not moment.history.lasts(pod):
            created = moment.workload.lives.present.get((pod.namespace, pod.name), Life(None, None)).created
            age = ran if created is None else now - created
            yield Spell(pod, min(max(since + ran, 0.0), ran), ran, False, age)
