"""`steersman workload record`: watches a scheduler at work, and writes what it did as data to learn from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from steersman.cluster.model import Pod
from steersman.errors import SteersmanError
from steersman.features import View
from steersman.kube.cache import ClusterCache
from steersman.kube.client import Client
from steersman.live.journal import Entry, Journal, PodEvent
from steersman.live.running import Background
from steersman.live.transitions import save, transitions
from steersman.objectives.registry import Mix
from steersman.workloads.files import new_folder
from steersman.workloads.kubernetes import write_nodes, write_pods

TRANSITIONS, NODES, PODS = "transitions.npz", "nodes.yaml", "pods.yaml"


@dataclass(frozen=True, slots=True)
class Written:
    """How many transitions, nodes and pods were written, and how many decisions had to be left out."""

    transitions: int
    nodes: int
    pods: int
    left_out: int


async def watch(
    client: Client,
    scheduler_name: str,
    decisions: int,
    seconds: float | None,
    report: Callable[[int], None],
    started: Callable[[], None] = lambda: None,
) -> Journal:
    """What happens until a scheduler has taken so many decisions, or time is up, or this is cancelled.

    Args:
        client: of the cluster.
        scheduler_name: whose decisions count.
        decisions: at most.
        seconds: at most; None: any.
        report: told how many decisions were seen.
        started: called when the cluster was listed: from then on no decision is missed.

    Raises:
        SteersmanError: we may not look at nodes and pods.
    """
    enough = asyncio.Event()

    def count(done: int) -> None:
        report(done)
        if done >= decisions:
            enough.set()

    journal = Journal(scheduler_name, count)
    cache = ClusterCache(client, journal)
    journal.state = lambda: cache.state
    # Being cancelled is how a recording usually ends; nothing is lost by it.
    with suppress(TimeoutError, asyncio.CancelledError):
        async with Background(*(reflector.run() for reflector in cache.reflectors)), asyncio.timeout(seconds):
            for reflector in cache.reflectors:
                await reflector.synced.wait()
            started()
            await enough.wait()
    return journal


def write(journal: Journal, view: View, objective: Mix, output: Path) -> Written:
    """Write a journal into a new folder: the transitions, and the nodes and pods as a workload.

    Args:
        journal: what happened.
        view: what agents see.
        objective: what they are rewarded for.
        output: the folder.

    Raises:
        SteersmanError: there was no decision that another one followed.
        InputError: the folder is there already, or cannot be written.
    """
    found = transitions(journal.entries, journal.scheduler_name, view)
    with new_folder(output) as folder:
        count = save(found, objective, folder / TRANSITIONS)
        if not count:
            seen = f"{journal.decisions} decisions of {journal.scheduler_name!r} were seen"
            raise SteersmanError(f"{seen}; two that follow on each other are needed, so nothing is written")
        pods = lives(journal.entries, journal.scheduler_name)
        write_nodes(found.nodes.values(), folder / NODES)
        write_pods(pods, folder / PODS)
    return Written(count, len(found.nodes), len(pods), found.left_out)


def lives(entries: Sequence[Entry], scheduler_name: str) -> list[Pod]:
    """The pods of a scheduler, with times as in a trace: when they came, and how long they ran once they were bound.

    A pod that comes back under its name is told apart by a number.
    """
    made: list[Pod] = []
    there: dict[str, tuple[int, float]] = {}
    names: dict[str, int] = {}
    start: float | None = None
    for entry in entries:
        event = entry.event
        if not isinstance(event, PodEvent) or event.pod.scheduler_name != scheduler_name:
            continue
        start = entry.time if start is None else start
        if event.gone:
            i, bound = there.pop(event.key, (-1, 0.0))
            if i >= 0:
                made[i] = replace(made[i], deletion_time=(made[i].creation_time or 0.0) + entry.time - bound)
        elif event.key not in there:
            names[event.key] = names.get(event.key, 0) + 1
            life = f"-{names[event.key]}" if names[event.key] > 1 else ""
            there[event.key] = len(made), entry.time
            made.append(replace(event.pod, name=event.pod.name + life, creation_time=entry.time - start))
        elif event.node:
            there[event.key] = there[event.key][0], entry.time
    return made
