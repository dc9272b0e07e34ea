"""`steersman top` and `steersman doctor`: a live cluster as it is."""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.cli.options.cluster import ClusterOptions, run_with_client
from steersman.cli.options.common import TableOrJson, path_option
from steersman.cli.options.declaring import RequiresOption, option, with_options
from steersman.cli.output.display import print_json, print_table, status_if_slow
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.redaction import redact_url
from steersman.prometheus.configuration import read_configuration

if TYPE_CHECKING:
    from steersman.kubernetes.client import Client
    from steersman.live.doctor import Finding
    from steersman.live.load.live_cluster import ClusterTarget
    from steersman.live.top import ViewOptions


class Sort(enum.StrEnum):
    NAME = "name"
    CPU = "cpu"
    MEMORY = "memory"
    PODS = "pods"
    GPU = "gpu"


@dataclass(frozen=True, slots=True)
class TableOptions:
    once: bool = option("Print the table once as plain text, and exit.", default=False)
    sort: Sort = option("Sort nodes by name, or by requested share of a resource, highest first.", default=Sort.NAME)
    pattern: str = option(
        "Show only nodes whose name, GPU model or state contains TEXT.", "--filter", default="", metavar="TEXT"
    )
    output_format: TableOrJson = option(
        "With --once: format of the table.", "--format", RequiresOption("once"), default=TableOrJson.TABLE
    )


@with_options
def top(table: TableOptions, cluster: ClusterOptions) -> None:
    """Watch a live cluster: requested resources of each node, pending pods, and bindings per second.

    Bars show requested resources as a share of allocatable ones. Keys: n, c, m, p, g sort by name, CPU, memory, pods,
    GPUs (press again to reverse), / filters, q quits.

    **Example**: steersman top --sort gpu
    """
    from steersman.live.top import ViewOptions

    target = cluster.find()
    options = ViewOptions(table.sort.value, pattern=table.pattern)
    if table.once:
        _print_once(target, options, table.output_format)
    elif not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("steersman top needs a terminal; 'steersman top --once' prints plain text")
    else:
        from steersman.live.top import TopApp

        run_with_client(target, lambda client: TopApp(client, _title(target), options, _blocks()).run())


def _print_once(target: ClusterTarget, options: ViewOptions, output_format: TableOrJson) -> None:
    from steersman.live.runtime.cluster_use import ClusterUse, fetch_snapshot
    from steersman.live.top import Leader, heading, leaders, once_record, once_table

    async def fetch(client: Client) -> tuple[ClusterUse, list[Leader]]:
        return await fetch_snapshot(client), await leaders(client)

    with status_if_slow("reading nodes and pods"):
        view, current_leaders = run_with_client(target, fetch)
    rows = options.of(view.rows())
    if output_format is TableOrJson.JSON:
        print_json(once_record(view, _title(target), current_leaders, rows))
        return
    for line in heading(view, _title(target), None, current_leaders, len(rows)):
        print(line)
    print_table(once_table(rows, _blocks()))


def _title(target: ClusterTarget) -> str:
    return target.config.context or redact_url(target.config.cluster.server)


def _blocks() -> str:
    """Return the characters of bars: blocks, or ASCII if the output's encoding has no blocks."""
    from steersman.live.top import ASCII, BLOCKS

    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return ASCII
    return BLOCKS


@with_options
def doctor(
    cluster: ClusterOptions,
    telemetry: Path | None = path_option(
        "How Prometheus is asked, as for schedule and serve: its metrics are checked, too."
    ),
    output_format: TableOrJson = option("Format of the findings.", "--format", default=TableOrJson.TABLE),
) -> None:
    """Check a live cluster: version, rights, device plugins, names of resources, other schedulers and metrics.

    It changes nothing. The exit status is 1 if something is a problem.

    **Example**: steersman doctor --telemetry telemetry.yaml
    """
    from steersman.core.library import core_line
    from steersman.live.doctor import Verdict, examine, ok

    target = cluster.find()
    configuration = None if telemetry is None else read_configuration(telemetry)

    with status_if_slow("asking the API server"):
        findings = [
            ok("steersman", core_line()),
            *run_with_client(target, lambda client: examine(client, configuration)),
        ]
    if output_format is TableOrJson.JSON:
        print_json(findings)
    else:
        _print(findings)
    problems = sum(finding.verdict is Verdict.PROBLEM for finding in findings)
    if problems:
        raise SteersmanError(f"{problems} of {len(findings)} findings are problems")


def _print(findings: list[Finding]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        table.add_row(finding.verdict.value, finding.subject, finding.text)
        if finding.remedy:
            table.add_row("", "", f"-> {finding.remedy}")
    print_table(table)
