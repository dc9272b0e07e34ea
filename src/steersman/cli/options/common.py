"""Options that several commands share: how they are spelled, parsed and explained."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from steersman.cli.completing import OBJECTIVE_NAMES, POLICY_NAMES, TELEMETRY_POLICY_NAMES, objectives
from steersman.cli.help_levels import HelpLevels
from steersman.core.errors import UsageError
from steersman.workloads.workload import FIRST_SEED, RunningPods

MAX_SEEDS = 100_000
MAX_SEED = (1 << 63) - 1
MAX_RATIO = 100.0
SECONDS_OF = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
RATIO = 1.3


class Protocol(enum.StrEnum):
    """Arrival protocol."""

    INFLATION = "inflation"
    TIMED = "timed"
    ARRIVALS = "arrivals"


class AnyProtocol(enum.StrEnum):
    """Protocol of training and of a comparison: arrivals of a workload, or a generated cluster."""

    INFLATION = "inflation"
    ARRIVALS = "arrivals"
    TIMED = "timed"
    DEPLOYMENTS = "deployments"
    LATENCY = "latency"


class Format(enum.StrEnum):
    """Format of the result on standard output."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


LAST_FLAG = "steersman.last_flag"
"""Where a context keeps the repeatable option whose value came last."""


class TableOrJson(enum.StrEnum):
    """Format of a result that has no rows of one kind, as CSV would need."""

    TABLE = "table"
    JSON = "json"


class ManyValues(HelpLevels):
    """A command whose repeatable options also take several values after one flag: `--pods a b` is `--pods a --pods b`.

    For commands without positional arguments only.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the flag before every further value, then parse as usual."""
        repeatable = {flag for option in self.params if getattr(option, "multiple", False) for flag in option.opts}
        repeated = repeat_flags(args, repeatable)
        ctx.meta[LAST_FLAG] = repeated[-2] if len(repeated) > 1 and repeated[-2] in repeatable else ""
        return super().parse_args(ctx, repeated)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete the next value of a repeatable option, else options as usual."""
        for option in self.params if not incomplete.startswith("-") else ():
            if ctx.meta.get(LAST_FLAG) in option.opts:
                return option.shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


def repeat_flags(arguments: Sequence[str], repeatable: set[str]) -> list[str]:
    """Return `--pods a b` as `--pods a --pods b` for every flag in `repeatable`."""
    repeated: list[str] = []
    flag, values = "", 0
    for argument in arguments:
        if argument.startswith("-") and len(argument) > 1:
            name, equals, _ = argument.partition("=")
            flag, values = (name if name in repeatable else ""), len(equals)
        elif flag:
            if values:
                repeated.append(flag)
            values += 1
        repeated.append(argument)
    return repeated


def need_subcommand(context: typer.Context) -> None:
    """Show the help of a command group, and end as for wrong usage, if no subcommand was given."""
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")
        raise typer.Exit(UsageError.exit_status)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of `42-51` or `1,2,5-7`, in the order given; of a number alone that many, from 42 on.

    Raises:
        UsageError: anything else, a repeated seed, none, or more than 100,000 of them.
    """
    if text.strip().isdigit():
        count = _seed(text, text)
        if not 1 <= count <= MAX_SEEDS:
            raise UsageError(
                f"--seeds {text}: a number of seeds must be from 1 to {MAX_SEEDS}; for seed {count} alone "
                f"write {count}-{count}"
            )
        return tuple(range(FIRST_SEED, FIRST_SEED + count))
    seeds: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        low = _seed(text, first)
        high = _seed(text, last) if dash else low
        if high < low:
            raise UsageError(f"--seeds {text}: {part.strip()} runs backwards; write {high}-{low}")
        if high - low >= MAX_SEEDS or len(seeds) + high - low >= MAX_SEEDS:
            raise UsageError(f"--seeds {text}: more than {MAX_SEEDS} seeds")
        for seed in range(low, high + 1):
            if seed in seeds:
                raise UsageError(f"--seeds {text}: {seed} is there twice")
            seeds[seed] = None
    return tuple(seeds)


