"""Steps of the commands that fit a policy to a workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from steersman.cli.output.display import Progress

if TYPE_CHECKING:
    from steersman.training.search.fit import Fit
    from steersman.workloads.workload import Workload

QUICK_NODES = 300
QUICK_SECONDS, SECONDS = 30.0, 240.0
"""Default duration of the search: for clusters of at most `QUICK_NODES` nodes, and for larger ones."""
DURATION_HELP = f"[default: {QUICK_SECONDS:g}; {SECONDS:g} for more than {QUICK_NODES} nodes]"


def fit_workload(
    workload: Workload,
    settings: Mapping[str, Any],
    *,
    seconds: float | None = None,
    generations: int | None = None,
    jobs: int,
) -> Fit:
    """Fit the shipped policy to a workload, with a progress bar.

    Args:
        workload: nodes, and pods like those expected.
        settings: protocol, ratio, load, mean duration and seed, as `FitOptions` has them.
        seconds: duration of the search; None: by the number of nodes, or unlimited if `generations` is given.
        generations: generations of the search; None: as many as the time allows.
        jobs: number of processes.

    Raises:
        UsageError: the workload has no GPUs, or fitting does not support the protocol.
    """
    from steersman.cli.compiling import compile_for
    from steersman.policies.registry import PACKAGED_POLICY, packaged_portfolio
    from steersman.training.search.fit import FitOptions, fit

    if seconds is None and generations is None:
        seconds = QUICK_SECONDS if len(workload.nodes) <= QUICK_NODES else SECONDS
    options = FitOptions(seconds=seconds, generations=generations or FitOptions().generations, **settings)
    start = packaged_portfolio()
    compile_for([PACKAGED_POLICY], [workload])
    with Progress("fitting, percent done") as progress:
        return fit(
            workload, start, options, jobs=jobs, on_generation=lambda _, share: progress.update(round(100 * share), 100)
        )


def describe_fit(result: Fit) -> str:
    """Return a sentence on which policy was kept, and why."""
    from steersman.training.search.fit import FITTED

    gain = f"{result.gain:+.2f} [{result.interval.low:+.2f}, {result.interval.high:+.2f}]"
    if result.chosen == FITTED:
        return f"the fitted policy is better than {result.rival} by {gain}: kept ({result.generations} generations)"
    return f"the fitted policy is not shown to be better than {result.rival} ({gain}): {result.chosen} is kept"
