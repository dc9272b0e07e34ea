"""`steersman tune`: which options of training are good for these workloads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from steersman.cli.display import Progress, Warnings, print_text
from steersman.cli.options import (
    NODES_HELP,
    Jobs,
    Load,
    Protocol,
    ProtocolOption,
    Ratio,
    check_load,
    check_ratio,
    default_jobs,
    path,
)
from steersman.cli.train import WORKLOAD_HELP, read_workloads
from steersman.errors import UsageError


def tune(
    workload: Annotated[
        list[str], typer.Option(metavar="WORKLOAD", help=f"What to train on, one or several: {WORKLOAD_HELP}.")
    ],
    output: Annotated[Path, typer.Option(parser=path, metavar="FOLDER", help="The study; one that is there goes on.")],
    trials: Annotated[int, typer.Option(min=1, help="Trials to add to the study.")] = 20,
    validation: Annotated[
        list[str] | None,
        typer.Option(metavar="WORKLOAD", help="What to compare by. [default: the training workloads]"),
    ] = None,
    nodes: Annotated[Path | None, typer.Option(parser=path, metavar="FILE", help=NODES_HELP)] = None,
    objective: Annotated[str, typer.Option(metavar="OBJECTIVE", help="As in train.")] = "allocation",
    protocol: ProtocolOption = None,
    ratio: Ratio = None,
    load: Load = None,
    iterations: Annotated[int, typer.Option(min=1, help="Generations of a trial.")] = 40,
    validate_every: Annotated[
        int, typer.Option(min=1, help="Generations between validations, after each of which a trial may be pruned.")
    ] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Of the trials and of the search among them.")] = 1,
    jobs: Jobs = None,
) -> None:
    """Find good options of **train** for your workloads (Optuna).

    Each trial is a short training run; hopeless ones are pruned. The study is kept in study.db, the best options in
    best.json, plots in tuning.html. Needs steersman[train].

    **Example**: steersman tune --workload gpushare40 --trials 20 --output study
    """
    protocol = protocol or Protocol.INFLATION
    share = check_ratio(ratio, protocol)
    check_load(load, protocol)
    if protocol is Protocol.ARRIVALS:
        raise UsageError("--protocol arrivals always brings the same pods; tune on inflation or timed")

    # Below this line numba is loaded; what is wrong with the options above is told at once.
    from steersman.agents.evolution import Task
    from steersman.cli.compiling import compile_kernels
    from steersman.training import tune as tuning
    from steersman.training.evolve import Plan
    from steersman.training.run import Limits

    warn = Warnings()
    plan = Plan(
        name=output.name,
        training=read_workloads(workload, nodes, warn),
        validation=read_workloads(validation or [], nodes, warn),
        task=Task(objective, "timed" if protocol is Protocol.TIMED else "inflation", share, load),
        seed=seed,
    )
    compile_kernels(())
    with Progress("tuning") as progress:
        outcome = tuning.tune(
            plan,
            output,
            Limits(iterations, validate_every=validate_every),
            trials=trials,
            workers=jobs or default_jobs(),
            on_trial=lambda done, _: progress.update(min(done, trials), trials),
        )
    options = ", ".join(f"{name} {value:.3g}" for name, value in outcome.best_options.items())
    print_text(
        f"Best of {outcome.finished} finished and {outcome.pruned} pruned trials: {outcome.best_value:.2f} % saved by "
        f"trial-{outcome.best_trial:03d}, with {options}.\nSee {output / tuning.PLOTS}; options are in "
        f"{output / tuning.BEST}."
    )
