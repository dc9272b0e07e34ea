"""Descriptions for the compiled core: a cluster, a policy and what is observed, as arrays by name.

The names, and what each array must be, are where the core reads them: `core/src/decide.rs` and `core/src/views.rs`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import numpy as np
import numpy.typing as npt

from steersman.cluster.state import ClusterState
from steersman.core.handles import named
from steersman.policies.base import Policy
from steersman.policies.decision.selection import NodeRule
from steersman.policies.features import GPU, View
from steersman.policies.kube_scheduler.arrays import kube_arrays
from steersman.policies.kube_scheduler.profile import KubeProfile
from steersman.policies.learned_weights import RULE_COUNT
from steersman.policies.leftovers import LeftoverTables
from steersman.workloads.profile import ProfileArrays
from steersman.workloads.topology import Places
from steersman.workloads.workload import SpreadSelectors

Arrays = dict[str, npt.NDArray[np.generic]]
VIEW_NUMBERS = {"cluster": 0, "gpu": 1}
"""Numbers of the views that the core observes."""

NOT_READ = "owned_total"
"""Sums that the core makes itself."""


def described_cluster(state: ClusterState, profile: ProfileArrays) -> Arrays:
    """Return a cluster as it is: `nodes.*`, `classes.*`, `terms.*` and `profile.*`."""
    terms = {name: value for name, value in state.term_arrays._asdict().items() if name != NOT_READ}
    return named(
        nodes=state.arrays._asdict(),
        classes=state.class_arrays._asdict(),
        terms=terms,
        profile=profile._asdict(),
    )


def described_decisions(
    policy: Policy,  # not a portfolio
    state: ClusterState,
    profile: ProfileArrays,  # typical pods
    selectors: SpreadSelectors,  # of default spreading in `kube-default`
    leftovers: Callable[[], LeftoverTables],  # called if the policy reads these tables
    seed: int,  # of random choices
) -> Arrays:
    """Return a cluster as it is, and a policy that decides there: `policy.*`, `kube.*`, `learned.*`, `leftovers.*`."""
    selection = policy.selection
    arrays: Arrays = {
        "policy.node": np.array(int(selection.node)),
        "policy.devices": np.array(int(selection.devices)),
        "policy.functions": np.array(selection.functions, dtype=np.int64),
        "policy.weights": np.array(selection.weights, dtype=np.float64),
        "policy.seed": np.array(seed, dtype=np.uint64).astype(np.int64),
    }
    if selection.node == NodeRule.KUBE_SCHEDULER:
        # First, because it adds selectors to the state's terms.
        arrays |= described_scheduler(state, selectors, selection.kube)
    if (weights := selection.learned) is not None:
        arrays |= {
            "learned.linear": np.asarray(weights.weights, dtype=np.float64),
            "learned.rules": np.zeros((0, RULE_COUNT)) if weights.rules is None else np.asarray(weights.rules),
            "learned.sizes": np.array([len(bias) for _, bias in weights.network], dtype=np.int64),
            "learned.layers": np.concatenate([np.zeros(0), *map(np.ravel, chain(*weights.network))]),
        }
        arrays |= described_leftovers(leftovers())
    return arrays | described_cluster(state, profile)


def described_scheduler(state: ClusterState, selectors: SpreadSelectors, profile: KubeProfile) -> Arrays:
    """Return what a profile of kube-scheduler makes of a cluster, `kube.*`; it adds selectors to the state's terms."""
    kube = kube_arrays(state, selectors, profile)
    parts = {"kube": kube._asdict(), "kube.scored": kube.scored._asdict()}
    values = {
        f"{part}.{name}": np.asarray(value)
        for part, fields in parts.items()
        for name, value in fields.items()
        if name != "scored"  # has names of its own
    }
    return {name: value.astype(np.int64) if value.ndim == 0 else value for name, value in values.items()}


def described_leftovers(tables: LeftoverTables) -> Arrays:
    """Return leftover tables, `leftovers.*`."""
    return {
        "leftovers.by_left": tables.by_left,
        "leftovers.steps": tables.steps.reshape(tables.steps.shape[0] * tables.steps.shape[1], -1),
        "leftovers.ratios": tables.ratios,
        "leftovers.least": tables.least,
    }


def described_view(
    view: View,
    places: Places,  # of the workload
    nodes: npt.NDArray[np.int64],  # [N] the workload's node in each slot
    pods: npt.NDArray[np.int64],  # [A] the workload's pods in the order of their arrivals
    leftovers: Callable[[], LeftoverTables],
) -> Arrays:
    """Return what is observed: `observer.*`, and `leftovers.*` for the view `gpu`."""
    arrays = {
        "observer.view": np.array(VIEW_NUMBERS[view.name]),
        "observer.rack": places.rack[nodes],
        "observer.racks": np.array(places.racks),
        "observer.owner": places.owner[pods],
        "observer.owners": np.array(places.owners),
    }
    return arrays | described_leftovers(leftovers()) if view == GPU else arrays
