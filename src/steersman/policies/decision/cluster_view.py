"""A live cluster as policies decide about it."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from steersman.cluster.state import ClusterState
from steersman.policies.gpu_state.leftovers import LeftoverArrays
from steersman.policies.node_metrics.view import Telemetry
from steersman.workloads.profile import TypicalPod
from steersman.workloads.workload import SpreadSelectors


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a policy can know of a cluster."""

    state: ClusterState  # the cluster's state
    profile: tuple[TypicalPod, ...] = ()  # the workload profile, for policies without an embedded one
    # Leftover tables of the profile; None: computed when needed (about a second)
    leftovers: LeftoverArrays | None = None
    # Source of the selectors of default spreading in `kube-default`, read before each decision
    selectors: Callable[[], SpreadSelectors] = SpreadSelectors
    telemetry: Telemetry | None = None  # the nodes' metrics; None: no metrics, and hard latency limits are ignored
    seed: int = 0  # seed of policies that draw random numbers
    demand: AbstractSet[int] = frozenset()  # classes of the pods that are known to be scheduled here