def _seed(text: str, digits: str) -> int:
    digits = digits.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or int(digits) > MAX_SEED:
        raise UsageError(
            f"--seeds {text}: {digits!r} is not a seed; expected a number of seeds, e.g. 10, or a list, e.g. 42-51,60"
        )
    return int(digits)


def check_ratio(ratio: float | None, protocol: str | None) -> float:
    """Return the ratio, or its default. Protocol None: by the data, which is read later.

    Raises:
        UsageError: it is not above 0 and at most 100, or the protocol does not use it.
    """
    if ratio is None:
        return RATIO
    if protocol not in (None, Protocol.INFLATION):
        raise UsageError(f"--ratio belongs to --protocol inflation, not to {protocol}")
    if not (math.isfinite(ratio) and 0 < ratio <= MAX_RATIO):
        raise UsageError(f"--ratio {ratio:g}: must be above 0 and at most {MAX_RATIO:g} (1.3 = 130 % of the GPUs)")
    return ratio


def check_load(load: float | None, protocol: str | None) -> float | None:
    """Return the load.

    Raises:
        UsageError: it is not above 0 and at most 100, or the protocol does not use it.
    """
    if load is not None and protocol != Protocol.TIMED:
        raise UsageError(
            f"--load belongs to --protocol timed{f', not to {protocol}' if protocol else '; give that, too'}"
        )
    if load is not None and not (math.isfinite(load) and 0 < load <= MAX_RATIO):
        raise UsageError(f"--load {load:g}: must be above 0 and at most {MAX_RATIO:g} (0.9 = 90 % of the cluster)")
    return load


def check_mean_duration(seconds: float | None, protocol: str | None) -> float | None:
    """Return the mean duration in seconds.

    Raises:
        UsageError: nothing leaves in the protocol. Without one, by data, the option is for `timed`.
    """
    if seconds is not None and protocol not in (None, Protocol.TIMED):
        raise UsageError(f"--mean-duration belongs to --protocol timed, not to {protocol}")
    return seconds


