"""`steersman schedule --fit`: background process that fits a policy to the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from steersman.apps.learner.fitter import fit_in_background
from steersman.cli.output.logs import LogOptions
from steersman.core.errors import SteersmanError
from steersman.core.processes import background_process
from steersman.kubernetes.config import KubeConfig

log = structlog.get_logger("fit")


@contextmanager
def fitting(file: Path, generations: int | None, config: KubeConfig, logs: LogOptions) -> Iterator[None]:
    """Fit a policy in a background process, which ends when it is done or with this block."""

    def on_exit(status: int) -> None:
        if status:
            log.error("the process that fits a policy died; scheduling continues", status=status)

    with background_process(on_exit, _fit, file, generations, config, logs):
        yield


def _fit(file: Path, generations: int | None, config: KubeConfig, logs: LogOptions) -> None:
    logs.of_process("fit").configure()
    try:
        fit_in_background(file, generations, config)
    except SteersmanError as error:
        log.error("no policy was fitted; scheduling continues", error=str(error))
