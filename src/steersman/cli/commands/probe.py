"""`steersman probe`: measures latencies from a node to users; a DaemonSet of it feeds the limits of latency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from steersman.cli.options.declaring import advanced, option, with_options
from steersman.cli.output.logs import LogOptions
from steersman.core.errors import UsageError

PORT = 8100


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    targets: Annotated[
        list[str],
        option(
            "Users and their address: a TCP connection is measured, or with USER=http://HOST/PATH a request; "
            "repeatable.",
            "--target",
            metavar="USER=HOST:PORT",
        ),
    ]
    interval: Annotated[float, option("Seconds between round trips.", min=0.1, max=3600)] = 5.0
    samples: Annotated[int, advanced("Round trips in the median.", min=1, max=1000)] = 9
    timeout: Annotated[float, advanced("Timeout of a round trip in seconds.", min=0.01, max=60)] = 2.0
    address: Annotated[str, option("Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, option("Port to listen on; 0: a free port.", min=0, max=65535)] = PORT


@with_options
def probe(options: ProbeOptions, logs: LogOptions) -> None:
    """Measure the latency from this node to users, and serve it over HTTP.

    GET / answers with milliseconds as text (the largest of all users'; /USER for one), /metrics as Prometheus reads it,
    /healthz for probes. Users that could not be reached lately have no latency: 503, and no metric.

    **Example**: steersman probe --target europe=203.0.113.7:443
    """
    from steersman.prometheus.probe import Probe, parse_target

    parsed = [parse_target(each) for each in options.targets]
    users = [each.user for each in parsed]
    if len(set(users)) < len(users):
        twice = next(user for user in users if users.count(user) > 1)
        raise UsageError(f"--target {twice}=...: is given twice; users have one target each")
    logs.check()
    logs.configure()

    from steersman.apps.runtime.http_server import serve_probe
    from steersman.apps.runtime.tasks import run

    measured = Probe(parsed, options.interval, options.samples, options.timeout)
    run(serve_probe(measured, options.address, options.port))
