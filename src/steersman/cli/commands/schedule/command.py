"""`steersman schedule`: the live scheduler, or a shadow of another scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

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
from steersman.cli.options.live_learning import LiveLearning, agent_parameters, check_unused, live_plan_of
from steersman.cli.options.policies import PolicyServer, check_live_order, minor_of_cluster, split_order
from steersman.cli.output.logs import LogOptions
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.core.errors import UsageError
from steersman.prometheus.configuration import read_configuration

if TYPE_CHECKING:
    from steersman.apps.learner.plan import LivePlan
    from steersman.apps.scheduler.process import SchedulerSettings

ADDRESS, PORT = "127.0.0.1", 10269
IN_FLIGHT = 64
LEASE_NAMESPACE = "kube-system"
LEAST_PREDICT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    policy: Annotated[
        str | None, policy_option("Policy that places the pods", " Required unless --learn starts from nothing.")
    ] = None
    scheduler_name: Annotated[
        str,
        option(
            "Schedule the pods with this spec.schedulerName; with --shadow, compare with the scheduler of this "
            "name. [default: steersman; with --shadow default-scheduler]",
            parser=optional_scheduler,
            metavar="NAME",
        ),
    ] = ""
    shadow: Annotated[
        bool,
        option(
            "Bind nothing and serve no /metrics: follow another scheduler and report what the policy would have "
            "done instead.",
            "--shadow",
        ),
        Excludes("learn"),
    ] = False
    output: Annotated[
        Path | None,
        path_option("With --shadow: write decisions.csv and summary.csv to this folder.", metavar="DIR"),
        RequiresOption("shadow"),
    ] = None
    output_format: Annotated[
        TableOrJson,
        option("With --shadow: format of the report on standard output.", "--format"),
        RequiresOption("shadow"),
    ] = TableOrJson.TABLE
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
    run_times: Annotated[
        Path | None,
        advanced_path(
            "Keep in FILE what is learned of run times from pods that end, so that a restart does not forget it. The "
            "file is created if it is missing."
        ),
    ] = None
    predict_waits: Annotated[
        float | None,
        advanced(
            f"Every so many seconds, {LEAST_PREDICT_SECONDS:g} or more, simulate in a process of its own when the "
            "waiting pods start, as 'steersman wait' does, and say so in their events (StartPredicted). [default: off]",
            min=LEAST_PREDICT_SECONDS,
            metavar="SECONDS",
        ),
        Excludes("learn"),
    ] = None

    def split(self, policy: str, *, shadow: bool) -> tuple[str, str]:
        """Return a policy without its order, and the order, "" if none is given."""
        name, order = split_order(policy, self.order)
        if self.order is None and order and shadow:
            raise UsageError(f"--policy {policy}: --shadow orders no pods; leave out +{order}")
        return name, order


@dataclass(frozen=True, slots=True)
class BindingOptions:
    """What only a scheduler has, which binds pods and can be scraped."""

    RULES: ClassVar = (Excludes("shadow"),)

    in_flight: Annotated[
        int | None, advanced(f"Maximum number of concurrent bindings. [default: {IN_FLIGHT}]", min=1, max=1000)
    ] = None
    leader_elect: Annotated[
        bool | None,
        advanced(
            "Schedule only while holding a Lease, so that one of several replicas is active. Without it, run a "
            "single replica: two would overcommit nodes. [default: leader-elect]"
        ),
    ] = None
    lease_namespace: Annotated[
        str,
        advanced(
            "Namespace of the Lease, the same for all schedulers of a cluster: of two of one name only one leads. "
            f"[default: {LEASE_NAMESPACE}]",
            metavar="NAME",
        ),
    ] = ""
    lease_name: Annotated[
        str, advanced("Name of the Lease. [default: the value of --scheduler-name]", metavar="NAME")
    ] = ""
    address: Annotated[
        str | None, advanced(f"Address that /metrics, /healthz and /readyz listen on. [default: {ADDRESS}]")
    ] = None
    port: Annotated[
        int | None, advanced(f"Port that they listen on; 0: a free port. [default: {PORT}]", min=0, max=65535)
    ] = None

    def settings(self, scheduler: str, **further: Any) -> SchedulerSettings:
        from steersman.apps.scheduler.process import SchedulerSettings
        from steersman.apps.scheduler.scheduler import SchedulerOptions

        return SchedulerSettings(
            options=SchedulerOptions(scheduler, self.in_flight or IN_FLIGHT),
            leader_elect=self.leader_elect is not False,
            lease_namespace=self.lease_namespace or LEASE_NAMESPACE,
            lease_name=self.lease_name or scheduler,
            address=self.address or ADDRESS,
            port=PORT if self.port is None else self.port,
            **further,
        )


@partial(with_options, declared=agent_parameters)
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

    from steersman.apps.http_policy.policy import server_url
    from steersman.apps.scheduler.process import LiveScheduler
    from steersman.apps.scheduler.run_times import open_run_times
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
        from steersman.cli.commands.schedule.predict import PredictionTask, check_predictable

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
        from steersman.apps.learner.live_agent import LiveAgent

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
        from steersman.cli.commands.schedule.shadow import follow

        follow(
            target,
            policy,
            options.scheduler,
            options.output,
            telemetry,
            unchecked=options.unchecked,
            output_format=options.output_format,
        )
        return
    run_with_client(target, lambda client: LiveScheduler(client, settings).run())


def _checked_plan(options: ScheduleOptions, learning: LiveLearning, of_agent: Mapping[str, Any]) -> LivePlan | None:
    if options.output is not None:
        check_new_folder(options.output)
    if learning.learn is None:
        check_unused(of_agent)
        return None
    has_telemetry = options.telemetry is not None
    return live_plan_of(learning, of_agent, options.policy, options.scheduler, has_telemetry=has_telemetry)
