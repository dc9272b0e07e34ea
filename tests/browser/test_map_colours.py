"""Looks of GPUs on the maps: idle and wasted ones are told apart by everybody, and on paper."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from playwright.sync_api import Browser
from tests.browser.conftest import opened

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def small(serve: Callable[..., str]) -> str:
    return serve("--workload", "default-small", "--policy", "fgd", "--seed", "7")


def luminance(colour: list[int]) -> float:
    """Relative luminance of an sRGB colour (WCAG 2.2)."""
    linear = [each / 255 / 12.92 if each <= 10 else ((each / 255 + 0.055) / 1.055) ** 2.4 for each in colour]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
"""Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009)."""


def as_seen(colour: list[int], eyes: str) -> list[int]:
    if eyes == "all cones":
        return colour
    if eyes == "none":  # a print without colours
        linear = luminance(colour)
        grey = 12.92 * linear if linear <= 0.0031308 else 1.055 * linear ** (1 / 2.4) - 0.055
        return [round(255 * grey)] * 3
    linear_rgb = np.array([(each / 255 + 0.055) ** 2.4 / 1.055**2.4 for each in colour])
    seen = np.clip(DEUTERANOPIA @ linear_rgb, 0, 1)
    return [round(255 * (1.055 * each ** (1 / 2.4) - 0.055)) if each > 0.0031308 else 0 for each in seen]


CELLS = """async () => {
    const { drawCell, looks } = await import('/static/shared/heatmap.js');
    const { idle, full, used, wasted } = looks();
    const canvas = document.createElement('canvas');
    const context = canvas.getContext('2d', { willReadFrequently: true });
    const drawn = look => {
        context.clearRect(0, 0, 20, 20);
        drawCell(context, 0, 0, look);
        const counts = new Map();
        const data = context.getImageData(0, 0, 7, 6).data;
        for (let i = 0; i < data.length; i += 4) {
            const colour = data.slice(i, i + 3).join();
            counts.set(colour, (counts.get(colour) ?? 0) + 1);
        }
        return [...counts].sort((one, other) => other[1] - one[1]).map(([colour]) => colour.split(',').map(Number));
    };
    return Object.fromEntries(Object.entries({
        idle, full, used: used(1), wasted: wasted(1), 'little wasted': wasted(0.05),
    }).map(([name, look]) => [name, drawn(look)]));
}"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("eyes", ["all cones", "deuteranopia", "none"])
def test_idle_and_wasted_gpus_have_distinct_colours(browser: Browser, small: str, dark: bool, eyes: str) -> None:
    with opened(browser, small, dark=dark) as page:
        cells = page.evaluate(CELLS)
    seen = {name: luminance(as_seen(colours[0], eyes)) for name, colours in cells.items()}
    for one, other in (("idle", "wasted"), ("idle", "little wasted"), ("full", "wasted"), ("idle", "used")):
        assert contrast(seen[one], seen[other]) >= 3, (one, other)
    assert contrast(seen["idle"], seen["full"]) >= 1.5
    # Not by colour alone: what is wasted has a line across it.
    assert [len(cells[name]) > 1 for name in ("idle", "full", "used", "wasted", "little wasted")] == [
        False,
        False,
        False,
        True,
        True,
    ]


def test_printed_pages_use_light_colours(browser: Browser, small: str) -> None:
    with opened(browser, small, dark=True) as page:
        dark = page.evaluate(CELLS)
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        on_paper = page.evaluate(CELLS)
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert page.evaluate(CELLS) == dark
    with opened(browser, small) as page:
        assert page.evaluate(CELLS) == on_paper
