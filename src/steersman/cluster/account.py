"""The account of a cluster: the nodes and GPUs that figures count, and why the others are left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from steersman.cluster.constraints.node import HARD_EFFECTS, Mask, eligible_nodes
from steersman.cluster.gpu_units import gpu_milli
from steersman.cluster.model import GPU_MILLI, Constraints, Node
from steersman.core.counting import counted, first_names

NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")  # taints of nodes that are not ready


@dataclass(frozen=True)
class ClusterAccount:
    """Which of the valid nodes are counted, [N]: the eligible ones, which some pod may enter."""

    nodes: tuple[Node, ...]
    eligible: Mask
    invalid: tuple[str, ...] = ()

    @cached_property
    def counted(self) -> tuple[Node, ...]:
        return tuple(node for node, counts in zip(self.nodes, self.eligible, strict=True) if counts)

    @cached_property
    def gpu_milli(self) -> int:
        """Return the GPU milli of the eligible nodes; a slice or a replica is as much of a GPU as it is."""
        return sum(map(gpu_milli, self.counted))

    @cached_property
    def left_out(self) -> dict[str, list[str]]:
        """Return the names of the other nodes by the reason, a clause that follows the names of several."""
        names: dict[str, list[str]] = {}
        for node, counts in zip(self.nodes, self.eligible, strict=True):
            if not counts:
                names.setdefault(obstacle(node) or "are entered by no pod", []).append(node.name)
        return names | ({"are invalid": list(self.invalid)} if self.invalid else {})

    @property
    def sentence(self) -> str:
        """Return how many nodes and GPUs are counted, and which nodes are not, and why."""
        every, gpus = len(self.nodes) + len(self.invalid), f"{self.gpu_milli / GPU_MILLI:,g}"
        whole = sum(map(gpu_milli, self.nodes))
        without = sum(1 for node in self.counted if not gpu_milli(node)) if self.gpu_milli else 0
        lacking = f", {without:,} of them without GPUs" if without else ""
        if not self.left_out:
            return f"{counted(every, 'node')}{f' with {gpus} GPUs{lacking}' * bool(whole)}"
        of_gpus = f" with {gpus} of {whole / GPU_MILLI:,g} GPUs{lacking}" if whole else ""
        return f"{len(self.counted):,} of {counted(every, 'node')} counted{of_gpus}: {obstacles(self.left_out)}"


def account_of(nodes: Sequence[Node], pods: Iterable[Constraints], invalid: Sequence[str] = ()) -> ClusterAccount:
    """Return the account of a cluster; `pods` are constraints without the nodes that pods run on."""
    return ClusterAccount(tuple(nodes), eligible_nodes(nodes, pods), tuple(invalid))


def obstacle(node: Node) -> str:
    """Return what keeps pods off a node, a clause in the plural; "": nothing."""
    taints = [taint for taint in node.taints if taint.effect in HARD_EFFECTS]
    if any(taint.key in NOT_READY for taint in taints):
        return "are not ready"
    if node.unschedulable:
        return "are cordoned"
    named = [f"{taint.key}={taint.value}" if taint.value else taint.key for taint in taints]
    return f"have the taint {', '.join(named)}, which no pod tolerates" if named else ""


def obstacles(names: dict[str, list[str]]) -> str:
    """Return the names of nodes and what keeps pods off them: "a7 is cordoned, l3 is not ready"."""
    clauses = []
    for why, some in names.items():
        verb, _, rest = why.partition(" ")
        clauses.append(
            f"{first_names(some)} { ({'are': 'is', 'have': 'has'}[verb] if len(some) == 1 else verb) } {rest}"
        )
    return ", ".join(clauses)
