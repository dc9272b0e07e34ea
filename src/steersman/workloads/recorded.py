"""What a dump of a cluster records: which pods run where, which of them may be placed anew, and which stay.

A running pod names its node. As a constraint that would leave nothing to compare, so by default it is taken off, and
where the pod ran is kept beside it. What belongs to its node stays there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from steersman.cluster.constraints import NodeTable, allowed_nodes
from steersman.cluster.model import Constraints, Node, Pod, PodClass, Toleration
from steersman.cluster.state import ClusterState
from steersman.errors import SteersmanError
from steersman.workloads.kubernetes import Expanded
from steersman.workloads.workload import Recorded, Running, Workload

NODE_OWNERS = {"DaemonSet": "DaemonSets", "Node": "static"}
"""Kinds of owners whose pods belong to their node, and what they are called."""
TIED = "no other node allows them"


def belongs_to_node(pod: Pod) -> bool:
    """Return whether a pod comes and goes with its node: a DaemonSet's or a static one."""
    return pod.owner.partition("/")[0] in NODE_OWNERS


@dataclass(slots=True)
class _Counts:
    """What there was besides pods that simply run or wait."""

    deleted: int = 0
    lost: int = 0
    elsewhere: int = 0
    misfits: int = 0


def with_running(workload: Workload, expanded: Expanded, running: Running) -> Workload:
    """Return the workload with its running pods as asked for, where they ran, and a sentence about all pods.

    Pods that are being deleted are left out, as are those that belong to a node that is not there. Other pods of such
    a node, and pods that ask for more than is left where they run, count as waiting.

    Args:
        workload: nodes and pods, the latter perhaps more than those of `expanded` (of CSV files, which never run).
        expanded: the pods that Kubernetes objects stand for.
        running: what becomes of pods that run.
    """
    counts = _Counts()
    if running is Running.AS_WRITTEN:
        bound = sum(1 for pod in expanded.pods if pod.constraints.node_name)
        return replace(workload, understood=_sentence(expanded, expanded.pods, bound, Counter(), counts))
    slots = {node.name for node in workload.nodes}
    there = []
    for pod in workload.pods:
        node = pod.constraints.node_name
        if (pod.namespace, pod.name) in expanded.terminating:
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
        Recorded(pod.constraints.node_name, devices[i], i in why and running is not Running.PINNED)
        if i in devices
        else None
        for i, pod in enumerate(there)
    )
    pods = there if running is Running.PINNED else [_freed(pod, i in why) for i, pod in enumerate(there)]
    others = len(workload.pods) - len(expanded.pods)  # of CSV files, which come first
    return replace(
        workload,
        pods=tuple(pods),
        recorded=recorded if devices else (),
        from_now=running is Running.FROM_NOW,
        understood=_sentence(expanded, there[others:], len(devices), Counter(why.values()), counts),
    )


def _devices(nodes: Sequence[Node], pods: Sequence[Pod]) -> dict[int, int]:
    """Return by number of the pods that run the bit mask of their GPU devices; those that do not fit are left out.

    What a pod was allowed is not asked: it runs. Devices that a pod names are taken first, then the best for the rest.
    """
    state = ClusterState(nodes)
    bound = [i for i, pod in enumerate(pods) if pod.constraints.node_name in state.slots]
    found: dict[int, int] = {}
    classes = {i: state.class_id(PodClass(pods[i].requests, Constraints())) for i in bound}
    # Without constraints a cordoned or tainted node would still refuse it, so only the amounts are compared.
    state.class_arrays.allowed[:] = True
    for named in (True, False):
        for i in bound:
            pod = pods[i]
            mask = sum(1 << device for device in pod.gpu_devices) if named else None
            if i in found or (named and not mask):
                continue
            try:
                placed = state.place(str(i), classes[i], state.slots[pod.constraints.node_name], mask)
            except SteersmanError:
                continue
            found[i] = placed.devices
    return found


def _staying(nodes: Sequence[Node], pods: Sequence[Pod], devices: dict[int, int]) -> dict[int, str]:
    """Return by number why a running pod stays; those that may go elsewhere are left out."""
    table, names = NodeTable(nodes), [node.name for node in nodes]
    only: dict[Constraints, frozenset[str]] = {}
    why = {}
    for i in devices:
        pod = pods[i]
        if belongs_to_node(pod):
            why[i] = NODE_OWNERS[pod.owner.partition("/")[0]]
            continue
        c = pod.constraints
        static = Constraints(c.gpu_models, "", c.tolerations, c.node_selector, c.node_affinity)
        if static not in only:
            allowed = np.flatnonzero(allowed_nodes(table, static))[:2]
            only[static] = frozenset(names[slot] for slot in allowed.tolist())
        if only[static] <= {c.node_name}:
            why[i] = TIED
    return why


def _freed(pod: Pod, stays: bool) -> Pod:
    """Return the pod without its node and devices; one that stays also without what says where it may go.

    It stands, whatever that says by now, and is asked about no more: DaemonSets' pods, which name a node each, are one
    class then, and a bound on what any scheduler allocates finds room for a pod that runs on a node since cordoned.
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
        tolerations=(Toleration(operator="Exists"),),
    )
    return replace(pod, pod_class=replace(pod.pod_class, constraints=anywhere))


def _sentence(expanded: Expanded, pods: Sequence[Pod], running: int, staying: Counter[str], counts: _Counts) -> str:
    """Return what was understood, in a sentence."""
    above = [expanded.owners.get((pod.namespace, pod.name)) for pod in pods]
    owners = f"{len(pods)} pods of {len({*above} - {None})} owners"
    owners += f" ({above.count(None)} without one)" if None in above else ""
    waiting = f"{len(pods) - running} waiting"
    waiting += f" ({expanded.absent} of them not created yet)" if running and expanded.absent else ""
    parts = [owners, f"{running} running", waiting]
    if staying:
        kinds = ", ".join(f"{kind} {staying[kind]}" for kind in (*NODE_OWNERS.values(), TIED) if staying[kind])
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
