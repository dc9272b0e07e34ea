"""`steersman demo`: training and comparison on the embedded data."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from steersman.agents.configs import EvolutionConfig
from steersman.cli.options.common import Format, Jobs, path_option
from steersman.cli.options.results import Results
from steersman.cli.output.display import TrainingProgressBar, Warnings, print_text, say_text
from steersman.cli.reading import compile_for
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
NEXT_TEXT = """
The table shows, for each policy: the share of the GPUs that is allocated at the end (mean of the 10 orders), the \
difference to kube-scheduler's default with its 95 % interval, the GPUs left over, and the pods that fitted on no \
node. A policy that allocates more GPUs may fail more pods. "trained" is the policy that was just trained; "steersman" \
is chosen and fitted by simulations of these nodes and pods.

Next: open {report} for the plots. Then compare on your own cluster, either live or from files: its nodes (kubectl \
get nodes -o yaml) and a workload (YAML of Pods, Deployments and other controllers), or both as CSV with the columns \
of the openb traces.
  steersman evaluate --cluster --policy kube-default fgd steersman --output comparison      only reads the cluster
  steersman evaluate --nodes nodes.yaml --pods pods.yaml --policy kube-default fgd steersman --output comparison
  steersman simulate --nodes nodes.yaml --pods pods.yaml --policy steersman --output run    lists every placement
  steersman train --nodes nodes.yaml --workload pods.yaml --output my-policy               trains on your own pods"""


def demo(
    output: Annotated[Path, path_option("Folder of the results.", metavar="FOLDER")] = Path("steersman-demo"),
    jobs: Jobs = None,
) -> None:
    """Train a policy for a minute and compare it with all built-in policies, on embedded data.

    Prints a table and writes report.html (plots) and CSV files to the folder. Needs no cluster.
    """
    from steersman.cli.comparison import ReportNotes, compare, show
    from steersman.evaluation.experiment import Experiment
    from steersman.evaluation.results import DEMO_FILES, check_output
    from steersman.policies.kube_scheduler import STOCK_TUNED
    from steersman.policies.registry import BUILT_IN
    from steersman.workloads.formats.openb import embedded

    check_output(output, DEMO_FILES)
    processes = jobs or default_jobs()
    say_text(TRAINING_TEXT)
    with using_folder(output), tempfile.TemporaryDirectory(prefix="steersman-") as folder:
        trained, learning = _train(Path(folder), processes)
        say_text(COMPARISON_TEXT)
        # A search for kube-scheduler's configuration would take longer than all of the rest.
        others = [name for name in BUILT_IN if name not in (BASELINE, STOCK_TUNED)]
        outcome = compare(
            [Experiment((embedded(WORKLOAD),), (BASELINE, *others, str(trained)), tuple(SEEDS))],
            Results(output),
            ReportNotes("steersman demo", learning=learning, kept=(trained,)),
            jobs=processes,
            baseline=BASELINE,
            warn=Warnings(),
        )
    show(outcome, Format.TABLE)
    print_text(NEXT_TEXT.format(report=output / "report.html"))


def _train(folder: Path, jobs: int) -> tuple[Path, LearningCurve]:
    from steersman.evaluation.report.curves import read_learning
    from steersman.evaluation.results import TRAINED
    from steersman.training.run import POLICY, TrainingLimits
    from steersman.training.search.evolve import EvolutionPlan, evolve
    from steersman.workloads.formats.openb import embedded

    compile_for(())
    config = EvolutionConfig()
    plan = EvolutionPlan("trained", tuple(embedded(name) for name in TRAINING), config=config, validation_seeds=(5001,))
    limits = TrainingLimits(iterations=GENERATIONS, validate_every=VALIDATE_EVERY)
    with TrainingProgressBar(GENERATIONS, None) as progress:
        # The mean gain of the candidates is not shown: at first most of them are far worse than the starting point.
        evolve(plan, folder / "run", limits, jobs=jobs, on_iteration=lambda state, _: progress.update(state, {}))
    trained = folder / TRAINED
    shutil.copyfile(folder / "run" / POLICY, trained)
    return trained, read_learning(folder / "run", "trained", config.reference, TRAINING)
