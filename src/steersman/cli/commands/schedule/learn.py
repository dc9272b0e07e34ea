"""`steersman schedule --learn`: background process that continues to train the active policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from steersman.apps.learner.learner import LivePlan, init_run, learn_beside
from steersman.apps.load.target import ClusterTarget
from steersman.apps.runtime.decoding import (
    read_nodes,
)
from steersman.cli.options.cluster import run_with_client
from steersman.cli.output.logs import LogOptions
from steersman.core.errors import SteersmanError
from steersman.core.processes import background_process
from steersman.kubernetes.config import KubeConfig

log = structlog.get_logger("learning")


def prepare(target: ClusterTarget, policy: str, scheduler_name: str, folder: Path) -> tuple[LivePlan, Path]:
    """Return the plan of the training and the policy file to schedule by, which the training overwrites.

    Raises:
        SteersmanError: the policy cannot be trained further, or not in that folder.
    """
    plan = LivePlan(Path(policy), scheduler_name)
    return plan, init_run(plan, folder, run_with_client(target, read_nodes))


@contextmanager
def learning(plan: LivePlan, folder: Path, config: KubeConfig, logs: LogOptions) -> Iterator[None]:
    """Learn from the scheduler's decisions in a background process, in a folder from `prepare`."""

    def on_exit(_: int) -> None:
        log.error("the learning process has ended; scheduling continues with the last policy", folder=str(folder))

    with background_process(on_exit, _learn, plan, folder, config, logs):
        yield


def _learn(plan: LivePlan, folder: Path, config: KubeConfig, logs: LogOptions) -> None:
    logs.of_process("learn").configure()
    try:
        learn_beside(plan, folder, config)
    except SteersmanError as error:
        log.error("learning ended", error=str(error))
