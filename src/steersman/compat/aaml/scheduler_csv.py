"""AAML's recordings of a scheduler, `sched_*.csv`, as transitions of the view `cluster`.

The usage in them is not what was seen before a decision. The pods are placed again, one after the other, and observed
before each; the usage only says where the cluster was cleared in between, and whether the recording began with an empty
one.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from steersman.agents.buffers import Recording, RecordingFormat
from steersman.agents.networks.tensors import Arrays, stack
from steersman.cluster.model import Pod
from steersman.cluster.pod_query import OwnerPods, PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.errors import InputError, SteersmanError
from steersman.policies.base import Candidates
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.features import CLUSTER
from steersman.policies.heuristics import heuristic
from steersman.workloads.experiments import (
    CLEARED_PODS,
    NODE_CPU,
    NODE_MEMORY,
    NODE_PODS,
    USAGE,
    RecordedBinding,
    clearings,
    cpu_usage_cores,
    has_free_shares,
    read_bindings,
    recorded_class,
    recorded_nodes,
)
from steersman.workloads.files import CSV_SUFFIXES
from steersman.workloads.profile import typical_pods

MOST_UNEXPLAINED = 0.25  # share of CPU by which the last row may differ from what the pods request


def read_transitions(file: Path) -> Recording:
    """Return the transitions of a recording.

    Rewards are the recorded ones. A transition ends an episode where `done` is 1, and where the cluster was cleared.
    The last row is left out unless it is done: nothing followed it.
    """
    rows = read_bindings(file)
    cores = NODE_CPU * len(rows[0].usage)
    play = _Replay(rows)
    seen: list[Arrays] = []
    terminated = [row.done for row in rows]
    cleared = set(clearings(rows))
    for i, row in enumerate(rows):
        if i in cleared:
            play = _Replay(rows)
            terminated[i - 1] = True
        try:
            seen.append(play.bind(row))
        except SteersmanError as error:
            raise InputError(file, f"line {row.line}", "action", str(error)) from None
    used = cpu_usage_cores(rows[-1], has_free_shares(rows))
    if abs(used - play.cores) > max(MOST_UNEXPLAINED * cores, CLEARED_PODS):
        problem = (
            f"{used:.0f} of {cores} CPUs are in use, and the pods before request {play.cores:.0f}; expected a "
            f"recording that begins with an empty cluster of nodes with {NODE_CPU} CPUs"
        )
        raise InputError(file, f"line {rows[-1].line}", USAGE.format(0), problem)
    count = len(rows) if terminated[-1] else len(rows) - 1
    if not count:
        raise InputError(file, f"line {rows[-1].line}", "done", "is 0 in the only row; two that follow are needed")
    return Recording(
        before=stack(seen[:count]),
        actions=np.array([row.node for row in rows[:count]], dtype=np.int64),
        rewards=np.array([row.reward for row in rows[:count]], dtype=np.float32),
        terminated=np.array(terminated[:count], dtype=np.bool_),
        truncated=np.zeros(count, dtype=np.bool_),
        after=stack([*seen[1:], seen[-1]][:count]),
    )


class _Replay:
    """A cluster that the recorded pods are placed in again."""

    def __init__(self, rows: list[RecordedBinding]) -> None:
        self._state = ClusterState(recorded_nodes(rows))
        classes = {row: recorded_class(row) for row in rows}
        for each in classes.values():
            self._state.class_id(each)
        profile = typical_pods(Pod(row.name, each) for row, each in classes.items())
        self._decider = Decider(ClusterView(self._state, profile=profile), heuristic("best-fit"))
        self._observations = self._decider.live.observations(CLUSTER)
        self._owners: dict[str, Counter[int]] = {}
        self.cores = 0.0

    def bind(self, row: RecordedBinding) -> Arrays:
        """Return the observation before a pod is bound, and bind it. Raises SteersmanError: it does not fit."""
        state, c = self._state, self._state.class_id(recorded_class(row))
        here = self._owners.setdefault(row.owner, Counter())
        feasible = state.mask(c)
        if not feasible[row.node]:
            raise SteersmanError(
                f"node {row.node} has no capacity left for this pod; nodes of {NODE_CPU} CPUs, {NODE_MEMORY} and "
                f"{NODE_PODS} pods, empty at the start, are assumed"
            )
        self._decider.follow()
        nodes = Candidates(feasible, np.ones_like(feasible))
        seen, groups = self._observations.observe(PodQuery(c, owner_pods=OwnerPods(dict(here))), nodes)
        parts = {"nodes": seen.nodes, "pod": seen.pod, "context": seen.context, "mask": seen.mask, "groups": groups}
        result = {name: np.array(part) for name, part in parts.items()}
        state.place(f"{len(state.placements)}", c, row.node)
        self._decider.changed(row.node)
        here[row.node] += 1
        self.cores += row.cpu_milli / 1000
        return result


AAML = RecordingFormat("aaml", CSV_SUFFIXES, read_bindings, read_transitions)
