"""Rendering of an environment: its nodes' loads as text or as an image."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.envs.base import EnvCore

FRAME_RATE = 4
BAR = 20
CELL = 8
COLUMNS = 32
EMPTY, FULL, ABSENT = (np.array(colour) for colour in ((247, 251, 255), (8, 48, 107), (255, 255, 255)))


def text(core: EnvCore, e: int) -> str:
    """Return a line per node: whether the pod may run there (`>`), its name, and bars of CPU, memory and GPU in use."""
    lines = [f"  {'node':<24}{'cpu':<{BAR + 7}}{'memory':<{BAR + 7}}gpu"]
    mask = core.observation.mask[e]
    for slot, (name, loads) in enumerate(zip(core.names(e), core.loads(e), strict=True)):
        bars = "".join(f"{_bar(load):<{BAR + 7}}" for load in loads)
        lines.append(f"{'>' if mask[slot] else ' '} {name[:22]:<24}{bars}".rstrip())
    return "\n".join(lines)


def draw(core: EnvCore, e: int) -> npt.NDArray[np.uint8]:
    """Return [H, W, 3] an image with a square per node; the darker, the more of its scarcest resource is in use."""
    with np.errstate(invalid="ignore"):
        load = np.nan_to_num(core.loads(e)).max(axis=1)
    rows = -(-core.max_nodes // COLUMNS)
    cells = np.tile(ABSENT.astype(np.float64), (rows * COLUMNS, 1))
    cells[: len(load)] = EMPTY + load[:, None] * (FULL - EMPTY)
    picture = cells.reshape(rows, COLUMNS, 3).repeat(CELL, axis=0).repeat(CELL, axis=1)
    return picture.round().astype(np.uint8)


def _bar(load: float) -> str:
    if np.isnan(load):
        return "-"
    return f"{'#' * round(BAR * load):.<{BAR}} {100 * load:3.0f}%"
