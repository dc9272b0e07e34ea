"""A pod that wants a node, as it is asked about."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Pod
from steersman.cluster.objects.latency_limits import NO_LIMITS, LatencyLimits
from steersman.cluster.owner_pods import NO_OWNER_PODS, OwnerPods


@dataclass(frozen=True, slots=True)
class PodQuery:
    """A pod that wants a node.

    Attributes:
        class_id: the pod's class.
        labels_id: the pod's label set.
        owner_pods: pods of the same owner; set in live clusters.
        limits: the pod's latency limits.
        storage: [N] what VolumeBinding of kube-scheduler adds to the scores of slots, with its weight; None: nothing.
        allowed: [N] bool, the node slots that other constraints such as volumes leave; None: all.
        owner: index of the pod's owner, -1 for none; set in simulations.
        pod: the pod itself, where the caller has it.
    """

    class_id: int
    labels_id: int = 0
    owner_pods: OwnerPods = NO_OWNER_PODS
    limits: LatencyLimits = NO_LIMITS
    storage: npt.NDArray[np.int64] | None = None
    allowed: npt.NDArray[np.bool_] | None = None
    owner: int = -1
    pod: Pod | None = None

    def within(self, allowed: npt.NDArray[np.bool_] | None) -> PodQuery:
        """Return the same pod where only these slots are left, [N] bool; None: all."""
        return self if allowed is self.allowed else replace(self, allowed=allowed)
