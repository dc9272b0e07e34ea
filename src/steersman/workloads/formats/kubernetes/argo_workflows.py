"""Templates of an Argo Workflow that run containers, how often each runs, and how many pods run at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from steersman.cluster.objects.fields import Object
from steersman.cluster.objects.replicas import list_or_empty, mapping_or_empty

MAX_DEPTH = 20  # deepest nesting of templates that is followed: a template may call itself until a condition ends it
MAX_PODS = 100_000
Scope = tuple[str, str]  # kind and name of the object that holds a template; both empty: the Workflow itself


def workflow_templates(spec: Object, lookup: Callable[[str, str], Object | None]) -> list[Object]:
    """Return `template`, `name` and `count` of each template of a Workflow that runs containers.

    Loops over a parameter count once, and conditions as met. `spec` has the templates of the object that it names by
    `workflowTemplateRef`; `lookup` returns the object of a kind and name that steps refer to by `templateRef`.
    """
    scopes: dict[Scope, dict[str, Object]] = {("", ""): _named(spec)}
    counts: Counter[tuple[Scope, str]] = Counter()

    def count(scope: Scope, name: str, times: int, depth: int) -> None:
        if scope not in scopes:
            scopes[scope] = _named(mapping_or_empty((lookup(*scope) or {}).get("spec")))
        if name not in scopes[scope] or not times or depth > MAX_DEPTH or counts.total() + times > MAX_PODS:
            return
        counts[scope, name] += times
        for call in _calls(scopes[scope][name]):
            there, inline = call.get("templateRef"), call.get("inline")
            if isinstance(inline, dict):
                own = f"{name}.{call.get('name')}"
                scopes[scope][own] = inline
                count(scope, own, times * _loops(call), depth + 1)
            elif isinstance(there, dict):
                kind = "ClusterWorkflowTemplate" if there.get("clusterScope") is True else "WorkflowTemplate"
                count((kind, str(there.get("name"))), str(there.get("template")), times * _loops(call), depth + 1)
            else:
                count(scope, str(call.get("template")), times * _loops(call), depth + 1)

    for start in (spec.get("entrypoint"), spec.get("onExit")):
        count(("", ""), str(start), 1, 0)
    return [
        {"template": scopes[scope][name], "name": name, "count": times, "containers": containers}
        for (scope, name), times in counts.items()
        if (containers := _containers(scopes[scope][name]))
    ]


def _named(spec: Object) -> dict[str, Object]:
    return {str(each.get("name")): each for each in list_or_empty(spec.get("templates")) if isinstance(each, dict)}


def _calls(template: Object) -> Iterator[Object]:
    pending = [template.get("steps"), mapping_or_empty(template.get("dag")).get("tasks")]
    while pending:
        part = pending.pop(0)
        if isinstance(part, list):
            pending = part + pending
        elif isinstance(part, dict):
            yield part


def _loops(call: Object) -> int:
    items, sequence = call.get("withItems"), call.get("withSequence")
    if isinstance(items, list):
        return len(items)
    if not isinstance(sequence, dict):
        return 1
    try:
        if sequence.get("count") is not None:
            return min(max(int(sequence["count"]), 0), MAX_PODS)
        return min(abs(int(sequence.get("end", 0)) - int(sequence.get("start", 0))) + 1, MAX_PODS)
    except (TypeError, ValueError):  # of a parameter
        return 1


def _containers(template: Object) -> list[Any]:
    main = [{"name": "main", **template[key]} for key in ("container", "script") if isinstance(template.get(key), dict)]
    own = main + list_or_empty(mapping_or_empty(template.get("containerSet")).get("containers"))
    return own + list_or_empty(template.get("sidecars")) if own else []


def patch_of(text: object) -> Object:
    """Return the strategic merge patch of a field `podSpecPatch`. Raises ValueError: it is neither JSON nor YAML."""
    try:
        patch = yaml.safe_load(text) if isinstance(text, str) else None
    except yaml.YAMLError:
        raise ValueError(f"podSpecPatch {text!r} is neither JSON nor YAML") from None
    return mapping_or_empty(patch)


def workflow_parallelism(spec: Object) -> int:
    """Return how many pods a Workflow has at a time, if all pods that run at once take as long.

    Source: Argo Workflows, fields `parallelism` of a Workflow and of its templates, `steps` and `dag`.
    """
    starts = (spec.get("entrypoint"), spec.get("onExit"))
    return _limited(spec, max(_parallelism(_named(spec), start, 0) for start in starts))


def _parallelism(templates: Mapping[str, Object], name: Any, depth: int) -> int:
    """Return the same of a template; one that is not there, such as another object's, has one pod."""
    template = templates.get(name) if isinstance(name, str) else None
    if template is None or depth > MAX_DEPTH:
        return 1
    dag = template.get("dag")
    if isinstance(template.get("steps"), list):
        groups = [group if isinstance(group, list) else [group] for group in template["steps"]]
    elif isinstance(dag, dict) and isinstance(dag.get("tasks"), list):
        groups = _levels([task for task in dag["tasks"] if isinstance(task, dict)])
    else:
        return 1
    sums = [
        sum(
            _parallelism({**templates, "": mapping_or_empty(call.get("inline"))}, call.get("template", ""), depth + 1)
            * _loops(call)
            for call in group
            if isinstance(call, dict)
        )
        for group in groups
    ]
    return _limited(template, min(max(sums, default=1), MAX_PODS))


def _levels(tasks: list[Object]) -> list[list[Object]]:
    """Return tasks by how many others have to end one after another before each."""
    left, levels = {str(task.get("name")): task for task in tasks}, list[list[Object]]()
    while left:
        ready = [task for task in left.values() if not any(each in left for each in _dependencies(task))]
        levels.append(ready or [*left.values()])
        left = {name: task for name, task in left.items() if task not in levels[-1]}
    return levels


def _dependencies(task: Object) -> list[str]:
    """Return the tasks that must end before a task: a list, or an expression such as `a && b.Succeeded`."""
    stated = task.get("dependencies")
    if isinstance(stated, list):
        return [each for each in stated if isinstance(each, str)]
    expression = str(task.get("depends") or "")
    for sign in "!&|()":
        expression = expression.replace(sign, " ")
    return [each.partition(".")[0] for each in expression.split()]


def _limited(values: Object, count: int) -> int:
    limit = values.get("parallelism")
    return min(count, limit) if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0 else count
