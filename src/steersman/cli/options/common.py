"""Options that several commands share: how they are spelled, parsed and explained."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from steersman.cli.completing import OBJECTIVE_NAMES, minors, objectives, orders, policies
from steersman.cli.options.declaring import MORE, advanced, option
from steersman.core.engines import Engine
from steersman.core.errors import UsageError
from steersman.workloads.workload import FIRST_SEED

HELP_ALL = "--help-all"
SHOWS_ALL, IS_BRIEF = "steersman.shows_all", "steersman.is_brief"
"""Keys of a context: whether all options were asked for, and whether brief help is being printed."""


class HelpLevels(TyperCommand):
    """A command whose `--help` has the first sentences and no options of a panel; `--help-all` has everything."""

    def get_help_option_names(self, ctx: Any) -> list[str]:
        return sorted([*super().get_help_option_names(ctx), HELP_ALL])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note which help was asked for, and parse as usual."""
        ctx.meta[SHOWS_ALL] = HELP_ALL in args
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all parameters, while the brief help is printed those that it shows."""
        params = super().get_params(ctx)
        if not ctx.meta.get(IS_BRIEF):
            return params
        basic: list[Any] = [
            copy(each) for each in params if each.required or not getattr(each, "rich_help_panel", None)
        ]
        for each in basic:
            each.help = first_sentence(each.help or "")
        return basic

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if ctx.meta.get(SHOWS_ALL):
            super().format_help(ctx, formatter)
            return
        whole, mode = self.help, self.rich_markup_mode
        ctx.meta[IS_BRIEF] = True
        self.epilog = f"More options: {ctx.command_path} {HELP_ALL}"
        first, *others = (whole or "").split("\n\n")
        example = next((i for i, each in enumerate(others) if each.startswith("**Example")), len(others))
        self.help = "\n\n".join([first, *others[example : example + 1]]).replace("**", "")
        self.rich_markup_mode = None  # without boxes, which leave a third of 80 columns to the texts
        try:
            super().format_help(ctx, formatter)
        finally:
            self.help, self.epilog, self.rich_markup_mode = whole, None, mode
            del ctx.meta[IS_BRIEF]


def first_sentence(text: str) -> str:
    """Return the first sentence of a help text, and the default that it states."""
    default = re.search(r" \[default: [^\[]*\]$", text)
    return re.split(r"(?<=[^.]\.)(?<!e\.g\.) |;? \[|; ", text)[0].replace("**", "") + (default[0] if default else "")


def _need_subcommand(context: typer.Context) -> None:
    """Show the help of a command group, and end as for wrong usage, if no subcommand was given."""
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")
        raise typer.Exit(UsageError.exit_status)


class CommandGroup(typer.Typer):
    """A group of commands, all of which have `HelpLevels`."""

    def __init__(self, **further: Any) -> None:
        needed: dict[str, Any] = {"callback": _need_subcommand, "invoke_without_command": True}
        names = {"help_option_names": ["-h", "--help"]}
        super().__init__(rich_markup_mode="markdown", context_settings=names, **(needed | further))

    def command(self, name: str | None = None, *, cls: Any = HelpLevels, **further: Any) -> Any:
        return super().command(name, cls=cls, **further)


MAX_SEEDS = 100_000
MAX_SEED = (1 << 63) - 1


class Format(enum.StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"


LAST_FLAG = "steersman.last_flag"  # where a context keeps the repeatable option whose value came last


class TableOrJson(enum.StrEnum):
    """Format of a result that has no rows of one kind, as CSV would need."""

    TABLE = "table"
    JSON = "json"


class ManyValues(HelpLevels):
    """A command whose repeatable options also take several values after one flag: `--pods a b` is `--pods a --pods b`.

    For commands without positional arguments only.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        repeatable = {flag for option in self.params if getattr(option, "multiple", False) for flag in option.opts}
        repeated = repeat_flags(args, repeatable)
        # The last argument is a value of this flag, so a further value may follow without one.
        ctx.meta[LAST_FLAG] = repeated[-2] if len(repeated) > 1 and repeated[-2] in repeatable else ""
        return super().parse_args(ctx, repeated)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        for each in self.params if not incomplete.startswith("-") else ():
            if ctx.meta.get(LAST_FLAG) in each.opts:
                return each.shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


