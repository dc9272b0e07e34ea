"""`steersman schedule`: the live scheduler, and the shadow of another one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from steersman.cli.cluster_options import (
    ClusterName,
    Context,
    Kubeconfig,
    ask_cluster,
    check_new_folder,
    find_cluster,
    log_cluster,
    optional_scheduler,
)
from steersman.cli.display import said_if_slow, say
from steersman.cli.logs import LogFormat, LogFormatOption, LogLevel, LogLevelOption, configure_logs
from steersman.cli.options import POLICIES_HELP, TelemetryOption, UncheckedOption, path
from steersman.errors import SteersmanError, UsageError
from steersman.workloads.files import check_writable

PORT = 10269
FIT_SECONDS = 60.0


def check_fit(file: Path, other: str) -> None:
    """Make sure that --fit writes over nothing but a policy file, and goes with the other options.

    Raises:
        UsageError: it does not; `other` is an option that excludes it, "" if none was given.
    """
    from steersman.policies.policy_file import SUFFIX, read_policy

    if other:
        raise UsageError(f"--fit does not go with {other}; leave one out")
    if file.suffix != SUFFIX:
        raise UsageError(f"--fit {file}: the name of a policy file ends in {SUFFIX}")
    if file.exists():
        try:
            read_policy(file)
        except SteersmanError:
            raise UsageError(f"--fit {file}: is there and no policy file; name another") from None
    elif not file.parent.is_dir():
        raise UsageError(f"--fit {file}: there is no folder {file.parent}")
    check_writable("--fit", file)


def check_learn(folder: Path, policy: str) -> None:
    """Make sure that --learn has a policy file to go on from and a folder to write to.

    Raises:
        UsageError: it has not.
    """
    if not Path(policy).is_file():
        raise UsageError(f"--learn goes on from a policy file, and {policy!r} is none")
    check_writable("--learn", folder, "log")


def schedule(
    policy: Annotated[str, typer.Option(metavar="POLICY", help=f"Who decides: {POLICIES_HELP}")],
    scheduler_name: Annotated[
        str,
        typer.Option(
            parser=optional_scheduler,
            metavar="NAME",
            help="Schedule the pods whose spec.schedulerName is this; with --shadow, watch who schedules them. "
            "[default: steersman; with --shadow default-scheduler]",
        ),
    ] = "",
    shadow: Annotated[
        bool,
        typer.Option("--shadow", help="Bind nothing: decide beside the scheduler of that name, and report."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(parser=path, metavar="DIR", help="With --shadow: a folder for decisions.csv and summary.csv."),
    ] = None,
    learn: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="DIR",
            help="Go on training the policy file by dqn from what happens here, in a process of its own, and use what "
            "it learned. DIR: its checkpoint, metrics and policy file; given again, it goes on.",
        ),
    ] = None,
    unchecked: UncheckedOption = False,
    fit: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="Fit a policy to this cluster's nodes and pods, in a process of its own, write it there "
            "(mine.safetensors) and use it, if it is shown to be better than every rule; --policy decides until then.",
        ),
    ] = None,
    fit_seconds: Annotated[
        float | None, typer.Option(min=1, help=f"How long the search of --fit takes. [default: {FIT_SECONDS:g}]")
    ] = None,
    telemetry: TelemetryOption = None,
    in_flight: Annotated[int, typer.Option(min=1, max=1000, help="Bindings under way at a time.")] = 64,
    leader_elect: Annotated[
        bool,
        typer.Option(
            help="Decide only while holding a Lease, so that of several schedulers of one name one decides. Without "
            "it, see that there is but one: two overcommit nodes."
        ),
    ] = True,
    lease_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Where the Lease is. [default: the context's namespace]")
    ] = "",
    lease_name: Annotated[
        str, typer.Option(metavar="NAME", help="What it is called. [default: that of --scheduler-name]")
    ] = "",
    address: Annotated[str, typer.Option(help="Where /metrics, /healthz and /readyz listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="And on which port; 0: any that is free.")] = PORT,
    log_format: LogFormatOption = LogFormat.AUTO,
    log_level: LogLevelOption = LogLevel.INFO,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    name: ClusterName = None,
) -> None:
    """Schedule a live cluster's pods by any policy, or see what that would change.

    Pods choose it by spec.schedulerName. What the cluster's own scheduler does with other pods is not touched. A pod
    that uses something this scheduler does not know (pod groups, resource claims) is
    left alone, with an event that says so. Ctrl-C or SIGTERM: bindings under way are finished first.

    A learned policy decides once a short simulation on this cluster's nodes, with pods like those that came, has shown
    it to be at least as good as every rule; until then fgd does.

    **Example**: steersman schedule --policy steersman

    **By what Prometheus measures**: steersman schedule --policy p0 --telemetry telemetry.yaml

    **Try it on a real cluster, binding nothing**: steersman schedule --policy steersman --shadow
    """
    if output is not None and not shadow:
        raise UsageError("--output is where a shadow writes; give --shadow, or leave it out")
    if output is not None:
        check_new_folder(output)
    if learn is not None and shadow:
        raise UsageError("--learn is of no use with --shadow, whose decisions nobody carries out; workload record is")
    if fit is not None:
        check_fit(fit, "--shadow" if shadow else "--learn" if learn is not None else "")
    elif fit_seconds is not None:
        raise UsageError("--fit-seconds belongs to --fit; give that too, or leave it out")
    if learn is not None:
        check_learn(learn, policy)
    target = find_cluster(kubeconfig, context, name)
    configure_logs(log_format, log_level)

    from steersman.live.thinking import warm_up
    from steersman.policies.registry import resolve
    from steersman.scheduler.running import LiveScheduler, Settings
    from steersman.scheduler.scheduler import Options
    from steersman.telemetry.prometheus.configuration import read_configuration

    measured = None if telemetry is None else read_configuration(telemetry)
    decides = resolve(policy)
    if measured is None and decides.needs_telemetry:
        say(f"--policy {policy} without --telemetry goes by what pods request alone")
    log_cluster(target)
    pods_of = scheduler_name or ("default-scheduler" if shadow else "steersman")
    if fit is not None:
        from steersman.cli.fitting_live import fitting
    if learn is not None:
        from steersman.cli.learning import learning, prepare

        plan, in_use = prepare(target, policy, pods_of, learn)
        policy = str(in_use)
    with said_if_slow("compiling for this machine (once, about half a minute)"):
        warm_up(decides, telemetry=measured is not None)
    if shadow:
        from steersman.cli.shadowing import follow

        follow(target, policy, pods_of, output, measured, unchecked=unchecked)
        return
    with ExitStack() as stack:
        if learn is not None:
            stack.enter_context(learning(plan, learn, target.config, log_format, log_level))
        if fit is not None:
            stack.enter_context(fitting(fit, fit_seconds or FIT_SECONDS, target.config, log_format, log_level))
        settings = Settings(
            policy=policy,
            fitted=fit,
            unchecked=unchecked,
            telemetry=measured,
            options=Options(pods_of, in_flight),
            leader_elect=leader_elect,
            lease_namespace=lease_namespace or target.config.namespace,
            lease_name=lease_name or pods_of,
            address=address,
            port=port,
        )
        ask_cluster(target, lambda client: LiveScheduler(client, settings).run())
