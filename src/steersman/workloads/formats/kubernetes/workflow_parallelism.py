"""How many pods of an Argo Workflow run at a time: steps follow each other, and tasks those that they depend on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steersman.cluster.objects.fields import Object
from steersman.workloads.formats.kubernetes.argo_workflows import MAX_DEPTH, MAX_PODS, _loops

Templates = Mapping[str, Object]


def workflow_parallelism(spec: Object) -> int:
    """Return how many pods a Workflow has at a time, if all pods that run at once take as long.

    Source: Argo Workflows, fields `parallelism` of a Workflow and of its templates, `steps` and `dag`.
    """
    every = [each for each in spec["templates"] if isinstance(each, dict)]
    templates = {str(each.get("name")): each for each in every}
    starts = (spec.get("entrypoint"), spec.get("onExit"))
    return _limited(spec, max(_parallelism(templates, start, 0) for start in starts))


def _parallelism(templates: Templates, name: Any, depth: int) -> int:
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
            _parallelism(templates, call.get("template"), depth + 1) * _loops(call)
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
