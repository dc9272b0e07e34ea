"""`steersman demo`: training, comparison and advice on the embedded data."""

from __future__ import annotations

import shutil
import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from steersman.agents.configs import EvolutionConfig
from steersman.cli.options.common import Jobs, path_option
from steersman.cli.options.results import Results
from steersman.cli.output.display import TrainingProgressBar, Warnings, print_text, say_text
from steersman.core.folder_lock import using_folder
from steersman.core.processes import default_jobs

if TYPE_CHECKING:
    from steersman.evaluation.report.curves import LearningCurve

WORKLOAD = "default"
BASELINE = "kube-default"
SEEDS = range(42, 52)
TRAINING = ("cpu100", "gpushare40", "gpuspec10", "multigpu20")
GENERATIONS = 12  # of the training: a fixed amount of work of about 110 s of CPU time, a minute on two cores
VALIDATE_EVERY = 4

TRAINING_TEXT = (
    "First, a policy is trained for about a minute by evolution: candidates place the pods of four other workloads, "
    "and each generation moves towards those that leave fewer GPUs unallocated than the best published heuristic (fgd)."
)
COMPARISON_TEXT = (
    "Now all policies are compared on a production GPU cluster of 1,213 nodes and 6,212 GPUs (openb, USENIX ATC 2023). "
    "Pods drawn from its trace arrive until they request 130 % of the GPUs; each policy places the same pods, in 10 "
    "random orders."
)
ADVICE_TEXT = (
    "Last, the question of a platform engineer: what should I change in my cluster? It is answered here for 64 of "
    "these nodes, and by steersman advise for yours."
)
NEXT_TEXT = """
{report} has the comparison, {advice} the commands to install the advice. For your own cluster:
  steersman advise --cluster                                    only reads the cluster that kubectl talks to
  steersman advise --nodes nodes.json --pods pods.json          from what kubectl get nodes, pods -A -o json prints
  steersman train --nodes nodes.json --workload pods.json --output my-policy                trains on your own pods"""


def demo(
    output: Annotated[Path, path_option("Folder of the results.", metavar="FOLDER")] = Path("steersman-demo"),
    jobs: Jobs = None,
) -> None:
    """Train a policy for a minute, compare it with all built-in ones, and advise a cluster, on embedded data.

    Prints the advice, and writes report.html (plots), CSV files and the advice to the folder. Needs no cluster.
    """
    from steersman.cli.commands.advise import give_advice
    from steersman.cli.comparison import ReportNotes, compare
    from steersman.evaluation.experiment import Experiment
    from steersman.evaluation.results import ADVICE_FILES, DEMO_FILES, check_output
    from steersman.policies.kube_scheduler import STOCK_TUNED, KubeSchedulerPolicy
    from steersman.policies.registry import BUILT_IN
    from steersman.workloads.formats.openb import SMALL, embedded

    advice, warn = output / "advice", Warnings()
    check_output(output, DEMO_FILES)
    check_output(advice, ADVICE_FILES)
    processes = jobs or default_jobs()
    say_text(TRAINING_TEXT)
    with using_folder(output), tempfile.TemporaryDirectory(prefix="steersman-") as folder:
        trained, learning = _train(Path(folder), processes)
        say_text(COMPARISON_TEXT)
        # A search for kube-scheduler's configuration would take longer than all of the rest.
        others = [name for name in BUILT_IN if name not in (BASELINE, STOCK_TUNED)]
        compare(
            [Experiment((embedded(WORKLOAD),), (BASELINE, *others, str(trained)), tuple(SEEDS))],
            Results(output),
            ReportNotes("steersman demo", learning=learning, kept=(trained,)),
            jobs=processes,
            baseline=BASELINE,
            warn=warn,
        )
        say_text(ADVICE_TEXT)
        made = datetime.now().astimezone()
        text = give_advice(embedded(SMALL), KubeSchedulerPolicy(), advice, "steersman demo", made, processes, warn)
    print(text)
    print_text(NEXT_TEXT.format(report=output / "report.html", advice=advice / "README.md"))


def _train(folder: Path, jobs: int) -> tuple[Path, LearningCurve]:
    from steersman.evaluation.report.curves import read_learning
    from steersman.evaluation.results import TRAINED
    from steersman.training.run import POLICY, TrainingLimits
    from steersman.training.search.evolve import EvolutionPlan, evolve
    from steersman.workloads.formats.openb import embedded

    config = EvolutionConfig()
    plan = EvolutionPlan("trained", tuple(embedded(name) for name in TRAINING), config=config, validation_seeds=(5001,))
    limits = TrainingLimits(iterations=GENERATIONS, validate_every=VALIDATE_EVERY)
    with TrainingProgressBar(GENERATIONS, None) as progress:
        # The mean gain of the candidates is not shown: at first most of them are far worse than the starting point.
        evolve(plan, folder / "run", limits, jobs=jobs, on_iteration=lambda state, _: progress.update(state, {}))
    trained = folder / TRAINED
    shutil.copyfile(folder / "run" / POLICY, trained)
    return trained, read_learning(folder / "run", "trained", config.reference, TRAINING)
