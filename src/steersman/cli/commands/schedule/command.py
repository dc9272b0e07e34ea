"""`steersman schedule`: the live scheduler, or a shadow of another scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from steersman.cli.completing import policies
from steersman.cli.options.algorithms import with_options
from steersman.cli.options.cluster import (
    ClusterName,
    Context,
    Kubeconfig,
    check_new_folder,
    find_cluster,
    log_cluster,
    optional_scheduler,
    run_with_client,
    say_without_telemetry,
)
from steersman.cli.options.common import POLICIES_HELP, TableOrJson, TelemetryOption, UncheckedOption, path
from steersman.cli.options.live_learning import LiveLearning, check_unused, exploration_parameters, live_plan_of
from steersman.cli.options.policy_server import PolicyServer
from steersman.cli.output.display import status_if_slow
from steersman.cli.output.logs import (
    LogFileOption,
    LogFormat,
    LogFormatOption,
    LogLevel,
    LogLevelOption,
    LogOptions,
    check_log_file,
    configure_logs,
)
from steersman.core.errors import SteersmanError, UsageError
from steersman.workloads.files import check_writable

ADDRESS, PORT = "127.0.0.1", 10269
IN_FLIGHT = 64
FIT_SECONDS = 60.0


def check_shadow(given: Mapping[str, object]) -> None:
    """Check that no option is given that only a scheduler has, which binds pods and can be scraped.

    Args:
        given: values of these options by option; None: not given.

    Raises:
        UsageError: one is given.
    """
    for option, value in given.items():
        if value is not None:
            raise UsageError(
                f"{option} has no effect with --shadow, which binds nothing and listens on no port; leave it out"
            )


def check_fit(file: Path, other: str) -> None:
    """Check that --fit overwrites nothing but a policy file and fits the other options.

    Args:
        file: value of --fit.
        other: a given option that excludes --fit, "" if there is none.

    Raises:
        UsageError: --fit is excluded, or its file cannot be used.
    """
    from steersman.policies.files.policy_file import SUFFIX, read_policy

    if other:
        raise UsageError(f"--fit and {other} exclude each other; leave one out")
    if file.suffix != SUFFIX:
        raise UsageError(f"--fit {file}: the name of a policy file must end in {SUFFIX}")
    if file.exists():
        try:
            read_policy(file)
        except SteersmanError:
            raise UsageError(f"--fit {file}: exists and is not a policy file; name another file") from None
    elif not file.parent.is_dir():
        raise UsageError(f"--fit {file}: there is no folder {file.parent}; create it, or name another file")
    check_writable("--fit", file)


@partial(with_options, declared=exploration_parameters)
def schedule(
    server: PolicyServer,
    learning: LiveLearning,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            autocompletion=policies,
            help=f"Policy that places the pods: {POLICIES_HELP} Required unless --learn starts from nothing.",
        ),
    ] = None,
    scheduler_name: Annotated[
        str,
        typer.Option(
            parser=optional_scheduler,
            metavar="NAME",
            help="Schedule the pods with this spec.schedulerName; with --shadow, compare with the scheduler of this "
            "name. [default: steersman; with --shadow default-scheduler]",
        ),
    ] = "",
    shadow: Annotated[
        bool,
        typer.Option(
            "--shadow",
            help="Bind nothing and serve no /metrics: follow another scheduler and report what the policy would have "
            "done instead.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            parser=path, metavar="DIR", help="With --shadow: write decisions.csv and summary.csv to this folder."
        ),
    ] = None,
    unchecked: UncheckedOption = False,
    fit: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="Fit a policy to this cluster's nodes and pods in a separate process, write it to FILE "
            "(mine.safetensors), and use it if it is shown to be better than every rule and every packaged policy; "
            "--policy is used until then.",
        ),
    ] = None,
    fit_seconds: Annotated[
        float | None,
        typer.Option(min=1, help=f"With --fit: duration of the search in seconds. [default: {FIT_SECONDS:g}]"),
    ] = None,
    telemetry: TelemetryOption = None,
    in_flight: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help=f"Maximum number of concurrent bindings. [default: {IN_FLIGHT}]"),
    ] = None,
    leader_elect: Annotated[
        bool | None,
        typer.Option(
            help="Schedule only while holding a Lease, so that one of several replicas is active. Without it, run a "
            "single replica: two would overcommit nodes. [default: leader-elect]"
        ),
    ] = None,
    lease_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Namespace of the Lease. [default: the context's namespace]")
    ] = "",
    lease_name: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the Lease. [default: the value of --scheduler-name]")
    ] = "",
    address: Annotated[
        str | None,
        typer.Option(help=f"Address that /metrics, /healthz and /readyz listen on. [default: {ADDRESS}]"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help=f"Port that they listen on; 0: a free port. [default: {PORT}]"),
    ] = None,
    output_format: Annotated[
        TableOrJson, typer.Option("--format", help="With --shadow: format of the report on standard output.")
    ] = TableOrJson.TABLE,
    log_format: LogFormatOption = LogFormat.AUTO,
    log_level: LogLevelOption = LogLevel.INFO,
    log_file: LogFileOption = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    name: ClusterName = None,
    **declared: Any,
) -> None:
    """Schedule the pods of a live cluster by any policy, or report what that would change.

    It schedules the pods whose spec.schedulerName is --scheduler-name and leaves all others to the cluster's own
    scheduler. A pod with a feature that it does not support (pod groups, resource claims) stays pending, with an event
    that names the feature. On Ctrl-C or SIGTERM it completes the bindings in flight and exits.

    A learned policy is used once short simulations on this cluster's nodes, with pods like the recent ones, have shown
    that it is at least as good as every rule; until then the rule fgd is used.

    **Example**: steersman schedule --policy steersman

    **With measurements of Prometheus**: steersman schedule --policy p0 --telemetry telemetry.yaml

    **Learn from nothing on a cluster of 'steersman cluster up'**: steersman schedule --learn run --algorithm dqn

    **Try it on a real cluster without binding**: steersman schedule --policy steersman --shadow
    """
    server.use()
    if output is not None and not shadow:
        raise UsageError("--output belongs to --shadow; give that too, or leave it out")
    if output_format is TableOrJson.JSON and not shadow:
        raise UsageError("--format json belongs to --shadow; give that too, or leave it out")
    if output is not None:
        check_new_folder(output)
    if shadow:
        check_shadow(
            {
                "--in-flight": in_flight,
                "--leader-elect": leader_elect,
                "--lease-namespace": lease_namespace or None,
                "--lease-name": lease_name or None,
                "--address": address,
                "--port": port,
            }
        )
    if learning.learn is None:
        check_unused(learning, declared)
    elif shadow:
        raise UsageError(
            "--learn does not work with --shadow, whose decisions are not carried out; 'steersman workload record' "
            "records the other scheduler's decisions"
        )
    if fit is not None:
        check_fit(fit, "--shadow" if shadow else "--learn" if learning.learn is not None else "")
    elif fit_seconds is not None:
        raise UsageError("--fit-seconds belongs to --fit; give that too, or leave it out")
    scheduler = scheduler_name or ("default-scheduler" if shadow else "steersman")
    plan = None
    if learning.learn is not None:
        plan = live_plan_of(learning, declared, policy, scheduler, has_telemetry=telemetry is not None)
    if policy is None:
        if plan is None:
            raise UsageError("--policy is missing: a name such as steersman or kube-default, or a file")
        policy = plan.default_fallback
    check_log_file(log_file)
    target = find_cluster(kubeconfig, context, name)
    configure_logs(log_format, log_level, log_file)

    from steersman.apps.http_policy.policy import server_url
    from steersman.apps.runtime.policy_manager import warm_up
    from steersman.apps.scheduler.process import LiveScheduler, SchedulerSettings
    from steersman.apps.scheduler.scheduler import SchedulerOptions
    from steersman.policies.registry import resolve
    from steersman.prometheus.configuration import read_configuration

    telemetry_config = None if telemetry is None else read_configuration(telemetry)
    resolved = resolve(policy)
    if server_url(resolved) and shadow:
        raise UsageError("--shadow asks no server; leave it out, or give a policy that decides here")
    say_without_telemetry(resolved, policy, has_telemetry=telemetry_config is not None)
    log_cluster(target)
    if fit is not None:
        from steersman.cli.commands.schedule.fit import fitting
    if plan is not None and learning.learn is not None:
        from steersman.apps.scheduler.agent_policy import agent_policy
        from steersman.cli.commands.schedule.learn import agent_process, agent_settings, prepare
        from steersman.training.run import POLICY

        resolved = agent_policy(agent_settings(plan), resolved, None)
        live_run = prepare(target, plan, learning.learn, may_explore=learning.explore_anyway)
        if plan.network.start is not None:
            policy = str(learning.learn / POLICY)  # with what an earlier session learned
    with status_if_slow("compiling for this machine (once, about half a minute)"):
        warm_up(resolved, telemetry=telemetry_config is not None)
    if shadow:
        from steersman.cli.commands.schedule.shadow import follow

        follow(target, policy, scheduler, output, telemetry_config, unchecked=unchecked, output_format=output_format)
        return
    logs = LogOptions(log_format, log_level, log_file)
    with ExitStack() as stack:
        agent = None
        if plan is not None and learning.learn is not None:
            agent = stack.enter_context(agent_process(plan, live_run, target.config, telemetry_config, logs))
        if fit is not None:
            stack.enter_context(fitting(fit, fit_seconds or FIT_SECONDS, target.config, logs))
        settings = SchedulerSettings(
            policy=policy,
            agent=agent,
            fitted=fit,
            unchecked=unchecked,
            telemetry=telemetry_config,
            options=SchedulerOptions(scheduler, IN_FLIGHT if in_flight is None else in_flight),
            leader_elect=leader_elect is not False,
            lease_namespace=lease_namespace or target.config.namespace,
            lease_name=lease_name or scheduler,
            address=address or ADDRESS,
            port=PORT if port is None else port,
        )
        run_with_client(target, lambda client: LiveScheduler(client, settings).run())
