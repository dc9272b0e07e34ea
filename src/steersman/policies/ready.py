"""A cluster made ready for the decisions of a policy: what its compiled code reads, in simulation and in a cluster."""

from __future__ import annotations

from collections.abc import Callable

from steersman.cluster.model import Node
from steersman.cluster.state import ClusterState
from steersman.objectives.fragmentation import fragment_arrays
from steersman.policies import deciding
from steersman.policies.kube_arrays import KubeArrays, kube_arrays
from steersman.policies.learned import VIEW, LearnedArrays, at_work, for_showing, no_learned
from steersman.policies.learned_scores import learned_refresh_all
from steersman.policies.local import LEARNED
from steersman.policies.network_policy import NetworkPolicy
from steersman.policies.policy import (
    KubeDefaultPolicy,
    LinearPolicy,
    LocalPolicy,
    MlpPolicy,
    PortfolioPolicy,
    RandomPolicy,
)
from steersman.policies.prepared import PreparedPolicy
from steersman.policies.registry import AnyPolicy
from steersman.policies.table import TableArrays, table_arrays
from steersman.workloads.mix import MixArrays
from steersman.workloads.workload import Services


def ready(
    policy: AnyPolicy,
    state: ClusterState,
    mix: MixArrays,
    *,
    classes: int,
    changes: int,
    services: Services,
    known: Callable[[], LearnedArrays],
) -> deciding.Cluster:
    """The cluster as it is, for a policy that brings no mix.

    Args:
        policy: who will decide.
        state: the cluster.
        mix: the typical pods.
        classes: of pods, that there is to be room for.
        changes: of nodes, likewise.
        services: what `kube-default` spreads pods of by default.
        known: what the view `gpu` knows of these nodes and the mix; called if the policy looks at it.
    """
    kube = _kube(policy, state, services)  # before the terms are taken: it asks for counts of its own
    return deciding.Cluster(
        nodes=state.arrays,
        classes=state.class_arrays,
        terms=state.term_arrays,
        mix=mix,
        fragments=fragment_arrays(mix, state.arrays),
        table=_table(policy, len(state.nodes), classes, changes),
        kube=kube,
        learned=_learned(policy, state, mix, known),
    )


def _table(policy: AnyPolicy, nodes: int, classes: int, changes: int) -> TableArrays:
    if isinstance(policy, LocalPolicy):
        return table_arrays(nodes, classes, changes, policy.kinds, policy.weights)
    if isinstance(policy, LinearPolicy | MlpPolicy):
        return table_arrays(nodes, classes, changes, (LEARNED,), (1.0,))
    return table_arrays(0, 0, changes, (), ())


def _kube(policy: AnyPolicy, state: ClusterState, services: Services) -> KubeArrays:
    if isinstance(policy, KubeDefaultPolicy):
        return kube_arrays(state, services, policy.percentage)
    return kube_arrays(ClusterState((Node("unused", 0, 0),)))


def _learned(
    policy: AnyPolicy, state: ClusterState, mix: MixArrays, known: Callable[[], LearnedArrays]
) -> LearnedArrays:
    if isinstance(policy, LinearPolicy | MlpPolicy):
        network = policy.network if isinstance(policy, MlpPolicy) else ()
        rules = policy.rules if isinstance(policy, LinearPolicy) else None
        learned = at_work(known(), policy.weights, network, state.class_arrays, rules)
        learned_refresh_all(learned, mix, state.arrays)
        return learned
    return for_showing(known()) if sees_outlook(policy) else no_learned()


def sees_outlook(policy: AnyPolicy) -> bool:
    """Whether a policy looks at what follows from the mix, which takes a second to work out."""
    if isinstance(policy, PreparedPolicy):
        policy = policy.policy
    return isinstance(policy, LinearPolicy | MlpPolicy | PortfolioPolicy) or (
        isinstance(policy, NetworkPolicy) and policy.view.name == VIEW
    )


def choosers(policy: AnyPolicy) -> tuple[int, int]:
    """How a policy chooses nodes and devices, by the numbers of `policies.deciding`."""
    if isinstance(policy, LocalPolicy):
        return deciding.CHOOSE_TABLE, deciding.DEVICES_FGD if policy.fgd_devices else deciding.DEVICES_BEST
    if isinstance(policy, LinearPolicy | MlpPolicy):
        return deciding.CHOOSE_TABLE, deciding.DEVICES_LEARNED
    if isinstance(policy, RandomPolicy):
        return deciding.CHOOSE_RANDOM, deciding.DEVICES_RANDOM
    if isinstance(policy, KubeDefaultPolicy):
        return deciding.CHOOSE_KUBE, deciding.DEVICES_BEST
    return deciding.CHOOSE_ASK, deciding.DEVICES_BEST
