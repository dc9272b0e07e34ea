"""Recorded placements of a cluster dump: which pods run where, which may be placed again, and which stay.

A running pod names its node. As a constraint this would leave nothing to compare, so by default it is removed, and the
recorded node is kept beside the pod. Pods that belong to their node stay there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from steersman.cluster.account import ClusterAccount, account_of
from steersman.cluster.constraints.node import NodeTable, allowed_nodes
from steersman.cluster.model import Constraints, Node, Pod, PodClass, Toleration
from steersman.cluster.state import ClusterState, RunningPod
from steersman.core.counting import first_names
from steersman.core.errors import SteersmanError
from steersman.workloads.formats.kubernetes.expansion import Expanded
from steersman.workloads.workload import Recorded, RunningPods, Workload

NODE_OWNERS = {"DaemonSet": "DaemonSets", "Node": "static"}
"""Kinds of owners whose pods belong to their node, and their names in messages."""
TIED = "no other node allows them"
LEAVING = "being deleted"
EXCEEDING = "their node offers less than runs there"
NOMINATED = "{}: status.nominatedNodeName has no effect unless running pods stay (--from-now, --pinned): {}"
REASONS = (*NODE_OWNERS.values(), TIED, LEAVING, EXCEEDING)  # why running pods stay, in messages


def belongs_to_node(pod: Pod) -> bool:
    """Return whether a pod comes and goes with its node: a DaemonSet's or a static one."""
    return pod.owner.partition("/")[0] in NODE_OWNERS


@dataclass(slots=True)
class _Counts:
    """Counts of pods that neither simply run nor wait."""

    deleted: int = 0
    gated: int = 0
    lost: int = 0
    elsewhere: int = 0
    ended: int = 0
    untimed: int | None = None


def with_running(
    workload: Workload, expanded: Expanded, running: RunningPods, *, may_be_empty: bool = False
) -> Workload:
    """Return the workload with its running pods as requested, where they ran, and a sentence about all pods.

    A pod that runs counts where it runs, whatever its node offers by now. Pods that are being deleted and have no node
    are left out, as are those that belong to a missing node, and gated ones, which no scheduler looks at. Other pods of
    a missing node count as waiting. Where the running pods stay, the waiting ones come by priority, then age.

    The workload may have more pods than `expanded`: those of CSV files, which never run.
    """
    counts = _Counts()
    if running is RunningPods.AS_WRITTEN:
        bound = sum(1 for pod in expanded.pods if pod.constraints.node_name)
        sentence = _sentence(workload.nodes, expanded, expanded.pods, bound, Counter(), counts)
        return replace(workload, understood=sentence)
    there = list(_present(workload, counts))
    from_now = running in (RunningPods.FROM_NOW, RunningPods.PINNED)
    if from_now:
        names = {node.name for node in workload.nodes}
        there.sort(key=lambda pod: (0, 0) if pod.constraints.node_name in names else (1, -pod.priority))
    replayed = running is RunningPods.REPLAYED
    # The others arrive again, whatever their nodes offer.
    runs = [not replayed or belongs_to_node(pod) for pod in there]
    account = _Account(workload.nodes, [pod if each else pod.unbound() for pod, each in zip(there, runs, strict=True)])
    ties = _Ties(workload.nodes)
    stays = ((i, ties.why_stays(there[i]) or EXCEEDING * account.exceeds(i)) for i in account.devices)
    why = {i: reason for i, reason in stays if reason}
    recorded = tuple(
        # Pods on a node that offers too little run there, too, but remain part of the demand.
        Recorded(pod.constraints.node_name, account.devices[i], why.get(i, EXCEEDING) != EXCEEDING, account.exceeds(i))
        if i in account.devices
        else None
        for i, pod in enumerate(there)
    )
    pinned = running is RunningPods.PINNED
    pods = there if pinned else [_freed(pod, why.get(i, EXCEEDING) != EXCEEDING) for i, pod in enumerate(there)]
    known = {(pod.namespace, pod.name) for pod in expanded.pods}
    of_objects = [pod for pod in there if (pod.namespace, pod.name) in known]  # without those of CSV files
    if replayed:
        counts.ended, counts.untimed = len(workload.lives.ended), workload.lives.untimed
    sentence = _sentence(workload.nodes, expanded, of_objects, len(account.devices), Counter(why.values()), counts)
    if not pods and not may_be_empty:
        raise SteersmanError(f"{workload.name}: no pod runs or may be placed: {sentence}")
    nominated = [_key(pod) for pod in there if pod.nominated and not from_now]
    warnings = (NOMINATED.format(workload.name, first_names(nominated)),) if nominated else ()
    return replace(
        workload,
        warnings=workload.warnings + warnings,
        pods=tuple(pods),
        recorded=recorded if account.devices else (),
        from_now=from_now,
        understood=sentence,
    )


def _present(workload: Workload, counts: _Counts) -> Iterator[Pod]:
    """Yield the pods without those that are gone, and count them."""
    names = {node.name for node in workload.nodes}
    for pod in workload.pods:
        node = pod.constraints.node_name
        if pod.terminating and node not in names:
            counts.deleted += 1
        elif pod.gated:
            counts.gated += 1
        elif node and node not in names and belongs_to_node(pod):
            counts.lost += 1
        else:
            counts.elsewhere += bool(node) and node not in names
            yield pod


