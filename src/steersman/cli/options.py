"""Options that several commands share: how they are spelled, parsed and explained."""

from __future__ import annotations

import enum
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from steersman.errors import UsageError
from steersman.workloads.workload import Running

MAX_SEEDS = 100_000
MAX_SEED = (1 << 63) - 1
MAX_RATIO = 100.0
SECONDS_OF = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
RATIO = 1.3


class Protocol(enum.StrEnum):
    """How pods arrive and leave."""

    INFLATION = "inflation"
    TIMED = "timed"
    ARRIVALS = "arrivals"


class Format(enum.StrEnum):
    """How the result is printed on standard output."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


class ManyValues(TyperCommand):
    """A command whose repeatable options also take several values after one flag: `--pods a b` is `--pods a --pods b`.

    For commands without positional arguments only.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the flag before every further value, then parse as usual."""
        repeatable = {flag for option in self.params if getattr(option, "multiple", False) for flag in option.opts}
        return super().parse_args(ctx, repeat_flags(args, repeatable))


def repeat_flags(arguments: Sequence[str], repeatable: set[str]) -> list[str]:
    """`--pods a b` as `--pods a --pods b` for every flag in `repeatable`."""
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
    """Of a command that has sub-commands: show its help and end as for wrong usage if none was given."""
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")
        raise typer.Exit(UsageError.exit_status)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds of `42-51`, `42` or `1,2,5-7`, in the order given.

    Raises:
        UsageError: anything else, a seed that is there twice, or more than 100,000 of them.
    """
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
        raise UsageError(f"--seeds {text}: {digits!r} is no seed; write 42, 42-51 or 1,2,5-7")
    return int(digits)


def check_ratio(ratio: float | None, protocol: Protocol | None) -> float:
    """The ratio itself if it is one, the usual one if there is none. Protocol None: by the data, which is seen later.

    Raises:
        UsageError: it is not above 0 and at most 100, or the protocol has no use for it.
    """
    if ratio is None:
        return RATIO
    if protocol not in (None, Protocol.INFLATION):
        raise UsageError(f"--ratio belongs to --protocol inflation, not to {protocol}")
    if not (math.isfinite(ratio) and 0 < ratio <= MAX_RATIO):
        raise UsageError(f"--ratio {ratio:g}: must be above 0 and at most {MAX_RATIO:g} (1.3 = 130 % of the GPUs)")
    return ratio


def check_load(load: float | None, protocol: Protocol | None) -> float | None:
    """The load itself if it is one.

    Raises:
        UsageError: it is not above 0 and at most 100, or the protocol has no use for it.
    """
    if load is not None and protocol is not Protocol.TIMED:
        raise UsageError(
            f"--load belongs to --protocol timed{f', not to {protocol}' if protocol else '; give that, too'}"
        )
    if load is not None and not (math.isfinite(load) and 0 < load <= MAX_RATIO):
        raise UsageError(f"--load {load:g}: must be above 0 and at most {MAX_RATIO:g} (0.9 = 90 % of the cluster)")
    return load


def check_mean_duration(seconds: float | None, protocol: Protocol | None) -> float | None:
    """Return the mean duration if the protocol has a use for it.

    Raises:
        UsageError: nothing leaves in the protocol. Without one, by data, it is `timed` that the option is for.
    """
    if seconds is not None and protocol not in (None, Protocol.TIMED):
        raise UsageError(f"--mean-duration belongs to --protocol timed, not to {protocol}")
    return seconds


