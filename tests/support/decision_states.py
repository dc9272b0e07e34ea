"""The arrays of a live cluster's decisions, for a run as it stands."""

from __future__ import annotations

from steersman.policies.decision.context import build_decision_state
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.kernels import DecisionState
from steersman.policies.gpu_state.arrays import learned_arrays
from steersman.policies.gpu_state.leftovers import leftover_arrays
from steersman.simulation.run import Execution
from steersman.workloads.profile import profile_arrays


def decision_state(execution: Execution) -> DecisionState:
    """Return the arrays by which the policy of a run would decide in a live cluster that is as the run's is now."""
    simulator, state = execution.simulator, execution.state
    profile = simulator.profile_arrays(execution.prepared)
    return build_decision_state(
        execution.policy,
        state,
        profile,
        classes=len(state.classes),
        changes=1,
        selectors=simulator.workload.services,
        known=lambda: learned_arrays(leftover_arrays(simulator.profile), profile, state.arrays),
    )


def live_arrays(decider: Decider) -> DecisionState:
    """Return the arrays by which kernels would decide in a live cluster as it is now."""
    view, policy, state = decider.live.view, decider.policy, decider.state
    prepared = policy.prepared
    profile = (
        profile_arrays(view.profile, state.gpu_types) if prepared is None else prepared.profile_for(state.gpu_types)
    )
    known = leftover_arrays(view.profile) if prepared is None else prepared.leftovers
    return build_decision_state(
        policy,
        state,
        profile,
        classes=len(state.classes),
        changes=1,
        selectors=view.selectors(),
        known=lambda: learned_arrays(known, profile, state.arrays),
    )
