"""Help in two levels: `--help` of a command with many options shows those that matter, `--help-all` all of them."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

HELP_ALL = "--help-all"
BRIEF = {
    "train": "algorithm network protocol objective workload nodes cluster output iterations minutes seed resume",
    "tune": "algorithm network protocol objective workload nodes cluster output trials minutes seed jobs resume",
    "evaluate": "policy output nodes pods workload cluster seeds protocol objective baseline fit output_format resume",
    "schedule": "policy scheduler_name shadow output telemetry learn algorithm network objective kubeconfig context",
    "run": "cpu_load memory_load pod_load cluster_resets scheduler_name interval output resume clean kubeconfig yes",
}
"""Command -> parameters that `--help` shows; those with more than 25 options are here. `run` is `workload run`."""
ALL, IS_BRIEF = "steersman.help_all", "steersman.is_brief"
"""Keys of a context: whether all options were asked for, and whether brief help is being printed."""


class HelpLevels(TyperCommand):
    """A command whose `--help` shows the parameters of `BRIEF`, if it is there."""

    def get_help_option_names(self, ctx: Any) -> list[str]:
        """Return the names of the help option, in a fixed order."""
        return sorted([*super().get_help_option_names(ctx), *([HELP_ALL] if self.name in BRIEF else [])])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note which help was asked for, and parse as usual."""
        ctx.meta[ALL] = HELP_ALL in args
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all parameters, while the brief help is printed those that it shows."""
        params = super().get_params(ctx)
        if not ctx.meta.get(IS_BRIEF):
            return params
        return [each for each in params if each.name in BRIEF[self.name or ""].split() or HELP_ALL in each.opts]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if self.name not in BRIEF or ctx.meta.get(ALL):
            super().format_help(ctx, formatter)
            return
        hidden = len(self.params) - len(BRIEF[self.name].split())
        self.epilog = f"{HELP_ALL} shows {hidden} more options."
        ctx.meta[IS_BRIEF] = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self.epilog = None
            del ctx.meta[IS_BRIEF]
