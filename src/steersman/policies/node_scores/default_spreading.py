"""Selectors by which kube-scheduler spreads pods without constraints of their own, and pods as a profile reads them.

Source: Kubernetes 1.37.2, pkg/scheduler/framework/plugins/{helper/spread.go,podtopologyspread/common.go}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from steersman.cluster.constraints.node import holds
from steersman.cluster.model import Pod, PodClass, PodSelector, Requirement, TopologySpread
from steersman.policies.node_scores.kube_profile import KubeProfile
from steersman.workloads.workload import SpreadSelectors, Workload


class DefaultSelectors:
    """Selectors of default spreading by the pods that they select.

    Args:
        services: what selects pods.
    """

    def __init__(self, services: SpreadSelectors) -> None:
        self._by_label: dict[tuple[str, str, str], list[tuple[tuple[str, str], ...]]] = {}
        for namespace, selected in services.selectors:
            self._by_label.setdefault((namespace, *selected[0]), []).append(selected)
        self._by_expressions: dict[str, list[tuple[Requirement, ...]]] = {}
        for namespace, requirements in services.expressions:
            self._by_expressions.setdefault(namespace, []).append(requirements)

    def selector(self, namespace: str, labels: Mapping[str, str]) -> PodSelector | None:
        """Return the conjunction of all selectors that match a pod; None if none does."""
        pairs = labels.items()
        candidates = (s for key, value in pairs for s in self._by_label.get((namespace, key, value), ()))
        matching = {pair for s in candidates if pairs >= set(s) for pair in s}
        required = {Requirement(key, "In", (value,)) for key, value in matching}
        required.update(
            *(s for s in self._by_expressions.get(namespace, ()) if all(holds(r, labels) for r in s)),
        )
        if not required:
            return None
        requirements = tuple(sorted(required, key=lambda r: (r.key, r.operator, r.values)))
        return PodSelector(requirements, frozenset((namespace,)))


def scheduled_by(workload: Workload, profile: KubeProfile) -> Workload:
    """Return a workload with the constraints of its pods as a profile of kube-scheduler reads them.

    Default constraints of the profile become constraints of the pods that have none and that something selects.
    """
    if not profile.changes_pods:
        return workload
    selectors = DefaultSelectors(workload.services)
    read: dict[tuple[PodClass, PodSelector | None], PodClass] = {}

    def of_profile(pod: Pod) -> Pod:
        constraints = pod.pod_class.constraints
        selector = None
        if profile.default_spread and not constraints.spread:
            selector = selectors.selector(pod.namespace, pod.labels)
        key = pod.pod_class, selector
        if key not in read:
            changed = profile.constraints_of(constraints)
            if selector is not None:
                spread = tuple(
                    TopologySpread(each.max_skew, each.topology_key, each.hard, selector)
                    for each in profile.default_spread or ()
                )
                changed = replace(changed, spread=spread)
            read[key] = replace(pod.pod_class, constraints=changed)
        return replace(pod, pod_class=read[key])

    return replace(workload, pods=tuple(map(of_profile, workload.pods)))
