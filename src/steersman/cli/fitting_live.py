"""`steersman schedule --fit`: a process beside the scheduler that fits a policy to the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from steersman.cli.logs import LogFormat, LogLevel, configure_logs
from steersman.errors import SteersmanError
from steersman.kube.config import KubeConfig
from steersman.processes import background_process
from steersman.training.live_fit import LiveFit, fit_beside

log = structlog.get_logger("fit")


@contextmanager
def fitting(
    file: Path, seconds: float, config: KubeConfig, log_format: LogFormat, log_level: LogLevel
) -> Iterator[None]:
    """Fit a policy to a cluster meanwhile; the process ends when it is done, or with this block."""

    def tell(status: int) -> None:
        if status:
            log.error("the process that fits a policy died; scheduling goes on", status=status)

    with background_process(tell, _work, LiveFit(file, seconds), config, log_format, log_level):
        yield


def _work(plan: LiveFit, config: KubeConfig, log_format: LogFormat, log_level: LogLevel) -> None:
    configure_logs(log_format, log_level)
    try:
        fit_beside(plan, config)
    except SteersmanError as error:
        log.error("no policy was fitted; scheduling goes on", error=str(error))
