"""Values that a shell completes. A user waits for them: nothing here may import numpy, numba or torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import typer

from steersman.agents.registry import algorithm_specs
from steersman.core.extensions import entry_point_groups
from steersman.policies.networks.registry import network_names

RULE_NAMES = (
    "dot-product",
    "gpu-clustering",
    "gpu-packing",
    "best-fit",
    "fgd",
    "least-allocated",
    "most-allocated",
    "balanced-allocation",
)
"""The rules of `policies.heuristics`, which imports numba."""
POLICY_NAMES = (
    "random",
    *RULE_NAMES,
    "greedy-forecast",
    "most-even",
    "kube-default",
    "stock-tuned",
    "rules",
    "steersman",
)
"""The built-in policies of `policies.registry`, which imports numba."""
TELEMETRY_POLICY_NAMES = ("ma", "la", "lc", "p0")  # those that decide by nodes' metrics
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
"""The built-in objectives of `objectives.registry`, which imports numba."""
ORDER_NAMES = (*("age", "fcfs", "easy"), *("smallest", "largest", "shortest", "area", "wfp3", "unicef", "f1", "fair"))
"""The names of `orders.registry`, which imports numba."""
VIEW_NAMES = ("cluster", "gpu")
"""The views of `policies.features`, which imports numba, that are a choice; `telemetry` goes with its protocol."""
MINORS = ("1.34", "1.35", "1.36", "1.37")  # minors of `policies.node_scores.kube_minors`
DEVICES = ("cpu", "cuda", "mps", "auto")
POLICY_SUFFIX = ".safetensors"
DEPTH, MAX_FILES, MAX_ENTRIES = 3, 100, 5_000
"""Limits of the search for policy files: levels of folders, files that are offered, entries that are looked at."""


def _offering(names: Sequence[str]) -> Callable[[], list[str]]:
    return lambda: list(names)


minors, views, devices = map(_offering, (MINORS, VIEW_NAMES, DEVICES))


def orders(incomplete: str) -> list[str]:
    return [*ORDER_NAMES, *policy_files(incomplete)]


def policies(incomplete: str) -> list[str]:
    return [*POLICY_NAMES, *TELEMETRY_POLICY_NAMES, *_installed("steersman.policies"), *policy_files(incomplete)]


def packaged_policies(incomplete: str) -> list[str]:
    """Return policy files, and the names of those that are included."""
    return ["steersman", "rules", "greedy-forecast", *policy_files(incomplete)]


def rules_and_files(incomplete: str) -> list[str]:
    """Return what a policy file can be made of: rules, what is included, and policy files."""
    return [*RULE_NAMES, *packaged_policies(incomplete)]


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
