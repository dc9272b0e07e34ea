"""Observations of a run for networks, equal to those of an environment in the same state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.pod_query import PodQuery
from steersman.core.handles import CoreEngine
from steersman.policies.base import Candidates
from steersman.policies.features import View
from steersman.policies.observations.observation import ObservationArrays, empty_observation
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
        self._engine = engine
        self._groups = np.stack([places.rack[plan.nodes], places.server[plan.nodes]], axis=1).astype(np.int32)
        self._observation = empty_observation(view, len(plan.nodes))

    def observe(self, _: PodQuery, nodes: Candidates) -> tuple[ObservationArrays, npt.NDArray[np.int32]]:
        """Return the observation of a decision, see `policies.base.Observations`."""
        observation = self._observation
        self._engine.observe(observation.nodes, observation.pod, observation.context, observation.mask)
        return observation, self._groups
