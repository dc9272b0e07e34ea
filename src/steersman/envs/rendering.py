"""Rendering of an environment: its nodes' loads as text or as an image."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steersman.envs.base import EnvCore

FRAME_RATE = 4
BAR = 20
CELL, GAP = 32, 2
"""Pixels of a node's square, and between its bars."""
BARS = ("cpu", "memory", "gpu")
COLOURS = np.array(((66, 133, 196), (125, 184, 105), (224, 142, 54)), dtype=np.uint8)
"""Of the bars."""
BACKGROUND, ABSENT, FEASIBLE, FRAME = (
    np.array(colour, dtype=np.uint8) for colour in ((240, 242, 245), (255, 255, 255), (30, 30, 30), (208, 212, 218))
)


def text(core: EnvCore, e: int) -> str:
    """Return a line per node: whether the pod may run there (`>`), its name, and bars of CPU, memory and GPU in use."""
    lines = [f"  {'node':<24}{'cpu':<{BAR + 7}}{'memory':<{BAR + 7}}gpu"]
    mask = core.observation.mask[e]
    for slot, (name, loads) in enumerate(zip(core.names(e), core.loads(e), strict=True)):
        bars = "".join(f"{_bar(load):<{BAR + 7}}" for load in loads)
        lines.append(f"{'>' if mask[slot] else ' '} {name[:22]:<24}{bars}".rstrip())
    return "\n".join(lines)


def draw(core: EnvCore, e: int) -> npt.NDArray[np.uint8]:
    """Return [H, W, 3] an image with a square per node: bars of CPU (blue), memory (green) and GPU (orange) in use.

    A node on which the current pod fits has a dark frame.
    """
    loads, mask = core.loads(e), core.observation.mask[e]
    columns = max(1, round(math.sqrt(2 * core.max_nodes)))
    rows = -(-core.max_nodes // columns)
    picture = np.tile(ABSENT, (rows * CELL, columns * CELL, 1))
    width = (CELL - 2 * GAP) // len(BARS)
    for slot, node in enumerate(loads):
        y, x = CELL * (slot // columns), CELL * (slot % columns)
        square = picture[y : y + CELL - 1, x : x + CELL - 1]
        square[:] = FEASIBLE if mask[slot] else FRAME
        inside = square[1:-1, 1:-1]
        inside[:] = BACKGROUND
        for i, load in enumerate(np.nan_to_num(node)):
            height = math.ceil(float(np.clip(load, 0.0, 1.0)) * len(inside))  # any use is seen
            left = GAP - 1 + i * width
            inside[len(inside) - height :, left : left + width - 1] = COLOURS[i]
    return picture


def _bar(load: float) -> str:
    if np.isnan(load):
        return "-"
    return f"{'#' * round(BAR * load):.<{BAR}} {100 * load:3.0f}%"