class _Account:
    """The account of the running pods, as a live cluster keeps it; `devices`: bit mask by index of a pod."""

    def __init__(self, nodes: Sequence[Node], pods: Sequence[Pod]) -> None:
        self._state = state = ClusterState(nodes)
        there = {_key(pod): i for i, pod in enumerate(pods) if pod.constraints.node_name in state.slots}
        placed = state.place_running(_running_pod(state, pods[i]) for i in there.values())
        self.devices = {i: placed[key].devices for key, i in there.items()}
        self._placed = {i: placed[key] for key, i in there.items()}
        used, total = state.gpu_use_by_node()
        gpus_exceeded = (used > total) | (state.arrays.gpu_free < 0).any(axis=1)
        self._exceeded = np.column_stack([state.arrays.free < 0, gpus_exceeded])

    def exceeds(self, i: int) -> bool:
        """Return whether more of something that a running pod requests is in use on its node than there is."""
        state, placed = self._state, self._placed[i]
        c, slot = placed.class_id, placed.slot
        if state.milli_without_device(c, slot, placed.devices):
            return True
        requested = np.append(state.class_arrays.request[c] > 0, state.classes[c].requests.gpu_count > 0)
        return bool((self._exceeded[slot] & requested).any())


def _key(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _running_pod(state: ClusterState, pod: Pod) -> RunningPod:
    """Return a pod on its node without its constraints: it runs, whatever they say."""
    slot, devices = state.slots[pod.constraints.node_name], sum(1 << device for device in pod.gpu_devices)
    return RunningPod(_key(pod), state.class_id(PodClass(pod.requests)), slot, devices)


class _Ties:
    """What ties running pods to their nodes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._table, self._names = NodeTable(nodes), [node.name for node in nodes]
        self._known: dict[Constraints, frozenset[str]] = {}

    def why_stays(self, pod: Pod) -> str:
        """Return why a running pod stays whatever its node offers, "" if it may go elsewhere."""
        if belongs_to_node(pod):
            return NODE_OWNERS[pod.owner.partition("/")[0]]
        if pod.terminating:
            return LEAVING
        return TIED if self._allowed(pod.constraints) <= {pod.constraints.node_name} else ""

    def _allowed(self, c: Constraints) -> frozenset[str]:
        """Return the nodes that a pod's constraints allow, at most two of them."""
        static = Constraints(
            gpu_models=c.gpu_models,
            tolerations=c.tolerations,
            node_selector=c.node_selector,
            node_affinity=c.node_affinity,
            node_features=c.node_features,
            volume_refusals=c.volume_refusals,
        )
        if static not in self._known:
            # A second node is enough to know that the pod is not tied to the first.
            slots = np.flatnonzero(allowed_nodes(self._table, static))[:2].tolist()
            self._known[static] = frozenset(self._names[slot] for slot in slots)
        return self._known[static]


def live_account(nodes: Sequence[Node], pods: Iterable[Pod], invalid: Sequence[str]) -> ClusterAccount:
    """Return the account of a live cluster, as that of `Workload` for the same nodes and pods that have not ended."""
    ties, names = _Ties(nodes), {node.name for node in nodes}
    free = {
        pod.unbound().constraints
        for pod in pods
        if not (ties.why_stays(pod) if pod.constraints.node_name in names else pod.terminating)
    }
    return account_of(nodes, free, invalid)


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
        volume_refusals=(),
        tolerations=(Toleration(operator="Exists"),),
    )
    return replace(pod, pod_class=replace(pod.pod_class, constraints=anywhere))


def _sentence(
    nodes: Sequence[Node], expanded: Expanded, pods: Sequence[Pod], running: int, staying: Counter[str], counts: _Counts
) -> str:
    above = [expanded.owners.get((pod.namespace, pod.name)) for pod in pods]
    owners = f"{len(pods)} pods of {len({*above} - {None})} owners"
    owners += f" ({above.count(None)} without one)" if None in above else ""
    waiting = f"{len(pods) - running} {'waiting' if counts.untimed is None else 'arriving'}"
    waiting += f" ({expanded.absent} of them not created yet)" if running and expanded.absent else ""
    parts = [owners, f"{running} running", waiting]
    if expanded.templates:
        kinds = ", ".join(f"{kind} {count}" for kind, count in expanded.templates)
        parts.append(f"{sum(count for _, count in expanded.templates)} from templates in custom resources ({kinds})")
    if staying:
        kinds = ", ".join(f"{kind} {staying[kind]}" for kind in REASONS if staying[kind])
        parts.append(f"{sum(staying.values())} pinned ({kinds})")
    parts += [
        f"{number} {what}"
        for number, what in (
            (counts.ended, "ended"),
            (expanded.finished, "finished left out")
            if counts.untimed is None
            else (counts.untimed, "finished at unknown times left out"),
            (counts.deleted, "being deleted left out"),
            (counts.gated, "gated left out"),
            (expanded.suspended, "suspended left out"),
            (counts.lost, "of nodes that are not there left out"),
            (counts.elsewhere, "on nodes that are not there count as waiting"),
            *(
                (number, f"in phase {phase} counted as running if they have a node")
                for phase, number in expanded.odd_phases
            ),
        )
        if number
    ]
    return ", ".join([*parts, *_offering_nothing(nodes, pods)])


def _offering_nothing(nodes: Sequence[Node], pods: Sequence[Pod]) -> Iterator[str]:
    """Yield which nodes offer nothing of resources that every node of a cluster has."""
    disk = any(pod.requests.ephemeral_bytes for pod in pods)
    missing = Counter(
        tuple(
            name
            for name, amount in (
                ("cpu", node.cpu_milli),
                ("memory", node.memory_bytes),
                ("pods", node.pods),
                ("ephemeral-storage", node.ephemeral_bytes or not disk),
            )
            if not amount
        )
        for node in nodes
    )
    for names, count in sorted(missing.items()):
        if names:
            offer = "node offers" if count == 1 else "nodes offer"
            yield f"{count} {offer} no {' and no '.join(names)} (status.allocatable)"
