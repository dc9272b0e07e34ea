"""Values that a shell completes. A user waits for them: nothing here may import numpy or torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import typer

from steersman.agents.registry import algorithm_specs
from steersman.core.extensions import entry_point_groups
from steersman.policies.kube_scheduler.minors import MINORS
from steersman.policies.networks import network_names
from steersman.policies.rules import RULES

POLICIES = {
    "random": "a node that fits, at random",
    **RULES,
    "greedy-forecast": "forecasts of the GPU loss grow least",
    "most-even": "the nodes' shares of requested CPU differ least",
    "kube-default": "kube-scheduler's default configuration",
    "stock-tuned": "kube-scheduler with its best configuration for this cluster, in simulations",
    "rules": "the rule that short simulations on this cluster choose",
    "steersman": "as rules, or a blend of them, with weights fitted to this cluster",
}
"""The built-in policies of `policies.registry`, which imports numpy."""
TELEMETRY_POLICIES = {
    "ma": "by --telemetry: a node in use with the most CPU used",
    "la": "by --telemetry: the least CPU used",
    "lc": "by --telemetry: the fewest TCP connections",
    "p0": "by --telemetry: the fullest node within the pod's limit of latency",
}
OBJECTIVE_NAMES = (
    "allocation",
    "fragmentation",
    "balance",
    "most-allocated",
    "least-allocated",
    "waiting-time",
    "locality",
    "least-connections",
    "latency-aware",
)
"""The built-in objectives of `objectives.registry`, which imports numpy."""
ORDERS = {
    "age": "the oldest first; every waiting pod is tried",
    "fcfs": "the oldest first; nobody overtakes",
    "easy": "the oldest first; others overtake without delaying the next one",
    "smallest": "the smallest request first",
    "largest": "the largest request first",
    "shortest": "the shortest run time first",
    "area": "the smallest product of run time and size first",
    "wfp3": "by wait over run time, cubed, and size",
    "unicef": "by wait over run time and logarithm of the size",
    "f1": "by size, run time and arrival",
    "fair": "the namespace with the smallest share of the cluster first",
    "las": "the oldest first, which may have pods evicted that can resume",
    "NAME:none, NAME:easy": "who may overtake a pod that fits nowhere",
    "NAME@SOURCE": "run times: stated, history, none, oracle or oracle:FACTOR",
    "NAME@ageing:2h": "who has waited for longer goes first",
}
"""The names of `orders.registry`, which imports numpy, and what may follow them."""
VIEW_NAMES = ("cluster", "gpu")
"""The views of `policies.features`, which imports numpy, that are a choice; `telemetry` goes with its protocol."""
DEVICES = ("cpu", "cuda", "mps", "auto")
POLICY_SUFFIX = ".safetensors"  # also of order files
DEPTH, MAX_FILES, MAX_ENTRIES = 3, 100, 5_000
"""Limits of the search for policy files: levels of folders, files that are offered, entries that are looked at."""


def _offering(names: Sequence[str]) -> Callable[[], list[str]]:
    return lambda: list(names)


minors, views, devices = map(_offering, (tuple(reversed(MINORS)), VIEW_NAMES, DEVICES))


def orders(incomplete: str) -> list[str]:
    return [*filter(str.islower, ORDERS), *_installed("steersman.orders"), *policy_files(incomplete)]


def policies(incomplete: str) -> list[str]:
    return [*POLICIES, *TELEMETRY_POLICIES, *_installed("steersman.policies"), *policy_files(incomplete)]


def rules_and_files(incomplete: str) -> list[str]:
    """Return what a policy file can be made of: rules, what is included, and policy files."""
    return [*RULES, "steersman", "rules", "greedy-forecast", *policy_files(incomplete)]


def policy_files(incomplete: str) -> list[str]:
    """Return policy files whose path begins with a text, at most three levels of folders deeper."""
    folder, _, _ = incomplete.rpartition("/")
    prefix = incomplete[: len(folder) + 1] if "/" in incomplete else ""
    # `_entries` yields a text for every entry that it looks at, so the limit ends the search of a large folder.
    entries = islice(_entries(os.path.expanduser(prefix) or ".", prefix, incomplete), MAX_ENTRIES)
    return list(islice((name for name in entries if name.endswith(POLICY_SUFFIX)), MAX_FILES))


def _entries(folder: str, prefix: str, incomplete: str, depth: int = DEPTH) -> Iterator[str]:
    """Yield files, "" for others, below a folder, those of a level first; hidden and checkpoint files are left out."""
    below = []
    try:
        found = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        path = prefix + entry.name
        # The second condition is for folders above what was typed.
        is_on_the_way = path.startswith(incomplete) or incomplete.startswith(path)
        if entry.name.startswith(".") or entry.name == "checkpoint.safetensors" or not is_on_the_way:
            yield ""
        # Not through links, which can lead in circles.
        elif entry.is_dir(follow_symlinks=False):
            below.append(entry)
            yield ""
        else:
            yield path
    for entry in below if depth else ():
        yield from _entries(entry.path, f"{prefix}{entry.name}/", incomplete, depth - 1)


def workloads() -> list[str]:
    from steersman.workloads.formats.openb import known_names

    return list(known_names())


def objectives(incomplete: str) -> list[str]:
    """Return the names of objectives, the last one of a list."""
    before, comma, _ = incomplete.rpartition(",")
    # A shell replaces the whole word, so the values before the comma are part of each completion.
    return [f"{before}{comma}{name}" for name in (*OBJECTIVE_NAMES, *_installed("steersman.objectives"))]


def algorithms() -> list[str]:
    return list(dict.fromkeys(spec.name for spec in algorithm_specs()))


def networks() -> list[str]:
    return list(network_names())


def formats() -> list[str]:
    from steersman.workloads.formats.registry import BUILT_IN

    return [*BUILT_IN, *_installed("steersman.formats")]


def contexts(context: typer.Context) -> list[str]:
    """Return the contexts of --kubeconfig, else of those that kubectl reads."""
    from steersman.kubernetes.config import context_names

    given = context.params.get("kubeconfig")
    return context_names(Path(given) if given else None)


def _installed(group: str) -> Sequence[str]:
    if group not in entry_point_groups(tuple(sys.path)):
        return ()
    from importlib import metadata

    return [point.name for point in metadata.entry_points(group=group)]
