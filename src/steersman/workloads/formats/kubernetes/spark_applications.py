"""Pods of a SparkApplication: a driver and executors, whose resources are in Spark's units.

Source: API of the Spark operator (sparkoperator.k8s.io/v1beta2), and Spark's BasicDriverFeatureStep and
BasicExecutorFeatureStep: a container requests its cores, and its memory with an overhead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from steersman.cluster.objects.fields import FieldError, Object
from steersman.cluster.objects.partial import list_or_empty, mapping_or_empty

SPARK = "SparkApplication"
MAX_EXECUTORS = 100_000
_LEAST_OVERHEAD_MIB = 384
_OVERHEAD_FACTOR, _OVERHEAD_FACTOR_OF_SCRIPTS = 0.1, 0.4
_SCRIPTS = ("Python", "R")
_OWN = (
    *("nodeSelector", "tolerations", "affinity", "schedulerName", "hostNetwork", "initContainers"),
    *("priorityClassName", "schedulingGates", "topologySpreadConstraints"),
)
_UNITS = {"k": 1 / 1024, "m": 1, "g": 1 << 10, "t": 1 << 20, "p": 1 << 30}
_SIZE = re.compile(r"(\d{1,15})\s*([kmgtp]?)b?", re.IGNORECASE)


def spark_pods(name: str, spec: Object) -> Iterator[tuple[Object, str, str, int]]:
    """Yield pod template, path, role and number of pods of the driver and the executors.

    Raises:
        FieldError: an amount of memory is not one.
    """
    for role, count in (("driver", 1), ("executor", _executors(spec))):
        yield _pod(name, spec, role), f"spec.{role}", role, count


def _executors(spec: Object) -> int:
    """Return how many executors an application starts with."""
    dynamic, stated = _mapping(spec, "dynamicAllocation"), _mapping(spec, "executor").get("instances")
    instances = _count(stated if stated is not None else _setting(spec, "spark.executor.instances"))
    if dynamic.get("enabled") is True or _setting(spec, "spark.dynamicAllocation.enabled") == "true":
        bounds = (
            dynamic.get(key, _setting(spec, f"spark.dynamicAllocation.{key}"))
            for key in ("initialExecutors", "minExecutors")
        )
        return max(instances or 0, *(_count(bound) or 0 for bound in bounds))
    return 1 if instances is None else instances


def _pod(name: str, spec: Object, role: str) -> Object:
    part, template = _mapping(spec, role), _mapping(_mapping(spec, role), "template")
    stated = _mapping(template, "spec")
    pod = {key: spec[key] for key in ("nodeSelector", "volumes") if spec.get(key)}
    options = _mapping(spec, "batchSchedulerOptions")
    pod |= {"priorityClassName": options["priorityClassName"]} if options.get("priorityClassName") else {}
    pod |= {**stated, **{key: part[key] for key in _OWN if part.get(key)}}
    first, *others = list_or_empty(stated.get("containers")) or [{}]
    main = {**(first if isinstance(first, dict) else {}), "resources": _resources(spec, role)}
    containers = [{"name": f"spark-kubernetes-{role}", **main}, *others, *list_or_empty(part.get("sidecars"))]
    labels = {"spark-role": role, "sparkoperator.k8s.io/app-name": name}
    metadata = _mapping(template, "metadata")
    for key in ("labels", "annotations"):
        own = {**_mapping(metadata, key), **_mapping(part, key), **(labels if key == "labels" else {})}
        metadata = {**metadata, key: own}
    return {"metadata": metadata, "spec": {**pod, "containers": containers}}


def _resources(spec: Object, role: str) -> Object:
    part = _mapping(spec, role)
    cores = part.get("cores", _setting(spec, f"spark.{role}.cores", 1))
    requests: dict[str, Any] = {
        "cpu": part.get("coreRequest", _setting(spec, f"spark.kubernetes.{role}.request.cores", cores)),
        "memory": f"{_memory_mib(spec, role)}Mi",
    }
    limits = {"memory": requests["memory"]}
    limit = part.get("coreLimit", _setting(spec, f"spark.kubernetes.{role}.limit.cores"))
    limits |= {"cpu": limit} if limit is not None else {}
    gpu = _mapping(part, "gpu")
    limits |= {str(gpu["name"]): gpu.get("quantity")} if gpu.get("name") else {}
    return {"requests": requests, "limits": limits}


def _memory_mib(spec: Object, role: str) -> int:
    """Return what a container requests: its heap and what Spark adds to it."""
    part = _mapping(spec, role)
    heap = _mib(part.get("memory", _setting(spec, f"spark.{role}.memory", "1g")), f"spec.{role}.memory")
    overhead = part.get("memoryOverhead", _setting(spec, f"spark.{role}.memoryOverhead"))
    if overhead is not None:
        return heap + _mib(overhead, f"spec.{role}.memoryOverhead")
    default = _OVERHEAD_FACTOR_OF_SCRIPTS if spec.get("type") in _SCRIPTS else _OVERHEAD_FACTOR
    stated = spec.get("memoryOverheadFactor", _setting(spec, "spark.kubernetes.memoryOverheadFactor", default))
    try:
        factor = float(stated)
    except (TypeError, ValueError):
        raise FieldError("spec.memoryOverheadFactor", f"{stated!r} is not a number") from None
    if not 0 <= factor < 1000:
        raise FieldError("spec.memoryOverheadFactor", f"{stated!r} must be at least 0 and below 1000")
    return heap + max(int(heap * factor), _LEAST_OVERHEAD_MIB)


def _mib(stated: Any, field: str) -> int:
    """Return an amount of memory as the JVM reads it: 512m and 2g are MiB and GiB, a number alone is MiB."""
    match = _SIZE.fullmatch(str(stated).strip())
    if match is None:
        raise FieldError(field, f"{stated!r} is not an amount of memory; expected one such as 512m or 4g")
    return int(int(match[1]) * _UNITS[match[2].lower() or "m"])


def _setting(spec: Object, key: str, default: Any = None) -> Any:
    return _mapping(spec, "sparkConf").get(key, default)


def _count(stated: Any) -> int | None:
    text = str(stated)
    return min(int(text), MAX_EXECUTORS) if text.isascii() and text.isdigit() and len(text) < 12 else None


def _mapping(parent: Mapping[str, Any], key: str) -> Object:
    return mapping_or_empty(parent.get(key))
