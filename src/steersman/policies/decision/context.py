"""Construction of the arrays that a policy's compiled decisions read, in simulations and in live clusters."""

from __future__ import annotations

from collections.abc import Callable

from steersman.cluster.state import ClusterState
from steersman.objectives.fragmentation import fragment_arrays
from steersman.policies.base import Policy
from steersman.policies.decision import kernels
from steersman.policies.decision.score_table import empty_score_table
from steersman.policies.gpu_state.arrays import LearnedArrays
from steersman.workloads.profile import ProfileArrays
from steersman.workloads.workload import SpreadSelectors


def build_decision_state(
    policy: Policy,
    state: ClusterState,
    profile: ProfileArrays,
    *,
    classes: int,
    changes: int,
    selectors: SpreadSelectors,
    known: Callable[[], LearnedArrays],
) -> kernels.DecisionState:
    """Return the arrays of a policy's decisions on a cluster.

    Args:
        policy: the policy; not a portfolio.
        state: the cluster's current state.
        profile: the workload profile.
        classes: capacity of the score table in pod classes.
        changes: capacity of the change log in nodes.
        selectors: the selectors of default spreading in `kube-default`.
        known: factory of the arrays of view `gpu` for these nodes and this profile; called if the policy needs them.
    """
    kube = policy.kube_arrays(state, selectors)  # first, because it adds selectors to `state.term_arrays`
    functions, weights = policy.score_functions
    has_table = bool(functions)
    return kernels.DecisionState(
        nodes=state.arrays,
        classes=state.class_arrays,
        terms=state.term_arrays,
        profile=profile,
        fragments=fragment_arrays(profile, state.arrays),
        table=empty_score_table(
            len(state.nodes) if has_table else 0, classes if has_table else 0, changes, functions, weights
        ),
        kube=kube,
        learned=policy.learned_arrays(state, profile, known),
    )
