"""The nodes of a cluster on standard output: a table, CSV or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from steersman.apps.local_cluster.occupancy import OccupancyRow
from steersman.workloads.formats.tables import csv_text

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 1 << 30


def nodes_table(name: str, rows: Sequence[OccupancyRow]) -> Table:
    """Return the requests and capacity of each node, without columns that are empty for all nodes."""
    table = Table(title=f"Cluster {name}: {len(rows)} nodes", box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    columns: list[tuple[str, bool, Callable[[OccupancyRow], str]]] = [
        ("Node", False, lambda row: row.name),
        ("Ready", False, lambda row: "yes" if row.ready else "no"),
        ("CPU", True, lambda row: f"{_number(row.cpu_requested_milli / 1000)} / {_number(row.cpu_milli / 1000)}"),
        ("GiB", True, lambda row: f"{_number(row.memory_requested_bytes / GIB)} / {_number(row.memory_bytes / GIB)}"),
        ("Pods", True, lambda row: f"{row.pods_there} / {'any' if row.pods is None else row.pods}"),
        ("GPUs", True, lambda row: f"{_number(row.gpus_requested)} / {_number(row.gpus)}" if row.gpus else ""),
        ("Model", False, lambda row: row.gpu_model),
        ("Zone", False, lambda row: row.zone),
        ("Rack", False, lambda row: row.rack),
    ]
    shown = []
    for title, is_number, cell in columns:
        cells = [cell(row) for row in rows]
        if title == "Node" or any(cells):
            table.add_column(title, justify="right" if is_number else "left", no_wrap=True)
            shown.append(cells)
    for row_cells in zip(*shown, strict=True):
        table.add_row(*row_cells)
    return table


def to_csv(rows: Sequence[OccupancyRow]) -> str:
    # The writer of CSV leaves a cell of None empty.
    cells = ([*(asdict(row) | {"ready": str(row.ready).lower()}).values()] for row in rows)
    return csv_text([field.name for field in fields(OccupancyRow)], cells)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
