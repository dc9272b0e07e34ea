"""Colours and layout of plots, one style per policy throughout a report; how it writes numbers, intervals and lists."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.core.counting import counted
from steersman.core.statistics import Interval

Figure = dict[str, Any]  # a Plotly figure: data and layout
Floats = npt.NDArray[np.float64]

# Okabe and Ito, "Color Universal Design" (2008), without its yellow, which is hard to see on white; then wine and
# indigo of Paul Tol's muted scheme (2021).
POLICY_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#332288")
# Paul Tol's light scheme (2021), for the same policies on a dark page.
DARK_POLICY_COLOURS = ("#77aadd", "#ee8866", "#44bb99", "#ffaabb", "#eedd88", "#99ddff", "#bbcc33", "#aaaa00")
BASELINE_COLOUR = "#333333"
BOUND_COLOUR = "#b2182b"
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("", "circle", "square", "diamond", "triangle-up", "x", "cross")
"""Symbols of policies' lines: repeated colours have other dashes and symbols.

Their number has no common factor with those of colours and dashes, so that 224 policies look different."""
CAUSE_COLOURS = {
    "too little GPU and CPU left": "#44546a",
    "too little GPU left": "#7e8fa6",
    "too little CPU left": "#b5651d",
    "the pod wants no GPU": "#d9d2c5",
    "the pod wants no GPU, too little CPU left": "#a89f8d",
    "the pod wants another GPU model": "#e8b98a",
}
"""By the label of a cause, in the order of `objectives.fragmentation.CAUSES`."""
# Cividis (Nuñez, Anderton and Renslow 2018) from its light end: idle nodes stand out, also to the colour-blind.
SHARE_COLOURS = ("#ffea46", "#cbba69", "#958f78", "#666970", "#31446b", "#00204d")

NARROWEST, MARGINS, CHARACTER = 340, 40, 8.6
"""Pixels: the least width of a plot, by how much a title must be shorter, and the width of a character of it."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Style:
    """A policy's style in all plots: repeated colours are distinguished by dash and symbol."""

    index: int
    colour: str
    dash: str
    symbol: str


def styles(policies: Sequence[str], baseline: str) -> dict[str, Style]:
    """Return a style per policy, the baseline's nearly black (on a dark page nearly white)."""
    others = [policy for policy in policies if policy != baseline]
    result = {baseline: Style(policies.index(baseline), BASELINE_COLOUR, DASHES[0], SYMBOLS[0])}
    for position, policy in enumerate(others):
        turn, place = divmod(position, len(POLICY_COLOURS))
        dash, symbol = DASHES[turn % len(DASHES)], SYMBOLS[turn % len(SYMBOLS)]
        result[policy] = Style(policies.index(policy), POLICY_COLOURS[place], dash, symbol)
    return result


def figure(data: Sequence[Figure], x_axis: Figure, y_axis: Figure, *, height: int = 360, **layout: Any) -> Figure:
    """Return a figure in the common layout: no frame, faint grid, space for the axes only."""
    axis: Figure = {"gridcolor": "#e7e7e7", "zerolinecolor": "#cfcfcf", "linecolor": "#bbbbbb", "automargin": True}
    common: Figure = {
        "height": height,
        "margin": {"l": 56, "r": 12, "t": 10, "b": 46},
        "font": {"family": FONT, "size": 13, "color": "#222222"},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "showlegend": False,
        "hoverlabel": {"bgcolor": "#ffffff"},
        "xaxis": axis | x_axis,
        "yaxis": axis | y_axis,
    }
    return {"data": list(data), "layout": common | layout}


def titled(title: str, **more: Any) -> Figure:
    return {"title": {"text": title}, **more}


def with_wrapped_titles(plot: Figure) -> Figure:
    """Return a figure whose axes' titles fit: beyond the length of its axis Plotly cuts a title."""
    layout = dict(plot["layout"])
    lengths = {"xaxis": NARROWEST - MARGINS, "yaxis": layout["height"] - MARGINS}
    for name, pixels in lengths.items():
        if title := layout[name].get("title"):
            lines = textwrap.wrap(title["text"], max(int(pixels / CHARACTER), 1))
            layout[name] = layout[name] | {"title": title | {"text": "<br>".join(lines)}}
    return plot | {"layout": layout}


