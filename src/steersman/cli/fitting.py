"""Steps of the commands that fit a policy to a workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from steersman.cli.options.declaring import RequiresOption, option
from steersman.cli.output.display import Progress
from steersman.cli.reading import compile_for

if TYPE_CHECKING:
    from steersman.training.search.fit import Fit
    from steersman.workloads.workload import Workload

GENERATIONS_HELP = "[default: 20 to 200, fewer for large clusters]"
FitGenerations = Annotated[
    int | None, option(f"With --fit: generations of the search. {GENERATIONS_HELP}", min=1), RequiresOption("fit")
]


def fit_workload(workload: Workload, settings: Mapping[str, Any], *, generations: int | None = None, jobs: int) -> Fit:
    """Fit the shipped policy to a workload, with a progress bar.

    Args:
        workload: nodes, and pods like those expected.
        settings: protocol, ratio, load, mean duration and seed, as `FitOptions` has them.
        generations: of the search; None: by the size of the workload.
    """
    from steersman.policies.registry import PACKAGED_POLICY, packaged_portfolio
    from steersman.training.search.fit import FitOptions, fit

    options = FitOptions(generations=generations, **settings)
    start = packaged_portfolio()
    compile_for([PACKAGED_POLICY], [workload])
    with Progress("fitting, percent done") as progress:
        return fit(
            workload, start, options, jobs=jobs, on_generation=lambda share: progress.update(round(100 * share), 100)
        )


def describe_fit(result: Fit) -> str:
    from steersman.training.search.fit import FITTED

    gain = f"{result.gain:+.2f} [{result.interval.low:+.2f}, {result.interval.high:+.2f}]"
    if result.chosen == FITTED:
        return f"the fitted policy is better than {result.rival} by {gain}: kept ({result.generations} generations)"
    return f"the fitted policy is not shown to be better than {result.rival} ({gain}): {result.chosen} is kept"
