"""`steersman serve`: the score service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from steersman.cli.completing import policies
from steersman.cli.options.cluster import (
    ClusterName,
    Context,
    Kubeconfig,
    find_cluster,
    log_cluster,
    run_with_client,
    say_without_telemetry,
    scheduler,
)
from steersman.cli.options.common import NODES_HELP, POLICIES_HELP, TelemetryOption, UncheckedOption, path
from steersman.cli.options.inputs import Inputs
from steersman.cli.output.display import Warnings, say, status_if_slow
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
from steersman.core.errors import UsageError


def serve(
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY", autocompletion=policies, help=f"Policy that scores: {POLICIES_HELP} [default: steersman]"
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            parser=path, metavar="FILE", help="YAML with these and further options; the command line overrides it."
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option(help="Watch a live cluster; --no-watch: every request contains its nodes and pods.")
    ] = True,
    nodes: Annotated[
        Path | None,
        typer.Option(parser=path, metavar="FILE", help=f"With --no-watch: prepare the policy for these. {NODES_HELP}"),
    ] = None,
    pods: Annotated[
        Path | None, typer.Option(parser=path, metavar="FILE", help="With --nodes: the pods that are typical.")
    ] = None,
    shadow: Annotated[
        bool | None, typer.Option(help="Return neutral scores, and log what the policy would have returned.")
    ] = None,
    address: Annotated[str | None, typer.Option(help="Address to listen on. [default: 127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0: a free port. [default: 5000]")
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(metavar="MS", help="Milliseconds after which scores are neutral. [default: 50]"),
    ] = None,
    allow_sent_clusters: Annotated[
        bool | None,
        typer.Option(
            "--allow-sent-clusters/--no-sent-clusters",
            help="Whether requests may contain a cluster of their own beside the watched one. [default: no]",
        ),
    ] = None,
    unchecked: UncheckedOption = False,
    telemetry: TelemetryOption = None,
    learn: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="DIR",
            help="Continue to train the policy file by DQN, in a separate process, on what --learn-from does with the "
            "scores, and use the result where held-back decisions show that it is better. DIR holds the policy in use, "
            "those that it replaced, every test (exchanges.csv), checkpoint and metrics; 'steersman policy undo DIR' "
            "puts the former policy back.",
        ),
    ] = None,
    learn_from: Annotated[
        str | None,
        typer.Option(
            parser=scheduler,
            metavar="NAME",
            help="With --learn: scheduler whose bindings are learned from. [default: default-scheduler]",
        ),
    ] = None,
    log_format: LogFormatOption = LogFormat.AUTO,
    log_level: LogLevelOption = LogLevel.INFO,
    log_file: LogFileOption = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    name: ClusterName = None,
) -> None:
    """Serve a policy's scores over HTTP, for kube-scheduler's extender or plugin and other clients.

    POST /v1/scores, /v1/suggestions, /v1/explain, /score, and an extender's /filter and /prioritize; /openapi.json
    describes them. It binds nothing. On any failure nodes get neutral scores, and the other scheduler decides. It
    listens on localhost unless --address is given; TLS, tokens, canaries and limits are in --config.

    **Example**: steersman serve --policy steersman, then open http://127.0.0.1:5000/openapi.json

    **Get better while it serves**: steersman serve --policy run/policy.safetensors --learn learned

    **Without a cluster to watch**: steersman serve --no-watch --nodes nodes.csv --pods pods.csv
    """
    from steersman.apps.service.config import ServiceConfig, check, read_config
    from steersman.prometheus.configuration import read_configuration

    if not watch and (kubeconfig is not None or context is not None or name is not None):
        raise UsageError("--no-watch follows no cluster; leave out --kubeconfig, --context and --name")
    if watch and (nodes is not None or pods is not None):
        raise UsageError("--nodes and --pods are for --no-watch; a watched cluster's own are used otherwise")
    if learn is None and learn_from is not None:
        raise UsageError("--learn-from belongs to --learn; give that too, or leave it out")
    if learn is not None and not watch:
        raise UsageError("--no-watch follows no cluster, so there is nothing that --learn could learn from")
    inputs = Inputs(nodes, (pods,) if pods else ()) if nodes is not None or pods is not None else None
    settings = ServiceConfig() if config is None else read_config(config)

    import msgspec

    given = {"policy": policy, "shadow": shadow, "address": address, "port": port, "deadline_milliseconds": deadline}
    given["allow_sent_clusters"] = allow_sent_clusters
    given["unchecked"] = unchecked or None
    given["telemetry"] = None if telemetry is None else str(telemetry)
    settings = msgspec.structs.replace(settings, **{key: value for key, value in given.items() if value is not None})
    check(settings, config or "options")
    if not watch and settings.telemetry:
        raise UsageError("--no-watch follows no cluster, so there is nothing that --telemetry could measure")
    if settings.telemetry:
        read_configuration(Path(settings.telemetry))
    check_log_file(log_file)
    target = find_cluster(kubeconfig, context, name) if watch else None
    configure_logs(log_format, log_level, log_file)

    from steersman.apps.http_policy.policy import server_url
    from steersman.apps.runtime.policy_manager import warm_up
    from steersman.apps.runtime.tasks import run
    from steersman.apps.service.process import Service, choose_by_scores
    from steersman.policies.base import derives_tables
    from steersman.policies.registry import resolve

    follower = None
    if learn is not None and target is not None:
        from steersman.cli.following import following, prepare_to_follow
        from steersman.training.run import POLICY

        logs = LogOptions(log_format, log_level, log_file)
        source = learn_from or "default-scheduler"
        plan, live_run = prepare_to_follow(target, Path(settings.policy), learn, source)
        follower = following(plan, live_run, target.config, settings.telemetry, logs)
        settings = msgspec.structs.replace(settings, policy=str(learn / POLICY))
    decides = resolve(settings.policy)
    if server_url(decides):
        raise UsageError(f"--policy {settings.policy} is a server itself; ask it, or give a policy that decides here")
    say_without_telemetry(decides, settings.policy, has_telemetry=bool(settings.telemetry))
    if target is not None:
        log_cluster(target)
    elif inputs is None and derives_tables(decides):
        raise UsageError(
            f"--policy {settings.policy} derives tables from typical pods, and --no-watch follows no cluster; give "
            "--nodes and --pods, or a file of 'steersman policy prepare'"
        )
    with ExitStack() as stack:
        if inputs is not None and derives_tables(decides):
            prepared = stack.enter_context(_prepared(settings.policy, inputs))
            settings = msgspec.structs.replace(settings, policy=str(prepared))
            decides = resolve(settings.policy)
        with status_if_slow("compiling for this machine (once, about half a minute)"):
            warm_up(decides, choose_by_scores, telemetry=bool(settings.telemetry))
        if follower is not None:
            stack.enter_context(follower)
        if target is None:
            run(Service(settings, None).run())
        else:
            run_with_client(target, lambda client: Service(settings, client).run())


@contextmanager
def _prepared(policy: str, inputs: Inputs) -> Iterator[Path]:
    """Yield a temporary file of a policy that is prepared for a workload. Raises SteersmanError: it cannot be."""
    from steersman.policies.files.policy_file import write_policy
    from steersman.policies.registry import policy_path
    from steersman.simulation.selection.comparison import prepare_chosen

    (workload,) = inputs.read(Warnings())
    with TemporaryDirectory(prefix="steersman-") as folder, policy_path(policy) as source:
        file = Path(folder, source.name)
        with status_if_slow("preparing the policy for these nodes and pods"):
            card, arrays, evidence = prepare_chosen(source, workload)
        write_policy(file, card, arrays)
        if evidence:
            say(evidence)
        yield file
