"""`steersman dashboard`: runs in the browser, simulated now or read from folders, and live clusters."""

from __future__ import annotations

import asyncio
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steersman.cli.commands.browser.sources import RunArrivals, live_screen, screens_of, simulated_runs
from steersman.cli.completing import contexts, policies
from steersman.cli.options.algorithms import with_options
from steersman.cli.options.cluster import DEFAULT_CLUSTER
from steersman.cli.options.common import (
    POLICIES_HELP,
    FromNow,
    Load,
    MeanDuration,
    Nodes,
    Pinned,
    Protocol,
    ProtocolOption,
    Ratio,
    check_load,
    check_mean_duration,
    check_ratio,
    path,
    running_of,
)
from steersman.cli.options.inputs import (
    FromCluster,
    Inputs,
    LiveSource,
    WorkloadName,
)
from steersman.cli.options.policy_server import PolicyServer
from steersman.cli.output.display import print_text
from steersman.core.errors import UsageError
from steersman.workloads.workload import FIRST_SEED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.apps.dashboard.screens import Screen
    from steersman.apps.dashboard.simulation.sources import RunSource

MetricsUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="With --live: the scheduler's metrics too ('steersman schedule', or kube-scheduler)."
    ),
]
ServiceUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="With --live: the metrics of a 'steersman serve' too.")
]
LiveTelemetry = Annotated[
    Path | None,
    typer.Option(
        parser=path, metavar="FILE", help="With --live: YAML with queries of Prometheus, for the latency to users."
    ),
]
WatchedKubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        parser=path,
        metavar="FILE",
        help=f"With --live or --cluster: its kubeconfig. [default: {DEFAULT_CLUSTER}]",
    ),
]
WatchedContext = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        autocompletion=contexts,
        help="With --live or --cluster: a context. [default: the current one]",
    ),
]
PORT = 8050
MOST_POLICIES = 2


@with_options
def dashboard(
    server: PolicyServer,
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            parser=path,
            metavar="FOLDER...",
            help="Folders of **simulate**, **evaluate**, **train**, **tune** or **schedule** --learn, or with such "
            "folders in them; CSV files of **workload run**, and recordings of AAML's scheduler; before --policy.",
            show_default=False,
        ),
    ] = None,
    nodes: Nodes = None,
    pods: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="Pods of the workload: an openb pod list (CSV), or a file or folder of Kubernetes YAML.",
        ),
    ] = None,
    workload: WorkloadName = None,
    cluster: FromCluster = False,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POLICY",
            autocompletion=policies,
            help=f"One policy to watch, or two to compare on the same arrivals: {POLICIES_HELP} "
            "[default: kube-default steersman]",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the arrival order, of ties and of random choices.")
    ] = FIRST_SEED,
    protocol: ProtocolOption = None,
    ratio: Ratio = None,
    load: Load = None,
    mean_duration: MeanDuration = None,
    pinned: Pinned = False,
    from_now: FromNow = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = PORT,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    live: Annotated[
        bool, typer.Option("--live", help="A live cluster as it is and was in the last 24 hours; nothing is written.")
    ] = False,
    scheduler: MetricsUrl = None,
    service: ServiceUrl = None,
    telemetry: LiveTelemetry = None,
    kubeconfig: WatchedKubeconfig = None,
    context: WatchedContext = None,
) -> None:
    """Watch in the browser: runs simulated now, runs in folders, those that still learn included, and a live cluster.

    With a workload, simulates one policy or two, and shows how they fill the cluster: GPUs of all nodes as a heat map,
    a time slider, the decisions in which two policies differ, and the reasons for each. With folders and files, shows
    what is in them: simulated runs, comparisons, Deployments of a workload run, recordings of a scheduler, and
    training, which can be paused and stopped from there. With --live, a cluster as it is and was. Serves pages on
    127.0.0.1 until Ctrl-C; the address has a token, and nothing is sent elsewhere.

    **Examples**:

    steersman dashboard --workload default-small --policy fgd steersman

    steersman dashboard my-policy comparison

    steersman dashboard run.csv

    steersman dashboard --live --scheduler http://127.0.0.1:10251
    """
    server.use()
    screens: list[Screen] = []
    if live:
        screens.append(live_screen(kubeconfig, context, {"scheduler": scheduler, "service": service}, telemetry))
    elif scheduler or service or telemetry:
        raise UsageError("--scheduler, --service and --telemetry belong to --live; give that too, or leave them out")
    protocol = protocol or Protocol.INFLATION
    share = check_ratio(ratio, protocol)
    check_load(load, protocol)
    check_mean_duration(mean_duration, protocol)
    running = running_of(pinned, from_now, protocol)
    simulated: list[RunSource] = []
    if not (folders or live) or policy or nodes or pods or workload or cluster:
        names = policy or ["kube-default", "steersman"]
        if len(names) > MOST_POLICIES or len(set(names)) < len(names):
            raise UsageError(f"--policy {' '.join(names)}: give one policy, or two different ones")
        read = LiveSource(cluster, *((kubeconfig, context) if cluster or not live else ()))
        inputs = Inputs(nodes, (pods,) if pods else (), (workload,) if workload else (), read, running)
        simulated = simulated_runs(names, inputs, RunArrivals(protocol, seed, share, load, mean_duration))
    screens += screens_of(simulated, folders or [])
    from steersman.apps.runtime.tasks import run

    run(_serve(screens, port, browser))


async def _serve(screens: Sequence[Screen], port: int, browser: bool) -> None:
    """Serve the pages of screens until cancelled, and print the address."""
    from prometheus_client import CollectorRegistry

    from steersman.apps.dashboard.access import HEADERS, OneTimeCode, new_token
    from steersman.apps.dashboard.server import application
    from steersman.apps.runtime.http_server import ADDRESS, Listen, Probes, WebServer

    token, code = new_token(), OneTimeCode()
    app = application(screens, token, ADDRESS, code)
    server = WebServer(CollectorRegistry(), Probes(), Listen(ADDRESS, port), app, headers=HEADERS)
    async with server, asyncio.TaskGroup() as group:
        address = f"http://{ADDRESS}:{server.port}/"
        print_text(f"The dashboard is at {address}?token={token}\nCtrl-C ends it.")
        if browser:
            webbrowser.open(f"{address}?code={code.text}")
        for screen in screens:
            group.create_task(screen.run())
        await asyncio.Event().wait()
