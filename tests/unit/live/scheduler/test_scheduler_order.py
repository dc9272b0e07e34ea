"""A scheduler with an order: who gets the room that becomes free, and what it learns of run times."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from tests.support.errors import check_text, raises
from tests.support.kubeconfig import UNREACHABLE
from tests.support.virtual_scheduler import VirtualScheduler, in_event_loop
from tests.unit.kubernetes.cache.test_cluster_cache import node, pod, raw

from steersman.cli.main import main
from steersman.cluster.model import Pod, PodClass, Requests
from steersman.cluster.objects.decoding import ESTIMATE_KEY
from steersman.core.errors import SteersmanError, UsageError
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.client import ApiError, Client, Listed, UnreachableError
from steersman.live.scheduler import run_times
from steersman.live.scheduler.run_times import RunTimeFile, RunTimeObserver, open_run_times
from steersman.orders.run_time_history import EVERY_POD, RunTimeHistory


def made(order: str) -> VirtualScheduler:
    """A scheduler with an order, on two nodes of 4 CPUs that are full."""
    world = VirtualScheduler(order)
    for name in ("n0", "n1"):
        world.cache.upsert_node(raw(node(name, cpu=4)))
        world.cache.upsert_pod(raw(pod(f"full-{name}", cpu="4", on=name)))
    return world


def add(world: VirtualScheduler, name: str, cpu: int, seconds: float | None = None, **spec: Any) -> None:
    obj: dict[str, Any] = pod(name, cpu=str(cpu), **spec)
    if seconds is not None:
        obj["metadata"].setdefault("annotations", {})[ESTIMATE_KEY] = f"{seconds:g}"
    world.cache.upsert_pod(raw(obj))


@in_event_loop
def test_a_pod_is_tried_without_an_annotation_that_makes_no_sense() -> None:
    world = made("shortest")
    obj: dict[str, Any] = pod("hours", cpu="4")
    obj["metadata"].setdefault("annotations", {})[ESTIMATE_KEY] = "2h"
    world.cache.upsert_pod(raw(obj))
    assert world.tried() == ["hours"]
    said = world.reports.told[0]
    assert said[0] == "default/hours"
    assert said[1].startswith(f"AnnotationIgnored: annotation {ESTIMATE_KEY}: '2h' is not a number")


def waiting(world: VirtualScheduler) -> set[str]:
    return {each.pod.name for each in world.cache.pods.values() if not each.node}


@in_event_loop
def test_freed_node_goes_to_the_shortest_pod() -> None:
    """Of different sizes and classes, and though all of them have just been tried."""
    world = made("shortest")
    for name, cpu, seconds in (("long", 4, 1000.0), ("short", 3, 10.0), ("middle", 2, 100.0)):
        add(world, name, cpu, seconds)
    assert world.tried() == ["short", "middle", "long"]
    world.cache.delete_pod("default/full-n0")
    assert world.tried()[0] == "short"
    assert waiting(world) == {"long", "middle"}
    world.cache.delete_pod("default/full-n1")
    assert world.tried()[0] == "middle"
    assert waiting(world) == {"long"}


@in_event_loop
def test_namespace_with_least_running_goes_first() -> None:
    """With `fair` a pod counts for its namespace as soon as it has a node, and no more once it is gone."""
    world = made("fair")
    world.cache.delete_pod("default/full-n0")  # default still runs 4 of 8 CPUs
    for name, namespace, cpu in (
        ("d", "default", 1),
        ("a1", "a", 2),
        ("a2", "a", 1),
        ("b1", "b", 1),
        ("b2", "b", 1),
    ):
        obj: dict[str, Any] = pod(name, cpu=str(cpu))
        obj["metadata"]["namespace"] = namespace
        world.cache.upsert_pod(raw(obj))
    # a1 is the oldest of a and b; then b has nothing, 1/8, and a 2/8; the node is full then.
    assert world.tried() == ["a1", "b1", "b2", "a2", "d"]
    assert waiting(world) == {"a2", "d"}
    world.cache.delete_pod("default/full-n1")
    for name in ("b1", "b2"):
        world.cache.delete_pod(f"b/{name}")
    assert world.tried() == ["d", "a2"]


@in_event_loop
def test_sizes_are_those_of_the_cluster_at_the_first_pop() -> None:
    """Pods are queued before nodes are known; memory then counts as much as it is of the cluster."""
    world = made("largest")
    add(world, "small", 1)
    add(world, "large", 2)
    assert world.tried() == ["large", "small"]
    assert world.queue.ordering is not None
    assert world.queue.ordering.order.size.cpus == 8


@in_event_loop
def test_nobody_overtakes_but_by_priority() -> None:
    """With fcfs a small pod waits behind a large one; one that no node can ever take blocks nobody."""
    world = made("fcfs")
    world.cache.delete_pod("default/full-n0")
    add(world, "most", 3)
    add(world, "impossible", 64)
    add(world, "large", 4)
    add(world, "small", 1)
    assert world.tried() == ["most", "impossible", "large"]
    add(world, "urgent", 1, priority=9)
    assert world.tried() == ["urgent"]
    assert waiting(world) == {"impossible", "large", "small"}
    world.cache.delete_pod("default/full-n1")
    assert world.tried()[:2] == ["large", "small"]
    assert waiting(world) == {"impossible", "small"}
    world.cache.delete_pod("default/urgent")
    assert world.tried()[0] == "small"
    assert waiting(world) == {"impossible"}


@in_event_loop
def test_gated_pod_is_not_ordered() -> None:
    """It is in no queue, so that it blocks nobody, until its gate is removed."""
    world = made("fcfs")
    world.cache.delete_pod("default/full-n0")
    gated = pod("gated", cpu="4", schedulingGates=[{"name": "later"}])
    world.cache.upsert_pod(raw(gated))
    add(world, "small", 1)
    assert world.tried() == ["small"]
    assert len(world.queue) == 1
    world.cache.upsert_pod(raw(pod("gated", cpu="4", generation=2)))
    assert world.tried() == ["gated"]


# Run times ----------------------------------------------------------------------------------------------------------


def plain_pod(name: str) -> Pod:
    return Pod(name, PodClass(Requests(cpu_milli=100)))


class Observed:
    """A scheduler's cache whose pods' run times are observed, with a clock."""

    def __init__(self, history: RunTimeHistory) -> None:
        self.now = 1_000_000.0
        self.errors: list[tuple[str, float]] = []
        self.firsts: list[bool] = []
        self.history = history
        self.observer = RunTimeObserver(history, lambda source, error: self.errors.append((source, error)), self.time)

    def time(self) -> float:
        return self.now

    def runs(self, name: str, seconds: float, *, stated: float | None = None, owner: str = "", uid: str = "") -> None:
        model = replace(plain_pod(name), owner=owner, estimated_seconds=stated)
        cached = CachedPod(f"default/{name}", uid or name, model, 1)
        self.observer.bound(cached)
        cached.started = self.now
        self.now += seconds
        self.firsts.append(self.observer.ended(cached))


def test_error_of_estimates_is_measured_by_source() -> None:
    """Twice as long as stated is an error of 1; a second end tells nothing new."""
    observed = Observed(RunTimeHistory())
    for _ in range(30):
        observed.runs("a", 100.0)
    observed.errors.clear()
    observed.runs("b", 200.0, stated=100.0)
    observed.runs("c", 100.0, stated=400.0)
    found = dict(observed.errors[:2])
    assert found["stated"] == 1.0
    assert 0.4 < found["history"] < 1.6
    assert ("stated", 2.0) in observed.errors
    assert observed.history.ended == 32


def test_run_time_counts_from_the_start_that_the_kubelet_states() -> None:
    """A pod that was bound before we watched is known from its start on, and tells nothing of our estimates."""
    observed = Observed(RunTimeHistory())
    cached = CachedPod("default/x", "x", plain_pod("x"), 1, started=observed.now - 5000.0)
    observed.observer.bound(cached)
    observed.observer.bound(cached)
    observed.now += 3192.0
    assert observed.observer.ended(cached) is False
    observed.observer.ended(CachedPod("default/pending", "pending", plain_pod("pending"), 1))
    assert observed.errors == []
    assert observed.history.counts(EVERY_POD).nonzero()[0].tolist() == [26], "8192 s"
    assert observed.history.ended == 1


def test_first_end_of_an_owner_is_told() -> None:
    """The queue orders the owner's other pods anew then."""
    observed = Observed(RunTimeHistory())
    for name in ("a", "b"):
        observed.runs(name, 10.0, owner="Job/x")
    observed.runs("c", 10.0)
    assert observed.firsts == [True, False, False]