def duration_seconds(text: str) -> float:
    """Return the seconds of `90s`, `30m`, `2h` or `1.5d`; for typer, which tells the option's name with the error."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])", text.strip(), re.ASCII)
    seconds = float(match[1]) * SECONDS_OF[match[2]] if match else 0.0
    if seconds <= 0:
        raise ValueError(f"{text!r} is no duration above 0; such as 90s, 30m, 2h or 1.5d are right")
    return seconds


def running_of(pinned: bool, from_now: bool, protocol: str | None) -> Running:
    """Return what becomes of pods that run. Protocol None: by the data, which is seen later.

    Raises:
        UsageError: both are given, or the protocol has no now.
    """
    if pinned and from_now:
        raise UsageError("--pinned and --from-now exclude each other: pods that stand go nowhere; leave out one")
    if from_now and protocol not in (None, Protocol.INFLATION, Protocol.ARRIVALS):
        raise UsageError(f"--from-now belongs to --protocol inflation and arrivals, not to {protocol}")
    return Running.PINNED if pinned else Running.FROM_NOW if from_now else Running.FREE


def default_jobs() -> int:
    """As many processes as this one may use cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def path(text: str | Path) -> Path:
    """A path that is not empty: `--nodes "$FORGOTTEN"` is a mistake, not the current folder. Defaults are paths."""
    if not str(text).strip():
        raise ValueError("it is empty; name a file or folder")
    return Path(text)


POLICIES_HELP = (
    "random, dot-product, gpu-clustering, gpu-packing, best-fit, fgd, least-allocated, most-allocated, "
    "balanced-allocation, greedy-forecast, kube-default, steersman, by telemetry ma, la, lc, p0, a mix such as "
    "fgd=500,gpu-packing=500, a policy file of steersman train (run/policy.safetensors), or your own as module:Class."
)
TelemetryOption = Annotated[
    Path | None,
    typer.Option(
        "--telemetry",
        parser=path,
        metavar="FILE",
        help="YAML that says what to ask which Prometheus: ma, la, lc and p0 decide by it, and limits of latency in "
        "pods' annotations are kept, whoever decides.",
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
        help="Where the result files go: a new folder, an empty one, or one of former results of this command.",
    ),
]
ProtocolOption = Annotated[
    Protocol | None,
    typer.Option(
        help="inflation: pods drawn from the trace until they ask for RATIO times the GPUs, none leaves. "
        "timed: pods come and go by the times in the trace and wait if there is no room. "
        "arrivals: in the order of the file, none leaves. [default: inflation]"
    ),
]
ProtocolsOption = Annotated[
    Protocol | None,
    typer.Option(
        help="inflation: pods drawn from the workload until they ask for RATIO times the GPUs, none leaves. "
        "timed: pods come and go by the times in the data and wait if there is no room. "
        "arrivals: in the order of the data, none leaves. [default: by the data, timed and inflation where pods have "
        "times, else inflation and arrivals]"
    ),
]
Ratio = Annotated[
    float | None,
    typer.Option(help=f"inflation only: GPUs asked for, as a share of the GPUs there are. [default: {RATIO}]"),
]
Pinned = Annotated[
    bool,
    typer.Option(
        "--pinned",
        help="Of Kubernetes objects: pods that run may only go to the node on which they run. [default: they are "
        "placed anew, but for those of DaemonSets, static ones and those that no other node allows]",
    ),
]
FromNow = Annotated[
    bool,
    typer.Option(
        "--from-now",
        help="Of Kubernetes objects: pods that run stand where they are, then those that wait come, then in inflation "
        "more like them. [default: all are placed from scratch]",
    ),
]
Load = Annotated[
    float | None,
    typer.Option(
        help="timed only: pods arrive at random moments, so often that they ask for this share of the cluster. "
        "[default: the times in the trace]",
    ),
]
MeanDuration = Annotated[
    float | None,
    typer.Option(
        "--mean-duration",
        parser=duration_seconds,
        metavar="TIME",
        help="timed only: pods whose data state no end run so long in the mean (exponential): 90s, 30m, 2h, 1.5d. "
        "[default: to the end, with --load 1h]",
    ),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Processes. The results do not depend on it. [default: all cores]")
]
FormatOption = Annotated[Format, typer.Option("--format", help="What to print on standard output.")]
