"""`steersman schedule --fit`: background process that fits a policy to the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from steersman.apps.learner.fitter import LiveFit, fit_beside
from steersman.cli.output.logs import LogFormat, LogLevel, configure_logs
from steersman.core.errors import SteersmanError
from steersman.core.processes import background_process
from steersman.kubernetes.config import KubeConfig

log = structlog.get_logger("fit")


@contextmanager
def fitting(
    file: Path, seconds: float, config: KubeConfig, log_format: LogFormat, log_level: LogLevel
) -> Iterator[None]:
    """Fit a policy in a background process, which ends when it is done or with this block."""

    def on_exit(status: int) -> None:
        if status:
            log.error("the process that fits a policy died; scheduling continues", status=status)

    with background_process(on_exit, _fit, LiveFit(file, seconds), config, log_format, log_level):
        yield


def _fit(plan: LiveFit, config: KubeConfig, log_format: LogFormat, log_level: LogLevel) -> None:
    configure_logs(log_format, log_level)
    try:
        fit_beside(plan, config)
    except SteersmanError as error:
        log.error("no policy was fitted; scheduling continues", error=str(error))
