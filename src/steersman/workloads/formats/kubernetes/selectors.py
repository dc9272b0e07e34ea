"""Selectors of other pods that placement depends on, and that select no pod of an input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from steersman.cluster.constraints.node import holds
from steersman.cluster.model import Pod, PodSelector


def unmatched_selectors(pods: Sequence[Pod]) -> Iterator[str]:
    """Yield a warning for each selector of required terms that selects none of the pods."""
    users: dict[tuple[str, PodSelector], list[Pod]] = {}
    for pod in {id(pod.pod_class): pod for pod in pods}.values():
        of = pod.constraints
        for what, terms in (
            ("pod affinity", of.affinity),
            ("pod anti-affinity", of.anti_affinity),
            ("topology spread (DoNotSchedule)", tuple(each for each in of.spread if each.hard)),
        ):
            for term in terms:
                users.setdefault((what, term.selector), []).append(pod)
    examples = {(pod.namespace, *pod.labels.items()): pod for pod in pods if users}.values()
    for (what, selector), using in users.items():
        # Most pods are selected by their own terms, which is soon found out.
        if not any(_selects(selector, pod) for some in (using, examples) for pod in some):
            stated = ((each.key, each.operator, " or ".join(each.values)) for each in selector.requirements or ())
            selected = ", ".join(" ".join(filter(None, each)) for each in stated) or "no labels"
            more = f" and {len(using) - 1} more" if len(using) > 1 else ""
            yield f"required {what} of {using[0].name}{more} selects no pod of the input: {selected}"


def _selects(selector: PodSelector, pod: Pod) -> bool:
    if selector.requirements is None or not all(holds(each, pod.labels) for each in selector.requirements):
        return False
    return selector.namespaces is None or pod.namespace in selector.namespaces or selector.excludes_namespaces
