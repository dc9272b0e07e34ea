"""Warnings about GPUs of a workload that percentages do not count or no pod can get, and about ignored annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from steersman.cluster.gpu_units import counted_milli, is_accelerator, is_unclear, offered_units
from steersman.cluster.model import GPU_RESOURCES, MODEL_LABELS, Node, Pod, is_offered
from steersman.core.counting import counted, first_names
from steersman.workloads.workload import Workload


def gpu_warnings(nodes: Sequence[Node], pods: Sequence[Pod]) -> tuple[str, ...]:
    """Return a line for each kind of GPU that is not counted in GPUs, and for each that pods want and no node has."""
    lines = [*_uncounted(nodes, pods), *_unclear(nodes)]
    if nodes and pods:
        lines += [*_missing_resources(nodes, pods), *_missing_models(nodes, pods)]
    return tuple(lines)


def no_devices(workload: Workload) -> str:
    """Return why no pod of a workload gets a GPU device; "": one may."""
    nodes = workload.eligible_nodes
    if any(node.gpu_count for node in nodes) and any(pod.requests.gpu_count for pod in workload.pods):
        return ""
    amounts = sorted({name for node in nodes for name in counted_milli(node)})
    if amounts and not any(node.gpu_count for node in nodes):
        return f"its nodes offer GPUs only as {first_names(amounts)}, which policies see as amounts like CPU"
    return "its nodes or pods have no GPU"


def _uncounted(nodes: Iterable[Node], pods: Iterable[Pod]) -> Iterator[str]:
    """Name accelerators that are placed by their number and are no part of any percentage of GPUs."""
    offered, requested, in_gpus = Counter[str](), Counter[str](), set[str]()
    for node in nodes:
        in_gpus.update(counted_milli(node))
        offered.update({name: amount for name, amount in node.extended if is_accelerator(name)})
    for pod in pods:
        requested.update(name for name, _ in pod.requests.extended if is_accelerator(name))
    names = sorted((offered.keys() | requested.keys()) - in_gpus)
    if names:
        each = [
            f"{name} ({offered[name]:,} on nodes, requested by {counted(requested[name], 'pod')})" for name in names
        ]
        yield f"placed by their number and not counted in GPUs: {', '.join(each)}"


def _unclear(nodes: Iterable[Node]) -> Iterator[str]:
    names = [node.name for node in nodes if is_unclear(node)]
    if names:
        yield (
            f"GPUs of {counted(len(names), 'node')} are shared or sliced, and no label says in how many parts: each "
            f"part counts as a whole GPU ({first_names(names)}); nvidia.com/gpu.replicas says it"
        )


def _missing_resources(nodes: Sequence[Node], pods: Iterable[Pod]) -> Iterator[str]:
    """Name resources of GPUs that pods request and no node offers, beside those that nodes offer."""
    serves_any = any(node.gpu_count and not node.gpu_resources for node in nodes)
    offered = {name for node in nodes for name in offered_units(node) if name in GPU_RESOURCES or is_accelerator(name)}
    wanted = Counter[str]()
    for pod in pods:
        requests = pod.requests
        named = bool(requests.gpu_resource) and not serves_any
        if requests.gpu_count and named and not (offered and is_offered(requests.gpu_resource, tuple(offered))):
            wanted[requests.gpu_resource] += 1
        missing = (name for name, _ in requests.extended if name not in offered)
        wanted.update(name for name in missing if is_accelerator(name) or "gpu" in name)
    for name, count in sorted(wanted.items()):
        there = f"nodes offer {first_names(sorted(offered))}" if offered else "nodes offer no GPU"
        yield f"{counted(count, 'pod')} request{'s' * (count == 1)} {name}, which no node offers; {there}"


def _missing_models(nodes: Iterable[Node], pods: Iterable[Pod]) -> Iterator[str]:
    """Name models of GPUs that pods select by a label and no node has, beside those that nodes have."""
    models = {key: {node.labels[key] for node in nodes if node.labels.get(key)} for key in MODEL_LABELS}
    wanted = Counter[tuple[str, str]]()
    for pod in pods:
        wanted.update(
            (key, value) for key, value in pod.constraints.node_selector if key in models and value not in models[key]
        )
    for (key, value), count in sorted(wanted.items()):
        there = f"nodes have {first_names(sorted(models[key]))}" if models[key] else "no node has this label"
        yield f"{counted(count, 'pod')} select{'s' * (count == 1)} {key}={value}, which no node has; {there}"


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
