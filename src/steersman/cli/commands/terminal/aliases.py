"""`steersman aliases`: the names of AAML's commands for commands of ours."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from steersman.cli.commands.terminal.shells import Shell, current_shell

ALIASES = {
    "runsim": "steersman workload run",
    "rundqn": "steersman schedule --learn live/dqn --algorithm dqn --network mlp",
    "rungnn": "steersman schedule --learn live/gnn --algorithm dqn --network gnn",
    "runacdqn": "steersman schedule --learn live/acdqn --algorithm actor-critic --network mlp",
    "runacgnn": "steersman schedule --learn live/acgnn --algorithm actor-critic --network gnn",
    "create_nodes": "steersman cluster nodes add --node-shape 64cpu,256Gi,110pods",
    "cleancluster": "steersman cluster clean",
    "ktop": "steersman top",
    "k": "steersman cluster kubectl",
    "kg": "steersman cluster kubectl get",
    "kgn": "steersman cluster kubectl get nodes",
    "kgp": "steersman cluster kubectl get pods",
    "kge": "steersman cluster kubectl get events --sort-by=.metadata.creationTimestamp",
    "kd": "steersman cluster kubectl describe",
    "kdp": "steersman cluster kubectl describe pod",
    "kdel": "steersman cluster kubectl delete",
    "kl": "steersman cluster kubectl logs",
    "aliases": "steersman aliases",
}
"""AAML's names. An agent learns in a folder of its own, so that `tensorboard --logdir live` shows them side by side."""


def aliases(
    shell: Annotated[Shell | None, typer.Option(help="Syntax of the aliases. [default: that of $SHELL]")] = None,
) -> None:
    """Print aliases with the names of AAML's commands: runsim, rundqn, rungnn, cleancluster, ktop, kgp, ...

    Further options may follow, as in **rundqn --hidden 128,64** and **runsim -h**. kubectl's shortcuts use the cluster
    of 'steersman cluster up'.

    **In bash and zsh**: eval "$(steersman aliases)"

    **In fish**: steersman aliases | source
    """
    equals = " " if (shell or current_shell()) is Shell.FISH else "="
    for name, command in ALIASES.items():
        print(f"alias {name}{equals}{shlex.quote(command)}")
