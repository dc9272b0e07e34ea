"""A recording of a scheduler as a run: its pods on the nodes that they were bound to, until the cluster was cleared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from steersman.apps.dashboard.runs.folders import FoundRun
from steersman.apps.dashboard.runs.tables import parse_growing
from steersman.apps.dashboard.simulation.document import RecordedRun
from steersman.apps.dashboard.simulation.sources import LoadedRun, RunLabel
from steersman.cluster.model import Node, Pod
from steersman.core.errors import SteersmanError
from steersman.objectives.fragmentation import CAUSES
from steersman.policies.base import Policy
from steersman.simulation.result import Placements, Timeline
from steersman.workloads.experiments import (
    RecordedBinding,
    clearings,
    parse_bindings,
    recorded_class,
    recorded_nodes,
)
from steersman.workloads.workload import Workload

POLICY = "as recorded"


class RecordingRun:
    """A recording of a scheduler, see `RunSource`.

    Args:
        run: where it is.
    """

    def __init__(self, run: FoundRun) -> None:
        self.name, self._run = run.name, run

    def version(self) -> str:
        """Return a text that changes with the file. Raises InputError: it cannot be read."""
        return self._run.version(self._run.table)

    def describe(self) -> RunLabel:
        """Return what a list says of the run. Raises InputError: it is damaged."""
        self._rows()
        return RunLabel(POLICY, self.name, "recorded", 0, self._run.id)

    def load(self) -> LoadedRun:
        """Return the run. Raises InputError: it is damaged."""
        rows = self._rows()
        nodes, names = recorded_nodes(rows), _deduplicated_names([row.name for row in rows])
        pods = tuple(Pod(name, recorded_class(row)) for name, row in zip(names, rows, strict=True))
        placements, cpu = _events(rows, names, nodes)
        unknown = np.full(len(cpu), np.nan)
        timeline = Timeline(
            time=placements.time,
            arrived_percent=unknown,
            gpu=unknown,
            cpu=cpu,
            memory=unknown,
            fragmentation=unknown,
            causes=np.full((len(cpu), len(CAUSES)), np.nan),
            gpu_balance=unknown,
            cpu_balance=unknown,
            nodes_used=unknown,
            waiting=unknown,
        )
        run = RecordedRun(POLICY, "recorded", 0, placements, timeline)
        return LoadedRun(Workload(self.name, nodes, pods), run, ())

    def open_policy(self) -> Policy:
        """Raise SteersmanError: the file does not say which policy decided."""
        raise SteersmanError("a recording does not say which policy decided, so there are no reasons")

    def _rows(self) -> Sequence[RecordedBinding]:
        with self._run.wrapped_read_errors():
            return parse_growing(self._run, self._run.table, parse_bindings)


def _events(
    rows: Sequence[RecordedBinding], names: Sequence[str], nodes: Sequence[Node]
) -> tuple[Placements, npt.NDArray[np.float64]]:
    """Return bindings and, where the cluster was cleared, ends; and the requested share of all CPU after each."""
    cells: list[tuple[float, str, str, str]] = []
    cpu: list[float] = []
    open_rows: list[int] = []
    cleared, whole, requested = set(clearings(rows)), sum(node.cpu_milli for node in nodes), 0
    for i, row in enumerate(rows):
        if i in cleared:
            for other in open_rows:
                requested -= rows[other].cpu_milli
                cells.append((float(i), names[other], nodes[rows[other].node].name, "finished"))
                cpu.append(100.0 * requested / whole)
            open_rows.clear()
        open_rows.append(i)
        requested += row.cpu_milli
        cells.append((float(i), names[i], nodes[row.node].name, "bound"))
        cpu.append(100.0 * requested / whole)
    time, pod, node, outcome = (list(column) for column in zip(*cells, strict=True))
    nothing = [""] * len(cells)
    return Placements(np.array(time), pod, node, nothing, outcome, nothing), np.array(cpu)


def _deduplicated_names(names: Sequence[str]) -> list[str]:
    seen = Counter[str]()
    result = []
    for name in names:
        seen[name] += 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result
