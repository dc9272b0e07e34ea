"""`steersman demo`: the main job on data that comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from steersman.cli.display import Warnings, print_text, say_text
from steersman.cli.options import Format, Jobs, default_jobs, path

WORKLOAD = "default"
BASELINE = "kube-default"
SEEDS = range(42, 52)

INTRODUCTION = (
    "A production GPU cluster of 1,213 nodes and 6,212 GPUs (openb, USENIX ATC 2023). Pods drawn from its trace "
    "arrive until they ask for 130 % of the GPUs; each scheduler places the same pods, in 10 random orders."
)
NEXT = """
What you see: how many of the GPUs each scheduler has given to pods when no more fit (mean of the 10 orders), the \
difference to Kubernetes' own scheduler with its 95 % interval, and how many GPUs are left over.

Next: open {report} for the plots. Then compare on your own cluster: its nodes (kubectl get nodes -o yaml) and a \
workload (YAML of Pods, Deployments and the like), or both as CSV with the columns of the openb traces.
  steersman evaluate --nodes nodes.yaml --pods pods.yaml --policy kube-default fgd best-fit --output comparison
  steersman simulate --nodes nodes.yaml --pods pods.yaml --policy fgd --output run    where does every pod go?"""


def demo(
    output: Annotated[Path, typer.Option(parser=path, metavar="FOLDER", help="Where the results go.")] = Path(
        "steersman-demo"
    ),
    jobs: Jobs = None,
) -> None:
    """What does steersman do? Compares all built-in schedulers on a production trace in a minute."""
    from steersman.cli.comparison import compare, show
    from steersman.evaluation.experiment import Experiment
    from steersman.evaluation.output import check_output
    from steersman.evaluation.results import EVALUATION_FILES
    from steersman.policies.registry import BUILT_IN
    from steersman.workloads.openb import embedded

    check_output(output, EVALUATION_FILES)
    say_text(INTRODUCTION)
    others = [name for name in BUILT_IN if name != BASELINE]
    outcome = compare(
        Experiment((embedded(WORKLOAD),), (BASELINE, *others), tuple(SEEDS)),
        baseline=BASELINE,
        output=output,
        jobs=jobs or default_jobs(),
        command="steersman demo",
        warn=Warnings(),
    )
    show(outcome, Format.TABLE)
    print_text(NEXT.format(report=output / "report.html"))