def test_cache_tells_when_pods_started() -> None:
    """The start is that of the status; nonsense is none."""
    world = made("shortest")
    for name, stamp in (("right", "2026-11-27T01:00:00Z"), ("wrong", "soon")):
        obj: dict[str, Any] = pod(name, on="n0", phase="Running")
        obj["status"]["startTime"] = stamp
        world.cache.upsert_pod(raw(obj))
    assert world.cache.pods["default/right"].started == 1795741200.0
    assert world.cache.pods["default/wrong"].started is None


class Listing:
    """A client that lists pods, and then fails."""

    def __init__(self, *pods: dict[str, Any], error: SteersmanError | None = None) -> None:
        self.pods, self.error = pods, error

    async def pages(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Listed]:
        assert query["fieldSelector"] == run_times.FINISHED
        yield Listed([raw(each) for each in self.pods], "1")
        if self.error is not None:
            raise self.error


def ended(name: str, seconds: int = 1000) -> dict[str, Any]:
    """Return a pod that began at 01:00 and ended after so many seconds."""
    obj: dict[str, Any] = pod(name, uid=name, on="n0", phase="Succeeded")
    end = datetime(2026, 11, 27, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    state = {"terminated": {"finishedAt": f"{end:%Y-%m-%dT%H:%M:%SZ}"}}
    obj["status"] |= {"startTime": "2026-11-27T01:00:00Z", "containerStatuses": [{"state": {}}, {"state": state}]}
    return obj


def learned(world: VirtualScheduler, client: Listing, after: float = 0.0) -> tuple[RunTimeHistory, list[str]]:
    """Return what is learned from pods that ended before, and the owners whose first pods these are."""
    history, firsts = RunTimeHistory(), list[str]()
    observer = RunTimeObserver(history, lambda *_: None, learns_from_ended=True)
    observer.ended(CachedPod("default/a3", "a3", plain_pod("a3"), 1))
    learning = observer.learn_from_ended(
        cast(Client, client), world.cache, after, lambda first: firsts.append(first.owner)
    )
    asyncio.run(learning)
    return history, firsts


def test_pods_that_ended_before_teach_at_the_start() -> None:
    """Those that are watched, that do not say when they ran, or that a file knows, teach nothing."""
    world = made("shortest")
    world.cache.upsert_pod(raw(pod("watched", uid="watched", on="n0", phase="Running")))
    silent, backwards = ended("silent"), ended("backwards", -5)
    del silent["status"]["containerStatuses"]
    listing = Listing(ended("a1"), ended("a2"), ended("a3"), ended("watched"), silent, backwards, ended("early", 10))
    history, firsts = learned(world, listing, after=1795741200.0 + 60)
    assert history.ended == 2
    assert history.counts(EVERY_POD).nonzero()[0].tolist() == [19], "1,000 s"
    assert firsts == ["ReplicaSet/a"]


@pytest.mark.parametrize("error", [ApiError(403, "GET /", "Forbidden", ""), UnreachableError("GET /: no answer")])
def test_a_failed_list_of_ended_pods_is_logged(error: SteersmanError) -> None:
    """Half of a list would be a biased sample."""
    with capture_logs() as logged:
        history, _ = learned(made("shortest"), Listing(ended("a"), error=error))
    assert history.ended == 0
    assert [line["event"] for line in logged if line["log_level"] == "warning"] == [
        "run times of pods that ended before are unknown"
    ]


def test_restart_keeps_estimates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is created at the start, written at most once a minute, and once more at the end."""
    monkeypatch.setattr(run_times, "WRITE_SECONDS", 0.05)
    file = tmp_path / "state" / "run-times.json"
    observed = Observed(open_run_times(file))

    async def main() -> None:
        keeping = asyncio.create_task(RunTimeFile(file, observed.history).keep())
        await asyncio.sleep(0.01)
        assert open_run_times(file).ended == 0
        assert file.exists()
        observed.runs("a", 100.0, owner="Job/x")
        async with asyncio.timeout(10):
            while open_run_times(file).ended == 0:
                await asyncio.sleep(0.01)
        for _ in range(10):
            observed.runs("a", 100.0, owner="Job/x")
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    asyncio.run(main())
    again = open_run_times(file)
    assert again.ended == 11
    assert again.estimate(plain_pod("b")) == observed.history.estimate(plain_pod("b"))


def keep(keeper: RunTimeFile) -> None:
    """Keep a file for a moment, as a scheduler does that ends at once."""

    async def main() -> None:
        keeping = asyncio.create_task(keeper.keep())
        await asyncio.sleep(0)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    asyncio.run(main())


def test_what_is_learned_before_the_file_is_kept_is_written_at_once(tmp_path: Path) -> None:
    """Its time says until when it is complete."""
    file = tmp_path / "run-times.json"
    for ended in (1, 2):
        history = open_run_times(file)
        keeper = RunTimeFile(file, history)
        history.note(plain_pod("a"), 5.0)
        keep(keeper)
        assert open_run_times(file).ended == ended


def test_file_that_cannot_be_written_is_logged_once(tmp_path: Path) -> None:
    """And it is tried again."""
    folder = tmp_path / "state"
    file, history = folder / "run-times.json", RunTimeHistory()
    folder.write_text("not a folder")
    keeper = RunTimeFile(file, history)
    history.note(plain_pod("a"), 5.0)
    with capture_logs() as logged:
        for _ in range(2):
            keep(keeper)
    assert [entry["event"] for entry in logged] == ["run times not written"]
    folder.unlink()
    keep(keeper)
    assert json.loads(file.read_text())["run_times"] == 2


def test_foreign_file_of_run_times_is_refused(tmp_path: Path) -> None:
    """It may be something that somebody needs."""
    file = tmp_path / "pods.json"
    file.write_text('{"kind": "List"}')
    with raises(UsageError, file, "--run-times"):
        open_run_times(file)
    with raises(UsageError, "--run-times", tmp_path):
        open_run_times(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--policy", "fgd", "--order", "soonest"),
        ("--policy", "fgd+easy@oracle"),
        ("--policy", "fgd", "--order", "shortest@oracle"),
        ("--policy", "fgd+shortest", "--order", "area"),
        ("--policy", "fgd+shortest", "--shadow"),
        ("--policy", "fgd", "--shadow", "--order", "shortest"),
        ("--policy", "fgd", "--order", "shortest", "--run-times", "foreign.json"),
    ],
)
def test_command_refuses_what_no_live_queue_can_follow(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, before the cluster is asked."""
    monkeypatch.chdir(tmp_path)
    Path("kubeconfig").write_text(UNREACHABLE)
    Path("foreign.json").write_text("[1, 2]")
    assert main(["schedule", "--kubeconfig", "kubeconfig", *arguments]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    check_text(lines[0])
