"""Recorded placements of a cluster dump: which pods run where, which may be placed anew, and which stay.

A running pod names its node. As a constraint this would leave nothing to compare, so by default it is removed, and the
recorded node is kept beside the pod. Pods that belong to their node stay there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from steersman.cluster.constraints.node import NodeTable, allowed_nodes
from steersman.cluster.model import Constraints, Node, Pod, PodClass, Toleration
from steersman.cluster.state import ClusterState
from steersman.core.errors import SteersmanError
from steersman.workloads.formats.kubernetes.expansion import Expanded
from steersman.workloads.workload import Recorded, RunningPods, Workload

NODE_OWNERS = {"DaemonSet": "DaemonSets", "Node": "static"}
"""Kinds of owners whose pods belong to their node, and their names in messages."""
TIED, TERMINATING = "no other node allows them", "being deleted"


def belongs_to_node(pod: Pod) -> bool:
    """Return whether a pod comes and goes with its node: a DaemonSet's or a static one."""
    return pod.owner.partition("/")[0] in NODE_OWNERS


@dataclass(slots=True)
class _Counts:
    """Counts of pods that neither simply run nor wait."""

    deleted: int = 0
    lost: int = 0
    elsewhere: int = 0
    misfits: int = 0


def with_running(workload: Workload, expanded: Expanded, running: RunningPods) -> Workload:
    """Return the workload with its running pods as requested, where they ran, and a sentence about all pods.

    Pods that are being deleted stay where they run, and are left out where all pods are placed anew, as are those that
    belong to a missing node. Other pods of such a node, and pods whose requests exceed what is left where they run,
    count as waiting.

    Args:
        workload: nodes and pods, the latter perhaps more than those of `expanded` (of CSV files, which never run).
        expanded: the pods that come from Kubernetes objects.
        running: what to do with running pods.
    """
    counts = _Counts()
    if running is RunningPods.AS_WRITTEN:
        bound = sum(1 for pod in expanded.pods if pod.constraints.node_name)
        return replace(workload, understood=_sentence(expanded, expanded.pods, bound, Counter(), counts))
    slots = {node.name for node in workload.nodes}
    there = []
    for pod in workload.pods:
        node = pod.constraints.node_name
        if pod.terminating and (running is RunningPods.FREE or node not in slots):
            counts.deleted += 1
        elif node and node not in slots and belongs_to_node(pod):
            counts.lost += 1
        else:
            there.append(pod)
            counts.elsewhere += bool(node) and node not in slots
    devices = _devices(workload.nodes, there)
    counts.misfits = sum(1 for i, p in enumerate(there) if p.constraints.node_name in slots and i not in devices)
    why = _staying(workload.nodes, there, devices)
    recorded = tuple(
        Recorded(
            pod.constraints.node_name,
            devices[i],
            i in why and (pod.terminating or running is not RunningPods.PINNED),
        )
        if i in devices
        else None
        for i, pod in enumerate(there)
    )
    pods = there if running is RunningPods.PINNED else [_freed(pod, i in why) for i, pod in enumerate(there)]
    others = len(workload.pods) - len(expanded.pods)  # pods of CSV files, which come first
    return replace(
        workload,
        pods=tuple(pods),
        recorded=recorded if devices else (),
        from_now=running is RunningPods.FROM_NOW,
        understood=_sentence(expanded, there[others:], len(devices), Counter(why.values()), counts),
    )


