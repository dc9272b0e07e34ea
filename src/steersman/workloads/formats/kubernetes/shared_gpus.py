"""Warnings about the GPUs that pods share by other schedulers than kube-scheduler, see `cluster.objects.gpu_shares`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from steersman.cluster.objects.fields import Object
from steersman.cluster.objects.gpu_shares import (
    MEMORY_LABEL,
    GpuSharing,
    has_unequal_shares,
    is_reservation,
    misplaced_annotation,
    requests_memory,
)
from steersman.workloads.formats.kubernetes.controllers import CONTROLLERS
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject


def sharing_warnings(objects: Sequence[KubernetesObject], sharing: GpuSharing) -> Iterator[str]:
    """Yield what is assumed of GPUs that the pods of an input share."""
    reservations = sum(each.kind == "Pod" and is_reservation(each.metadata) for each in objects)
    if reservations:
        yield (
            f"pods with which KAI reserves shared GPUs are left out ({reservations}): the pods that share these GPUs "
            "count"
        )
    controllers = [each for each in objects if each.kind in CONTROLLERS]
    for each in controllers:
        if key := misplaced_annotation(each.content, _template(each)):
            yield (
                f"{each.kind} {each.name} has the annotation {key}, which its pods do not get: it belongs into "
                "spec.template.metadata"
            )
    pods = [each.content for each in objects if each.kind == "Pod"]
    unequal = sum(has_unequal_shares(_spec(each), sharing) for each in (*pods, *map(_template, controllers)))
    if unequal:
        yield f"containers of a pod have unequal shares of GPUs: the largest counts for each ({unequal} of them)"
    if len(sharing.memory_mib) == 1 or not any(map(requests_memory, (*pods, *map(_template, controllers)))):
        return
    if sharing.memory_mib:
        sizes = " and ".join(map(str, sharing.memory_mib))
        yield (
            f"pods request memory of GPUs, and GPUs have {sizes} MiB: a request counts as a share of the smallest that "
            "has as much"
        )
    else:
        yield (
            "pods request memory of GPUs, and no node says how much its GPUs have: such pods count as if they "
            f"requested whole ones; the label {MEMORY_LABEL} says it"
        )


def _spec(content: Object) -> Object:
    spec = content.get("spec")
    return spec if isinstance(spec, dict) and isinstance(spec.get("containers"), list) else {}


def _template(controller: KubernetesObject) -> Object:
    spec = controller.content.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    return template if isinstance(template, dict) else {}
