"""Warnings about the GPUs that pods share by other schedulers than kube-scheduler, see `cluster.objects.gpu_shares`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    reservations = sum(each.kind == "Pod" and is_reservation(each.typed.metadata) for each in objects)
    if reservations:
        yield (
            f"pods with which KAI reserves shared GPUs are left out ({reservations}): the pods that share these GPUs "
            "count"
        )
    for each in objects:
        if each.kind in CONTROLLERS and (key := misplaced_annotation(each.typed.metadata, each.pod.metadata)):
            yield (
                f"{each.kind} {each.name} has the annotation {key}, which its pods do not get: it belongs into "
                "spec.template.metadata"
            )
    pods = [each.pod for each in objects if each.kind in ("Pod", *CONTROLLERS)]
    unequal = sum(has_unequal_shares(each.spec, sharing) for each in pods)
    if unequal:
        yield f"containers of a pod have unequal shares of GPUs: the largest counts for each ({unequal} of them)"
    if len(sharing.memory_mib) == 1 or not any(map(requests_memory, pods)):
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
