"""kube-scheduler's decisions by the core, of a cluster as it is when it is asked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.state import ClusterState
from steersman.core.handles import CoreDecider
from steersman.policies.decision.description import described_decisions
from steersman.policies.kube_scheduler.policy import KubeSchedulerPolicy
from steersman.policies.kube_scheduler.profile import DEFAULT_PROFILE, PLUGINS, STORAGE, KubeProfile
from steersman.policies.leftovers import LeftoverTables
from steersman.workloads.profile import profile_arrays
from steersman.workloads.workload import SpreadSelectors

Mask = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.int64]


class KubeDecisions:
    """Decisions of a profile, `start`: where the next search starts.

    Args of methods: the pod's class and label set; `mask`, [N] the nodes that it may be on, None: all; `storage`, see
    `PodQuery`.
    """

    def __init__(
        self,
        state: ClusterState,
        services: SpreadSelectors | None = None,
        profile: KubeProfile = DEFAULT_PROFILE,
    ) -> None:
        self.state, self.services, self.profile, self.start = state, services or SpreadSelectors(), profile, 0

    def choose(self, class_id: int, labels_id: int = 0, mask: Mask | None = None, storage: Scores | None = None) -> int:
        """Return the slot for a pod, -1 if it fits nowhere. The next search starts after the visited nodes."""
        core = self._core(storage)
        slot, _ = core.decide(class_id, labels_id, mask)
        self.start = core.search_start()
        return slot

    def scores(
        self, class_id: int, labels_id: int = 0, mask: Mask | None = None, storage: Scores | None = None
    ) -> Scores:
        """Return total scores, [N]; -1 for nodes that are infeasible or beyond the search, 0 for a single one."""
        scores = self._core(storage).scores(class_id, labels_id, mask)
        return np.where(np.isfinite(scores), scores, -1).astype(np.int64)

    def breakdown(
        self, class_id: int, labels_id: int = 0, mask: Mask | None = None, storage: Scores | None = None
    ) -> dict[str, Scores]:
        """Return normalized and weighted scores, [N], by plugin; their sum is `scores`, and -1 has the same meaning."""
        scores = self._core(storage).plugin_scores(class_id, labels_id, mask)
        names = PLUGINS if storage is None else (*PLUGINS, STORAGE)
        rows = np.nan_to_num(scores, nan=-1).astype(np.int64)
        return dict(zip(names, rows, strict=False))

    def top_scorers(
        self, class_id: int, labels_id: int = 0, mask: Mask | None = None, storage: Scores | None = None
    ) -> frozenset[int]:
        """Return the slots with the highest total score, any of which a scheduler with parallel workers may choose."""
        total = self.scores(class_id, labels_id, mask, storage)
        return frozenset(np.flatnonzero((total == total.max(initial=0)) & (total >= 0)).tolist())

    def _core(self, storage: Scores | None) -> CoreDecider:
        policy, profile = KubeSchedulerPolicy(profile=self.profile), profile_arrays((), self.state.gpu_types)
        core = CoreDecider(described_decisions(policy, self.state, profile, self.services, _no_tables, 0))
        core.search_start(self.start % max(len(self.state.slots), 1))
        if storage is not None:
            core.set_storage(storage)
        return core


def _no_tables() -> LeftoverTables:
    raise AssertionError
