"""`steersman demo`: the main job on data that comes with the package."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.display import TrainingProgress, Warnings, print_text, say_text
from steersman.cli.options import Format, Jobs, default_jobs, path

if TYPE_CHECKING:
    from steersman.evaluation.learning import LearningCurve

WORKLOAD = "default"
BASELINE = "kube-default"
SEEDS = range(42, 52)
TRAINING = ("cpu100", "gpushare40", "gpuspec10", "multigpu20")
GENERATIONS = 12
"""So much work, however busy the machine is: about 110 s of CPU, a minute on two cores."""
VALIDATE_EVERY = 4

LEARNING = (
    "First a policy learns for about a minute, by evolution: candidates place the pods of four other workloads, and "
    "those that leave fewer GPUs unallocated than the best published heuristic (fgd) are followed."
)
INTRODUCTION = (
    "Now a production GPU cluster of 1,213 nodes and 6,212 GPUs (openb, USENIX ATC 2023). Pods drawn from its trace "
    "arrive until they ask for 130 % of the GPUs; each scheduler places the same pods, in 10 random orders."
)
NEXT = """
What you see: how many of the GPUs each scheduler has given to pods when no more fit (mean of the 10 orders), the \
difference to Kubernetes' own scheduler with its 95 % interval, how many GPUs are left over, and how many pods found \
no room: who allocates more GPUs may fail more pods. "trained" is the policy that has just learned; "steersman", which \
comes with the package, has learned for longer.

Next: open {report} for the plots. Then compare on your own cluster, read by itself or from files: its nodes (kubectl \
get nodes -o yaml) and a workload (YAML of Pods, Deployments and the like), or both as CSV with the columns of the \
openb traces.
  steersman evaluate --cluster --policy kube-default fgd steersman --output comparison      nothing is written there
  steersman evaluate --nodes nodes.yaml --pods pods.yaml --policy kube-default fgd steersman --output comparison
  steersman simulate --nodes nodes.yaml --pods pods.yaml --policy steersman --output run    where does every pod go?
  steersman train --nodes nodes.yaml --workload pods.yaml --output my-policy               learn from your own pods"""


def demo(
    output: Annotated[Path, typer.Option(parser=path, metavar="FOLDER", help="Where the results go.")] = Path(
        "steersman-demo"
    ),
    jobs: Jobs = None,
) -> None:
    """What does steersman do? Trains a policy for a minute and compares it with all built-in schedulers."""
    from steersman.cli.comparison import compare, show
    from steersman.evaluation.experiment import Experiment
    from steersman.evaluation.output import check_output
    from steersman.evaluation.results import DEMO_FILES
    from steersman.policies.registry import BUILT_IN
    from steersman.workloads.openb import embedded

    check_output(output, DEMO_FILES)
    processes = jobs or default_jobs()
    say_text(LEARNING)
    with tempfile.TemporaryDirectory(prefix="steersman-") as folder:
        trained, learning = _train(Path(folder), processes)
        say_text(INTRODUCTION)
        others = [name for name in BUILT_IN if name != BASELINE]
        outcome = compare(
            [Experiment((embedded(WORKLOAD),), (BASELINE, *others, str(trained)), tuple(SEEDS))],
            baseline=BASELINE,
            output=output,
            jobs=processes,
            command="steersman demo",
            warn=Warnings(),
            learning=learning,
            kept=[trained],
        )
    show(outcome, Format.TABLE)
    print_text(NEXT.format(report=output / "report.html"))


def _train(folder: Path, jobs: int) -> tuple[Path, LearningCurve]:
    """Train a policy in a folder; its file, and how it learned."""
    from steersman.agents.configs import EvolutionConfig
    from steersman.cli.compiling import compile_kernels
    from steersman.evaluation.learning import read_learning
    from steersman.evaluation.results import TRAINED
    from steersman.training.evolve import Plan, evolve
    from steersman.training.run import POLICY, Limits
    from steersman.workloads.openb import embedded

    compile_kernels(())
    config = EvolutionConfig()
    plan = Plan("trained", tuple(embedded(name) for name in TRAINING), config=config, validation_seeds=(5001,))
    limits = Limits(iterations=GENERATIONS, validate_every=VALIDATE_EVERY)
    with TrainingProgress(GENERATIONS, None) as progress:
        # What the mean candidate gains says little at first: most candidates are far worse than where they set out.
        evolve(plan, folder / "run", limits, jobs=jobs, on_iteration=lambda standing, _: progress.update(standing, {}))
    trained = folder / TRAINED
    shutil.copyfile(folder / "run" / POLICY, trained)
    return trained, read_learning(folder / "run", "trained", config.reference, TRAINING)
