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


WIDE = """async size => {
    const { drawCell, looks } = await import('/static/shared/heatmap.js');
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] = [size.width + 20, size.height + 20];
    const context = canvas.getContext('2d', { willReadFrequently: true });
    drawCell(context, 10, 10, looks().wasted(1), size);
    const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
    const at = (x, y) => data.slice(4 * (y * canvas.width + x), 4 * (y * canvas.width + x) + 4).join();
    const counts = Array(size.width).fill(0);
    let outside = 0;
    for (let y = 0; y < canvas.height; y += 1) for (let x = 0; x < canvas.width; x += 1) {
        const isInside = x >= 10 && x < 10 + size.width && y >= 10 && y < 10 + size.height;
        if (!isInside) outside += at(x, y) === '0,0,0,0' ? 0 : 1;
        else if (at(x, y) !== at(10, 10)) counts[x - 10] += 1;
    }
    return [outside, counts];
}"""
"""Pixels that a hatched cell draws outside of it, and the hatched ones by column."""


@pytest.mark.parametrize("size", [(7, 6), (24, 23), (173, 23), (9, 6)])
def test_cells_of_any_size_are_hatched_evenly(browser: Browser, small: str, size: tuple[int, int]) -> None:
    with opened(browser, small) as page:
        outside, columns = page.evaluate(WIDE, dict(zip(("width", "height"), size, strict=True)))
    assert outside == 0
    assert all(any(columns[x : x + 7]) for x in range(0, size[0], 7))


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


KINDS = """async () => {
    const { kind } = await import('/static/shared/colours.js');
    const probe = document.body.appendChild(document.createElement('i'));
    const rgb = colour => {
        probe.style.color = colour;
        return getComputedStyle(probe).color.match(/\\d+/g).map(Number);
    };
    const pages = ['--back', '--panel'].map(name => getComputedStyle(document.documentElement).getPropertyValue(name));
    return [Array.from({ length: 8 }, (_, i) => rgb(kind(i))), pages.map(rgb)];
}"""


@pytest.mark.parametrize("dark", [False, True])
def test_colours_of_kinds_can_be_seen_on_the_page(browser: Browser, small: str, dark: bool) -> None:
    with opened(browser, small, dark=dark) as page:
        kinds, pages = page.evaluate(KINDS)
    assert len({tuple(each) for each in kinds}) == 8
    for back in pages:
        assert min(contrast(luminance(each), luminance(back)) for each in kinds) >= 3
