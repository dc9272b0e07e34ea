"""What kube-scheduler's NodeResourcesFit and NodeResourcesBalancedAllocation score, over any resources.

Devices in a node's mask count in milli, so that pods may request shares; of whole devices the scores are
kube-scheduler's. Source: Kubernetes 1.37.2, pkg/scheduler/framework/plugins/noderesources.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, EPHEMERAL, EXTENDED, MEMORY
from steersman.cluster.model import GPU_RESOURCES, Node
from steersman.cluster.state import ClusterState
from steersman.policies.node_scores.kube_profile import DEFAULT_PROFILE, KubeProfile

NO_COLUMN = -1
_NATIVE = {"cpu": CPU, "memory": MEMORY, "ephemeral-storage": EPHEMERAL}


class ScoredResources(NamedTuple):
    """Resources whose use is scored, with what is offered and requested under their names.

    E entries: the resources of NodeResourcesFit, then those of NodeResourcesBalancedAllocation; none of a plugin that
    scores as by default, for which a loop over CPU and memory is faster. N node slots, K distinct constraints of
    classes (`ClassArrays.constraint`), P points.

    Attributes:
        fit: number of entries of NodeResourcesFit.
        strategy: its scoring strategy (`kube_profile.STRATEGIES`).
        balances_change: see `MinorRules`.
        entries: [E, 2] int64: column in resource matrices, `NO_COLUMN` if no node counts it; weight.
        offered: [E, N] bool, whether the devices in a node's mask are offered under this name.
        requested: [E, K] bool, whether pods with these constraints request their GPUs by this name.
        shape: [P, 2] int64: utilization in percent, score in 0..100.
    """

    fit: int
    strategy: int
    balances_change: bool
    entries: npt.NDArray[np.int64]
    offered: npt.NDArray[np.bool_]
    requested: npt.NDArray[np.bool_]
    shape: npt.NDArray[np.int64]


def scored_resources(state: ClusterState, profile: KubeProfile) -> ScoredResources:
    """Return what a profile scores of the state's nodes and classes.

    Devices and requests without a name, as in openb, count as the first GPU resource of each plugin.
    """
    fit = () if profile.fit == DEFAULT_PROFILE.fit else profile.fit.resources
    is_default = profile.minor.balances_change and profile.balanced == DEFAULT_PROFILE.balanced
    plugins = (fit, () if is_default else tuple((name, 1) for name in profile.balanced))
    columns = {name: column for column, name in enumerate(state.resources, EXTENDED)} | _NATIVE
    classes = state.class_arrays
    _, first = np.unique(classes.constraint, return_index=True)
    names_requested = [state.classes[c].requests.gpu_resource for c in first]
    entries, offered, requested = [], [], []
    for resources in plugins:
        nameless = next((name for name, _ in resources if name in GPU_RESOURCES), None)
        for name, weight in resources:
            entries.append((columns.get(name, NO_COLUMN), weight))
            is_gpu = name in GPU_RESOURCES
            offered.append([is_gpu and _offers(node, name, name == nameless) for node in state.nodes])
            requested.append([each == name or (not each and name == nameless) for each in names_requested])
    return ScoredResources(
        fit=len(fit),
        strategy=profile.fit.kind,
        balances_change=profile.minor.balances_change,
        entries=np.array(entries, dtype=np.int64).reshape(-1, 2),
        offered=np.array(offered, dtype=np.bool_).reshape(len(entries), len(state.nodes)),
        requested=np.array(requested, dtype=np.bool_).reshape(len(entries), len(first)),
        shape=np.array(profile.fit.shape, dtype=np.int64).reshape(-1, 2),
    )


def _offers(node: Node | None, name: str, is_nameless: bool) -> bool:
    if node is None or not node.gpu_count:
        return False
    return name in node.gpu_resources if node.gpu_resources else is_nameless
