"""`steersman serve` and `steersman probe`: the score service, and latencies from a node to users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from steersman.cli.options.cluster import ClusterOptions, log_cluster, run_with_client, say_without_telemetry, scheduler
from steersman.cli.options.common import (
    NODES_HELP,
    TelemetryOption,
    UncheckedOption,
    advanced_path,
    path_option,
    policy_option,
)
from steersman.cli.options.declaring import Excludes, RequiresOption, advanced, given_options, option, with_options
from steersman.cli.options.inputs import FileInputs
from steersman.cli.output.display import Warnings, say, status_if_slow
from steersman.cli.output.logs import LogOptions
from steersman.core.errors import UsageError
from steersman.prometheus.configuration import read_configuration

if TYPE_CHECKING:
    from steersman.live.service.config import ServiceConfig


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Options that a file may state, too, by the names of `ServiceConfig`. `None`: not given."""

    policy: str | None = policy_option("Policy that scores", " [default: steersman]")
    shadow: bool | None = option("Return neutral scores, and log what the policy would have returned.")
    address: str | None = option("Address to listen on. [default: 127.0.0.1]")
    port: int | None = option("Port to listen on; 0: a free port. [default: 5000]", min=0, max=65535)
    deadline_milliseconds: float | None = advanced(
        "Milliseconds after which scores are neutral. [default: 50]", "--deadline", metavar="MS"
    )
    allow_sent_clusters: bool | None = advanced(
        "Whether requests may contain a cluster of their own beside the watched one. [default: no]",
        "--allow-sent-clusters/--no-sent-clusters",
    )
    unchecked: UncheckedOption = False
    telemetry: TelemetryOption = None


@dataclass(frozen=True, slots=True)
class WatchOptions:
    config: Path | None = path_option("YAML with these and further options; the command line overrides it.")
    watch: bool = option("Watch a live cluster; --no-watch: every request contains its nodes and pods.", default=True)
    nodes: Path | None = advanced_path(
        f"With --no-watch: prepare the policy for these. {NODES_HELP}", RequiresOption("watch")
    )
    pods: Path | None = advanced_path("With --nodes: the pods that are typical.", RequiresOption("watch"))
    learn: Path | None = path_option(
        "Continue to train the policy file by DQN, in a separate process, on what --learn-from does with the "
        "scores, and use the result where held-back decisions show that it is better. DIR holds the policy in use, "
        "those that it replaced, every test (exchanges.csv), checkpoint and metrics; 'steersman policy undo DIR' "
        "puts the previous policy back.",
        Excludes("watch"),
        metavar="DIR",
    )
    learn_from: str | None = advanced(
        "With --learn: scheduler whose bindings are learned from. [default: default-scheduler]",
        RequiresOption("learn"),
        parser=scheduler,
        metavar="NAME",
    )