def duration_seconds(text: str) -> float:
    """Return the seconds of `90s`, `30m`, `2h` or `1.5d`; for typer, which adds the option's name to errors."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])", text.strip(), re.ASCII)
    seconds = float(match[1]) * SECONDS_OF[match[2]] if match else 0.0
    if seconds <= 0:
        raise ValueError(f"{text!r} is not a duration above 0; expected a duration such as 90s, 30m, 2h or 1.5d")
    return seconds


def running_of(pinned: bool, from_now: bool, protocol: str | None) -> RunningPods:
    """Return what to do with running pods. Protocol None: by the data, which is read later.

    Raises:
        UsageError: both are given, or the protocol does not allow one.
    """
    if pinned and from_now:
        raise UsageError("--pinned and --from-now exclude each other: with both, running pods stay; leave out one")
    if (pinned or from_now) and protocol not in (None, Protocol.INFLATION, Protocol.ARRIVALS):
        option = "--pinned" if pinned else "--from-now"
        raise UsageError(f"{option} belongs to --protocol inflation and arrivals, not to {protocol}")
    return RunningPods.PINNED if pinned else RunningPods.FROM_NOW if from_now else RunningPods.FREE


def path(text: str | Path) -> Path:
    """Return a path that is not empty: `--nodes "$FORGOTTEN"` is an error, not the current folder."""
    if not str(text).strip():
        raise ValueError("it is empty; name a file or folder")
    return Path(text)


POLICIES_HELP = (
    f"{', '.join(POLICY_NAMES)}, by telemetry {', '.join(TELEMETRY_POLICY_NAMES)}, a weighted sum such as "
    "fgd=500,gpu-packing=500, a policy file of steersman train (run/policy.safetensors), the URL of a server that "
    "scores nodes (http://localhost:5000/score), or your own as module:Class."
)
OBJECTIVES_HELP = ", ".join(OBJECTIVE_NAMES)
ObjectiveOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OBJECTIVE",
        autocompletion=objectives,
        help=f"What decides, as train rewards it: {OBJECTIVES_HELP}, or your own as module:NAME. Several, as in "
        "balance,most-allocated, are all compared, and the first decides; a weighted sum such as "
        "balance=1,most-allocated=0.5 is one. [default: the GPUs, else the CPU, allocated; in timed the mean wait]",
    ),
]
TelemetryOption = Annotated[
    Path | None,
    typer.Option(
        "--telemetry",
        parser=path,
        metavar="FILE",
        help="YAML with queries of Prometheus: ma, la, lc, p0 and policies trained with --protocol latency decide by "
        "them, and latency limits in pods' annotations apply to every policy.",
    ),
]
UncheckedOption = Annotated[
    bool,
    typer.Option(
        "--unchecked",
        help="A learned policy decides from the first pod on, without a comparison with rules on this cluster; "
        "steersman by the first of its members.",
    ),
]
NODES_HELP = "The cluster: an openb node list (CSV), or a file or folder of Kubernetes YAML."
Nodes = Annotated[Path | None, typer.Option(parser=path, metavar="FILE", help=NODES_HELP)]
Output = Annotated[
    Path,
    typer.Option(
        "--output",
        parser=path,
        metavar="FOLDER",
        help="Folder of the result files: new, empty, or with former results of this command.",
    ),
]
ProtocolOption = Annotated[
    Protocol | None,
    typer.Option(
        help="inflation: pods drawn from the trace until they request RATIO times the GPUs, none leaves. timed: "
        "pods arrive and leave by the times in the trace, and wait if they fit nowhere. "
        "arrivals: in the order of the file, none leaves. [default: inflation]"
    ),
]
ProtocolsOption = Annotated[
    AnyProtocol | None,
    typer.Option(
        help="inflation: pods drawn from the workload until they request RATIO times the GPUs, none leaves. "
        "timed: pods arrive and leave by the times in the data, and wait if they fit nowhere. "
        "arrivals: in the order of the data, none leaves. deployments: random Deployments fill a cluster, both drawn "
        "by the seed. latency: Deployments arrive and leave on a drawn cluster with telemetry, whose users have limits "
        "of latency. [default: by the data, timed and inflation where pods have times, else inflation and arrivals]"
    ),
]
Ratio = Annotated[
    float | None,
    typer.Option(help=f"inflation only: requested GPUs as a share of all GPUs. [default: {RATIO}]"),
]
Pinned = Annotated[
    bool,
    typer.Option(
        "--pinned",
        help="Kubernetes objects: running pods stay where they are, and pods drawn from them in inflation may only go "
        "to the same node. [default: they are placed again, except those of DaemonSets, static ones, and those that "
        "no other node allows, that are being deleted or whose node offers less than runs there]",
    ),
]
FromNow = Annotated[
    bool,
    typer.Option(
        "--from-now",
        help="Kubernetes objects: running pods stay where they are, then pending ones arrive, then in inflation "
        "more like them. [default: all are placed from scratch]",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Kubernetes objects in files: an invalid one is an error. [default: it is named and left out]",
    ),
]
Load = Annotated[
    float | None,
    typer.Option(
        help="timed only: requested share of the cluster, by pods that arrive at random. "
        "[default: the times in the trace]",
    ),
]
MeanDuration = Annotated[
    float | None,
    typer.Option(
        "--mean-duration",
        parser=duration_seconds,
        metavar="TIME",
        help="timed only: mean duration (exponential) of pods without an end: 90s, 30m, 2h, 1.5d. "
        "[default: to the end, with --load 1h]",
    ),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Number of processes; results do not depend on it. [default: all cores]")
]
FORMAT_HELP = "Format of the result on standard output."
FormatOption = Annotated[Format, typer.Option("--format", help=FORMAT_HELP)]
TableOrJsonOption = Annotated[TableOrJson, typer.Option("--format", help=FORMAT_HELP)]
