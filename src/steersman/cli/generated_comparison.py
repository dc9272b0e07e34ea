"""Comparison of policies on generated clusters: `evaluate --protocol deployments` and `latency`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steersman.cli.options.common import Format
from steersman.cli.options.generated import (
    OPTION_PROTOCOLS,
    GeneratedCluster,
    deployments_options,
    given_options,
    latency_options,
)
from steersman.cli.options.policies import check_policies
from steersman.cli.output.display import Warnings, say
from steersman.core.config.fields import flag
from steersman.core.errors import UsageError
from steersman.core.processes import default_jobs

if TYPE_CHECKING:
    from steersman.evaluation.generated import GeneratedOptions


def check_generated_options(protocol: str, given: Sequence[str], cluster: GeneratedCluster) -> None:
    """Check that options belong to a protocol that generates its clusters. Raises UsageError: one does not.

    Args:
        protocol: the protocol.
        given: given options of comparisons on workloads.
        cluster: options of generated clusters.
    """
    if given:
        raise UsageError(
            f"{given[0]} belongs to comparisons on your own nodes and pods, not to --protocol {protocol}, which "
            "generates both"
        )
    for name in given_options(cluster):
        owners = OPTION_PROTOCOLS.get(name, ("deployments",))
        if protocol not in owners:
            raise UsageError(f"{flag(name)} belongs to --protocol {' or '.join(owners)}, not to {protocol}")


def environment_of(protocol: str, given: Mapping[str, Any], settings: Mapping[str, Any]) -> GeneratedOptions:
    """Return the options of generated clusters. Raises UsageError: one is out of range."""
    if protocol == "latency":
        return latency_options(given, settings, {})
    if "load" in given:
        raise UsageError("--load belongs to --protocol timed or latency, not to deployments; --cpu-load is its load")
    return deployments_options(given, {})


def to_arguments(given: Mapping[str, Any]) -> list[str]:
    """Return given options as they are written on a command line."""
    arguments = []
    for name, value in given.items():
        arguments += (
            [flag(name)] if value is True else [flag(name), f"{value:g}" if isinstance(value, float) else str(value)]
        )
    return arguments


def compare_generated(
    environment: GeneratedOptions,
    policies: Sequence[str],
    seeds: tuple[int, ...],
    *,
    objective: Sequence[str] | None,
    baseline: str | None,
    output: Path,
    jobs: int | None,
    output_format: Format,
    arguments: Sequence[str],
) -> None:
    """Compare policies on generated clusters, write the files and print the outcome.

    Args:
        environment: options of the clusters.
        policies: names and files.
        seeds: one run of each policy for each.
        objective: what decides; None: the objectives of the protocol.
        baseline: one of the policies; None: the first.
        output: folder of the files.
        jobs: number of processes; None: all cores.
        output_format: format on standard output.
        arguments: further arguments of the command line, for the report.

    Raises:
        UsageError: a policy or an objective is undefined there.
        SteersmanError: a run failed.
    """
    from steersman.cli.comparison import compare, show
    from steersman.evaluation.criteria import parse_objectives
    from steersman.evaluation.experiment import Experiment
    from steersman.evaluation.generated import check_generated, default_objectives, nominal_workload, protocol_of
    from steersman.evaluation.output import check_output
    from steersman.evaluation.results import EVALUATION_FILES

    objectives = parse_objectives(objective or ()) or default_objectives(environment)
    check_output(output, EVALUATION_FILES)
    first = check_policies(policies, baseline)
    check_generated(environment, objectives, tuple(policies))
    protocol = protocol_of(environment)
    experiment = Experiment(
        (nominal_workload(environment),),
        tuple(policies),
        seeds,
        protocol,
        objectives=objectives,
        environment=environment,
    )
    command = ["steersman", "evaluate", "--protocol", protocol]
    command += [part for name in policies for part in ("--policy", name)]
    command += [part for each in objective or () for part in ("--objective", each)]
    command += [*arguments, "--baseline", first, "--output", output.name]
    outcomes = compare(
        [experiment],
        baseline=first,
        output=output,
        jobs=jobs or default_jobs(),
        command=shlex.join(command),
        warn=Warnings(),
    )
    try:
        show(outcomes, output_format)
    finally:  # also if standard output was closed (`| head`)
        say(f"wrote report.html, results.csv, metrics.csv and summary.csv to {output}")
