"""Custom resources whose pods are described by other objects: references are replaced by what they refer to.

An Argo Rollout takes the template of the workload that `spec.workloadRef` names; an Argo Workflow the spec that
`spec.workflowTemplateRef` names, and templates that its steps name by `templateRef`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from steersman.cluster.objects.fields import Object
from steersman.cluster.objects.partial import list_or_empty
from steersman.workloads.formats.kubernetes.argo_workflows import calls, with_calls
from steersman.workloads.formats.kubernetes.controllers import Key, is_created, key_of
from steersman.workloads.formats.kubernetes.custom_resources import is_over
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

WORKLOADS = ("Deployment", "ReplicaSet", "PodTemplate")
"""Kinds that a Rollout may refer to."""
WORKFLOW_TEMPLATE, CLUSTER_TEMPLATE = "WorkflowTemplate", "ClusterWorkflowTemplate"
MAX_TEMPLATES = 10_000
_SCALED_DOWN = ("onsuccess", "progressively")


class References:
    """What custom resources of an input refer to.

    Args:
        objects: all objects of the input.

    Attributes:
        absent: kind and name of what the input does not hold, and the objects that refer to it.
    """

    def __init__(self, objects: Sequence[KubernetesObject]) -> None:
        self.absent: dict[tuple[str, str], list[str]] = {}
        kinds = (*WORKLOADS, WORKFLOW_TEMPLATE, CLUSTER_TEMPLATE)
        self._targets = {_target_key(obj): obj.content for obj in objects if obj.kind in kinds}
        self._used: set[Key] = set()
        self._incomplete: set[Key] = set()
        self._dumped = {obj.namespace for obj in objects if obj.kind == "Pod" and is_created(obj)}
        rollouts = [obj for obj in objects if obj.kind == "Rollout"]
        self._scaled_down = {key for obj in rollouts if (key := _scaled_down_by(obj))}

    def resolved(self, obj: KubernetesObject) -> KubernetesObject:
        """Return an object without references; those to objects that the input does not hold have nothing in them."""
        spec = obj.content.get("spec")
        if not isinstance(spec, dict):
            return obj
        if key_of(obj) in self._scaled_down:
            return replace(obj, content={**obj.content, "spec": {**spec, "replicas": 0}})
        if is_over(obj):
            return obj
        if obj.kind == "Rollout" and isinstance(spec.get("workloadRef"), dict):
            own = self._of_workload(obj, spec)
        elif obj.kind == "Workflow":
            own = self._of_workflow(obj, spec)
        else:
            return obj
        return replace(obj, content={**obj.content, "spec": own})

    def is_known(self, obj: KubernetesObject) -> bool:
        """Return whether an object without pods is one that others refer to, or refers to what is absent."""
        return _target_key(obj) in self._used or key_of(obj) in self._incomplete

    def warnings(self) -> list[str]:
        """Return a warning for each object that others refer to and the input does not hold."""
        return [
            f"{kind} {name} is not in the input; pods that it describes are left out (named by {', '.join(objects[:3])}"
            f"{f' and {len(objects) - 3} more' if len(objects) > 3 else ''})"
            for (kind, name), objects in sorted(self.absent.items())
        ]

    def _find(self, obj: KubernetesObject, kind: str, name: object) -> Object | None:
        """Return the object that another one refers to; note it if it is absent, unless its pods are in the input."""
        namespace = "" if kind == CLUSTER_TEMPLATE else obj.namespace
        found = self._targets.get((kind, namespace, str(name)))
        if found is None and not (is_created(obj) and obj.namespace in self._dumped):
            full = f"{namespace}/{name}" if namespace else str(name)
            users = self.absent.setdefault((kind, full), [])
            users += [] if _named(obj) in users else [_named(obj)]
        if found is None:
            self._incomplete.add(key_of(obj))
        self._used.add((kind, namespace, str(name)))
        return found

    def _of_workload(self, obj: KubernetesObject, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the spec of a Rollout with the pod template of the workload that it refers to."""
        reference = spec["workloadRef"]
        found = self._find(obj, str(reference.get("kind")), reference.get("name"))
        holder = found.get("spec") if found is not None and reference.get("kind") != "PodTemplate" else found
        return {**spec, "template": holder.get("template") if isinstance(holder, dict) else None}

    def _of_workflow(self, obj: KubernetesObject, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the spec of a Workflow with all templates that it uses."""
        reference = spec.get("workflowTemplateRef")
        whole = dict(spec)
        if isinstance(reference, dict):
            found = self._stored(obj) or self._find(obj, _kind_of(reference), reference.get("name"))
            described = found.get("spec") if found is not None else None
            described = described if isinstance(described, dict) else {}
            whole = {
                **described,
                **spec,
                "templates": [*list_or_empty(described.get("templates")), *list_or_empty(spec.get("templates"))],
            }
        return {**whole, "templates": self._imported(obj, list_or_empty(whole.get("templates")))}

    def _stored(self, obj: KubernetesObject) -> Object | None:
        """Return the spec that a Workflow of a dump has taken from its template."""
        status = obj.content.get("status")
        stored = status.get("storedWorkflowTemplateSpec") if isinstance(status, dict) else None
        return {"spec": stored} if isinstance(stored, dict) else None

    def _imported(self, obj: KubernetesObject, templates: Sequence[Any]) -> list[Any]:
        """Return templates, and those of other objects that their steps name, as `OBJECT/TEMPLATE`."""
        result: list[Any] = []
        pending: list[tuple[str, str, Any]] = [("", "", each) for each in templates]
        imported: set[str] = set()
        while pending and len(result) < MAX_TEMPLATES:
            kind, scope, template = pending.pop(0)
            if not isinstance(template, dict):
                continue

            def local(call: Object, kind: str = kind, scope: str = scope) -> Object:
                reference, name = call.get("templateRef"), call.get("template")
                if isinstance(reference, dict):
                    kind, scope, name = _kind_of(reference), str(reference.get("name")), reference.get("template")
                if not scope:
                    return call
                full = _imported_name(kind, scope, name)
                if full not in imported:
                    imported.add(full)
                    pending.extend(self._named_template(obj, kind, scope, str(name), full))
                return {**call, "template": full}

            result.append(with_calls(template, local) if any(True for _ in calls(template)) else template)
        return result

    def _named_template(
        self, obj: KubernetesObject, kind: str, scope: str, name: str, full: str
    ) -> Iterable[tuple[str, str, Any]]:
        found = self._find(obj, kind, scope)
        spec = found.get("spec") if found is not None else None
        for each in list_or_empty(spec.get("templates")) if isinstance(spec, dict) else ():
            if isinstance(each, dict) and each.get("name") == name:
                yield kind, scope, {**each, "name": full}


def _named(obj: KubernetesObject) -> str:
    return f"{obj.kind} {obj.namespace}/{obj.name}"


def _target_key(obj: KubernetesObject) -> Key:
    return obj.kind, "" if obj.kind == CLUSTER_TEMPLATE else obj.namespace, obj.name


def _scaled_down_by(rollout: KubernetesObject) -> Key | None:
    """Return the key of the Deployment that a Rollout has scaled to 0 once it is healthy."""
    spec = rollout.content.get("spec")
    reference = spec.get("workloadRef") if isinstance(spec, dict) else None
    if not isinstance(reference, dict) or reference.get("scaleDown") not in _SCALED_DOWN:
        return None
    is_scaled = reference.get("kind") == "Deployment"
    return ("Deployment", rollout.namespace, str(reference.get("name"))) if is_scaled else None


def _kind_of(reference: Object) -> str:
    return CLUSTER_TEMPLATE if reference.get("clusterScope") is True else WORKFLOW_TEMPLATE


def _imported_name(kind: str, scope: str, name: object) -> str:
    return f"{'cluster/' if kind == CLUSTER_TEMPLATE else ''}{scope}/{name}"
