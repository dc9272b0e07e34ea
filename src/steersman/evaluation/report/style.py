"""Colours and layout of plots, one style per policy on all pages; how a report writes numbers, intervals and lists."""

from __future__ import annotations

import math
import re
import textwrap
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.core.counting import counted
from steersman.core.statistics import Interval

Figure = dict[str, Any]  # a Plotly figure: data and layout
Floats = npt.NDArray[np.float64]

POLICY_COLOURS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("#333333", "#e4e7eb", ("kube-default", "random", "most-even")),
    ("#0072b2", "#77aadd", ("steersman", "dot-product", "ma")),
    ("#d55e00", "#ee8866", ("fgd", "greedy-forecast", "lc")),
    ("#009e73", "#44bb99", ("rules", "gpu-clustering", "la")),
    ("#cc79a7", "#ffaabb", ("best-fit", "least-allocated", "p0")),
    ("#999933", "#eedd88", ("stock-tuned", "most-allocated")),
    ("#882255", "#cc6677", ("gpu-packing", "balanced-allocation")),
    ("#332288", "#9970ab", ()),
    ("#117733", "#bbcc33", ()),
    ("#6699cc", "#99ddff", ()),
)
"""Colours of policies on light and on dark pages, and the built-in policies that have them: one colour on all pages.

The first policy of a colour has a solid line, others have dashes and symbols. The last `OWN_COLOURS` are for users'
own policies. Okabe and Ito, "Color Universal Design" (2008), without the three that are hard to see on white; schemes
muted, medium-contrast, light and PRGn of Paul Tol (2021)."""
OWN_COLOURS = 3
BOUND_COLOUR = "#b2182b"
DASHES: dict[str, tuple[int, ...]] = {"solid": (), "dash": (9, 4), "dot": (3, 3), "dashdot": (9, 3, 3, 3)}
"""Plotly's names of dashes, with the lengths of their parts in pixels."""
SYMBOLS = {"": "", "circle": "/", "square": "\\", "diamond": "x", "triangle-up": "-", "x": "|", "cross": "+"}
"""Symbols on lines, with Plotly's patterns of bars."""
LINES = len(DASHES) * len(SYMBOLS)
"""Different lines of a colour: the numbers of dashes and symbols have no common factor."""
CAUSE_COLOURS = {
    "too little GPU and CPU left": "#44546a",
    "too little GPU left": "#7e8fa6",
    "too little CPU left": "#b5651d",
    "the pod wants no GPU": "#d9d2c5",
    "the pod wants no GPU, too little CPU left": "#a89f8d",
    "the pod wants another GPU model": "#e8b98a",
}
"""By the label of a cause, in the order of `objectives.summary.CAUSES`."""
# Cividis (Nuñez, Anderton and Renslow 2018) from its light end: idle nodes stand out, also to the colour-blind.
SHARE_COLOURS = ("#ffea46", "#cbba69", "#958f78", "#666970", "#31446b", "#00204d")

NARROWEST, MARGINS, CHARACTER = 340, 40, 8.6
"""Pixels: the least width of a plot, by how much a title must be shorter, and the width of a character of it."""
AXIS = 0.6  # share of a plot's height that its y axis has at least; names of policies below take the rest

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Style:
    """A policy's style in all plots: policies of one colour are distinguished by dash and symbol."""

    index: int
    colour: str
    dash: str
    symbol: str

    @property
    def dark(self) -> str:
        """Return the colour on a dark page."""
        return next(dark for light, dark, _ in POLICY_COLOURS if light == self.colour)

    @property
    def marker(self) -> Figure:
        """Return the look of bars."""
        return {"color": self.colour, "pattern": {"shape": SYMBOLS[self.symbol]}}


def styles(policies: Sequence[str]) -> dict[str, Style]:
    """Return a style per policy, in their order.

    A built-in policy has that of `POLICY_COLOURS`. A form of one, such as `fgd+shortest`, has its colour with another
    line, and any other policy an own colour. These depend on the name alone, unless two names of a page collide.
    """
    fixed = {name: (c, line) for c, (_, _, names) in enumerate(POLICY_COLOURS) for line, name in enumerate(names)}
    every = {(c, line) for c in range(len(POLICY_COLOURS)) for line in range(LINES)} - set(fixed.values())
    free, places = set(every), dict(fixed)
    for policy in sorted(set(policies) - set(fixed)):
        turn, base = zlib.crc32(policy.encode(errors="replace")), fixed.get(re.split("[+@]", policy)[0])
        places[policy] = min(free, key=partial(_rank, turn, base))
        free = (free - {places[policy]}) or set(every)
    result = {}
    for index, policy in enumerate(policies):
        colour, line = places[policy]
        dash, symbol = (tuple(looks)[line % len(looks)] for looks in (DASHES, SYMBOLS))
        result[policy] = Style(index, POLICY_COLOURS[colour][0], dash, symbol)
    return result


def _rank(turn: int, base: tuple[int, int] | None, place: tuple[int, int]) -> tuple[int, ...]:
    """Return the rank of a colour and line for a policy that is not built in: the lowest is taken."""
    colour, line = place
    if base is not None:
        is_shared = line % len(SYMBOLS) < len(POLICY_COLOURS[colour][2])  # the symbol of a built-in policy
        return colour != base[0], is_shared, (line - turn) % LINES, colour
    return colour < len(POLICY_COLOURS) - OWN_COLOURS, line, (colour - turn) % OWN_COLOURS, colour


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
    lengths = {"xaxis": NARROWEST - MARGINS, "yaxis": AXIS * layout["height"]}
    for name, pixels in lengths.items():
        if title := layout[name].get("title"):
            lines = textwrap.wrap(title["text"], max(int(pixels / CHARACTER), 1))
            layout[name] = layout[name] | {"title": title | {"text": "<br>".join(lines)}}
    return plot | {"layout": layout}


def heat_colours(high: float) -> Figure:
    steps = len(SHARE_COLOURS) - 1
    scale = [[i / steps, shade] for i, shade in enumerate(SHARE_COLOURS)]
    return {"type": "heatmap", "zmin": 0, "zmax": high, "colorscale": scale}


def dark_colours() -> dict[str, str]:
    """Return the colours of a dark page by those of a report, as CSS writes them; others stay."""
    pairs = {light: dark for light, dark, _ in POLICY_COLOURS} | {
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
