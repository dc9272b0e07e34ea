"""Fitting a policy to a workload for a command: how long, in what, and what was kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.display import Progress

if TYPE_CHECKING:
    from steersman.training.fit import Fit
    from steersman.workloads.workload import Workload

QUICK_NODES = 300
QUICK_SECONDS, SECONDS = 30.0, 240.0
"""How long the search takes by default: for clusters of at most `QUICK_NODES` nodes, and for larger ones."""
DURATION_HELP = f"[default: {QUICK_SECONDS:g}; {SECONDS:g} for more than {QUICK_NODES} nodes]"

FitFirst = Annotated[
    bool,
    typer.Option(
        "--fit",
        help="Fit a policy to the workload first, as 'steersman policy fit' does, compare it as 'fitted', and keep it "
        "as fitted.safetensors. Of one workload.",
    ),
]
FitSeconds = Annotated[
    float | None, typer.Option("--fit-seconds", min=1, help=f"With --fit: how long the search takes. {DURATION_HELP}")
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
    """Fit the shipped policy to a workload and show how far it is.

    Args:
        workload: nodes, and pods like those to come.
        protocol: what is played, see `simulation.arrivals.schedule`.
        ratio: of it.
        load: of it.
        mean_duration: of it.
        seconds: of the search; None: by the number of nodes, or without a limit if there are `generations`.
        generations: of the search; None: as many as there is time for.
        seed: of the search.
        jobs: processes.

    Raises:
        UsageError: the workload has no GPUs, or no policy is fitted in the protocol.
    """
    from steersman.cli.compiling import compile_kernels  # which loads numba
    from steersman.policies.registry import SHIPPED, shipped_portfolio
    from steersman.training.fit import Options, fit

    if seconds is None and generations is None:
        seconds = QUICK_SECONDS if len(workload.nodes) <= QUICK_NODES else SECONDS
    options = Options(
        seconds=seconds,
        generations=generations or Options().generations,
        protocol=protocol,  # type: ignore[arg-type]
        ratio=ratio,
        load=load,
        mean_duration=mean_duration,
        seed=seed,
    )
    start = shipped_portfolio()
    compile_kernels([SHIPPED], [workload])
    with Progress("fitting, percent done") as progress:
        return fit(
            workload,
            start,
            options,
            jobs=jobs,
            on_generation=lambda _, share: progress.update(round(100 * share), 100),
        )


def kept(found: Fit) -> str:
    """Return in a sentence what was kept, and why."""
    from steersman.training.fit import FITTED

    gain = f"{found.gain:+.2f} [{found.interval.low:+.2f}, {found.interval.high:+.2f}]"
    if found.chosen == FITTED:
        return f"the fitted policy is better than {found.rival} by {gain}: kept ({found.generations} generations)"
    return f"the fitted policy is not shown to be better than {found.rival} ({gain}): {found.chosen} is kept"
