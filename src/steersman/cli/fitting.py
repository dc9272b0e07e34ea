"""Options and steps of the commands that fit a policy to a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.output.display import Progress

if TYPE_CHECKING:
    from steersman.training.search.fit import Fit
    from steersman.workloads.workload import Workload

QUICK_NODES = 300
QUICK_SECONDS, SECONDS = 30.0, 240.0
"""Default duration of the search: for clusters of at most `QUICK_NODES` nodes, and for larger ones."""
DURATION_HELP = f"[default: {QUICK_SECONDS:g}; {SECONDS:g} for more than {QUICK_NODES} nodes]"

FitFirst = Annotated[
    bool,
    typer.Option(
        "--fit",
        help="First fit a policy to the workload, as 'steersman policy fit' does; it is compared under the name fitted "
        "and written to fitted.safetensors. For one workload.",
    ),
]
FitSeconds = Annotated[
    float | None,
    typer.Option("--fit-seconds", min=1, help=f"With --fit: duration of the search in seconds. {DURATION_HELP}"),
]


def fit_workload(
    workload: Workload,
    protocol: str,
    *,
    ratio: float,
    load: float | None = None,
    mean_duration: float | None = None,
    seconds: float | None = None,
    generations: int | None = None,
    seed: int = 1,
    jobs: int,
) -> Fit:
    """Fit the shipped policy to a workload, with a progress bar.

    Args:
        workload: nodes, and pods like those expected.
        protocol: arrival protocol, see `simulation.arrivals.schedule`.
        ratio: requested GPUs as a share of all GPUs, for inflation.
        load: requested share of the cluster, for timed.
        mean_duration: mean duration in seconds of pods without an end, for timed.
        seconds: duration of the search; None: by the number of nodes, or unlimited if `generations` is given.
        generations: generations of the search; None: as many as the time allows.
        seed: seed of the search.
        jobs: number of processes.

    Returns:
        The result of the search and of the comparison.

    Raises:
        UsageError: the workload has no GPUs, or fitting does not support the protocol.
    """
    from steersman.cli.compiling import compile_for
    from steersman.policies.registry import PACKAGED_POLICY, packaged_portfolio
    from steersman.training.search.fit import FitOptions, fit

    if seconds is None and generations is None:
        seconds = QUICK_SECONDS if len(workload.nodes) <= QUICK_NODES else SECONDS
    options = FitOptions(
        seconds=seconds,
        generations=generations or FitOptions().generations,
        protocol=protocol,  # type: ignore[arg-type]
        ratio=ratio,
        load=load,
        mean_duration=mean_duration,
        seed=seed,
    )
    start = packaged_portfolio()
    compile_for([PACKAGED_POLICY], [workload])
    with Progress("fitting, percent done") as progress:
        return fit(
            workload,
            start,
            options,
            jobs=jobs,
            on_generation=lambda _, share: progress.update(round(100 * share), 100),
        )


def describe_fit(result: Fit) -> str:
    """Return a sentence on which policy was kept, and why."""
    from steersman.training.search.fit import FITTED

    gain = f"{result.gain:+.2f} [{result.interval.low:+.2f}, {result.interval.high:+.2f}]"
    if result.chosen == FITTED:
        return f"the fitted policy is better than {result.rival} by {gain}: kept ({result.generations} generations)"
    return f"the fitted policy is not shown to be better than {result.rival} ({gain}): {result.chosen} is kept"
