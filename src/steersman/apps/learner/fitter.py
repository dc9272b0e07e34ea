"""Process beside the scheduler that fits a policy to a snapshot of the cluster and writes a policy file.

It shares only the file with the scheduler, which loads it as soon as it exists.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import structlog

from steersman.apps.recorder import snapshot
from steersman.apps.runtime.comparison import NICENESS, PolicyReloader, basis_of, stored_basis
from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeConfig
from steersman.policies.files.policy_file import write_policy
from steersman.policies.registry import packaged_portfolio
from steersman.training.search.fit import FITTED, Fit, FitOptions, fit
from steersman.workloads.workload import Workload

RETRY_INTERVAL_SECONDS = 15.0
"""Interval of snapshots of a cluster that has too few pods yet or is unreachable."""

log = structlog.get_logger("fit")


def fit_in_background(file: Path, generations: int | None, config: KubeConfig) -> None:
    """Wait until the cluster has enough pods, fit a policy once, and write it if it is shown to be better.

    It must be better than every candidate that it is compared with. Returns at once if the file holds a policy that was
    fitted to an equal cluster. Without `generations` the search is as long as the cluster's size suggests.
    """
    os.nice(NICENESS)
    while True:
        workload = _take_snapshot(config)
        if workload is not None:
            now = basis_of(workload.nodes, [pod.pod_class for pod in workload.pods])
            if file.exists() and stored_basis(PolicyReloader(str(file)), now) is not None:
                log.info("the policy file is fitted to this cluster already", file=str(file))
                return
            if not now.skip_reason:
                break
            log.debug("a policy cannot be fitted yet", why=now.skip_reason)
        time.sleep(RETRY_INTERVAL_SECONDS)
    start = packaged_portfolio()
    log.info("fitting", nodes=len(workload.nodes), pods=len(workload.pods))
    began = time.monotonic()
    fitted = fit(workload, start, FitOptions(generations=generations))
    if fitted.chosen == FITTED:
        write_policy(file, fitted.card, fitted.arrays)
    _log_result(fitted, time.monotonic() - began, file)


def _take_snapshot(config: KubeConfig) -> Workload | None:

    async def take() -> Workload:
        async with Client(config) as client:
            return await snapshot.take_snapshot(client, "the cluster", free=True)

    try:
        return asyncio.run(take())
    except SteersmanError as error:
        log.info("a policy cannot be fitted yet", why=str(error))
        return None


def _log_result(result: Fit, seconds: float, file: Path) -> None:
    figures = {
        "gain": round(result.gain, 3),
        "interval": [round(result.interval.low, 3), round(result.interval.high, 3)],
        "rival": result.rival,
        "best": [f"{candidate.name} {candidate.mean:.2f} %" for candidate in result.compared[:3]],
        "draws": len(result.compared[0].costs),
        "generations": result.generations,
        "seconds": round(seconds, 1),
    }
    if result.chosen == FITTED:
        log.info("the fitted policy is better and is kept", file=str(file), **figures)
    else:
        log.info("the fitted policy is not shown to be better; the present policy stays in use", **figures)
