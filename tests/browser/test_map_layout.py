"""The map of nodes and GPUs uses the width that it has; cells can be told apart in small and in large clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser
from tests.browser.conftest import opened

pytestmark = pytest.mark.browser

SCRIPT = """async ([groups, width]) => {
    const { HeatMap } = await import('/static/shared/heatmap.js');
    const columns = groups.flatMap(([model, count, gpus]) => Array(count).fill([model, gpus]));
    const first = new Int32Array(columns.length + 1);
    columns.forEach(([, gpus], n) => { first[n + 1] = first[n] + gpus; });
    const zeros = columns.map(() => 0);
    const [model, gpus] = [0, 1].map(i => columns.map(each => each[i]));
    const nodes = { name: model, model, gpus, unit: zeros, counted: zeros, cpu: zeros, memory: zeros, groups: {} };
    const gpu = new Int32Array(first.at(-1)).fill(500);
    const canvas = document.createElement('canvas');
    canvas.style.width = `${width}px`;
    document.body.append(canvas);
    const amounts = Float64Array.from(zeros);
    const state = { nodes, first, gpu, sharing: gpu, cpu: amounts, counted: amounts, fragmented: () => 0 };
    const map = new HeatMap(canvas, state, () => {});
    map.layOut();
    const at = n => map.nodeAt({ offsetX: map.places[n].x + 1, offsetY: map.places[n].y + 1 });
    const { cell, places, headings } = map;
    const found = { cell, places, headings, height: canvas.clientHeight, hit: columns.map((_, n) => at(n)) };
    canvas.remove();
    return found;
}"""
"""The layout of a map: groups of nodes by model, their number and the GPUs of each."""
OPENB = [("G2", 549, 8), ("T4", 404, 4), ("P100", 134, 2), ("V100M16", 55, 4), ("G3", 39, 8), ("V100M32", 32, 8)]
CLUSTERS = {
    "one": [("T4", 1, 1)],
    "eight": [("A100", 8, 8)],
    "eight of two models": [("A100", 5, 8), ("T4", 3, 4)],
    "without GPUs": [("", 40, 0)],
    "many models": [(f"M{i}", i % 5 + 1, 4) for i in range(30)],
    "openb": OPENB,
}


def is_overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(one[i] < other[i] + other[i + 2] and other[i] < one[i] + one[i + 2] for i in (0, 1))


@pytest.mark.parametrize("width", [358, 624, 1248, 1888])
@pytest.mark.parametrize("name", CLUSTERS)
def test_map_uses_its_width(browser: Browser, site_of_maps: str, name: str, width: int) -> None:
    groups = CLUSTERS[name]
    with opened(browser, site_of_maps) as page:
        found: dict[str, Any] = page.evaluate(SCRIPT, [groups, width])
    cell, places = found["cell"], found["places"]
    gpus = [each for _, count, each in groups for _ in range(count)]
    right = max(place["x"] + cell["width"] for place in places)
    assert right <= width
    assert cell["width"] >= 7
    assert cell["height"] >= 6
    if len(places) >= 8:
        assert right > 0.85 * width, cell
    assert found["hit"] == list(range(len(places)))
    boxes = [
        (p["x"], p["y"], cell["width"], max(1, n) * (cell["height"] + 1)) for p, n in zip(places, gpus, strict=True)
    ]
    assert max(y + height for _, y, _, height in boxes) <= found["height"]
    if len(boxes) < 200:
        boxes += [(each["x"], each["y"], 20, 20) for each in found["headings"]]
        pairs = [(one, other) for i, one in enumerate(boxes) for other in boxes[:i]]
        assert not [pair for pair in pairs if is_overlap(*pair)]


@pytest.fixture(scope="module")
def site_of_maps(serve: Callable[..., str]) -> str:
    return serve("--workload", "default-small", "--policy", "fgd", "--seed", "7")
