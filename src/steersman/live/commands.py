"""What `steersman workload run` and `replay` do, from what they are told to what is left in the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from steersman.cluster.model import Pod
from steersman.errors import SteersmanError
from steersman.kube.client import Client
from steersman.live import filling, replay
from steersman.live.cleaning import delete_pods
from steersman.live.driver import Driver, Manner, RowLog, planned_seconds
from steersman.live.driver import Tally as RowTally
from steersman.live.filling import Filling
from steersman.live.objects import IMAGE, check_name, selector
from steersman.live.reading import read_room
from steersman.live.replay import Pace, Replay, Tally
from steersman.live.state import Kind, RemovedError, RunState, StateStore, new_id
from steersman.workloads.deployments import ADD, Row, Settings

T = TypeVar("T")

Report = Callable[[int, int], None]
OTHER_FILES = "these are not the pods (or not the --speed or --rate) of the replay that was stopped"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a workload goes.

    Attributes:
        client: of the cluster.
        namespace: of its state, and of its Deployments.
        say: told in a line what is about to be done.
    """

    client: Client
    namespace: str
    say: Callable[[str], None] = lambda _: None

    @property
    def store(self) -> StateStore:
        """Where its state is."""
        return StateStore(self.client, self.namespace)


async def fill(
    place: Place, settings: Settings, seeds: Sequence[int], manner: Manner, output: Path | None, report: Report
) -> RowTally:
    """Fill and clear a cluster. Raises SteersmanError: there is a run, it cannot be done, or the API refuses."""
    plan = Filling(settings, tuple(seeds), await read_room(place.client), manner)
    rows = plan.rows()
    return await _play(place, plan.state(rows), rows, manner, output, report)


async def fill_on(place: Place, output: Path | None, report: Report) -> RowTally:
    """Go on with filling a cluster. Raises SteersmanError: there is no such run."""
    store, state = await stopped(place, "run")
    plan = Filling.of(state)
    rows = plan.rows()
    filling.check_digest(state, filling.digest(rows), filling.OTHER_VERSION)
    return await _drive(place, store, state, rows, plan.manner, output, report)


async def replay_rows(
    place: Place, rows: Sequence[Row], manner: Manner, file: str, report: Report, *, resume: bool
) -> RowTally:
    """Play the Deployments of a CSV. Raises SteersmanError: as above; InputError: a name that Kubernetes refuses."""
    for number, row in enumerate(rows, start=2):
        check_name(row.name, file, f"line {number}")
    if not resume:
        state = RunState("replay", new_id(), filling.digest(rows), {}, len(rows))
        return await _play(place, state, rows, manner, None, report)
    store, state = await stopped(place, "replay")
    filling.check_digest(state, filling.digest(rows), OTHER_FILES)
    return await _drive(place, store, state, rows, manner, None, report)


async def replay_pods(
    place: Place,
    pods: Sequence[Pod],
    pace: Pace,
    report: Report,
    *,
    image: str = IMAGE,
    resume: bool,
    create_namespaces: bool = False,
) -> Tally:
    """Play pods, in namespaces that are made first if that is meant. Raises SteersmanError: as above."""
    timed = replay.timed(pods, pace)
    store = place.store
    if resume:
        store, state = await stopped(place, "replay")
        filling.check_digest(state, replay.digest(timed), OTHER_FILES)
    else:
        state = RunState("replay", new_id(), replay.digest(timed), {}, len(timed))
    player = Replay(place.client, store, state, timed, image, report)
    await player.check_namespaces(create=create_namespaces)
    if not resume:
        await store.begin(state)
    namespaces = {each.pod.namespace for each in timed}
    return await _cleaned_if_removed(place.client, state, namespaces, player.run())


async def stopped(place: Place, kind: Kind) -> tuple[StateStore, RunState]:
    """The run that was stopped. Raises SteersmanError: there is none, or it is of the other command."""
    store = place.store
    state = await store.load()
    if state is None:
        raise SteersmanError(f"no workload was stopped in namespace {place.namespace!r}; leave out --resume")
    if state.kind != kind:
        raise SteersmanError(
            f"what was stopped in namespace {place.namespace!r} is a workload {state.kind}: "
            f"'steersman workload {state.kind} --resume' goes on with it"
        )
    return store, state


async def _play(
    place: Place,
    state: RunState,
    rows: Sequence[Row],
    manner: Manner,
    output: Path | None,
    report: Report,
) -> RowTally:
    """Begin to play rows."""
    store = place.store
    await store.begin(state)
    return await _drive(place, store, state, rows, manner, output, report)


async def _drive(
    place: Place,
    store: StateStore,
    state: RunState,
    rows: Sequence[Row],
    manner: Manner,
    output: Path | None,
    report: Report,
) -> RowTally:
    try:
        log = RowLog(output, rows[: state.done])
    except SteersmanError:
        if not state.done:
            await store.end()
        raise
    place.say(_plan(rows, manner, state.done))
    driver = Driver(place.client, store, state, rows, manner, log, report)
    return await _cleaned_if_removed(place.client, state, {place.namespace}, driver.run())


def _plan(rows: Sequence[Row], manner: Manner, done: int) -> str:
    """Say what is to be done and how long that takes."""
    left = [row for row in rows[done:] if row.action == ADD]
    seconds = planned_seconds(rows, manner, done)
    time = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return (
        f"{len(left)} Deployments of {sum(row.pod_count for row in left)} pods are to come: at least {time}, longer "
        "where pods wait for nodes (--interval, --wait, --patience)"
    )


async def _cleaned_if_removed(client: Client, state: RunState, namespaces: Iterable[str], playing: Awaitable[T]) -> T:
    """Play; of a run that is removed meanwhile nothing is left, not what it made after that either."""
    try:
        return await playing
    except RemovedError:
        for namespace in sorted(namespaces):
            await delete_pods(client, namespace, selector(state.id), lambda _, __: None)
        raise
