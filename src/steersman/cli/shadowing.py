"""`steersman schedule --shadow`: follow another scheduler until Ctrl-C, then say what came of it."""

from __future__ import annotations

import asyncio
import csv
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path

import structlog
from rich import box
from rich.table import Table

from steersman.cli.cluster_options import ask_cluster, check_new_folder
from steersman.cli.display import print_table, say
from steersman.cluster.state import ClusterState
from steersman.kube.client import Client
from steersman.live.policy_file import PolicyFile
from steersman.live.target import Target
from steersman.live.thinking import Thinking
from steersman.scheduler.shadow import Picture, Shadow, Tally
from steersman.telemetry.prometheus.collector import Collector
from steersman.telemetry.prometheus.configuration import Configuration

DECISIONS, SUMMARY = "decisions.csv", "summary.csv"
REPORT_SECONDS = 30.0

TITLES = {
    "nodes_in_use": "Nodes in use",
    "cpu_percent": "CPU requested, %",
    "memory_percent": "Memory requested, %",
    "gpu_percent": "GPUs requested, %",
    "cpu_deviation_percent": "Deviation of CPU over nodes, points",
    "fragmented_gpus": "GPUs idle but of no use to typical pods",
    "unplaced": "Pods without a node",
}

log = structlog.get_logger("shadow")


def follow(
    target: Target,
    policy: str,
    shadowed: str,
    output: Path | None,
    telemetry: Configuration | None = None,
    *,
    unchecked: bool = False,
) -> None:
    """Follow the scheduler of that name, and print at the end how the cluster is and how it would be."""
    with ExitStack() as stack:
        decisions = None
        if output is not None:
            check_new_folder(output)
            output.mkdir(parents=True, exist_ok=True)
            decisions = stack.enter_context((output / DECISIONS).open("w", newline="", buffering=1))
        thinking = Thinking(PolicyFile(policy), unchecked=unchecked)

        async def run(client: Client) -> tuple[Tally, Picture, Picture]:
            selectors = thinking.selectors(client)
            shadow = Shadow(
                client, thinking.decider, shadowed, selectors=selectors, came=thinking.see, output=decisions
            )
            if telemetry is not None:
                thinking.telemetry = Collector(telemetry, lambda: shadow.actual.cache.state.slots)
            await _run(shadow, thinking)
            return (shadow.tally, *shadow.pictures())

        tally, now, instead = ask_cluster(target, run)
    if output is not None:
        _write(output / SUMMARY, tally, now, instead)
    print_table(_table(now, instead, shadowed, thinking.policy.name))
    say(
        f"{tally.decisions} decisions of {shadowed}; in the same state {thinking.policy.name} would have taken the "
        f"same node for {tally.agreed} ({tally.agreement_percent:.1f} %)" + (f"; wrote {output}" if output else "")
    )


async def _run(shadow: Shadow, thinking: Thinking) -> None:
    """Follow until cancelled."""

    def state() -> ClusterState:
        return shadow.actual.cache.state

    async def report() -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            tally = shadow.tally
            log.info(
                "so far", decisions=tally.decisions, agreed=tally.agreed, percent=round(tally.agreement_percent, 1)
            )

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(shadow.run(lambda: thinking.begin(state())))
            group.create_task(thinking.keep(state, shadow.renew))
            group.create_task(report())
            if thinking.telemetry is not None:
                group.create_task(thinking.telemetry.run())
    except asyncio.CancelledError:
        return


def _write(file: Path, tally: Tally, now: Picture, instead: Picture) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("metric", "scheduler", "policy"))
        writer.writerow(("decisions", tally.decisions, tally.decisions))
        writer.writerow(("agreement_percent", "", f"{tally.agreement_percent:.4f}"))
        for field in fields(Picture):
            writer.writerow((field.name, _number(getattr(now, field.name)), _number(getattr(instead, field.name))))


def _table(now: Picture, instead: Picture, scheduler: str, policy: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("The cluster")
    table.add_column(f"is, by {scheduler}", justify="right")
    table.add_column(f"would be, by {policy}", justify="right")
    for name, title in TITLES.items():
        table.add_row(title, _number(getattr(now, name)), _number(getattr(instead, name)))
    return table


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.2f}"
