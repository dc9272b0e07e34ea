"""Implementation of `steersman workload run` and `replay`, from options to the state left in the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from steersman.cluster.model import Pod
from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import Client
from steersman.live.load import driver, replay
from steersman.live.load.replay import PodReplay, ReplaySpeed, ReplayStats
from steersman.live.load.run_state import (
    IMAGE,
    Kind,
    RemovedError,
    Report,
    RunState,
    StateStore,
    check_name,
    delete_pods,
    new_id,
    selector,
)
from steersman.workloads.generators.deployments import ADD, DeploymentSettings, Row

T = TypeVar("T")

OTHER_FILES = "these are not the pods (or not the --speed or --rate) of the replay that was stopped"


@dataclass(frozen=True, slots=True)
class RunTarget:
    """Cluster and namespace of a run."""

    client: Client
    namespace: str
    say: Callable[[str], None] = lambda _: None

    @property
    def store(self) -> StateStore:
        return StateStore(self.client, self.namespace)


async def fill(
    place: RunTarget,
    settings: DeploymentSettings,
    seeds: Sequence[int],
    fill_options: driver.FillOptions,
    output: Path | None,
    report: Report,
    pods: int = 0,  # see `FillPlan`
) -> driver.FillStats:
    """Fill and clear a cluster. Raises SteersmanError: a run exists already, it cannot be done, or the API refuses."""
    plan = driver.FillPlan(settings, tuple(seeds), await driver.read_capacity(place.client), fill_options, pods)
    rows, store = plan.rows(), place.store
    state = plan.state(rows)
    await store.begin(state)
    return await _drive(place, store, state, rows, fill_options, output, report)


async def resume_fill(place: RunTarget, output: Path | None, report: Report) -> driver.FillStats:
    """Resume filling a cluster. Raises SteersmanError: there is no such run."""
    store, state = await stopped(place, "run")
    plan = driver.FillPlan.of(state)
    rows = plan.rows()
    driver.check_digest(state, driver.digest(rows), driver.OTHER_VERSION)
    return await _drive(place, store, state, rows, plan.fill_options, output, report)


async def replay_rows(
    place: RunTarget, rows: Sequence[Row], fill_options: driver.FillOptions, file: str, report: Report, *, resume: bool
) -> driver.FillStats:
    """Replay the Deployments of a CSV. Raises SteersmanError: as `fill`; InputError: Kubernetes would refuse a name."""
    for number, row in enumerate(rows, start=2):
        check_name(row.name, file, f"line {number}")
    digest = driver.digest(rows)
    if resume:
        store, state = await stopped(place, "replay")
        driver.check_digest(state, digest, OTHER_FILES)
    else:
        store, state = place.store, RunState("replay", new_id(), digest, {}, len(rows))
        await store.begin(state)
    return await _drive(place, store, state, rows, fill_options, None, report)


async def replay_pods(
    place: RunTarget,
    pods: Sequence[Pod],
    pace: ReplaySpeed,
    report: Report,
    *,
    image: str = IMAGE,
    resume: bool,
    create_namespaces: bool = False,
) -> ReplayStats:
    """Replay pods, in namespaces that are created first if `create_namespaces`. Raises SteersmanError: as `fill`."""
    timed = replay.scheduled_pods(pods, pace)
    store = place.store
    if resume:
        store, state = await stopped(place, "replay")
        driver.check_digest(state, replay.digest(timed), OTHER_FILES)
    else:
        state = RunState("replay", new_id(), replay.digest(timed), {}, len(timed))
    player = PodReplay(place.client, store, state, timed, image, report)
    # Before the state is stored: a run that cannot begin must leave nothing to resume.
    await player.check_namespaces(create=create_namespaces)
    if not resume:
        await store.begin(state)
    namespaces = {each.pod.namespace for each in timed}
    return await _cleaned_if_removed(place.client, state, namespaces, player.run())


async def stopped(place: RunTarget, kind: Kind) -> tuple[StateStore, RunState]:
    """Return the stopped run and its store. Raises SteersmanError: there is none, or it is of the other command."""
    store = place.store
    state = await store.load()
    if state is None:
        raise SteersmanError(f"no workload was stopped in namespace {place.namespace!r}; leave out --resume")
    if state.kind != kind:
        raise SteersmanError(
            f"what was stopped in namespace {place.namespace!r} is a workload {state.kind}: "
            f"'steersman workload {state.kind} --resume' continues it"
        )
    return store, state


async def _drive(
    place: RunTarget,
    store: StateStore,
    state: RunState,
    rows: Sequence[Row],
    fill_options: driver.FillOptions,
    output: Path | None,
    report: Report,
) -> driver.FillStats:
    try:
        log = driver.RowLog(output, rows[: state.done])
    except SteersmanError:
        # Nothing was created yet, so there is nothing to resume.
        if not state.done:
            await store.end()
        raise
    place.say(_plan(rows, fill_options, state.done))
    generator = driver.DeploymentLoadGenerator(place.client, store, state, rows, fill_options, log, report, place.say)
    return await _cleaned_if_removed(place.client, state, {place.namespace}, generator.run())


def _plan(rows: Sequence[Row], fill_options: driver.FillOptions, done: int) -> str:
    left = [row for row in rows[done:] if row.action == ADD]
    seconds = driver.planned_seconds(rows, fill_options, done)
    time = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return (
        f"{len(left)} Deployments of {sum(row.pod_count for row in left)} pods are to come: at least {time}, longer "
        "where pods wait for nodes (--interval, --wait, --patience)"
    )


async def _cleaned_if_removed(client: Client, state: RunState, namespaces: Iterable[str], playing: Awaitable[T]) -> T:
    """Await a run; if it is removed meanwhile, delete what it created after that, too."""
    try:
        return await playing
    except RemovedError:
        for namespace in sorted(namespaces):
            await delete_pods(client, namespace, selector(state.id), lambda _, __: None)
        raise
