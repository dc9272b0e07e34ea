"""`steersman schedule --shadow`: follow another scheduler until Ctrl-C, then report the differences."""

from __future__ import annotations

import asyncio
import csv
from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path

import structlog

from steersman.apps.load.live_cluster import ClusterTarget
from steersman.apps.runtime.comparison import PolicyReloader
from steersman.apps.runtime.policy_manager import PolicyManager
from steersman.apps.scheduler.shadow import AgreementStats, ClusterSummary, Shadow
from steersman.cli.options.cluster import check_new_folder, run_with_client
from steersman.cli.options.common import TableOrJson
from steersman.cli.output.display import print_json, print_rows, say
from steersman.cluster.state import ClusterState
from steersman.kubernetes.client import Client
from steersman.prometheus.collector import TelemetryCollector, addresses_of
from steersman.prometheus.configuration import Configuration

DECISIONS, SUMMARY = "decisions.csv", "summary.csv"
REPORT_SECONDS = 30.0

TITLES = {
    "nodes_in_use": "Nodes in use",
    "cpu_percent": "CPU requested, %",
    "memory_percent": "Memory requested, %",
    "gpu_percent": "GPUs requested, %",
    "cpu_deviation_percent": "Standard deviation of CPU across nodes, points",
    "fragmented_gpus": "Idle GPUs that typical pods cannot use",
    "unplaced": "Pods without a node",
}

log = structlog.get_logger("shadow")


def follow(
    target: ClusterTarget,
    policy: str,
    shadowed: str,
    output: Path | None,
    telemetry: Configuration | None = None,
    *,
    unchecked: bool = False,
    output_format: TableOrJson = TableOrJson.TABLE,
) -> None:
    """Follow a scheduler, and print the cluster as it is and as the policy would have made it."""
    with ExitStack() as stack:
        decisions = None
        if output is not None:
            check_new_folder(output)
            output.mkdir(parents=True, exist_ok=True)
            # By lines, so that the file can be read while this runs, and a killed process has written its decisions.
            decisions = stack.enter_context((output / DECISIONS).open("w", newline="", buffering=1))
        reloader = PolicyReloader(policy, has_telemetry=telemetry is not None)
        manager = PolicyManager(reloader, unchecked=unchecked, scheduler_name=shadowed)

        async def run(client: Client) -> tuple[AgreementStats, ClusterSummary, ClusterSummary]:
            selectors = manager.selectors(client)
            shadow = Shadow(client, manager.decider, shadowed, selectors=selectors, came=manager.see, output=decisions)
            if telemetry is not None:
                manager.telemetry = TelemetryCollector(telemetry, lambda: addresses_of(shadow.actual.cache.state.nodes))
            await _run(shadow, manager)
            return (shadow.tally, *shadow.pictures())

        stats, actual, counterfactual = run_with_client(target, run)
    if output is not None:
        _write(output / SUMMARY, stats, actual, counterfactual)
    if output_format is TableOrJson.JSON:
        print_json(_record(stats, actual, counterfactual, shadowed, manager.policy.name))
    else:
        numbers = [f"actual, by {shadowed}", f"instead, by {manager.policy.name}"]
        summaries = actual, counterfactual
        rows = [(title, *(_number(getattr(each, name)) for each in summaries)) for name, title in TITLES.items()]
        print_rows(rows, ["Metric"], numbers)
    say(_sentence(stats, shadowed, manager.policy.name) + (f"; wrote {output}" if output else ""))


async def _run(shadow: Shadow, manager: PolicyManager) -> None:

    def state() -> ClusterState:
        return shadow.actual.cache.state

    async def report() -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            _log(shadow.tally)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(shadow.run(lambda: manager.begin(state())))
            group.create_task(manager.keep(state, shadow.renew))
            group.create_task(report())
            if manager.telemetry is not None:
                group.create_task(manager.telemetry.run())
    # Ctrl-C is the usual end here, and the report follows.
    except asyncio.CancelledError:
        return


def _log(stats: AgreementStats) -> None:
    share = stats.agreement_percent
    percent = {} if share is None else {"percent": round(share, 1)}
    log.info("agreement", decisions=stats.decisions, agreed=stats.agreed, **percent)


def _sentence(stats: AgreementStats, scheduler: str, policy: str) -> str:
    share = stats.agreement_percent
    if share is None:
        return f"no decisions of {scheduler} to compare {policy} with"
    return (
        f"{stats.decisions} decisions of {scheduler}; in the same state {policy} would have chosen the same node for "
        f"{stats.agreed} ({share:.1f} %)"
    )


def _write(file: Path, stats: AgreementStats, actual: ClusterSummary, counterfactual: ClusterSummary) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("metric", "scheduler", "policy"))
        writer.writerow(("decisions", stats.decisions, stats.decisions))
        share = stats.agreement_percent
        writer.writerow(("agreement_percent", "", "" if share is None else f"{share:.4f}"))
        for field in fields(ClusterSummary):
            values = getattr(actual, field.name), getattr(counterfactual, field.name)
            writer.writerow((field.name, *map(_number, values)))


def _record(
    stats: AgreementStats, actual: ClusterSummary, counterfactual: ClusterSummary, scheduler: str, policy: str
) -> dict[str, object]:
    return {
        "decisions": stats.decisions,
        "agreement_percent": stats.agreement_percent,
        "actual": {"scheduler": scheduler, **asdict(actual)},
        "instead": {"policy": policy, **asdict(counterfactual)},
    }


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.2f}"
