"""`steersman top`: what goes on in a live cluster."""

from __future__ import annotations

import asyncio
import enum
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.cluster_options import ClusterName, Context, Kubeconfig, ask_cluster, find_cluster
from steersman.cli.display import print_table, said_if_slow
from steersman.errors import SteersmanError, UsageError

if TYPE_CHECKING:
    from steersman.live.target import Target
    from steersman.live_view.render import Choice


class Sort(enum.StrEnum):
    """What nodes are sorted by."""

    NAME = "name"
    CPU = "cpu"
    MEMORY = "memory"
    PODS = "pods"
    GPU = "gpu"


def top(
    once: Annotated[bool, typer.Option("--once", help="Print it once, as plain text, and end.")] = False,
    sort: Annotated[Sort, typer.Option(help="Sort nodes by name, or by what is fullest.")] = Sort.NAME,
    pattern: Annotated[
        str, typer.Option("--filter", metavar="TEXT", help="Only nodes with this in their name, GPU model or state.")
    ] = "",
    name: ClusterName = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Watch the nodes of a live cluster: what pods ask for of each, how many pods wait, how fast they are bound.

    Bars are requested of allocatable. Keys: n, c, m, p, g sort by name, CPU, memory, pods, GPUs (again: the other way
    round), / filters, q ends.
    """
    from steersman.live_view.render import Choice

    target = find_cluster(kubeconfig, context, name)
    choice = Choice(sort.value, pattern=pattern)
    if once:
        _once(target, choice)
    elif not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("this is no terminal; 'steersman top --once' prints plain text")
    else:
        _watch(target, choice)


def _once(target: Target, choice: Choice) -> None:
    from steersman.kube.client import Client
    from steersman.live_view import render
    from steersman.live_view.model import ClusterView
    from steersman.live_view.watching import Leader, leaders, look_once

    async def look(client: Client) -> tuple[ClusterView, list[Leader]]:
        return await look_once(client), await leaders(client)

    with said_if_slow("reading nodes and pods"):
        view, found = ask_cluster(target, look)
    rows = choice.of(view.rows())
    for line in render.heading(view, _title(target), None, found, len(rows)):
        print(line)
    print_table(render.once_table(rows, _blocks()))


def _watch(target: Target, choice: Choice) -> None:
    """Show it until the user ends it. Raises SteersmanError: what else ended it."""
    from steersman.kube.client import Client
    from steersman.live_view.app import TopApp

    async def show(client: Client) -> str | None:
        problem = await TopApp(client, _title(target), choice, _blocks()).run_async()
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # by a signal; textual ends well and keeps it to itself
            raise asyncio.CancelledError
        return problem

    if (problem := ask_cluster(target, show)) is not None:
        raise SteersmanError(problem)


def _title(target: Target) -> str:
    return target.config.context or target.config.cluster.server


def _blocks() -> str:
    """What bars are made of where the output's encoding has no blocks."""
    from steersman.live_view.render import ASCII, BLOCKS

    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return ASCII
    return BLOCKS
