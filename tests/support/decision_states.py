"""Deciders of the core for a run as it stands, and for a live cluster as it is; and what they see."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, ClassArrays
from steersman.cluster.state import ClusterState
from steersman.core.handles import CoreDecider
from steersman.policies.base import Policy
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.description import Arrays, described_decisions
from steersman.policies.features import GPU, POD_KINDS
from steersman.policies.leftovers import LeftoverTables, leftover_arrays, leftover_tables
from steersman.simulation.run import Execution
from steersman.workloads.profile import ProfileArrays, TypicalPod, profile_arrays
from steersman.workloads.workload import SpreadSelectors


def described(
    policy: Policy, state: ClusterState, pods: tuple[TypicalPod, ...], selectors: SpreadSelectors | None = None
) -> Arrays:
    """Return a cluster as it is, and a policy that decides there by these typical pods or those of its file."""
    profile, tables = tables_of(policy, state, pods)
    return described_decisions(policy, state, profile, selectors or SpreadSelectors(), lambda: tables, 0)


def tables_of(
    policy: Policy, state: ClusterState, pods: tuple[TypicalPod, ...]
) -> tuple[ProfileArrays, LeftoverTables]:
    """Return the profile and the leftover tables by which a policy decides."""
    prepared, models = policy.prepared, state.gpu_types
    profile = profile_arrays(pods, models) if prepared is None else prepared.profile_for(models)
    known = leftover_arrays(pods) if prepared is None or prepared.leftovers is None else prepared.leftovers
    return profile, leftover_tables(known, profile)


def described_live(decider: Decider) -> Arrays:
    """Return what decides in a live cluster as it is now."""
    view = decider.live.view
    return described(decider.policy, decider.state, view.profile, view.selectors())


def of_run(execution: Execution) -> CoreDecider:
    """Return a decider by which the policy of a run would decide in a live cluster that is as the run's is now."""
    simulator = execution.simulator
    return CoreDecider(described(execution.policy, execution.state, simulator.profile, simulator.workload.services))


def pod_features(classes: ClassArrays) -> npt.NDArray[np.float32]:
    """Return the features of pods by class, [C, P], of whose owners no pod runs."""
    count, milli = classes.gpu_count, classes.gpu_milli
    kind = np.where(count == 0, 0, np.where(count > 1, 3, np.where(milli == 1000, 2, 1)))
    cores, gib = classes.request[:, CPU] / 1000, classes.request[:, MEMORY] / (1 << 30)
    features = {
        **{GPU.pod[k].name: kind == k for k in range(POD_KINDS)},
        "cpu": np.clip(cores / 32, 0, 8),
        "cpu_log": np.minimum(np.log2(1 + cores) / 7, 2),
        "memory": np.clip(gib / 256, 0, 8),
        "memory_log": np.minimum(np.log2(1 + gib) / 10, 2),
        "gpu_devices": np.clip(count / 8, 0, 8),
        "gpu_share": milli / 1000,
        "owner_running": 0 * cores,
    }
    return np.stack(list(features.values()), axis=1).astype(np.float32)
