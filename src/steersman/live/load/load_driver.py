"""Deployments that fill and clear a live cluster, as an object: of `workload run`, notebooks and trials of agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path

from steersman.core.errors import UsageError
from steersman.kubernetes.client import Client
from steersman.live.load.commands import RunTarget, fill, resume_fill
from steersman.live.load.driver import FillOptions, FillStats
from steersman.live.load.live_cluster import ClusterTarget, run_client
from steersman.live.load.run_state import Report, clean
from steersman.live.runtime.tasks import StopRequest
from steersman.workloads.generators.deployments import DeploymentSettings
from steersman.workloads.workload import FIRST_SEED


@dataclass(slots=True)
class LoadDriver:
    """Creator of random Deployments on a live cluster, which are cleared at their load and created again.

    `run` blocks until all is done or another thread calls `stop`; `done` and `total` count steps meanwhile.

    Raises:
        UsageError: `pods` is below 0; or steersman did not start the cluster, and `yes` is False.
    """

    target: ClusterTarget
    settings: DeploymentSettings  # which Deployments are drawn, up to which load, and how often
    fill_options: FillOptions  # how they are created
    seeds: Sequence[int] = (FIRST_SEED,)  # with each of them the cluster is filled `settings.resets` times
    namespace: str = "default"
    output: Path | None = None  # CSV of the run
    pods: int = 0  # fill it until so many pods were created instead; 0: as often as above
    report: Report = lambda _, __: None  # progress
    say: Callable[[str], None] = lambda _: None  # messages
    yes: InitVar[bool] = False  # whether the cluster may be one that steersman did not start
    # `done`, `total`: number of steps, which are creations and deletions of Deployments
    done: int = field(default=0, init=False)
    total: int = field(default=0, init=False)
    _stop: StopRequest = field(default_factory=StopRequest, init=False)

    def __post_init__(self, yes: bool) -> None:
        if self.pods < 0:
            raise UsageError(f"pods must be at least 0, not {self.pods}")
        self.target.require_consent("create and delete Deployments", yes=yes)

    def run(self, *, resume: bool = False) -> FillStats | None:
        """Return what was created; None after `stop`. `resume` continues a run that was stopped.

        Raises:
            SteersmanError: the namespace has a run already, or none to resume, or the cluster does not answer.
        """

        async def play(client: Client) -> FillStats | None:
            place = RunTarget(client, self.namespace, self.say)
            if resume:
                return await self._stop.run(resume_fill(place, self.output, self._progressed))
            return await self._stop.run(
                fill(place, self.settings, self.seeds, self.fill_options, self.output, self._progressed, pods=self.pods)
            )

        return run_client(self.target, play)

    def stop(self) -> None:
        """Make `run` return; what it created stays until it is resumed or `clean` is called."""
        self._stop.set()

    def clean(self) -> int:
        """Delete what `steersman workload` created in the cluster, and return the number of pods."""
        return run_client(self.target, lambda client: clean(client, self.report))

    def _progressed(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        self.report(done, total)
