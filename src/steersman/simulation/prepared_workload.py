"""A workload as runs need it: arrays of its cluster and pods, made once."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from steersman.cluster.state import ClusterState
from steersman.core.counting import first_names
from steersman.core.handles import lacks_room
from steersman.orders.run_time_history import RunTimeHistory
from steersman.policies.decision.description import described_cluster
from steersman.policies.embedded_profile import EmbeddedProfile
from steersman.policies.leftovers import LeftoverTables, leftover_arrays, leftover_tables
from steersman.simulation.arrivals import Units
from steersman.simulation.event_arrays import are_whole
from steersman.simulation.queueing import QueueInputs, Shapes, shapes_of
from steersman.workloads.profile import ProfileArrays, TypicalPod, profile_arrays, typical_pods
from steersman.workloads.topology import Places, places
from steersman.workloads.workload import Workload


class PreparedWorkload:
    """A workload prepared once for many runs.

    Args:
        workload: nodes and pods.
        profile: the typical pods that policies know of; None: derived from the workload's pods.
        past: run times of what ended before every run, from which orders estimate; None: nothing has.
    """

    def __init__(
        self, workload: Workload, profile: tuple[TypicalPod, ...] | None = None, past: RunTimeHistory | None = None
    ) -> None:
        self.workload = workload
        self.profile = typical_pods(workload.pods[i] for i in workload.demand()) if profile is None else profile
        self._state = ClusterState(workload.nodes)
        self._class_of = self._state.class_ids(workload.pods)
        self._labels_of = self._state.labels_ids(workload.pods)
        self._demand = np.array(workload.gpu_demand, dtype=np.int64)
        self._devices = np.array([pod.requests.gpu_count for pod in workload.pods], dtype=np.int64)
        classes = len(self._state.classes)
        self._fits_nowhere = infeasible_together(self._state, np.arange(classes), np.ones(classes, dtype=np.int64))
        self.queued = QueueInputs(workload, self._state, self._class_of, past)
        self.whole_gpus = are_whole(self._state, *self._state.gpu_weights())
        self._leftovers: dict[str, LeftoverTables] = {}
        self._profiles: dict[str, ProfileArrays] = {}
        self.warnings = workload.warnings + self._unknown_models() + self._infeasible_warnings()

    def infeasible_shapes(self, shapes: Shapes) -> npt.NDArray[np.bool_]:
        """Return [S] which shapes cannot start on the empty cluster."""
        singles, infeasible = len(self._fits_nowhere), shapes.incomplete.copy()
        infeasible[:singles] = self._fits_nowhere
        shape, class_id, members = shapes.needs[singles:].T
        if len(shape):
            infeasible[shape[infeasible_together(self._state, class_id, members)]] = True
        return infeasible

    def state(self, nodes: npt.NDArray[np.int64]) -> ClusterState:
        """Return the empty cluster with its nodes in another order, [N]."""
        return self._state.permuted(nodes)

    def classes_of(self, pods: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the classes and the labels of pods, [A] each."""
        return self._class_of[pods], self._labels_of[pods]

    def leftovers_with(self, prepared: EmbeddedProfile | None) -> LeftoverTables:
        """Return the leftover tables of a policy's embedded profile, or of the workload's; cached."""
        key = "" if prepared is None else prepared.digest
        if key not in self._leftovers:
            leftovers = leftover_arrays(self.profile) if prepared is None else prepared.leftovers
            assert leftovers is not None
            self._leftovers[key] = leftover_tables(leftovers, self.profile_arrays(prepared))
        return self._leftovers[key]

    def profile_arrays(self, prepared: EmbeddedProfile | None) -> ProfileArrays:
        """Return the policy's embedded profile, or that of the workload, for these nodes; cached."""
        key = "" if prepared is None else prepared.digest
        if key not in self._profiles:
            models = self._state.gpu_types
            made = profile_arrays(self.profile, models) if prepared is None else prepared.profile_for(models)
            self._profiles[key] = made
        return self._profiles[key]

    @cached_property
    def recorded(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return [P] the index of the node and [P] the devices that each pod was recorded on, -1 and 0: it waited."""
        index = {node.name: i for i, node in enumerate(self.workload.nodes)}
        where = self.workload.recorded
        nodes = np.array([-1 if each is None else index[each.node] for each in where], dtype=np.int64)
        return nodes, np.array([0 if each is None else each.devices for each in where], dtype=np.int64)

    @cached_property
    def places(self) -> Places:
        """Return owners of pods, and racks and servers of nodes; computed on first use."""
        return places(self.workload)

    def _unknown_models(self) -> tuple[str, ...]:
        models = {node.gpu_model_for(name) for node in self.workload.nodes for name in ("", *node.counted_gpus)}
        # "" for no model: pods that name none are no reason for a warning.
        wanted = {model for pod_class in self._state.classes for model in pod_class.constraints.gpu_models}
        unknown = sorted(wanted - models)
        if not unknown:
            return ()
        there = f"nodes have {', '.join(sorted(models))}" if (models := models - {""}) else "no node states one"
        return (f"{self.workload.name}: pods name GPU models that no node has: {', '.join(unknown)}; {there}",)

    def _infeasible_warnings(self) -> tuple[str, ...]:
        standing = set(self.workload.standing())
        alone = self._fits_nowhere[self._class_of]
        # In gangs of which every pod would fit.
        together = self.never_fits & ~alone
        found = []
        for which, says in ((alone, "fit on no node at all"), (together, "are in gangs that do not fit together")):
            pods = [self.workload.pods[i] for i in np.flatnonzero(which).tolist() if i not in standing]
            named = list(dict.fromkeys(pod.name if which is alone else pod.gang for pod in pods))
            if pods:
                of_all = f"{self.workload.name}: {len(pods)} of {len(self._class_of)} pods"
                found.append(f"{of_all} {says}: {first_names(named)}")
        return tuple(found)

    @cached_property
    def never_fits(self) -> npt.NDArray[np.bool_]:
        """Return [P] which pods do not fit on the empty cluster, alone or together with their gangs."""
        never = self._fits_nowhere[self._class_of]
        gangs = np.array([i for i, pod in enumerate(self.workload.pods) if pod.gang], dtype=np.int64)
        units = Units.of(self.workload, np.setdiff1d(gangs, self.workload.standing()))
        shapes = shapes_of(self._class_of[units.pods], units.members, units.least, len(self._fits_nowhere))
        leaders = units.leaders
        refused = self.infeasible_shapes(shapes)[shapes.of_arrival[leaders]]
        never[units.pods[np.repeat(refused, units.members[leaders])]] = True
        return never


def infeasible_together(
    state: ClusterState, class_id: npt.NDArray[np.int64], members: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return [S] whether `members` pods of a class, both [S], do not fit together on a cluster as it is."""
    return lacks_room(described_cluster(state, profile_arrays((), state.gpu_types)), class_id, members)
