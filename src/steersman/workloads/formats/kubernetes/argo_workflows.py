"""Pods of an Argo Workflow: one for each step or task that runs a container, from its entrypoint on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from steersman.cluster.objects.fields import Object

MAX_DEPTH = 20
"""Deepest nesting of templates that is followed: a template may call itself until a condition ends it."""
MAX_PODS = 100_000
_INHERITED = ("nodeSelector", "tolerations", "affinity", "schedulerName", "hostNetwork")
_OWN = (*_INHERITED, "initContainers", "priorityClassName", "volumes")
_EXECUTOR: Object = {"name": "wait"}
"""The container that Argo adds to each pod; by default it requests nothing."""


def is_workflow(spec: Object) -> bool:
    """Return whether the spec of an object is that of a Workflow."""
    return isinstance(spec.get("entrypoint"), str) and isinstance(spec.get("templates"), list)


def workflow_pods(spec: Object) -> Iterator[tuple[Object, str, str, int]]:
    """Yield pod template, path, name and number of pods of each template of a Workflow that runs containers.

    Loops over a parameter count once, and conditions as met.
    """
    named: dict[str, tuple[Object, str]] = {
        str(template.get("name")): (template, f"spec.templates[{i}]")
        for i, template in enumerate(spec["templates"])
        if isinstance(template, dict)
    }
    counts: Counter[str] = Counter()
    for start in (spec["entrypoint"], spec.get("onExit")):
        if isinstance(start, str):
            _count(named, start, 1, counts, 0)
    for name, (template, path) in named.items():
        if counts[name] and (containers := _containers(template)):
            yield _pod(spec, template, containers), path, name.rpartition("/")[2], counts[name]


def _count(named: dict[str, tuple[Object, str]], name: str, times: int, counts: Counter[str], depth: int) -> None:
    """Add how often a template and those that it calls run."""
    if name not in named or not times or depth > MAX_DEPTH or counts.total() + times > MAX_PODS:
        return
    counts[name] += times
    for call in calls(named[name][0]):
        target = call.get("template")
        if isinstance(target, str):
            _count(named, target, times * _loops(call), counts, depth + 1)


def calls(template: Object) -> Iterator[Object]:
    """Yield the steps and tasks of a template."""
    dag = template.get("dag")
    pending = [template.get("steps"), dag.get("tasks") if isinstance(dag, dict) else None]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, dict):
            yield part


def with_calls(template: Object, changed: Callable[[Object], Object]) -> Object:
    """Return a template whose steps and tasks are changed."""

    def deep(part: Any) -> Any:
        if isinstance(part, list):
            return [deep(each) for each in part]
        return changed(part) if isinstance(part, dict) else part

    dag = template.get("dag")
    tasks = {"dag": {**dag, "tasks": deep(dag.get("tasks"))}} if isinstance(dag, dict) else {}
    return {**template, **({"steps": deep(template["steps"])} if "steps" in template else {}), **tasks}


def _loops(call: Object) -> int:
    """Return how often a step runs."""
    items, sequence = call.get("withItems"), call.get("withSequence")
    if isinstance(items, list):
        return len(items)
    count = str(sequence.get("count")) if isinstance(sequence, dict) else ""
    return min(int(count), MAX_PODS) if count.isascii() and count.isdigit() and len(count) < 10 else 1


def _containers(template: Object) -> list[Any]:
    """Return the containers that a template runs."""
    group = template.get("containerSet")
    grouped = group.get("containers") if isinstance(group, dict) else None
    main = [template[key] for key in ("container", "script") if isinstance(template.get(key), dict)]
    sidecars = template.get("sidecars")
    own = [*main, *(grouped if isinstance(grouped, list) else ())]
    return [*own, *(sidecars if isinstance(sidecars, list) else ())] if own else []


def _pod(spec: Object, template: Object, containers: list[Any]) -> Object:
    pod = {key: spec[key] for key in _INHERITED if spec.get(key)}
    pod |= {"priorityClassName": spec["podPriorityClassName"]} if spec.get("podPriorityClassName") else {}
    pod |= {key: template[key] for key in _OWN if template.get(key)}
    metadata: dict[str, Any] = {}
    for part in (spec.get("podMetadata"), template.get("metadata")):
        for key in ("labels", "annotations"):
            if isinstance(part, dict) and isinstance(part.get(key), dict):
                metadata[key] = {**metadata.get(key, {}), **part[key]}
    return {"metadata": metadata, "spec": {**pod, "containers": [*containers, _EXECUTOR]}}
