"""`steersman serve`: the score service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from steersman.cli.cluster_options import ClusterName, Context, Kubeconfig, ask_cluster, find_cluster, log_cluster
from steersman.cli.display import said_if_slow
from steersman.cli.logs import LogFormat, LogFormatOption, LogLevel, LogLevelOption, configure_logs
from steersman.cli.options import POLICIES_HELP, TelemetryOption, UncheckedOption, path
from steersman.errors import UsageError


def serve(
    policy: Annotated[
        str | None, typer.Option(metavar="POLICY", help=f"Whose opinion: {POLICIES_HELP} [default: steersman]")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(parser=path, metavar="FILE", help="YAML with these and further options; options here come first."),
    ] = None,
    watch: Annotated[
        bool, typer.Option(help="Follow a live cluster; --no-watch: every request brings its nodes and pods.")
    ] = True,
    shadow: Annotated[
        bool | None, typer.Option(help="Answer neutral scores, and log what would have been answered.")
    ] = None,
    address: Annotated[str | None, typer.Option(help="Where it listens. [default: 127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="And on which port; 0: any that is free. [default: 5000]")
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(metavar="MS", help="Milliseconds after which an answer is neutral instead. [default: 50]"),
    ] = None,
    allow_sent_clusters: Annotated[
        bool | None,
        typer.Option(
            "--allow-sent-clusters/--no-sent-clusters",
            help="Whether questions may bring a cluster of their own beside the one that is watched. [default: no]",
        ),
    ] = None,
    unchecked: UncheckedOption = False,
    telemetry: TelemetryOption = None,
    log_format: LogFormatOption = LogFormat.AUTO,
    log_level: LogLevelOption = LogLevel.INFO,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    name: ClusterName = None,
) -> None:
    """Serve a policy's opinion over HTTP, for kube-scheduler's extender or plugin and whoever else asks.

    POST /v1/scores, /v1/suggestions, /v1/explain, /score, and an extender's /filter and /prioritize; /openapi.json
    describes them. It binds nothing. Whatever goes wrong, nodes get neutral scores, and the other scheduler decides. It
    listens on this machine alone unless --address says otherwise; TLS, tokens, canaries and limits are in --config.

    **Example**: steersman serve --policy steersman, then open http://127.0.0.1:5000/openapi.json
    """
    from steersman.service.config import Config, check, read_config
    from steersman.telemetry.prometheus.configuration import read_configuration

    if not watch and (kubeconfig is not None or context is not None or name is not None):
        raise UsageError("--no-watch follows no cluster; leave out --kubeconfig, --context and --name")
    settings = Config() if config is None else read_config(config)

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
    target = find_cluster(kubeconfig, context, name) if watch else None
    configure_logs(log_format, log_level)

    from steersman.live.running import run
    from steersman.live.thinking import warm_up
    from steersman.policies.registry import resolve
    from steersman.service.running import Service, by_opinion

    decides = resolve(settings.policy)
    if target is not None:
        log_cluster(target)
    with said_if_slow("compiling for this machine (once, about half a minute)"):
        warm_up(decides, by_opinion, telemetry=bool(settings.telemetry))
    if target is None:
        run(Service(settings, None).run())
    else:
        ask_cluster(target, lambda client: Service(settings, client).run())
