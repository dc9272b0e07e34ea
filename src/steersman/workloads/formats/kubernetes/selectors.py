"""Selectors of other pods that placement depends on, and that select no pod of an input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from steersman.cluster.constraints.node import holds
from steersman.cluster.model import Pod, PodSelector

Labelled = tuple[str, Mapping[str, str]]
"""Namespace and labels of pods."""


def unmatched_selectors(pods: Sequence[Pod]) -> Iterator[str]:
    """Yield a warning for each selector of required terms that selects none of the pods."""
    users: dict[tuple[str, PodSelector], list[str]] = {}
    for pod in {id(pod.pod_class): pod for pod in pods}.values():
        of = pod.constraints
        terms = [("pod affinity", each.selector) for each in of.affinity]
        terms += [("pod anti-affinity", each.selector) for each in of.anti_affinity]
        terms += [("topology spread (DoNotSchedule)", each.selector) for each in of.spread if each.hard]
        for term in terms:
            users.setdefault(term, []).append(pod.name)
    every = list({(pod.namespace, *pod.labels.items()): (pod.namespace, pod.labels) for pod in pods if users}.values())
    by_label: dict[tuple[str, str], list[Labelled]] = {}
    for each in every:
        for item in each[1].items():
            by_label.setdefault(item, []).append(each)
    for (what, selector), names in users.items():
        if not any(_selects(selector, each) for each in _candidates(selector, every, by_label)):
            requirements = ", ".join(
                " ".join(filter(None, (each.key, each.operator, " or ".join(each.values))))
                for each in selector.requirements or ()
            )
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield f"required {what} of {names[0]}{more} selects no pod of the input: {requirements or 'no selector'}"


def _candidates(
    selector: PodSelector, every: Sequence[Labelled], by_label: Mapping[tuple[str, str], Sequence[Labelled]]
) -> Sequence[Labelled]:
    """Return those that may be selected: by a label that the selector requires, if there is one."""
    for each in selector.requirements or ():
        if each.operator == "In" and len(each.values) == 1:
            return by_label.get((each.key, each.values[0]), ())
    return every


def _selects(selector: PodSelector, pods: Labelled) -> bool:
    namespace, labels = pods
    if selector.requirements is None or (selector.namespaces is not None and namespace not in selector.namespaces):
        return selector.excludes_namespaces and selector.requirements is not None
    return all(holds(each, labels) for each in selector.requirements)
