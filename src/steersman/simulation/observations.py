"""Observations of a run for networks, equal to those of an environment in the same state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.pod_query import PodQuery
from steersman.core.handles import CoreEngine
from steersman.policies.base import Candidates
from steersman.policies.features import View
from steersman.policies.observations.observation import ObservationArrays
from steersman.simulation.arrivals import Schedule
from steersman.workloads.topology import Places


class RunObservations:
    """Observe the cluster of a run.

    Args:
        view: the view that the policy observes.
        engine: the run, which observes it (`CoreEngine.watch`).
        plan: the arrivals.
        places: of the workload.
    """

    def __init__(self, view: View, engine: CoreEngine, plan: Schedule, places: Places) -> None:
        self._engine, count = engine, len(plan.nodes)
        self._groups = np.stack([places.rack[plan.nodes], places.server[plan.nodes]], axis=1).astype(np.int32)
        nodes = np.zeros((count, len(view.node)), dtype=np.float32)
        pod, context = np.zeros(len(view.pod), np.float32), np.zeros(len(view.context), np.float32)
        self._observation = ObservationArrays(nodes, nodes.reshape(-1), pod, context, np.zeros(count, dtype=np.int8))

    def observe(self, _: PodQuery, nodes: Candidates) -> tuple[ObservationArrays, npt.NDArray[np.int32]]:
        """Return the observation of a decision, see `policies.base.Observations`."""
        observation = self._observation
        self._engine.observe(observation.nodes, observation.pod, observation.context, observation.mask)
        return observation, self._groups
