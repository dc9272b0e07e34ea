"""`steersman explain`: a policy's decision for one pod, with its reasons."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from steersman.cli.completing import policies
from steersman.cli.options.cluster import ClusterOptions, run_with_client, say_without_telemetry
from steersman.cli.options.common import POLICIES_HELP, TableOrJson, TableOrJsonOption, TelemetryOption
from steersman.cli.options.declaring import option, with_options
from steersman.cli.options.policy_server import PolicyServer
from steersman.cli.options.recorded import RecordedCluster
from steersman.cli.output.display import Warnings, print_json, print_table, print_text, status_if_slow
from steersman.cli.reading import pod_index
from steersman.core.errors import UsageError
from steersman.workloads.garbage_collection import no_collection

if TYPE_CHECKING:
    from steersman.apps.service.messages.types import Explanation
    from steersman.kubernetes.client import Client
    from steersman.prometheus.collector import TelemetryCollector
    from steersman.workloads.workload import Workload

SHOWN_FEATURES = 10
"""Features in the table; --format json has all."""


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """What is explained, and how it is printed."""

    pod: Annotated[str, option("Pod to place, as NAME or NAMESPACE/NAME.", metavar="NAME")]
    policy: Annotated[str, option(f"Policy to explain: {POLICIES_HELP}", metavar="POLICY", autocompletion=policies)] = (
        "steersman"
    )
    telemetry: TelemetryOption = None
    output_format: TableOrJsonOption = TableOrJson.TABLE


@with_options
def explain(options: ExplainOptions, inputs: RecordedCluster, cluster: ClusterOptions, server: PolicyServer) -> None:
    """Explain where a policy would place a pod: what separates that node from the runner-up, and why others fail.

    Reads a live cluster, a cluster in files or a packaged workload, and changes nothing. A pod that runs already is
    placed as if it were still pending.

    **Example**: steersman explain --policy steersman --pod training/worker-0

    **By measured metrics**: steersman explain --policy p0 --telemetry telemetry.yaml --pod web/nginx-0
    """
    server.use()
    is_recorded = inputs.is_chosen(cluster)
    if is_recorded and options.telemetry is not None:
        raise UsageError(
            "--telemetry is about a live cluster's metrics; leave it out, or leave out --nodes, --pods and --workload"
        )

    with no_collection():  # all objects live until the end, and scanning them would take 0.3 s
        from steersman.apps.service.scoring.explanation import explain_pod
        from steersman.policies.registry import resolve

        resolved = resolve(options.policy)
        say_without_telemetry(resolved, options.policy, has_telemetry=options.telemetry is not None)
        warn = Warnings()
        source = inputs.read(warn)[0] if is_recorded else _take_snapshot(cluster, warn)
        number = pod_index(source, options.pod)
        measured = None if options.telemetry is None else _measure(options.telemetry, source)
        with status_if_slow("computing the explanation"):
            explanation = explain_pod(resolved, source, number, measured)
    if options.output_format is TableOrJson.JSON:
        print_json(explanation)
    else:
        _print_tables(explanation, options.pod)


def _take_snapshot(target: ClusterOptions, warn: Warnings) -> Workload:
    """Return a live cluster as a workload.

    Raises:
        SteersmanError: there is no cluster, or it does not respond.
    """
    from steersman.apps.recorder import snapshot

    async def take(client: Client) -> Workload:
        return await snapshot.take_snapshot(client, "the cluster", free=False)

    cluster = run_with_client(target.find(), take)
    warn(cluster.warnings)
    return cluster


def _measure(file: Path, cluster: Workload) -> TelemetryCollector:
    """Return the metrics of a cluster's nodes, by the queries in a file.

    Raises:
        SteersmanError: the file is invalid, or Prometheus cannot be queried.
    """
    from steersman.prometheus.collector import TelemetryCollector
    from steersman.prometheus.configuration import read_configuration
    from steersman.prometheus.node_names import addresses_of

    addresses = addresses_of(cluster.nodes)
    collector = TelemetryCollector(read_configuration(file), lambda: addresses)
    with status_if_slow("querying Prometheus"):
        asyncio.run(collector.query_once())
    return collector


def _print_tables(explanation: Explanation, pod: str) -> None:
    from rich import box
    from rich.table import Table

    policy = explanation.policy
    if explanation.member:
        policy = f"{explanation.policy} (its member {explanation.member})"
    if explanation.choice:
        print_text(f"short simulations with these nodes and pods: {explanation.choice}")
    if not explanation.node:
        print_text(f"{policy} finds no node for {pod}: it fits on none of {explanation.nodes}")
    else:
        others = ", ".join(f"{runner_up.node} {runner_up.points:.1f}" for runner_up in explanation.runners_up)
        then = f"; then {others}" if others else ""
        print_text(
            f"{policy} places {pod} on {explanation.node} ({explanation.points:.1f} points, score "
            f"{explanation.score:.4g}){then}"
        )
        equal = explanation.equal
        ties = f"{equal} other {'nodes have' if equal > 1 else 'node has'} the same score; " if equal else ""
        print_text(f"{ties}deciding criterion: {explanation.decided_by}")
        if explanation.runners_up:
            print_text(
                "0 and 100 points are the worst and the best score of the nodes on which it fits; they are "
                f"{explanation.spread:.4g} apart"
            )
    if explanation.features:
        title = f"{explanation.node} and {explanation.compared_with}"
        table = Table("Contribution to the difference", box=box.SIMPLE_HEAD, title=title)
        for column in (explanation.node, explanation.compared_with, "points"):
            table.add_column(column, justify="right")
        for feature in explanation.features[:SHOWN_FEATURES]:
            table.add_row(feature.name, f"{feature.value:.4g}", f"{feature.other:.4g}", f"{feature.points:+.1f}")
        rest = explanation.features[SHOWN_FEATURES:]
        if rest:
            table.add_row(f"{len(rest)} more", "", "", f"{sum(feature.points for feature in rest):+.1f}")
        print_table(table)
    if explanation.refused:
        table = Table("Reason why nodes are out", box=box.SIMPLE_HEAD)
        table.add_column("nodes", justify="right")
        for reason, count in sorted(explanation.refused.items(), key=lambda item: -item[1]):
            table.add_row(reason, str(count))
        print_table(table)
    if explanation.other_gpus:
        print_text(explanation.other_gpus)
