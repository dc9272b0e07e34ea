"""Selectors by which kube-scheduler spreads pods without constraints of their own, and pods as a profile reads them.

Source: Kubernetes 1.37.2, pkg/scheduler/framework/plugins/{helper/spread.go,podtopologyspread/common.go}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from steersman.cluster.constraints.node import holds
from steersman.cluster.model import Pod, PodClass, PodSelector, Requirement, TopologySpread
from steersman.policies.kube_scheduler.profile import KubeProfile
from steersman.workloads.workload import SpreadSelectors, Workload

CLASSES_KEPT = 10_000  # classes that a reader remembers, since pods of a live cluster come and go


class DefaultSelectors:
    """Selectors of default spreading by the pods that they select. `services`: what selects pods."""

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
        required.update(*(s for s in self._by_expressions.get(namespace, ()) if all(holds(r, labels) for r in s)))
        if not required:
            return None
        requirements = tuple(sorted(required, key=lambda r: (r.key, r.operator, r.values)))
        return PodSelector(requirements, frozenset((namespace,)))


class PodReader:
    """Callable that returns the class of a pod as a profile of kube-scheduler reads it.

    Default constraints of the profile become constraints of the pods that have none and that something selects.

    Args:
        services: returns what selects pods now; the same object while that does not change.
    """

    def __init__(self, profile: KubeProfile, services: Callable[[], SpreadSelectors]) -> None:
        self._profile, self._services = profile, services
        self._known: SpreadSelectors | None = None
        self._selectors = DefaultSelectors(SpreadSelectors())
        self._read: dict[tuple[PodClass, PodSelector | None], PodClass] = {}

    def __call__(self, pod: Pod) -> PodClass:
        selector = self._selector(pod)
        key = pod.pod_class, selector
        if key not in self._read:
            if len(self._read) > CLASSES_KEPT:
                self._read.clear()
            self._read[key] = self._changed(pod.pod_class, selector)
        return self._read[key]

    def _selector(self, pod: Pod) -> PodSelector | None:
        if not self._profile.default_spread or pod.pod_class.constraints.spread:
            return None
        services = self._services()
        if services is not self._known:
            self._known, self._selectors = services, DefaultSelectors(services)
        return self._selectors.selector(pod.namespace, pod.labels)

    def _changed(self, pod_class: PodClass, selector: PodSelector | None) -> PodClass:
        constraints = self._profile.constraints_of(pod_class.constraints)
        if selector is not None:
            spread = tuple(
                TopologySpread(
                    each.max_skew,
                    each.topology_key,
                    each.hard,
                    selector,
                    min_domains=each.min_domains,
                    honor_node_affinity=each.honor_node_affinity,
                    honor_node_taints=each.honor_node_taints,
                )
                for each in self._profile.default_spread or ()
            )
            constraints = replace(constraints, spread=spread)
        return replace(pod_class, requests=self._profile.requests_of(pod_class.requests), constraints=constraints)


def scheduled_by(workload: Workload, profile: KubeProfile) -> Workload:
    """Return a workload with the classes of its pods as a profile of kube-scheduler reads them."""
    if not profile.changes_pods:
        return workload
    read = PodReader(profile, lambda: workload.services)
    return replace(workload, pods=tuple(replace(pod, pod_class=read(pod)) for pod in workload.pods))
