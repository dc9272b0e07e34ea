"""The reward of every decision of a finished run: what an environment of training would have given for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.objectives import summary as state
from steersman.objectives.registry import WeightedObjectives
from steersman.objectives.summary import rewards
from steersman.simulation.event_arrays import (
    ARRIVAL,
    BOUND,
    CAUSE,
    CPU_SHARE,
    CPU_SQUARE,
    EVICTED,
    FINISHED,
    NOW_WAITING,
    OUTCOME,
    SLOT,
    TOTALS,
    TOTALS_IN_SUMMARY,
    EventRecord,
)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DecisionStates:
    """The states of a run around its decisions.

    Attributes:
        decisions: [D] events at which a policy bound a pod.
        before, after: [D, 16] states before and after them, see `objectives.summary`.
        events: number of events.
    """

    decisions: npt.NDArray[np.int64]
    before: Floats
    after: Floats
    events: int

    def rewards(self, objective: WeightedObjectives) -> Floats:
        """Return [D] the rewards of the decisions. Raises SteersmanError: a user's own objective failed."""
        return rewards(objective, self.before, self.after)

    def over_events(self, values: Floats) -> Floats:
        """Return [E] the value, of [D], of the last decision up to each event; NaN before the first one."""
        result = np.full(self.events, np.nan)
        if len(values):
            last = np.searchsorted(self.decisions, np.arange(self.events), side="right") - 1
            result = np.where(last >= 0, values[np.maximum(last, 0)], np.nan)
        return result


def decision_states(
    record: EventRecord,
    first: Floats,
    rack: npt.NDArray[np.int64],
    owner_of: npt.NDArray[np.int64],
    standing: int,
    waits: bool,
) -> DecisionStates:
    """Return the states of a run around its decisions.

    Args:
        record: of the run, E events.
        first: [16] the state before its first event.
        rack: [N] number of each node's rack, -1: none.
        owner_of: [A] owner of each arrival, -1: none.
        standing: number of first arrivals that no policy decided about.
        waits: whether pods wait.
    """
    count, numbers, sums = len(record.time), record.numbers, record.sums
    # [E + 1, 16]: row k is the state before event k, row k + 1 the one after it.
    rows = np.tile(first, (count + 1, 1))
    # A view: what is written below also is the state before the next event.
    after = rows[1:]
    after[:, TOTALS_IN_SUMMARY] = numbers[:, TOTALS]
    after[:, [state.CPU_SHARE, state.CPU_SQUARE]] = sums[:, [CPU_SHARE, CPU_SQUARE]]
    # The sums are kept by adding and subtracting, which rounds.
    after[:, state.FRAGMENTED] = np.maximum(sums[:, CAUSE:].sum(axis=1), 0.0)
    _localities(rack, owner_of, numbers, after)
    is_decision = (numbers[:, OUTCOME] == BOUND) & (numbers[:, ARRIVAL] >= standing)
    decisions = np.flatnonzero(is_decision)
    later = after[decisions]
    if waits and len(decisions):
        waited = np.concatenate([[0.0], np.cumsum(numbers[:-1, NOW_WAITING] * np.diff(record.time))])
        # From a decision to the next one; after the last one to the end of the run.
        until = np.append(decisions[1:], count - 1)
        later[:, state.POD_SECONDS_WAITED] = waited[until] - waited[decisions]
    return DecisionStates(decisions, rows[decisions], later, count)


def _localities(
    rack: npt.NDArray[np.int64], owner_of: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], rows: Floats
) -> None:
    """Write into each event's row the share of the owner's running pods that are in the pod's rack."""
    # The pods of each owner, of all places and in each rack; a node without a rack is a place of its own.
    running: Counter[int] = Counter()
    near: Counter[tuple[int, int]] = Counter()
    place = np.where(rack < 0, -1 - np.arange(len(rack)), rack).tolist()
    owners, events = owner_of.tolist(), numbers[:, [OUTCOME, ARRIVAL, SLOT]].tolist()
    for k, (outcome, arrival, slot) in enumerate(events):
        if outcome not in (BOUND, FINISHED, EVICTED):
            continue
        owner, sign = owners[arrival], 1 if outcome == BOUND else -1
        here = owner, place[slot]
        # Before the share is taken, which includes the pod itself.
        running[owner] += sign
        near[here] += sign
        if sign > 0:
            rows[k, state.RACK_LOCALITY] = near[here] / running[owner] if owner >= 0 else 1.0
