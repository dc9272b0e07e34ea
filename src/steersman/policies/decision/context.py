"""Construction of the arrays that a policy's compiled decisions read, in simulations and in live clusters."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from steersman.cluster.model import Node
from steersman.cluster.state import ClusterState
from steersman.objectives.fragmentation import fragment_arrays
from steersman.policies.base import Need, Policy
from steersman.policies.decision import kernels
from steersman.policies.decision.score_table import empty_score_table
from steersman.policies.decision.selection import SelectionRules
from steersman.policies.gpu_state.arrays import LearnedArrays, empty_learned, features_only, with_weights
from steersman.policies.gpu_state.kernels import learned_refresh_all
from steersman.policies.node_scores.kube_arrays import KubeArrays, kube_arrays
from steersman.workloads.profile import ProfileArrays
from steersman.workloads.workload import SpreadSelectors


def build_decision_state(
    policy: Policy,  # the policy; not a portfolio
    state: ClusterState,  # the cluster's current state
    profile: ProfileArrays,  # the workload profile
    *,
    classes: int,  # capacity of the score table in pod classes
    changes: int,  # capacity of the change log in nodes
    selectors: SpreadSelectors,  # the selectors of default spreading in `kube-default`
    # Factory of the arrays of view `gpu` for these nodes and this profile; called if the policy needs them
    known: Callable[[], LearnedArrays],
) -> kernels.DecisionState:
    """Return the arrays of a policy's decisions on a cluster."""
    selection = policy.selection
    kube = _kube_arrays(selection, state, selectors)  # first, because it adds selectors to `state.term_arrays`
    # Without functions the table has no rows, but its change log is used by observations.
    has_table = bool(selection.functions)
    return kernels.DecisionState(
        nodes=state.arrays,
        classes=state.class_arrays,
        terms=state.term_arrays,
        profile=profile,
        fragments=fragment_arrays(profile, state.arrays),
        table=empty_score_table(
            len(state.nodes) if has_table else 0,
            classes if has_table else 0,
            changes,
            selection.functions,
            selection.weights,
        ),
        kube=kube,
        learned=_learned_arrays(policy, state, profile, known),
    )


def _kube_arrays(selection: SelectionRules, state: ClusterState, selectors: SpreadSelectors) -> KubeArrays:
    """Return the arrays of kube-scheduler's scores; of a dummy node where they are not read."""
    if selection.node != kernels.SELECT_KUBE_SCHEDULER:
        return _unused_kube_arrays()
    return kube_arrays(state, selectors, selection.kube)


@cache
def _unused_kube_arrays() -> KubeArrays:
    return kube_arrays(ClusterState((Node("unused", 0, 0),)))


def _learned_arrays(
    policy: Policy, state: ClusterState, profile: ProfileArrays, known: Callable[[], LearnedArrays]
) -> LearnedArrays:
    """Return the arrays of learned scores; empty where neither scores nor features are read."""
    weights = policy.selection.learned
    if weights is None:
        return features_only(known()) if Need.LEFTOVER_TABLES in policy.needs else empty_learned()
    learned = with_weights(known(), weights.weights, weights.network, state.class_arrays, weights.rules)
    # Values of the nodes' current states belong to the weights, which differ between policies.
    learned_refresh_all(learned, profile, state.arrays)
    return learned
