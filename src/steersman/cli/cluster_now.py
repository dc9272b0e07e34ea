"""A cluster in files or live, as it is now, with the lives of its pods."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, NamedTuple

from steersman.cli.options.cluster import ClusterOptions
from steersman.cli.options.declaring import given_options, option
from steersman.cli.options.inputs import FileInputs, PresentCluster, read_cluster
from steersman.cli.output.display import Warnings
from steersman.cli.reading import is_named, several_pods
from steersman.core.errors import SteersmanError, UsageError
from steersman.workloads.workload import RunningPods, Workload


@dataclass(frozen=True, slots=True)
class RecordedCluster(FileInputs):
    """A cluster in files, whose pods with `spec.nodeName` run, or a packaged one; none given: the live one."""

    @property
    def running(self) -> RunningPods:
        return RunningPods.AS_WRITTEN

    def is_chosen(self, cluster: ClusterOptions) -> bool:
        """Return whether the files are given, else the live cluster is asked."""
        if not given_options(self):
            return False
        if given_options(cluster):
            raise UsageError(
                "--kubeconfig, --context and --name select a live cluster; leave them out, or leave out --nodes, "
                "--pods and --workload"
            )
        self.check()
        return True


NowOption = Annotated[
    str | None,
    option(
        "Files: the time that counts as now, such as 2026-11-01T12:00:00Z; without a zone it is local. [default: the "
        "latest time that their objects state as past; give it if the clock of one object is far ahead]",
        metavar="TIME",
    ),
]


class AssumedNow(NamedTuple):
    """The time that counts as now."""

    seconds: float | None  # since 1970; None: it is unknown
    sentence: str = ""  # which time it is, and why; "": it is the present, or unknown


@dataclass(frozen=True, slots=True)
class ClusterOfNow(PresentCluster, RecordedCluster):
    """A cluster in files as it was when they were written; none given: the live one."""


def read_now(
    inputs: ClusterOfNow, target: ClusterOptions, warn: Warnings, now: str | None = None
) -> tuple[Workload, AssumedNow]:
    """Return a cluster, whose running pods stay where they are, and the time that counts as now.

    Args:
        now: the time of the files; None: they are as old as the last thing that they tell of.
    """
    try:
        stated = None if now is None else datetime.fromisoformat(now).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(f"--now {now}: is not a time; expected one such as 2026-11-01T12:00:00Z") from None
    if inputs.is_chosen(target):
        source = inputs.read(warn)[0]
        seconds = source.lives.latest if stated is None else stated
        if seconds is None:
            return source, AssumedNow(None)
        if stated is not None:
            # What ended later is not known yet.
            ended = tuple(each for each in source.lives.ended if each.ended <= stated)
            source = replace(source, lives=replace(source.lives, ended=ended))
        why = "the latest time in the files" if stated is None else "as --now says"
        return source, AssumedNow(seconds, f"taken as now: {clock(seconds)}, {why}")
    if stated is not None:
        raise UsageError("--now is for a cluster in files; leave it out, or give --nodes and --pods")
    source = read_cluster(target, RunningPods.FROM_NOW, warn, lives=True)
    return source, AssumedNow(time.time())


def check_moment(source: Workload) -> None:
    """Raise UsageError for a trace, whose pods arrive over time: it is not a snapshot of a cluster."""
    if any(pod.deletion_time is not None for pod in source.pods):
        expected = "expected a cluster's objects, as kubectl get nodes,pods -A -o yaml writes them"
        raise UsageError(f"{source.name} is a trace, whose pods state when they end; {expected}")


def say_if_gone(workload: Workload, spec: str) -> None:
    """Raise SteersmanError for a pod of a cluster, read with `lives`, that no scheduler looks at."""
    if any(is_named(spec, pod.namespace, pod.name) for pod in workload.pods):
        return
    ended = {(each.pod.namespace, each.pod.name): each.ended for each in workload.lives.ended}
    matches = sorted(key for key in {*ended, *workload.lives.present} if is_named(spec, *key))
    if len(matches) > 1:
        raise several_pods(spec, matches)
    if matches and matches[0] in ended:
        raise SteersmanError(f"--pod {spec}: it does not wait: it ended at {clock(ended[matches[0]])}")
    if matches:
        raise SteersmanError(f"--pod {spec}: no scheduler looks at it: it has scheduling gates, or is being deleted")


def clock(seconds: float) -> str:
    """Return a time of day with its date, here, of seconds since 1970."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
