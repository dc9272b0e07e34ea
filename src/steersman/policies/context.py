"""A cluster made ready for the decisions of a policy: what its compiled code reads, in simulation and in a cluster."""

from __future__ import annotations

from collections.abc import Callable

from steersman.cluster.state import ClusterState
from steersman.objectives.fragmentation import fragment_arrays
from steersman.policies import deciding
from steersman.policies.base import Policy
from steersman.policies.learned import LearnedArrays
from steersman.policies.table import table_arrays
from steersman.workloads.mix import MixArrays
from steersman.workloads.workload import Services


def build_cluster(
    policy: Policy,
    state: ClusterState,
    mix: MixArrays,
    *,
    classes: int,
    changes: int,
    selectors: Services,
    known: Callable[[], LearnedArrays],
) -> deciding.Cluster:
    """Return everything that decisions of a policy on a cluster read.

    Args:
        policy: who will decide; no portfolio.
        state: the cluster as it is.
        mix: the typical pods.
        classes: of pods, that there is to be room for.
        changes: of nodes, likewise.
        selectors: what `kube-default` spreads pods of by default.
        known: gives what the view `gpu` knows of these nodes and the mix; called if the policy looks at it.
    """
    kube = policy.kube_arrays(state, selectors)  # before the terms are taken: it asks for counts of its own
    functions, weights = policy.score_functions
    scored = bool(functions)
    return deciding.Cluster(
        nodes=state.arrays,
        classes=state.class_arrays,
        terms=state.term_arrays,
        mix=mix,
        fragments=fragment_arrays(mix, state.arrays),
        table=table_arrays(len(state.nodes) if scored else 0, classes if scored else 0, changes, functions, weights),
        kube=kube,
        learned=policy.learned_arrays(state, mix, known),
    )
