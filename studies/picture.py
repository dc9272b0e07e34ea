"""The README's picture: GPUs allocated under what runs today, with one file edited, and under `steersman`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from steersman.evaluation.report.style import styles
from steersman.policies.kube_scheduler.policy import KUBE_DEFAULT, STOCK_TUNED
from steersman.policies.registry import PACKAGED_POLICY
from studies.common import Json

ROW, TOP, LEFT, SCALE = 46, 44, 250, 4.2
"""Pixels: height of a row, first row, where bars begin, and of a percent."""
TITLES = {KUBE_DEFAULT: "kube-scheduler's default", STOCK_TUNED: "one file of it edited"}
STYLE = """
text { font: 15px system-ui, sans-serif; fill: #1d2430 } .quiet { font-size: 13px; fill: #5a6472 }
.value { font-weight: 600 } .left { fill: #dfe3e8 } .bar { fill: var(--light) }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb } .quiet { fill: #a3adba } .left { fill: #323b47 } .bar { fill: var(--dark) }
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
        KUBE_DEFAULT: np.mean([each["allocation"][KUBE_DEFAULT] for each in of_policies]),
        STOCK_TUNED: np.mean([tuned[each["name"]] for each in of_policies]),
        PACKAGED_POLICY: np.mean([each["allocation"][PACKAGED_POLICY] for each in of_policies]),
    }
    return bars({policy: float(mean) for policy, mean in means.items()}, len(of_policies))


def bars(means: Json, clusters: int) -> str:
    """Return an SVG of bars in the colours of reports.

    Args:
        means: percent of the GPUs by policy, in their order from above.
        clusters: that were averaged.
    """
    height = TOP + ROW * len(means)
    title = f"GPUs allocated once pods no longer fit, mean of {clusters} clusters that nothing was trained on"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" width="760" height="{height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text class="quiet" x="0" y="20">{escape(title)}</text>',
    ]
    for row, (policy, style) in enumerate(styles(list(means)).items()):
        y, value, name = TOP + ROW * row, means[policy], TITLES.get(policy, policy)
        bar = f'class="bar" style="--light:{style.colour};--dark:{style.dark}"'
        parts += [
            f'<text x="0" y="{y + 20}">{escape(name)}</text>',
            f'<rect class="left" x="{LEFT}" y="{y}" width="{100 * SCALE}" height="30" rx="3"/>',
            f'<rect {bar} x="{LEFT}" y="{y}" width="{value * SCALE:.1f}" height="30" rx="3"/>',
            f'<text class="value" x="{LEFT + 100 * SCALE + 12:.0f}" y="{y + 20}">{value:.1f} %</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