@with_options
def serve(options: ServiceOptions, watching: WatchOptions, logs: LogOptions, cluster: ClusterOptions) -> None:
    """Serve a policy's scores over HTTP, for kube-scheduler's extender or plugin and other clients.

    POST /v1/scores, /v1/suggestions, /v1/explain, /score, and an extender's /filter and /prioritize; /openapi.json
    describes them. It binds nothing. On any failure nodes get neutral scores, and the other scheduler decides. It
    listens on localhost unless --address is given; TLS, tokens, canaries and limits are in --config.

    **Example**: steersman serve --policy steersman, then open http://127.0.0.1:5000/openapi.json

    **Get better while it serves**: steersman serve --policy run/policy.safetensors --learn learned

    **Without a cluster to watch**: steersman serve --no-watch --nodes nodes.csv --pods pods.csv
    """
    watch = watching.watch
    if not watch and given_options(cluster):
        raise UsageError("--no-watch follows no cluster; leave out --kubeconfig, --context and --name")
    inputs = FileInputs(watching.nodes, [watching.pods] if watching.pods else None)
    if given_options(inputs):
        inputs.check()
    settings = _settings(options, watching.config)
    if settings.telemetry:
        if not watch:
            raise UsageError("--no-watch follows no cluster, so there is nothing that --telemetry could measure")
        read_configuration(Path(settings.telemetry))
    logs.check()
    target = cluster.find() if watch else None
    logs.configure()

    import msgspec

    from steersman.live.http_policy.policy import server_url
    from steersman.live.runtime.tasks import run
    from steersman.live.service.process import Service
    from steersman.policies.base import derives_tables
    from steersman.policies.registry import resolve

    follower = None
    if watching.learn is not None and target is not None:
        from steersman.live.learner.processes import Learning, following, prepare_to_follow
        from steersman.training.run import POLICY

        source = watching.learn_from or "default-scheduler"
        plan, live_run = prepare_to_follow(target, Path(settings.policy), watching.learn, source)
        measured = read_configuration(Path(settings.telemetry)) if settings.telemetry else None
        follower = following(Learning(plan, live_run, target.config, measured, logs.configure_process))
        # `prepare_to_follow` has put the policy there, and learning replaces it.
        settings = msgspec.structs.replace(settings, policy=str(watching.learn / POLICY))
    decides = resolve(settings.policy)
    if server_url(decides):
        raise UsageError(f"--policy {settings.policy} is a server itself; ask it, or give a policy that decides here")
    say_without_telemetry(decides, settings.policy, has_telemetry=bool(settings.telemetry))
    if target is not None:
        log_cluster(target)
    elif not inputs.count and derives_tables(decides):
        raise UsageError(
            f"--policy {settings.policy} derives tables from typical pods, and --no-watch follows no cluster; give "
            "--nodes and --pods, or a file of 'steersman fit policy'"
        )
    with ExitStack() as stack:
        if inputs.count and derives_tables(decides):
            prepared = stack.enter_context(_prepared(settings.policy, inputs))
            settings = msgspec.structs.replace(settings, policy=str(prepared))
            decides = resolve(settings.policy)
        if follower is not None:
            stack.enter_context(follower)
        if target is None:
            run(Service(settings, None).run())
        else:
            run_with_client(target, lambda client: Service(settings, client).run())


def _settings(options: ServiceOptions, file: Path | None) -> ServiceConfig:
    import msgspec

    from steersman.live.service.config import ServiceConfig, check, read_config

    given = given_options(options)
    if options.telemetry is not None:
        given["telemetry"] = str(options.telemetry)
    settings = msgspec.structs.replace(ServiceConfig() if file is None else read_config(file), **given)
    check(settings, file or "options")
    return settings


@contextmanager
def _prepared(policy: str, inputs: FileInputs) -> Iterator[Path]:
    from steersman.policies.policy_file import write_policy
    from steersman.policies.registry import policy_path, resolve
    from steersman.simulation.prepared_policy import prepare_chosen

    (workload,) = inputs.read(Warnings())
    with TemporaryDirectory(prefix="steersman-") as folder, policy_path(policy) as source:
        file = Path(folder, source.name)
        with status_if_slow("preparing the policy for these nodes and pods"):
            card, arrays, evidence = prepare_chosen(source, resolve(policy), workload)
        write_policy(file, card, arrays)
        if evidence:
            say(evidence)
        yield file


PROBE_PORT = 8100


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    targets: list[str] = option(
        "Users and their address: a TCP connection is measured, or with USER=http://HOST/PATH a request; repeatable.",
        "--target",
        default=...,
        metavar="USER=HOST:PORT",
    )
    interval: float = option("Seconds between round trips.", default=5.0, min=0.1, max=3600)
    samples: int = advanced("Round trips in the median.", default=9, min=1, max=1000)
    timeout: float = advanced("Timeout of a round trip in seconds.", default=2.0, min=0.01, max=60)
    address: str = option("Address to listen on.", default="127.0.0.1")
    port: int = option("Port to listen on; 0: a free port.", default=PROBE_PORT, min=0, max=65535)


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

    from steersman.live.runtime.http_server import serve_probe
    from steersman.live.runtime.tasks import run

    measured = Probe(parsed, options.interval, options.samples, options.timeout)
    run(serve_probe(measured, options.address, options.port))
