"""`steersman serve --learn`: background process that learns from another scheduler's bindings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from steersman.apps.learner.follower import follow
from steersman.apps.learner.plan import AgentOptions, LivePlan, LiveRun, init_run, live_plan
from steersman.apps.load.target import ClusterTarget
from steersman.apps.runtime.decoding import read_nodes
from steersman.cli.options.cluster import run_with_client
from steersman.cli.output.logs import LogOptions
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.processes import background_process
from steersman.kubernetes.config import KubeConfig
from steersman.prometheus.configuration import Configuration, read_configuration
from steersman.workloads.files import check_writable

log = structlog.get_logger("learning")


def prepare_to_follow(
    target: ClusterTarget, policy: Path, folder: Path, scheduler_name: str
) -> tuple[LivePlan, LiveRun]:
    """Prepare the folder of the training; return its plan and the run."""
    if not policy.is_file():
        raise UsageError(f"--learn needs a policy file as --policy, and {str(policy)!r} is not a file")
    check_writable("--learn", folder, "log")
    plan = live_plan(scheduler_name, policy, AgentOptions("dqn"))
    return plan, init_run(plan, folder, run_with_client(target, read_nodes))


@contextmanager
def following(
    plan: LivePlan, live_run: LiveRun, kubeconfig: KubeConfig, telemetry: str, logs: LogOptions
) -> Iterator[None]:
    """Learn in a background process until the block ends; plan and run are those of `prepare_to_follow`."""

    def on_exit(_: int) -> None:
        log.error("the learning process has ended; the policy in use stays", folder=str(live_run.folder))

    measured = read_configuration(Path(telemetry)) if telemetry else None
    with background_process(on_exit, _follow, plan, live_run, kubeconfig, measured, logs):
        yield


def _follow(
    plan: LivePlan, live_run: LiveRun, kubeconfig: KubeConfig, telemetry_config: Configuration | None, logs: LogOptions
) -> None:
    logs.of_process("learn").configure()
    try:
        follow(plan, live_run, kubeconfig, telemetry_config)
    except SteersmanError as error:
        log.error("learning ended", error=str(error))
