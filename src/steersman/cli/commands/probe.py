"""`steersman probe`: measures latencies from a node to users; a DaemonSet of it feeds the limits of latency."""

from __future__ import annotations

from typing import Annotated

import typer

from steersman.cli.output.logs import (
    LogFileOption,
    LogFormat,
    LogFormatOption,
    LogLevel,
    LogLevelOption,
    check_log_file,
    configure_logs,
)
from steersman.core.errors import UsageError

PORT = 8100


def probe(
    targets: Annotated[
        list[str],
        typer.Option(
            "--target",
            metavar="USER=HOST:PORT",
            help="Users and their address: a TCP connection is measured, or with USER=http://HOST/PATH a request; "
            "repeatable.",
        ),
    ],
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between round trips.")] = 5.0,
    samples: Annotated[int, typer.Option(min=1, max=1000, help="Round trips in the median.")] = 9,
    timeout: Annotated[float, typer.Option(min=0.01, max=60, help="Timeout of a round trip in seconds.")] = 2.0,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: a free port.")] = PORT,
    log_format: LogFormatOption = LogFormat.AUTO,
    log_level: LogLevelOption = LogLevel.INFO,
    log_file: LogFileOption = None,
) -> None:
    """Measure the latency from this node to users, and serve it over HTTP.

    GET / answers with milliseconds as text (the largest of all users'; /USER for one), /metrics as Prometheus reads it,
    /healthz for probes. Users that could not be reached lately have no latency: 503, and no metric.

    **Example**: steersman probe --target europe=203.0.113.7:443
    """
    from steersman.prometheus.probe import Probe, parse_target

    parsed = [parse_target(each) for each in targets]
    users = [each.user for each in parsed]
    if len(set(users)) < len(users):
        twice = next(user for user in users if users.count(user) > 1)
        raise UsageError(f"--target {twice}=...: is given twice; users have one target each")
    check_log_file(log_file)
    configure_logs(log_format, log_level, log_file)

    from steersman.apps.runtime.probe_server import serve_probe
    from steersman.apps.runtime.tasks import run

    run(serve_probe(Probe(parsed, interval, samples, timeout), address, port))
