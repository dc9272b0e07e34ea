"""A cluster as it is now, with the lives of its pods: live, or in files."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from steersman.cli.options.cluster import ClusterOptions
from steersman.cli.options.recorded import RecordedCluster
from steersman.cli.output.display import Warnings, status_if_slow
from steersman.cli.reading import say_understood
from steersman.workloads.workload import RunningPods

if TYPE_CHECKING:
    from steersman.workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class ClusterOfNow(RecordedCluster):
    """A cluster in files as it was when they were written; none given: the live one."""

    @property
    def running(self) -> RunningPods:
        """Return what to do with running pods."""
        return RunningPods.FROM_NOW

    @property
    def lives(self) -> bool:
        """Return whether to read when pods were created, began to run and ended."""
        return True


def read_now(inputs: ClusterOfNow, target: ClusterOptions, warn: Warnings) -> tuple[Workload, float | None]:
    """Return a cluster, whose running pods stay where they are, and the time, seconds since 1970; None: unknown.

    Raises:
        SteersmanError: there is no cluster, it does not respond, or its files are invalid.
    """
    if inputs.is_chosen(target):
        source = inputs.read(warn)[0]
        # The files are as old as the last thing that they tell of.
        return source, source.lives.latest
    from steersman.apps.load.live_cluster import LiveCluster

    live = LiveCluster(target.find())
    with status_if_slow(f"reading the cluster of context {live.name}"):
        source = live.workload(running=RunningPods.FROM_NOW, lives=True)
    say_understood(source, warn)
    return source, time.time()


def clock(seconds: float) -> str:
    """Return a time of day with its date, here, of seconds since 1970."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
