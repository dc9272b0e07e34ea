"""Fit a policy to a live cluster: a process beside the scheduler that looks at it once and writes a policy file.

It never talks to the scheduler, which uses the file as soon as it is there.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from steersman.errors import SteersmanError
from steersman.kube.client import Client
from steersman.kube.config import KubeConfig
from steersman.live import snapshot
from steersman.live.comparison import NICENESS, basis_of, fitted_basis
from steersman.live.policy_file import PolicyFile
from steersman.policies.policy_file import write_policy
from steersman.policies.registry import shipped_portfolio
from steersman.training.fit import FITTED, Fit, Options, fit
from steersman.workloads.workload import Workload

LOOK_SECONDS = 15.0
"""Between looks at a cluster that has too few pods yet, or cannot be looked at."""

log = structlog.get_logger("fit")


@dataclass(frozen=True, slots=True)
class LiveFit:
    """What is fitted.

    Attributes:
        file: to be written, once a fitted policy is shown to be better than every rule.
        seconds: of the search.
    """

    file: Path
    seconds: float


def fit_beside(plan: LiveFit, config: KubeConfig) -> None:
    """Wait until the cluster has pods to fit a policy to, fit it once, and write it if it is kept.

    Nothing is fitted where the file holds a policy that was fitted to such a cluster already.

    Raises:
        SteersmanError: the file is no policy or cannot be written.
    """
    os.nice(NICENESS)
    while True:
        workload = _look(config)
        if workload is not None:
            now = basis_of(workload.nodes, [pod.pod_class for pod in workload.pods])
            if plan.file.exists() and fitted_basis(PolicyFile(str(plan.file)), now) is not None:
                log.info("the policy is fitted to this cluster already", file=str(plan.file))
                return
            if not now.obstacle:
                break
            log.debug("nothing to fit a policy to yet", why=now.obstacle)
        time.sleep(LOOK_SECONDS)
    start = shipped_portfolio()
    log.info("fitting", nodes=len(workload.nodes), pods=len(workload.pods), seconds=plan.seconds)
    began = time.monotonic()
    found = fit(workload, start, Options(seconds=plan.seconds))
    if found.chosen == FITTED:
        write_policy(plan.file, found.card, found.arrays)
    _report(found, time.monotonic() - began, plan.file)


def _look(config: KubeConfig) -> Workload | None:
    """The cluster as it is; None: it cannot be looked at, or has no nodes or pods."""

    async def take() -> Workload:
        async with Client(config) as client:
            return await snapshot.take(client, "the cluster", free=True)

    try:
        return asyncio.run(take())
    except SteersmanError as error:
        log.info("nothing to fit a policy to yet", why=str(error))
        return None


def _report(found: Fit, seconds: float, file: Path) -> None:
    figures = {
        "gain": round(found.gain, 3),
        "interval": [round(found.interval.low, 3), round(found.interval.high, 3)],
        "rival": found.rival,
        "best": [f"{each.name} {each.mean:.2f} %" for each in found.compared[:3]],
        "draws": len(found.compared[0].costs),
        "generations": found.generations,
        "seconds": round(seconds, 1),
    }
    if found.chosen == FITTED:
        log.info("the fitted policy is better and kept", file=str(file), **figures)
    else:
        log.info("the fitted policy is not shown to be better; the policy in use goes on", **figures)
