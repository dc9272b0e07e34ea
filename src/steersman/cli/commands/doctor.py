"""`steersman doctor`: what in a cluster works with steersman, and what to do where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from steersman.cli.options.cluster import ClusterOptions, run_with_client
from steersman.cli.options.common import TableOrJson, path_option
from steersman.cli.options.declaring import option, with_options
from steersman.cli.output.display import print_json, print_table, status_if_slow
from steersman.core.errors import SteersmanError
from steersman.prometheus.configuration import read_configuration

if TYPE_CHECKING:
    from steersman.apps.doctor import Finding
    from steersman.kubernetes.client import Client


@with_options
def doctor(
    cluster: ClusterOptions,
    telemetry: Annotated[
        Path | None, path_option("How Prometheus is asked, as for schedule and serve: its metrics are checked, too.")
    ] = None,
    output_format: Annotated[TableOrJson, option("Format of the findings.", "--format")] = TableOrJson.TABLE,
) -> None:
    """Check a live cluster: version, rights, device plugins, names of resources, other schedulers and metrics.

    It changes nothing. The exit status is 1 if something is a problem.

    **Example**: steersman doctor --telemetry telemetry.yaml
    """
    from steersman.apps.doctor import Verdict, examine, ok
    from steersman.core.library import core_line

    target = cluster.find()
    configuration = None if telemetry is None else read_configuration(telemetry)

    async def ask(client: Client) -> list[Finding]:
        return await examine(client, configuration)

    with status_if_slow("asking the API server"):
        findings = [ok("steersman", core_line()), *run_with_client(target, ask)]
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
