"""`steersman fit`: its commands."""

from __future__ import annotations

from steersman.cli.commands.fit.order import order
from steersman.cli.commands.fit.policy import policy
from steersman.cli.commands.fit.scheduler import scheduler
from steersman.cli.options.common import CommandGroup

app = CommandGroup(
    help="Fit a policy, an order of waiting pods, or kube-scheduler's configuration to nodes and pods.",
)
for command in (policy, order, scheduler):
    app.command()(command)
