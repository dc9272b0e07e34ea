"""The README's picture: GPUs allocated under what runs today, with one file edited, and under `steersman`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from steersman.policies.kube_scheduler import KUBE_DEFAULT, STOCK_TUNED
from steersman.policies.registry import PACKAGED_POLICY
from studies.common import Json

ROW, TOP, LEFT, SCALE = 46, 44, 250, 4.2
"""Pixels: height of a row, first row, where bars begin, and of a percent."""
STYLE = """
text { font: 15px system-ui, sans-serif; fill: #1d2430 } .quiet { font-size: 13px; fill: #5a6472 }
.value { font-weight: 600 } .left { fill: #dfe3e8 }
.a { fill: #7e8fa6 } .b { fill: #56b4e9 } .c { fill: #0072b2 }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb } .quiet { fill: #a3adba } .left { fill: #323b47 } .c { fill: #77aadd } .b { fill: #99ddff }
}
"""


def gain(of_policies: Sequence[Json], of_files: Sequence[Json]) -> str:
    """Return the picture as SVG.

    Args:
        of_policies: clusters of `any_cluster` with the allocation by policy and seed.
        of_files: those of `kube_scheduler`, which has the same ones and lists of openb.
    """
    tuned = {each["name"]: each["allocation"][STOCK_TUNED] for each in of_files}
    means = {
        "kube-scheduler's default": np.mean([each["allocation"][KUBE_DEFAULT] for each in of_policies]),
        "one file of it edited": np.mean([tuned[each["name"]] for each in of_policies]),
        "steersman": np.mean([each["allocation"][PACKAGED_POLICY] for each in of_policies]),
    }
    return bars({title: float(mean) for title, mean in means.items()}, len(of_policies))


def bars(means: Json, clusters: int) -> str:
    """Return an SVG of three bars.

    Args:
        means: percent of the GPUs by title, in their order from above.
        clusters: that were averaged.
    """
    height = TOP + ROW * len(means)
    title = f"GPUs allocated once pods no longer fit, mean of {clusters} clusters that nothing was trained on"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" width="760" height="{height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text class="quiet" x="0" y="20">{escape(title)}</text>',
    ]
    for row, ((name, value), colour) in enumerate(zip(means.items(), "abc", strict=True)):
        y = TOP + ROW * row
        parts += [
            f'<text x="0" y="{y + 20}">{escape(name)}</text>',
            f'<rect class="left" x="{LEFT}" y="{y}" width="{100 * SCALE}" height="30" rx="3"/>',
            f'<rect class="{colour}" x="{LEFT}" y="{y}" width="{value * SCALE:.1f}" height="30" rx="3"/>',
            f'<text class="value" x="{LEFT + 100 * SCALE + 12:.0f}" y="{y + 20}">{value:.1f} %</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
