"""Events that say when waiting pods are expected to start: what is told, what is not, and that nothing waits for it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.support.errors import raises
from typer.testing import CliRunner

from steersman.cli.commands.schedule import check_predictable, starts_of
from steersman.cli.main import app
from steersman.cluster.model import Pod, PodClass, Requests
from steersman.core.errors import SteersmanError, UsageError
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.events import ObjectReference
from steersman.live.http_policy.scheme import register_http_policies
from steersman.live.scheduler.wait_events import MOST_EVENTS, PredictedStart, WaitEvents
from steersman.policies.registry import resolve
from steersman.simulation.prediction.prediction import ExpectedStart, QueuePrediction

WEEK = 7 * 86_400.0


def cached(name: str, node: str = "", scheduler: str = "steersman") -> CachedPod:
    model = Pod(name, PodClass(Requests(cpu_milli=1000)), scheduler_name=scheduler)
    return CachedPod(f"default/{name}", f"uid-{name}", model, 1, node=node)


def start(name: str, p50: float, p10: float | None = None, p90: float | None = None) -> PredictedStart:
    low, high = p50 / 2 if p10 is None else p10, 2 * p50 if p90 is None else p90
    return PredictedStart(f"default/{name}", low, p50, high, WEEK)


class Story:
    """A writer of events over some pods, at a time that the test sets."""

    def __init__(self, *pods: CachedPod) -> None:
        self.now, self.told, self.due = 0.0, list[tuple[str, str]](), True
        self.answers: list[Callable[[], Sequence[PredictedStart]]] = []
        self.pods = {each.key: each for each in pods}
        self.events = WaitEvents(
            self.predict, 0.001, self.pods, "steersman", lambda: self.due, self.recorder(), lambda: self.now
        )

    async def predict(self) -> Sequence[PredictedStart]:
        return self.answers.pop(0)()

    def recorder(self) -> Any:
        story = self

        class Recorder:
            def record(self, about: ObjectReference, reason: str, note: str, *, action: str) -> None:
                assert (reason, action) == ("StartPredicted", "Scheduling")
                assert about.uid == f"uid-{about.name}"
                story.told.append((about.name, note))

        return Recorder()

    def tell(self, *starts: PredictedStart) -> list[str]:
        """Return the names of the pods whose events these predictions write."""
        del self.told[:]
        self.events.tell(starts)
        return [name for name, _ in self.told]


def test_event_says_three_quantiles() -> None:
    """A sentence with the median and two quantiles, of which some may be beyond the horizon."""
    story = Story(cached("a"), cached("b"), cached("c"))
    story.tell(start("a", 720.0, 180.0, 3600.0), start("b", 60.0, 0.0, math.inf), start("c", *3 * (math.inf,)))
    assert story.told == [
        ("a", "Expected to start in 12 min (between 3 min and 1 h in 80 % of the simulated futures)."),
        ("b", "Expected to start in 1 min (between 0 s and more than 7 d in 80 % of the simulated futures)."),
        ("c", "Expected to start in more than 7 d."),
    ]


def test_only_waiting_pods_of_ours_are_told() -> None:
    """Pods that run by now, are gone, or belong to another scheduler get no event."""
    story = Story(cached("runs", node="n"), cached("other", scheduler="default-scheduler"), cached("waits"))
    assert story.tell(*(start(name, 60.0) for name in ("runs", "other", "gone", "waits"))) == ["waits"]


def test_nearly_the_same_start_is_not_told_again() -> None:
    """An event counts from when it was written: a pod that starts as foretold gets no other one."""
    story = Story(cached("a"))
    assert story.tell(start("a", 1000.0)) == ["a"]
    story.now = 900.0
    assert story.tell(start("a", 100.0)) == []
    assert story.tell(start("a", 150.0)) == []
    assert story.tell(start("a", 400.0)) == ["a"]
    assert story.tell(start("a", math.inf)) == ["a"]
    assert story.tell(start("a", math.inf)) == []
    assert story.tell(start("a", 400.0)) == ["a"]
    story.pods["default/a"].uid = "uid-a"
    # A pod that waited no longer for a while begins anew.
    assert story.tell() == []
    assert story.tell(start("a", 400.0)) == ["a"]


def test_events_of_one_prediction_are_bounded() -> None:
    """The pods that go first are told now, the others by later predictions."""
    names = [f"p{i}" for i in range(MOST_EVENTS + 5)]
    story = Story(*map(cached, names))
    starts = [start(name, 1000.0) for name in names]
    assert story.tell(*starts) == names[:MOST_EVENTS]
    assert story.tell(*starts) == names[MOST_EVENTS:]


def test_failed_predictions_do_not_end_it() -> None:
    """What goes wrong is logged, and the next prediction is asked for; none is while nothing waits."""

    def fails() -> Sequence[PredictedStart]:
        raise SteersmanError("the process died")

    story = Story(cached("a"))
    story.answers = [fails, fails, lambda: [start("a", 60.0)]]

    async def run() -> None:
        task = asyncio.create_task(story.events.run())
        while story.answers:
            await asyncio.sleep(0.001)
        story.due = False
        await asyncio.sleep(0.02)
        assert not task.done()
        task.cancel()

    asyncio.run(run())
    assert [name for name, _ in story.told] == ["a"]


def test_pods_that_can_never_start_have_no_prediction() -> None:
    """Their event FailedScheduling says why."""
    pods = (
        ExpectedStart("default/a", 0, 1.0, "1 CPU", impossible="no node has 99 GPUs"),
        ExpectedStart("default/b", 0, 1.0, "1 CPU", 1.0, 2.0, 3.0, 0.0),
    )
    assert starts_of(QueuePrediction("fgd", "age", WEEK, 50, pods)) == [
        PredictedStart("default/b", 1.0, 2.0, 3.0, WEEK)
    ]


def test_policy_of_a_server_is_not_simulated() -> None:
    """Each simulated decision would ask the server."""
    register_http_policies()
    with raises(UsageError, "http://localhost:5000/score"):
        check_predictable(resolve("http://localhost:5000/score"), "http://localhost:5000/score")
    check_predictable(resolve("fgd"), "fgd")


@pytest.mark.parametrize(
    "arguments",
    [["--predict-waits", "60", "--shadow"], ["--predict-waits", "1"], ["--predict-waits", "60", "--learn", "x"]],
)
def test_option_is_for_a_scheduler_that_does_not_learn(arguments: list[str]) -> None:
    """A shadow writes no events, an agent cannot be simulated, and a prediction takes seconds."""
    result = CliRunner().invoke(app, ["schedule", "--policy", "fgd", *arguments])
    assert result.exit_code != 0
    assert "--predict-waits" in result.output + str(result.exception)
