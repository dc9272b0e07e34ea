"""A recording of a scheduler as columns: what was in use on each node when each pod had been bound.

The file has no times: its pods are in the order in which they were bound.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.apps.dashboard.workload.sampling import chosen_rows
from steersman.workloads.experiments import RecordedBinding, clearings, has_free_shares, recorded_nodes

MOST_COLUMNS = 400
"""Moments that a page shows."""
MOST_CELLS = 200_000
"""Nodes times moments; of more nodes fewer moments are shown."""
LEAST_COLUMNS = 40

Floats = npt.NDArray[np.float64]


class NodeQuantity(msgspec.Struct, kw_only=True, rename="camel"):
    """A quantity of nodes.

    Attributes:
        title: what it is.
        unit: "%" of the node, or "".
        counted: whether it was counted from the rows; else the file has it.
        values: [N][T].
    """

    title: str
    unit: str
    counted: bool = False
    values: list[list[float]]


class BindingsDocument(msgspec.Struct, kw_only=True, rename="camel"):
    """A recording of a scheduler, N nodes at T moments.

    Attributes:
        pods: number of pods in the file.
        nodes: names.
        bound: [T] number of pods that had been bound.
        quantities: of nodes.
        mean, deviation: [T] mean and standard deviation over the nodes of the share of their CPU in use, percent.
        resets: numbers of pods after which the cluster was cleared.
    """

    pods: int
    nodes: list[str]
    bound: list[int]
    quantities: list[NodeQuantity]
    mean: list[float]
    deviation: list[float]
    resets: list[int]


def bindings_document(rows: Sequence[RecordedBinding]) -> BindingsDocument:
    """Return the document of a recording."""
    nodes, resets = len(rows[0].usage), clearings(rows)
    most = max(LEAST_COLUMNS, min(MOST_COLUMNS, MOST_CELLS // nodes))
    # The cluster is fullest right before it is cleared.
    shown = chosen_rows(len(rows), most, keep=[i - 1 for i in resets])
    is_free = has_free_shares(rows)
    cpu = _used(np.array([rows[i].usage for i in shown]), is_free)
    quantities = [NodeQuantity(title="CPU in use", unit="%", values=_columns(cpu))]
    if rows[0].memory_usage:
        memory = _used(np.array([rows[i].memory_usage for i in shown]), is_free)
        quantities.append(NodeQuantity(title="Memory in use", unit="%", values=_columns(memory)))
    recorded = bool(rows[0].pods)
    pods = np.array([rows[i].pods for i in shown]) if recorded else _counted(rows, shown, set(resets))
    quantities.append(NodeQuantity(title="Pods", unit="", counted=not recorded, values=_columns(pods)))
    return BindingsDocument(
        pods=len(rows),
        nodes=[node.name for node in recorded_nodes(rows)],
        bound=[i + 1 for i in shown],
        quantities=quantities,
        mean=_rounded(cpu.mean(axis=1)),
        deviation=_rounded(cpu.std(axis=1)),
        resets=resets,
    )


def _used(shares: Floats, is_free: bool) -> Floats:
    return 100.0 * (1.0 - shares if is_free else shares)


def _counted(rows: Sequence[RecordedBinding], shown: Sequence[int], resets: set[int]) -> Floats:
    pods_on_node, counted, wanted = np.zeros(len(rows[0].usage)), [], set(shown)
    for i, row in enumerate(rows):
        if i in resets:
            pods_on_node[:] = 0
        pods_on_node[row.node] += 1
        if i in wanted:
            counted.append(pods_on_node.copy())
    return np.array(counted)


def _columns(values: Floats) -> list[list[float]]:
    return [_rounded(column) for column in values.T]


def _rounded(values: Floats) -> list[float]:
    rounded: list[float] = np.round(values, 2).tolist()
    return rounded
