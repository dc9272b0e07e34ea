"""Warnings about annotations of pods that make no sense, so that the pods count without them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from steersman.cluster.model import Pod


def annotation_warnings(pods: Iterable[Pod]) -> Iterator[str]:
    """Yield a line for each annotation that is ignored, with a pod that has it."""
    found: dict[str, list[tuple[str, str]]] = {}
    for pod in pods:
        for problem in (*pod.latency.ignored, *pod.ignored):
            annotation, _, what = problem.partition(": ")
            found.setdefault(annotation, []).append((f"{pod.namespace}/{pod.name}", what))
    for annotation, having in sorted(found.items()):
        name, what = having[0]
        of = name if len(having) == 1 else f"{len(having)} pods, such as {name}"
        yield f"{annotation} of {of}: {what}"
