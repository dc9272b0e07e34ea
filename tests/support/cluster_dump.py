"""What `kubectl get ... -o yaml` prints of a made-up cluster: owner references, status and managedFields included."""

from __future__ import annotations

import itertools
from typing import Any

from steersman.workloads.formats.kubernetes.expansion import Expanded
from steersman.workloads.formats.kubernetes.objects import Objects
from steersman.workloads.formats.yaml_documents import Document

Object = dict[str, Any]

_FIELDS = {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:containers": {'k:{"name":"main"}': {}}}}
VERSIONS = {"Pod": "v1", "Node": "v1", "ReplicationController": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}


def stamp(second: int) -> str:
    """A time so many seconds after a certain one, as objects have it."""
    minutes, second = divmod(second, 60)
    hours, minute = divmod(minutes, 60)
    return f"2026-05-{1 + hours // 24:02}T{hours % 24:02}:{minute:02}:{second:02}Z"


def item(kind: str, name: str, *, at: int | None = None, owner: Object | None = None, **fields: Any) -> Object:
    """An object as the API server gives it out. `owner` is the object that controls it."""
    metadata: Object = {"name": name, **({} if kind == "Node" else {"namespace": "default"})}
    metadata |= {"uid": f"uid-{kind}-{name}", "resourceVersion": "7", **fields.pop("metadata", {})}
    if at is not None:
        metadata["creationTimestamp"] = stamp(at)
        managed = {"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": _FIELDS, "manager": "m", "time": stamp(at)}
        metadata["managedFields"] = [managed]
    if owner is not None:
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
        metadata["ownerReferences"] = [
            reference | {"uid": owner["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}
        ]
    return {"apiVersion": VERSIONS.get(kind, "apps/v1"), "kind": kind, "metadata": metadata, **fields}


def node(name: str, gpus: int = 8, *, labels: Object | None = None, **spec: Any) -> Object:
    """A ready node."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return item("Node", name, at=0, metadata={"labels": {**(labels or {})}}, spec=spec, status=status)


def pod_spec(gpus: int = 0, cpu: str = "1") -> Object:
    """The spec of a pod of one container."""
    wanted = {"cpu": cpu, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    resources = {"requests": wanted, "limits": {k: v for k, v in wanted.items() if k != "cpu"}}
    return {"containers": [{"name": "main", "image": "x", "resources": resources}]}


def controller(kind: str, name: str, *, gpus: int = 0, at: int | None = 0, **more: Any) -> Object:
    """A controller that selects and makes pods labelled `app: NAME`."""
    owner, status = more.pop("owner", None), more.pop("status", {})
    template = {"metadata": {"labels": {"app": name}}, "spec": pod_spec(gpus)}
    selector = {"app": name} if kind == "ReplicationController" else {"matchLabels": {"app": name}}
    spec = {"selector": selector, "template": template, **more}
    return item(kind, name, at=at, owner=owner, spec=spec, status=status)


def pod(
    name: str, owner: Object | None = None, *, on: str = "", gpus: int = 0, at: int | None = 0, **more: Any
) -> Object:
    """A pod, running where `on` names a node; labelled as the selector of its owner wants it."""
    phase = more.pop("phase", "Running" if on else "Pending")
    app = more.pop("app", owner["metadata"]["name"] if owner else name)
    metadata = {"labels": {"app": app}, **more.pop("metadata", {})}
    spec = pod_spec(gpus) | ({"nodeName": on} if on else {}) | more
    return item("Pod", name, at=at, owner=owner, metadata=metadata, spec=spec, status={"phase": phase})


def listed(*objects: Object) -> Object:
    """A List of objects, as kubectl prints several."""
    return {"apiVersion": "v1", "kind": "List", "items": list(objects), "metadata": {"resourceVersion": ""}}


def parsed(*content: Object) -> Objects:
    """The objects of a file, some of which may be invalid."""
    return Objects([Document(listed(*content), "w.yaml", "")])


def read(*content: Object) -> Objects:
    """The objects of a file, which are valid."""
    found = parsed(*content)
    assert not found.problems()
    return found


def expanded(*content: Object) -> Expanded:
    """The pods of a file, those of its controllers included."""
    found = read(*content)
    result = found.expanded(found.nodes())
    assert not result.problems
    return result


def half_full() -> tuple[list[Object], list[Object]]:
    """30 nodes of 8 GPUs with 56 running pods of one GPU, spread over 28 of them, and 22 waiting pods of eight."""
    nodes = [node(f"gpu-{i:02}") for i in range(30)]
    small, large = (
        controller("Deployment", "small", gpus=1, replicas=56),
        controller("Deployment", "large", replicas=22),
    )
    large["spec"]["template"]["spec"] = pod_spec(8)
    sets = [controller("ReplicaSet", f"{d['metadata']['name']}-5f", owner=d, replicas=0) for d in (small, large)]
    at = itertools.count(10)
    pods = [
        pod(f"small-5f-{i:02}", sets[0], on=f"gpu-{i % 28:02}", gpus=1, at=next(at), app="small") for i in range(56)
    ]
    pods += [pod(f"large-5f-{i:02}", sets[1], gpus=8, at=next(at), app="large") for i in range(22)]
    return nodes, [small, large, *pods]