def repeat_flags(arguments: Sequence[str], repeatable: set[str]) -> list[str]:
    """Return `--pods a b` as `--pods a --pods b` for every flag in `repeatable`."""
    repeated: list[str] = []
    flag, values = "", 0
    for argument in arguments:
        if argument.startswith("-") and len(argument) > 1:
            name, equals, _ = argument.partition("=")
            # `--pods=a` has its first value already, so the next one needs the flag again.
            flag, values = (name if name in repeatable else ""), len(equals)
        elif flag:
            if values:
                repeated.append(flag)
            values += 1
        repeated.append(argument)
    return repeated


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of `42-51` or `1,2,5-7`, in the order given; of a number alone that many, from 42 on."""
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
        # Before the loop: `1-9999999999999` would take all memory.
        if high - low >= MAX_SEEDS or len(seeds) + high - low >= MAX_SEEDS:
            raise UsageError(f"--seeds {text}: more than {MAX_SEEDS} seeds")
        for seed in range(low, high + 1):
            if seed in seeds:
                raise UsageError(f"--seeds {text}: {seed} is there twice")
            seeds[seed] = None
    return tuple(seeds)


def _seed(text: str, digits: str) -> int:
    digits = digits.strip()
    # Python refuses to convert texts of thousands of digits.
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or int(digits) > MAX_SEED:
        raise UsageError(
            f"--seeds {text}: {digits!r} is not a seed; expected a number of seeds, e.g. 10, or a list, e.g. 42-51,60"
        )
    return int(digits)


def path(text: str | Path) -> Path:
    """Return a path that is not empty: `--nodes "$FORGOTTEN"` is an error, not the current folder."""
    if not str(text).strip():
        raise ValueError("it is empty; name a file or folder")
    return Path(text)


def path_option(text: str, *flags_and_rules: Any, metavar: str = "FILE", **further: Any) -> Any:
    return option(text, *flags_and_rules, parser=path, metavar=metavar, **further)


advanced_path = partial(path_option, rich_help_panel=MORE)


POLICIES_HELP = (
    "a name of 'steersman policy list', a file or a URL. A file: of 'steersman train' or 'fit policy' "
    "(mine.safetensors, my-rule.txt), or a KubeSchedulerConfiguration. A URL: of a server that scores nodes "
    "(http://localhost:5000/score). A sum such as fgd=500,gpu-packing=500, and your own as module:Class."
)
ORDERS_HELP = "a name of 'steersman policy list', such as wfp3:easy, or a file. A file: an order, or a policy with one."


def policy_option(text: str, more: str = "", *rules: Any, **further: Any) -> Any:
    return option(f"{text}: {POLICIES_HELP}{more}", *rules, metavar="POLICY", autocompletion=policies, **further)


def order_option(text: str, more: str = "", *rules: Any, **further: Any) -> Any:
    return option(f"{text}: {ORDERS_HELP}{more}", *rules, metavar="ORDER", autocompletion=orders, **further)


KubernetesOption = Annotated[
    str | None,
    advanced(
        "Minor of Kubernetes as whose kube-scheduler kube-default, stock-tuned and configurations decide; "
        "POLICY@MINOR is one of another minor. [default: that of a live cluster, else the newest of 1.34 to 1.37]",
        metavar="MINOR",
        autocompletion=minors,
    ),
]
OBJECTIVES_HELP = ", ".join(OBJECTIVE_NAMES)
ObjectiveOption = Annotated[
    list[str] | None,
    option(
        f"What decides. As train rewards it: {OBJECTIVES_HELP}, or your own as module:NAME. Several, as in "
        "balance,most-allocated, are all compared, and the first decides; a weighted sum such as "
        "balance=1,most-allocated=0.5 is one. [default: the GPUs, else the CPU, allocated; in timed the mean wait]",
        metavar="OBJECTIVE",
        autocompletion=objectives,
    ),
]
TelemetryOption = Annotated[
    Path | None,
    advanced_path(
        "YAML with queries of Prometheus: ma, la, lc, p0 and policies trained with --protocol latency decide by "
        "them, and latency limits in pods' annotations apply to every policy."
    ),
]
LiveOrderOption = Annotated[
    str | None,
    order_option(
        "Order of the pods that wait, after their priority",
        " The oracle is for simulations alone. [default: that of the policy, else age]",
    ),
]
UncheckedOption = Annotated[
    bool,
    advanced(
        "A learned policy decides from the first pod on, without a comparison with rules on this cluster; "
        "steersman by the first of its members."
    ),
]
NODES_HELP = "Nodes: an openb list (CSV), or a file or folder of Kubernetes YAML."
Output = Annotated[Path, path_option("Folder of the results: new, empty, or with earlier ones.", metavar="FOLDER")]
Jobs = Annotated[int | None, advanced("Number of processes; results do not depend on it. [default: all cores]", min=1)]
EngineOption = Annotated[
    Engine,
    advanced(
        "local: processes on this machine. ray: workers of the Ray cluster at $RAY_ADDRESS, host:port; without that "
        "one on this machine; needs the extra ray. Results are the same.",
        metavar="ENGINE",
    ),
]
FORMAT_HELP = "Format of the result on standard output."
FormatOption = Annotated[Format, option(FORMAT_HELP, "--format")]
TableOrJsonOption = Annotated[TableOrJson, option(FORMAT_HELP, "--format")]

MaxKindLoss = Annotated[
    float | None,
    advanced(
        "Most that any kind of pod (no GPU, a share, one, several) may lose: percentage points of its pods that fail, "
        "or with --protocol timed percent of its mean wait. [default: no limit]",
        min=0,
        metavar="PERCENT",
    ),
]
