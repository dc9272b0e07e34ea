"""Recordings of a scheduler as AAML's writes them, `sched_*.csv`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from steersman.workloads.experiments import COLUMNS, NODE_CPU, NODE_PODS

NODE_GIB = 256
DEPLOYMENT = (5, 15)
"""Fewest and most pods."""


def write_scheduler_csv(
    file: Path, seed: int = 1, *, nodes: int = 8, fillings: int = 2, load: float = 0.5, spread: float = 1.0
) -> None:
    """Write a recording of a scheduler that takes the node with most free CPU among a few.

    Args:
        file: to write.
        seed: of Deployments and decisions.
        nodes: number of nodes.
        fillings: how often the cluster is filled; it is cleared in between.
        load: share of CPU at which a filling ends.
        spread: share of the nodes that a decision sees; 1: all.
    """
    rng = np.random.default_rng(seed)
    lines = [",".join((*COLUMNS, *(f"{each}_node_{i}" for each in USAGE for i in range(nodes))))]
    for filling in range(fillings):
        used = np.zeros((3, nodes))
        number = 0
        while used[0].mean() < load * NODE_CPU:
            name = f"{WORDS[int(rng.integers(len(WORDS)))]}-{filling}{number:02d}"
            number += 1
            count = int(rng.integers(DEPLOYMENT[0], DEPLOYMENT[1] + 1))
            cpu, memory = int(rng.integers(1, 4)), int(rng.choice((1, 2, 4, 10)))
            for i in range(count):
                seen = rng.choice(nodes, max(2, round(spread * nodes)), replace=False)
                node = int(seen[np.argmin(used[0, seen])])
                used[:, node] += cpu, memory, 1
                lines.append(_line(f"{name}-597cf48c97-x{i:04d}", node, i == count - 1, (cpu, memory), used))
    file.write_text("\n".join(lines) + "\n")


USAGE = ("cpu_usage", "memory_usage", "pod_count")
WORDS = ("checkout", "search", "frontend", "billing", "catalog", "ingest", "mailer", "session")


def _line(name: str, node: int, done: bool, requests: Sequence[int], used: np.ndarray) -> str:
    free = [1 - used[0] / NODE_CPU, 1 - used[1] / NODE_GIB]
    cells = [f"{share:.4f}" for shares in free for share in shares]
    assert used[2].max() <= NODE_PODS
    return ",".join(
        (name, str(node), "0.5", str(int(done)), *map(str, requests), *cells, *(f"{n:.0f}" for n in used[2]))
    )
