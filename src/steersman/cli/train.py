"""`steersman train`: a policy from experience."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.display import TrainingProgress, Warnings, print_text, said_if_slow
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
from steersman.errors import UsageError

if TYPE_CHECKING:
    from steersman.workloads.workload import Workload

WORKLOAD_HELP = "the name of an embedded openb workload (default, gpushare40, ...), or with --nodes a file of pods"


class Strategy(enum.StrEnum):
    """How evolution searches."""

    CMA_ES = "cma-es"
    OPENAI_ES = "openai-es"


def train(
    workload: Annotated[
        list[str], typer.Option(metavar="WORKLOAD", help=f"What to train on, one or several: {WORKLOAD_HELP}.")
    ],
    output: Annotated[
        Path, typer.Option(parser=path, metavar="FOLDER", help="The run: policy, log, metrics, checkpoint.")
    ],
    validation: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORKLOAD",
            help="What to choose the best policy by. [default: the training workloads, with other arrivals]",
        ),
    ] = None,
    test: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Workloads kept for a later test; noted in the model card, never read."),
    ] = None,
    nodes: Annotated[Path | None, typer.Option(parser=path, metavar="FILE", help=NODES_HELP)] = None,
    objective: Annotated[
        str, typer.Option(metavar="OBJECTIVE", help="What is better: allocation (inflation) or waiting-time (timed).")
    ] = "allocation",
    protocol: ProtocolOption = None,
    ratio: Ratio = None,
    load: Load = None,
    iterations: Annotated[int, typer.Option(min=1, help="Generations at most.")] = 100,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Minutes at most. A run that is cut by the clock is not repeatable to the digit. [default: no limit]"
        ),
    ] = None,
    patience: Annotated[
        int, typer.Option(min=0, help="End after so many validations without a better one, 0: do not.")
    ] = 0,
    validate_every: Annotated[int, typer.Option(min=1, help="Generations between validations.")] = 10,
    population: Annotated[int, typer.Option(help="Candidates a generation, an even number.")] = 20,
    episodes: Annotated[int, typer.Option(min=1, help="Workloads that each candidate plays in a generation.")] = 3,
    step: Annotated[float, typer.Option(help="How far the first candidates differ, in points of FGD's score.")] = 0.06,
    strategy: Annotated[Strategy, typer.Option(help="How evolution searches.")] = Strategy.CMA_ES,
    seed: Annotated[int, typer.Option(min=0, help="Of candidates and arrivals.")] = 1,
    name: Annotated[str | None, typer.Option(help="The policy's name. [default: that of --output]")] = None,
    jobs: Jobs = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --output from its checkpoint.")] = False,
) -> None:
    """Train a policy on your workloads.

    The best policy by validation is policy.safetensors in the run's folder, with a model card; **simulate** and
    **evaluate** take it as --policy. A run that was stopped or killed goes on with --resume to the same result.

    **Example**: steersman train --workload default --workload gpushare40 --iterations 100 --output my-policy
    """
    protocol = protocol or Protocol.INFLATION
    share = check_ratio(ratio, protocol)
    check_load(load, protocol)
    if protocol is Protocol.ARRIVALS:
        raise UsageError("--protocol arrivals always brings the same pods; train on inflation or timed")

    # Below this line numba is loaded; what is wrong with the options above is told at once.
    from steersman.agents.evolution import Config, Task
    from steersman.cli.compiling import compile_kernels
    from steersman.training.evolve import Plan, evolve
    from steersman.training.run import Limits

    warn = Warnings()
    plan = Plan(
        name=name or output.name,
        training=read_workloads(workload, nodes, warn),
        validation=read_workloads(validation or [], nodes, warn),
        test=tuple(full_name(each) for each in test or ()),
        task=Task(objective, "timed" if protocol is Protocol.TIMED else "inflation", share, load),
        config=Config(strategy=strategy.value, population=population, episodes=episodes, step=step),
        seed=seed,
    )
    limits = Limits(iterations, minutes, validate_every, patience)
    compile_kernels(())
    with TrainingProgress(iterations, minutes) as progress:
        standing = evolve(
            plan, output, limits, jobs=jobs or default_jobs(), resume=resume, on_iteration=progress.update
        )
    print_text(
        f"{output / 'policy.safetensors'}: saves {standing.best:.1f} % of what {plan.config.reference} loses on the "
        f"validation workloads (generation {standing.best_iteration} of {standing.iteration})."
    )


def full_name(name: str) -> str:
    """The name that results give a workload."""
    from steersman.workloads.openb import POD_FILE, embedded_names

    return f"{POD_FILE}{name}" if name in embedded_names() else name


def read_workloads(names: list[str], nodes: Path | None, warn: Warnings) -> tuple[Workload, ...]:
    """Embedded workloads by name, or with `nodes` those in files. Raises UsageError: there is no such workload."""
    from steersman.workloads.loading import load_workload
    from steersman.workloads.openb import embedded, embedded_names

    found = []
    for name in names:
        if nodes is None:
            if name not in embedded_names():
                known = ", ".join(embedded_names())
                raise UsageError(f"--workload {name}: give --nodes for a file of pods; embedded are {known}")
            found.append(embedded(name))
        else:
            with said_if_slow(f"reading {name}"):
                found.append(load_workload(nodes, path(name)))
        warn(found[-1].warnings)
    return tuple(found)
