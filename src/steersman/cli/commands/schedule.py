"""`steersman schedule`: the live scheduler or a shadow of another one, and starts that it predicts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from steersman.cli.options.cluster import (
    ClusterOptions,
    check_new_folder,
    log_cluster,
    optional_scheduler,
    run_with_client,
    say_without_telemetry,
)
from steersman.cli.options.common import (
    LiveOrderOption,
    TableOrJson,
    TelemetryOption,
    UncheckedOption,
    advanced_path,
    path_option,
    policy_option,
)
from steersman.cli.options.declaring import Excludes, RequiresOption, advanced, option, with_options
from steersman.cli.options.live_learning import OF_AGENTS, PANEL, LiveLearning, live_plan_of
from steersman.cli.options.policies import PolicyServer, check_live_order, minor_of_cluster, split_order
from steersman.cli.options.training import live_parameters
from steersman.cli.output.display import print_json, print_rows, say
from steersman.cli.output.logs import LogOptions
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.core.config.fields import flag
from steersman.core.errors import UsageError
from steersman.core.processes import ask_process
from steersman.prometheus.configuration import Configuration, read_configuration

if TYPE_CHECKING:
    from steersman.cluster.state import ClusterState
    from steersman.kubernetes.client import Client
    from steersman.kubernetes.config import KubeConfig
    from steersman.live.learner.plan import LivePlan
    from steersman.live.load.live_cluster import ClusterTarget
    from steersman.live.runtime.policy_manager import PolicyManager
    from steersman.live.scheduler.process import SchedulerSettings
    from steersman.live.scheduler.shadow import AgreementStats, ClusterSummary, Shadow
    from steersman.live.scheduler.wait_events import PredictedStart
    from steersman.orders.order import Order
    from steersman.policies.base import Policy
    from steersman.simulation.prediction.prediction import QueuePrediction
    from steersman.workloads.workload import Workload

ADDRESS, PORT = "127.0.0.1", 10269
IN_FLIGHT = 64
LEASE_NAMESPACE = "kube-system"
LEAST_PREDICT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    policy: str | None = policy_option("Policy that places the pods", " Required unless --learn starts from nothing.")
    scheduler_name: str = option(
        "Schedule the pods with this spec.schedulerName; with --shadow, compare with the scheduler of this "
        "name. [default: steersman; with --shadow default-scheduler]",
        default="",
        parser=optional_scheduler,
        metavar="NAME",
    )
    shadow: bool = option(
        "Bind nothing and serve no /metrics: follow another scheduler and report what the policy would have "
        "done instead.",
        Excludes("learn"),
        default=False,
    )
    output: Path | None = path_option(
        "With --shadow: write decisions.csv and summary.csv to this folder.", RequiresOption("shadow"), metavar="DIR"
    )
    output_format: TableOrJson = option(
        "With --shadow: format of the report on standard output.",
        "--format",
        RequiresOption("shadow"),
        default=TableOrJson.TABLE,
    )
    unchecked: UncheckedOption = False
    telemetry: TelemetryOption = None

    @property
    def scheduler(self) -> str:
        """Return the name of the scheduler whose pods are placed, or which is followed."""
        return self.scheduler_name or (DEFAULT_SCHEDULER if self.shadow else "steersman")


@dataclass(frozen=True, slots=True)
class OrderOptions:
    RULES: ClassVar = (Excludes("shadow"),)

    order: LiveOrderOption = None
    run_times: Path | None = advanced_path(
        "Keep in FILE what is learned of run times from pods that end, so that a restart does not forget it. The "
        "file is created if it is missing."
    )
    predict_waits: float | None = advanced(
        f"Every so many seconds, {LEAST_PREDICT_SECONDS:g} or more, simulate in a process of its own when the "
        "waiting pods start, as 'steersman wait' does, and say so in their events (StartPredicted). [default: off]",
        Excludes("learn"),
        min=LEAST_PREDICT_SECONDS,
        metavar="SECONDS",
    )

    def split(self, policy: str, *, shadow: bool) -> tuple[str, str]:
        name, order = split_order(policy, self.order)
        if self.order is None and order and shadow:
            raise UsageError(f"--policy {policy}: --shadow orders no pods; leave out +{order}")
        return name, order


@dataclass(frozen=True, slots=True)
class BindingOptions:
    """What only a scheduler has, which binds pods and can be scraped."""

    RULES: ClassVar = (Excludes("shadow"),)

    in_flight: int | None = advanced(f"Maximum number of concurrent bindings. [default: {IN_FLIGHT}]", min=1, max=1000)
    leader_elect: bool | None = advanced(
        "Schedule only while holding a Lease, so that one of several replicas is active. Without it, run a "
        "single replica: two would overcommit nodes. [default: leader-elect]"
    )
    lease_namespace: str = advanced(
        "Namespace of the Lease, the same for all schedulers of a cluster: of two of one name only one leads. "
        f"[default: {LEASE_NAMESPACE}]",
        default="",
        metavar="NAME",
    )
    lease_name: str = advanced(
        "Name of the Lease. [default: the value of --scheduler-name]", default="", metavar="NAME"
    )
    address: str | None = advanced(f"Address that /metrics, /healthz and /readyz listen on. [default: {ADDRESS}]")
    port: int | None = advanced(f"Port that they listen on; 0: a free port. [default: {PORT}]", min=0, max=65535)

    def settings(self, scheduler: str, **further: Any) -> SchedulerSettings:
        from steersman.live.scheduler.process import SchedulerSettings
        from steersman.live.scheduler.scheduler import SchedulerOptions

        return SchedulerSettings(
            options=SchedulerOptions(scheduler, self.in_flight or IN_FLIGHT),
            leader_elect=self.leader_elect is not False,
            lease_namespace=self.lease_namespace or LEASE_NAMESPACE,
            lease_name=self.lease_name or scheduler,
            address=self.address or ADDRESS,
            port=PORT if self.port is None else self.port,
            **further,
        )


@partial(with_options, declared=partial(live_parameters, OF_AGENTS, PANEL))
def schedule(
    options: ScheduleOptions,
    queue: OrderOptions,
    binding: BindingOptions,
    learning: LiveLearning,
    logs: LogOptions,
    cluster: ClusterOptions,
    server: PolicyServer,
    **of_agent: Any,
) -> None:
    """Schedule the pods of a live cluster by any policy, or report what that would change.

    It schedules the pods whose spec.schedulerName is --scheduler-name and leaves all others to the cluster's own
    scheduler. A pod with a feature that it does not support (pod groups, resource claims) stays pending, with an event
    that names the feature. On Ctrl-C or SIGTERM it completes the bindings in flight and exits.

    A learned policy is used once short simulations on this cluster's nodes, with pods like the recent ones, have shown
    that it is at least as good as every rule; until then the rule fgd is used.

    **Example**: steersman schedule --policy steersman

    **Short pods first**: steersman schedule --policy steersman --order shortest --run-times run-times.json

    **With measurements of Prometheus**: steersman schedule --policy p0 --telemetry telemetry.yaml

    **Learn from nothing on a cluster of 'steersman cluster up'**: steersman schedule --learn run --algorithm dqn

    **Try it on a real cluster without binding**: steersman schedule --policy steersman --shadow
    """
    server.use()
    if options.scheduler == DEFAULT_SCHEDULER and not options.shadow:
        raise UsageError(
            f"--scheduler-name {DEFAULT_SCHEDULER}: the cluster's kube-scheduler places these pods, and two schedulers "
            "of one name overcommit nodes; give another name, which pods have as spec.schedulerName, or add --shadow"
        )
    order = queue.order or ""
    if options.policy is not None:
        name, order = queue.split(options.policy, shadow=options.shadow)
        options = replace(options, policy=name)
    plan = _checked_plan(options, learning, of_agent)
    policy = options.policy or (None if plan is None else plan.default_fallback)
    if policy is None:
        raise UsageError("--policy is missing: a name such as steersman or kube-default, or a file")
    logs.check()
    target = cluster.find()
    logs.configure()

    from steersman.live.http_policy.policy import server_url
    from steersman.live.scheduler.process import LiveScheduler
    from steersman.live.scheduler.run_times import open_run_times
    from steersman.orders.registry import find_order
    from steersman.policies.registry import is_kube_scheduler, of_minor, resolve

    telemetry = None if options.telemetry is None else read_configuration(options.telemetry)
    resolve(policy)  # before the cluster is asked
    if is_kube_scheduler(policy):
        policy = of_minor(policy, minor_of_cluster(target))
    resolved = resolve(policy)
    if server_url(resolved) and options.shadow:
        raise UsageError("--shadow asks no server; leave it out, or give a policy that decides here")
    say_without_telemetry(resolved, policy, has_telemetry=telemetry is not None)
    chosen_order = find_order(order) if order else resolved.order
    if not options.shadow:
        check_live_order(chosen_order, policy, is_own=not order)
    history = None if queue.run_times is None else open_run_times(queue.run_times)
    task = None
    if queue.predict_waits is not None:
        check_predictable(resolved, policy)
        task = PredictionTask(target.config, policy, chosen_order, queue.run_times)
    log_cluster(target)
    settings = binding.settings(
        options.scheduler,
        policy=policy,
        unchecked=options.unchecked,
        telemetry=telemetry,
        order=chosen_order,
        history=history,
        run_times=queue.run_times,
        predict=None if task is None else task.ask,
        predict_seconds=queue.predict_waits or 0.0,
    )
    if plan is not None and learning.learn is not None:
        from steersman.live.learner.live_agent import LiveAgent

        LiveAgent(
            target,
            plan,
            learning.learn,
            settings,
            explore_anyway=learning.explore_anyway,
            configure_logs=logs.configure_process,
        ).run()
        return
    if options.shadow:
        follow(target, policy, options, telemetry)
        return
    run_with_client(target, lambda client: LiveScheduler(client, settings).run())


def _checked_plan(options: ScheduleOptions, learning: LiveLearning, of_agent: Mapping[str, Any]) -> LivePlan | None:
    if options.output is not None:
        check_new_folder(options.output)
    if learning.learn is None:
        for name in of_agent:
            raise UsageError(f"{flag(name)} belongs to --learn; give that too, or leave it out")
        return None
    has_telemetry = options.telemetry is not None
    return live_plan_of(learning, of_agent, options.policy, options.scheduler, has_telemetry=has_telemetry)


NICENESS = 19
LIMIT_SECONDS = 600.0  # a prediction that takes longer is ended


@dataclass(frozen=True, slots=True)
class PredictionTask:
    config: KubeConfig
    policy: str
    order: Order
    # File that keeps what is known of run times; None: the pods that ended and are still listed say it
    run_times: Path | None

    async def ask(self, active: Policy) -> list[PredictedStart]:
        """Return when the pods start that wait now, under the policy that decides now.

        Raises SteersmanError: the process failed or took too long.
        """
        from steersman.policies.registry import resolve

        # Of another policy than a portfolio the name suffices: a user's object need not go to another process.
        member = active if resolve(self.policy).members else None
        return await ask_process(predict_starts, (self, member), seconds=LIMIT_SECONDS, niceness=NICENESS)


def check_predictable(policy: Policy, spec: str) -> None:
    """Raise UsageError for a policy whose decisions cannot be simulated without asking others."""
    from steersman.live.http_policy.policy import server_url

    if server_url(policy):
        raise UsageError(
            f"--predict-waits simulates the policy, and {spec} asks a server; leave it out, or give a policy that "
            "decides here"
        )


def predict_starts(question: tuple[PredictionTask, Policy | None]) -> list[PredictedStart]:
    """Read the cluster, and return when the pods start that wait, the one that goes next first.

    `question`: what is predicted, and the policy that decides if a portfolio is configured.
    """
    from steersman.kubernetes.client import Client
    from steersman.live.recorder.live_workload import read_workload
    from steersman.orders.run_time_history import read_run_times
    from steersman.policies.base import with_own_order
    from steersman.policies.registry import resolve
    from steersman.simulation.prediction.moment import moment_of
    from steersman.simulation.prediction.prediction import predict_queue
    from steersman.workloads.workload import RunningPods

    task, member = question
    kept = task.run_times
    history = read_run_times(kept) if kept is not None and kept.exists() else None

    async def read() -> Workload:
        async with Client(task.config) as client:
            return await read_workload(client, "the cluster", RunningPods.FROM_NOW, lives=True)

    workload, now = asyncio.run(read()), time.time()
    decides = with_own_order(member or resolve(task.policy), task.order)
    return starts_of(predict_queue(moment_of(workload, now, history), decides))


def starts_of(prediction: QueuePrediction) -> list[PredictedStart]:
    from steersman.live.scheduler.wait_events import PredictedStart

    return [
        PredictedStart(each.pod, each.p10, each.p50, each.p90, prediction.horizon)
        for each in prediction.pods
        # That no node could ever hold a pod is what its event FailedScheduling says.
        if not each.impossible
    ]


DECISIONS, SUMMARY = "decisions.csv", "summary.csv"
REPORT_SECONDS = 30.0

TITLES = {
    "nodes_in_use": "Nodes in use",
    "cpu_percent": "CPU requested, %",
    "memory_percent": "Memory requested, %",
    "gpu_percent": "GPUs requested, %",
    "cpu_deviation_percent": "Standard deviation of CPU across nodes, points",
    "fragmented_gpus": "Idle GPUs that typical pods cannot use",
    "unplaced": "Pods without a node",
}


def follow(
    target: ClusterTarget, policy: str, options: ScheduleOptions, telemetry: Configuration | None = None
) -> None:
    """Follow a scheduler, and print the cluster as it is and as the policy would have made it."""
    from steersman.live.runtime.comparison import PolicyReloader
    from steersman.live.runtime.policy_manager import PolicyManager
    from steersman.live.scheduler.shadow import Shadow
    from steersman.prometheus.collector import TelemetryCollector, addresses_of

    shadowed, output = options.scheduler, options.output
    with ExitStack() as stack:
        decisions = None
        if output is not None:
            check_new_folder(output)
            output.mkdir(parents=True, exist_ok=True)
            # By lines, so that the file can be read while this runs, and a killed process has written its decisions.
            decisions = stack.enter_context((output / DECISIONS).open("w", newline="", buffering=1))
        reloader = PolicyReloader(policy, has_telemetry=telemetry is not None)
        manager = PolicyManager(reloader, unchecked=options.unchecked, scheduler_name=shadowed)

        async def run(client: Client) -> tuple[AgreementStats, ClusterSummary, ClusterSummary]:
            selectors = manager.selectors(client)
            shadow = Shadow(client, manager.decider, shadowed, selectors=selectors, came=manager.see, output=decisions)
            if telemetry is not None:
                manager.telemetry = TelemetryCollector(telemetry, lambda: addresses_of(shadow.actual.cache.state.nodes))
            await _run(shadow, manager)
            return (shadow.tally, *shadow.pictures())

        stats, actual, counterfactual = run_with_client(target, run)
    if output is not None:
        _write(output / SUMMARY, stats, actual, counterfactual)
    if options.output_format is TableOrJson.JSON:
        print_json(_record(stats, actual, counterfactual, shadowed, manager.policy.name))
    else:
        numbers = [f"actual, by {shadowed}", f"instead, by {manager.policy.name}"]
        summaries = actual, counterfactual
        rows = [(title, *(_number(getattr(each, name)) for each in summaries)) for name, title in TITLES.items()]
        print_rows(rows, ["Metric"], numbers)
    say(_sentence(stats, shadowed, manager.policy.name) + (f"; wrote {output}" if output else ""))


async def _run(shadow: Shadow, manager: PolicyManager) -> None:

    def state() -> ClusterState:
        return shadow.actual.cache.state

    async def report() -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            _log(shadow.tally)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(shadow.run(lambda: manager.begin(state())))
            group.create_task(manager.keep(state, shadow.renew))
            group.create_task(report())
            if manager.telemetry is not None:
                group.create_task(manager.telemetry.run())
    # Ctrl-C is the usual end here, and the report follows.
    except asyncio.CancelledError:
        return


def _log(stats: AgreementStats) -> None:
    import structlog

    share = stats.agreement_percent
    percent = {} if share is None else {"percent": round(share, 1)}
    structlog.get_logger("shadow").info("agreement", decisions=stats.decisions, agreed=stats.agreed, **percent)


def _sentence(stats: AgreementStats, scheduler: str, policy: str) -> str:
    share = stats.agreement_percent
    if share is None:
        return f"no decisions of {scheduler} to compare {policy} with"
    return (
        f"{stats.decisions} decisions of {scheduler}; in the same state {policy} would have chosen the same node for "
        f"{stats.agreed} ({share:.1f} %)"
    )


def _write(file: Path, stats: AgreementStats, actual: ClusterSummary, counterfactual: ClusterSummary) -> None:
    import csv

    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("metric", "scheduler", "policy"))
        writer.writerow(("decisions", stats.decisions, stats.decisions))
        share = stats.agreement_percent
        writer.writerow(("agreement_percent", "", "" if share is None else f"{share:.4f}"))
        for field in fields(actual):
            values = getattr(actual, field.name), getattr(counterfactual, field.name)
            writer.writerow((field.name, *map(_number, values)))


def _record(
    stats: AgreementStats, actual: ClusterSummary, counterfactual: ClusterSummary, scheduler: str, policy: str
) -> dict[str, object]:
    return {
        "decisions": stats.decisions,
        "agreement_percent": stats.agreement_percent,
        "actual": {"scheduler": scheduler, **asdict(actual)},
        "instead": {"policy": policy, **asdict(counterfactual)},
    }


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.2f}"