def error_bars(mean: Floats, low: Floats, high: Floats, digits: int) -> Figure:
    """Return the error bars of [N] bars, none where an end is NaN."""
    return {
        "type": "data",
        "symmetric": False,
        "array": rounded(np.nan_to_num(high - mean), digits),
        "arrayminus": rounded(np.nan_to_num(mean - low), digits),
        "color": "#444444",
        "thickness": 1.2,
        "width": 2,
    }


def heat_colours(high: float) -> Figure:
    steps = len(SHARE_COLOURS) - 1
    scale = [[i / steps, shade] for i, shade in enumerate(SHARE_COLOURS)]
    return {"type": "heatmap", "zmin": 0, "zmax": high, "colorscale": scale}


def dark_colours() -> dict[str, str]:
    """Return the colours of a dark page by those of a report, as CSS writes them; others stay."""
    pairs = dict(zip(POLICY_COLOURS, DARK_POLICY_COLOURS, strict=True)) | {
        BASELINE_COLOUR: "#e4e7eb",
        BOUND_COLOUR: "#ff7b86",
        "#ffffff": "#14181f",  # paper
        "#222222": "#e4e7eb",  # text
        "#e7e7e7": "#2b333f",  # grid
        "#cfcfcf": "#46505f",  # zero line
        "#bbbbbb": "#5a6575",  # axes
        "#444444": "#c9ced6",  # error bars
        # Nodes in use stay the darker part of the scale, and lighter than the page.
        "#31446b": "#4a5c86",
        "#00204d": "#2c4470",
        "#44546a": "#5d7290",
        "#d9d2c5": "#8f8a7e",
        "#a89f8d": "#6b665b",
    }
    return pairs | {faint(light): faint(dark) for light, dark in pairs.items()}


def faint(hexadecimal: str) -> str:
    """Return a colour at 14 % opacity."""
    red, green, blue = (int(hexadecimal[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.14)"


def along(x: Floats) -> Figure:
    """Return the x of a trace; evenly spaced points as start and step, which is a third of the file."""
    steps = np.diff(x)
    if len(steps) and np.ptp(steps) <= 1e-9 * abs(steps[0]):
        return {"x0": float(x[0]), "dx": float(steps[0])}
    return {"x": rounded(x)}


def rounded(values: Floats, digits: int = 2) -> list[float | None]:
    """Return numbers for JSON: that many decimals, null for NaN."""
    return [round(value, digits) if math.isfinite(value) else None for value in values.tolist()]


BOUND_LABEL = "bound (LP)"  # displayed name of the policy `bound` of the result files
INTERVAL = "95 % interval"
OF_STRETCH = "interval of this stretch"
"""Title of an interval over blocks of a trace that is given once: another stretch is often outside."""
DASH = "–"
FEW_SEEDS = 5  # with fewer an interval is wide and leans on normally distributed values; the text says so
NAMED = 3  # most policies that a sentence names; of more it gives the number


def fixed(value: float, digits: int) -> str:
    """Return a displayed number: this many decimals, a thousands separator, a dash for NaN."""
    # + 0.0 turns -0.0 into 0.0, which has no sign.
    return f"{round(value, digits) + 0.0:,.{digits}f}" if math.isfinite(value) else DASH


def signed(value: float, digits: int) -> str:
    """Return a displayed number with its sign, a true minus."""
    return f"{round(value, digits) + 0.0:+,.{digits}f}".replace("-", "−") if math.isfinite(value) else DASH


def interval_text(interval: Interval, digits: int, *, sign: bool = False) -> str:
    """Return a displayed interval, empty if there is none."""
    if not math.isfinite(interval.low):
        return ""
    write = signed if sign else fixed
    return f"{write(interval.low, digits)} to {write(interval.high, digits)}"


def brackets(interval: Interval, digits: int) -> str:
    """Return an interval in a sentence, with the space before it; empty if there is none."""
    low, high = (signed(end, digits).removeprefix("+") for end in interval)
    return f" [{low}, {high}]" if math.isfinite(interval.low) else ""


def listed(names: Sequence[str]) -> str:
    """Return names in a sentence: all of a few, else the first ones and the number of others."""
    if len(names) > NAMED + 1:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} others"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def seeds_text(number: int, noun: str) -> str:
    """Return the number of seeds of a claim, with a note if they are few."""
    return f"{'only ' if number < FEW_SEEDS else ''}{counted(number, noun)}"
