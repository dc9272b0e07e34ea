"""`steersman policy fit-scheduler`: find the configuration of kube-scheduler that allocates most."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from steersman.cli.completing import policies
from steersman.cli.options.common import MaxKindLoss, TableOrJson, TableOrJsonOption, path_option
from steersman.cli.options.declaring import option, with_options
from steersman.cli.options.inputs import Inputs
from steersman.cli.output.display import Progress, Warnings, print_json, print_table, say
from steersman.cli.reading import check_overwriting
from steersman.core.errors import InputError, UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from steersman.training.search.fit_scheduler import SchedulerFit

MAX_RATIO = 10.0
LEARNED = "steersman"
"""The policy that the found configuration is also compared with."""
SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class SchedulerFittingOptions:
    """The search for a configuration, and the files that are written."""

    output: Annotated[Path, path_option("KubeSchedulerConfiguration to write, such as scheduler.yaml.", "--output")]
    baseline: Annotated[
        str,
        option(
            "The configuration that runs today, from which the found one differs as little as it can: kube-default, "
            "FILE or FILE:PROFILE.",
            metavar="POLICY",
            autocompletion=policies,
        ),
    ] = "kube-default"
    simple: Annotated[
        bool, option("Search only scoring strategies and weights of resources, all that EKS takes.", "--simple")
    ] = False
    ratio: Annotated[
        float, option("GPUs that arriving pods request, as a multiple of the cluster's.", min=0.1, max=MAX_RATIO)
    ] = 1.3
    max_kind_loss: MaxKindLoss = None
    seed: Annotated[int, option("Seed of the search.", min=0)] = 1
    output_format: TableOrJsonOption = TableOrJson.TABLE


@with_options
def fit_scheduler(options: SchedulerFittingOptions, inputs: Inputs) -> None:
    """Find the configuration of kube-scheduler, with its own plugins alone, that allocates most of a cluster.

    Searches scoring strategies over CPU, memory and GPUs and the weights of the two plugins of resources by simulation
    on these nodes and pods. The best one is compared with the configuration that runs today, and with the policy
    steersman, on random draws of the pods that the search did not use. It is written if a paired test shows that it
    is better: as a KubeSchedulerConfiguration, in the form of AKS (.aks.yaml) and, if it can be expressed there, in
    that of EKS (.eks.json). Otherwise no file is written.

    **Example**: steersman policy fit-scheduler --nodes nodes.yaml --pods pods.yaml --output scheduler.yaml
    """
    inputs.check()
    if options.output.suffix not in SUFFIXES:
        raise UsageError(f"--output {options.output}: expected a name that ends with {' or '.join(SUFFIXES)}")
    from steersman.policies.files.kube_configuration import read_configuration

    check_overwriting(options.output, "a KubeSchedulerConfiguration", read_configuration)
    from steersman.cli.compiling import compile_for
    from steersman.cluster.gpu_resources import SHARED_GPUS
    from steersman.policies.registry import resolve
    from steersman.training.search import fit_scheduler as fitting

    today, learned = resolve(options.baseline), resolve(LEARNED)
    (source,) = inputs.read(warn := Warnings())
    if fitting.gpu_name(source) == SHARED_GPUS:
        warn((f"{source.name}: pods request {SHARED_GPUS} by annotations, which kube-scheduler does not count",))
    compile_for([options.baseline, LEARNED], [source])
    settings = fitting.SchedulerFitOptions(options.ratio, options.simple, options.seed, options.max_kind_loss)
    beside = [learned] if fitting.gpu_name(source) else []
    with Progress("searching, rounds") as progress:
        found = fitting.fit_scheduler(source, settings, today=today, beside=beside, progress=progress.update)
    written = _write(options.output, found) if found.is_better else []
    if options.output_format is TableOrJson.JSON:
        print_json(_record(found, source.name))
    else:
        print_table(_table(found, source.name))
    mean, interval = found.gain(fitting.TUNED)
    gain = f"{mean:+.1f} points [{interval.low:+.1f}, {interval.high:+.1f}] of {_resource(found)} against {found.today}"
    if written:
        say(f"{gain}; {_who_pays(found)}")
        say(f"wrote {', '.join(str(file) for file in written)}")
    elif found.breaks_limit:
        say(f"the best configuration breaks --max-kind-loss ({gain}; {_who_pays(found)}); no file is written")
    else:
        say(f"no configuration is shown to be better ({gain}); no file is written")


def _write(output: Path, found: SchedulerFit) -> list[Path]:
    """Write the configuration in its forms, and return the files. Raises InputError: one cannot be written."""
    import json

    from steersman.policies.files.kube_configuration import configuration_of, managed_configurations
    from steersman.workloads.formats.yaml_documents import write_documents

    managed = managed_configurations(found.profile)
    files = [output, output.with_suffix(".aks.yaml")]
    try:
        write_documents(files[0], [configuration_of(found.profile, found.scheduler_name)])
        write_documents(files[1], [managed["aks"]])
        if "eks" in managed:
            files.append(output.with_suffix(".eks.json"))
            files[2].write_text(json.dumps(managed["eks"], indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(output, "", "", f"cannot be written: {error.strerror}") from None
    return files


def _resource(found: SchedulerFit) -> str:
    return "GPUs allocated" if found.arrived[1:].any() else "CPU allocated"


def _who_pays(found: SchedulerFit) -> str:
    """Return how many pods of each kind fail before and after, those of which more fail last."""
    from steersman.simulation.pod_kinds import KINDS
    from steersman.training.search.fit_scheduler import TUNED

    titles = list(KINDS.values())
    before, after = found.failed[found.today], found.failed[TUNED]
    kinds = [k for k in range(len(titles)) if found.arrived[k]]
    kinds.sort(key=lambda k: float(after[k] - before[k]))
    changes = [f"{titles[k]} {before[k]:.0f} -> {after[k]:.0f} of {found.arrived[k]:.0f}" for k in kinds]
    return f"pods failed: {', '.join(changes)}"


def _record(found: SchedulerFit, workload: str) -> dict[str, Any]:
    from steersman.policies.files.kube_configuration import configuration_of
    from steersman.simulation.pod_kinds import KINDS

    def of(policy: str) -> dict[str, Any]:
        mean, interval = found.gain(policy)
        return {
            "policy": policy,
            "unallocated_percent": float(found.costs[policy].mean()),
            "gain": {"mean": mean, "low": interval.low, "high": interval.high},
            "failed": dict(zip(KINDS, found.failed[policy].tolist(), strict=True)),
        }

    return {
        "workload": workload,
        "baseline": found.today,
        "is_better": found.is_better,
        "draws": len(found.savings),
        "arrived": dict(zip(KINDS, found.arrived.tolist(), strict=True)),
        "policies": [of(policy) for policy in found.costs],
        "configuration": configuration_of(found.profile, found.scheduler_name),
    }


def _table(found: SchedulerFit, workload: str) -> Table:
    from rich.table import Table

    from steersman.simulation.pod_kinds import KINDS

    title = f"{workload}: means over {len(found.savings)} draws that the search did not use"
    table = Table("policy", title=title, title_justify="left")
    for column in (_resource(found), f"against {found.today}, points", *(f"failed, {kind}" for kind in KINDS.values())):
        table.add_column(column, justify="right")
    for policy, costs in found.costs.items():
        mean, interval = found.gain(policy)
        against = "" if policy == found.today else f"{mean:+.1f} [{interval.low:+.1f}, {interval.high:+.1f}]"
        failed = [f"{count:.0f}" for count in found.failed[policy]]
        table.add_row(policy, f"{100 - costs.mean():.1f} %", against, *failed)
    table.add_row("pods that arrive", "", "", *(f"{count:.0f}" for count in found.arrived))
    return table