def _devices(nodes: Sequence[Node], pods: Sequence[Pod]) -> dict[int, int]:
    """Return the bit mask of GPU devices by index of the running pods; those that do not fit are left out.

    Whether a pod is allowed on its node is not checked: it runs. Devices that a pod names are taken first, then the
    best ones for the others.
    """
    state = ClusterState(nodes)
    bound = [i for i, pod in enumerate(pods) if pod.constraints.node_name in state.slots]
    result: dict[int, int] = {}
    classes = {i: state.class_id(PodClass(pods[i].requests, Constraints())) for i in bound}
    # Without constraints a cordoned or tainted node would still refuse it, so only the amounts are compared.
    state.class_arrays.allowed[:] = True
    for named in (True, False):
        for i in bound:
            pod = pods[i]
            mask = sum(1 << device for device in pod.gpu_devices) if named else None
            if i in result or (named and not mask):
                continue
            try:
                placed = state.place(str(i), classes[i], state.slots[pod.constraints.node_name], mask)
            except SteersmanError:
                continue
            result[i] = placed.devices
    return result


def _staying(nodes: Sequence[Node], pods: Sequence[Pod], devices: dict[int, int]) -> dict[int, str]:
    """Return by index why a running pod stays; those that may go elsewhere are left out."""
    table, names = NodeTable(nodes), [node.name for node in nodes]
    only: dict[Constraints, frozenset[str]] = {}
    why = {}
    for i in devices:
        pod = pods[i]
        if belongs_to_node(pod):
            why[i] = NODE_OWNERS[pod.owner.partition("/")[0]]
            continue
        if pod.terminating:
            why[i] = TERMINATING
            continue
        c = pod.constraints
        static = Constraints(
            c.gpu_models, "", c.tolerations, c.node_selector, c.node_affinity, node_features=c.node_features
        )
        if static not in only:
            allowed = np.flatnonzero(allowed_nodes(table, static))[:2]
            only[static] = frozenset(names[slot] for slot in allowed.tolist())
        if only[static] <= {c.node_name}:
            why[i] = TIED
    return why


def _freed(pod: Pod, stays: bool) -> Pod:
    """Return the pod without node and devices; one that stays also loses its placement constraints.

    It stays, whatever they say by now, and they are never evaluated again: DaemonSets' pods, which name a node each,
    are one class then, and a bound on what any scheduler allocates finds room for a pod on a node cordoned since.
    """
    if not pod.constraints.node_name:
        return pod
    pod = replace(pod.unbound(), gpu_devices=())
    if not stays:
        return pod
    anywhere = replace(
        pod.constraints,
        gpu_models=(),
        node_selector=(),
        node_affinity=None,
        node_features=(),
        tolerations=(Toleration(operator="Exists"),),
    )
    return replace(pod, pod_class=replace(pod.pod_class, constraints=anywhere))


def _sentence(expanded: Expanded, pods: Sequence[Pod], running: int, staying: Counter[str], counts: _Counts) -> str:
    """Return a sentence about what the source was taken to hold."""
    above = [expanded.owners.get((pod.namespace, pod.name)) for pod in pods]
    owners = f"{len(pods)} pods of {len({*above} - {None})} owners"
    owners += f" ({above.count(None)} without one)" if None in above else ""
    waiting = f"{len(pods) - running} waiting"
    waiting += f" ({expanded.absent} of them not created yet)" if running and expanded.absent else ""
    parts = [owners, f"{running} running", waiting]
    if expanded.templates:
        kinds = ", ".join(f"{kind} {count}" for kind, count in expanded.templates)
        parts.append(f"{sum(count for _, count in expanded.templates)} from templates in custom resources ({kinds})")
    if staying:
        names = (*NODE_OWNERS.values(), TERMINATING, TIED)
        kinds = ", ".join(f"{kind} {staying[kind]}" for kind in names if staying[kind])
        parts.append(f"{sum(staying.values())} pinned ({kinds})")
    parts += [
        f"{number} {what}"
        for number, what in (
            (expanded.finished, "finished left out"),
            (counts.deleted, "being deleted left out"),
            (counts.lost, "of nodes that are not there left out"),
            (counts.elsewhere, "on nodes that are not there count as waiting"),
            (counts.misfits, "that ask for more than their node has count as waiting"),
            *(
                (number, f"in phase {phase} counted as running if they have a node")
                for phase, number in expanded.odd_phases
            ),
        )
        if number
    ]
    return ", ".join(parts)
