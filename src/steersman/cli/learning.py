"""`steersman schedule --learn`: a process beside the scheduler that goes on training the policy in use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from steersman.cli.cluster_options import ask_cluster
from steersman.cli.logs import LogFormat, LogLevel, configure_logs
from steersman.errors import SteersmanError
from steersman.kube.config import KubeConfig
from steersman.live.reading import read_nodes
from steersman.live.target import Target
from steersman.processes import background_process
from steersman.training.live import LivePlan, begin, learn_beside

log = structlog.get_logger("learning")


def prepare(target: Target, policy: str, scheduler_name: str, folder: Path) -> tuple[LivePlan, Path]:
    """What is to be learned, and the policy file that is to be used meanwhile, which changes.

    Raises:
        SteersmanError: the policy cannot go on learning, or not in that folder.
    """
    plan = LivePlan(Path(policy), scheduler_name)
    return plan, begin(plan, folder, ask_cluster(target, read_nodes))


@contextmanager
def learning(
    plan: LivePlan, folder: Path, config: KubeConfig, log_format: LogFormat, log_level: LogLevel
) -> Iterator[None]:
    """Learn from a scheduler's decisions meanwhile, in a folder that was prepared."""

    def tell(_: int) -> None:
        log.error("the learning process has ended; scheduling goes on with the last policy", folder=str(folder))

    with background_process(tell, _work, plan, folder, config, log_format, log_level):
        yield


def _work(plan: LivePlan, folder: Path, config: KubeConfig, log_format: LogFormat, log_level: LogLevel) -> None:
    configure_logs(log_format, log_level)
    try:
        learn_beside(plan, folder, config)
    except SteersmanError as error:
        log.error("learning ended", error=str(error))
