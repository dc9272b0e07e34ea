"""`steersman dashboard` and `steersman workbench`: what is shown in the browser."""

from __future__ import annotations

import asyncio
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, get_args

import typer

from steersman.cli.commands.cluster import ExistingCluster, NodeCreationOptions, UpOptions, start
from steersman.cli.options.arrivals import ArrivalOptions
from steersman.cli.options.cluster import ClusterOptions
from steersman.cli.options.common import advanced_path, path, path_option, policy_option
from steersman.cli.options.declaring import RequiresOption, advanced, given_options, option, with_options
from steersman.cli.options.inputs import Inputs, InputsWithRunningPods
from steersman.cli.options.policies import PolicyServer
from steersman.cli.output.display import Progress, Warnings, print_text, say, status_if_slow
from steersman.core.errors import UsageError
from steersman.core.extras import require_extra
from steersman.core.redaction import redact_url
from steersman.core.signals import defer_signals
from steersman.prometheus.configuration import read_configuration
from steersman.workloads.workload import FIRST_SEED

if TYPE_CHECKING:
    from steersman.live.dashboard.server import Screen
    from steersman.live.dashboard.simulation.sources import RunSource

PORT = 8050
MOST_POLICIES = 2


@dataclass(frozen=True, slots=True)
class DashboardOptions:
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            parser=path,
            metavar="FOLDER...",
            help="Folders of **simulate** or **evaluate**, or with such folders in them; CSV files of **workload run** "
            "and recordings of AAML's scheduler; before --policy.",
            show_default=False,
        ),
    ] = None
    policy: list[str] | None = policy_option(
        "One policy to watch, or two to compare on the same arrivals", " [default: kube-default steersman]"
    )
    seed: int = advanced("Seed of the arrival order, of ties and of random choices.", default=FIRST_SEED, min=0)
    port: int = advanced("Port on 127.0.0.1; 0 takes a free one.", default=PORT, min=0, max=65535)
    browser: bool = option("Open the page in a browser.", "--open/--no-open", default=True)


@dataclass(frozen=True, slots=True)
class LiveDashboardOptions:
    RULES: ClassVar = (RequiresOption("live"),)

    live: bool = option("A live cluster as it is and was in the last 24 hours; nothing is written.", default=False)
    scheduler: str | None = advanced(
        "With --live: the scheduler's metrics too ('steersman schedule', or kube-scheduler).", metavar="URL"
    )
    service: str | None = advanced("With --live: the metrics of a 'steersman serve' too.", metavar="URL")
    telemetry: Path | None = advanced_path("With --live: YAML with queries of Prometheus, for the latency to users.")


@with_options
def dashboard(
    options: DashboardOptions,
    inputs: InputsWithRunningPods,
    arrivals: ArrivalOptions,
    page: LiveDashboardOptions,
    server: PolicyServer,
) -> None:
    """Watch in the browser: runs simulated now, runs in folders, and a live cluster.

    With a workload, simulates one policy or two, and shows how they fill the cluster: GPUs of all nodes as a heat map,
    a time slider, the decisions in which two policies differ, and the reasons for each. With folders and files, shows
    what is in them: simulated runs, comparisons, Deployments of a workload run, and recordings of a scheduler. With
    --live, a cluster as it is and was. Serves pages on 127.0.0.1 until Ctrl-C; the address has a token, and nothing is
    sent elsewhere. **tensorboard --logdir FOLDER** shows training.

    **Example**: steersman dashboard --workload default-small --policy fgd steersman

    steersman dashboard run comparison

    steersman dashboard run.csv

    steersman dashboard --live --scheduler http://127.0.0.1:10251
    """
    server.use()
    screens: list[Screen] = []
    if page.live:
        urls = {"scheduler": page.scheduler, "service": page.service}
        screens.append(live_screen(inputs.live, urls, page.telemetry))
    simulated: list[RunSource] = []
    sources = given_options(inputs).keys() & {"nodes", "pods", "workload", "cluster"}
    if not (options.folders or page.live) or options.policy or sources:
        names = options.policy or ["kube-default", "steersman"]
        if len(names) > MOST_POLICIES or len(set(names)) < len(names):
            raise UsageError(f"--policy {' '.join(names)}: give one policy, or two different ones")
        inputs.check()
        simulated = simulated_runs(names, inputs, arrivals, options.seed)
    screens += screens_of(simulated, options.folders or [])
    from steersman.live.runtime.tasks import run

    run(_serve(screens, options.port, options.browser))


async def _serve(screens: Sequence[Screen], port: int, browser: bool) -> None:
    from prometheus_client import CollectorRegistry

    from steersman.live.dashboard.server import HEADERS, OneTimeCode, application, new_token
    from steersman.live.runtime.http_server import ADDRESS, ListenAddress, Probes, WebServer

    token, code = new_token(), OneTimeCode()
    app = application(screens, token, ADDRESS, code)
    server = WebServer(CollectorRegistry(), Probes(), ListenAddress(ADDRESS, port), app, headers=HEADERS)
    async with server, asyncio.TaskGroup() as group:
        address = f"http://{ADDRESS}:{server.port}/"
        print_text(f"The dashboard is at {address}?token={token}\nCtrl-C ends it.")
        if browser:
            webbrowser.open(f"{address}?code={code.text}")
        for screen in screens:
            group.create_task(screen.run())
        await asyncio.Event().wait()


def live_screen(cluster: ClusterOptions, urls: Mapping[str, str | None], telemetry: Path | None) -> Screen:
    from steersman.live.dashboard.live.metrics import MetricsSource, metrics_url
    from steersman.live.dashboard.live.screen import LiveScreen

    sources = [MetricsSource(name, metrics_url(f"--{name}", url)) for name, url in urls.items() if url is not None]
    queries = None if telemetry is None else read_configuration(telemetry)
    config = cluster.find().config
    return LiveScreen(config, config.context or redact_url(config.cluster.server), sources, queries)


def simulated_runs(names: Sequence[str], inputs: Inputs, arrivals: ArrivalOptions, seed: int) -> list[RunSource]:
    """Simulate a run of each policy on the same arrivals, whose digest finds runs in folders that have the same."""
    from steersman.policies.registry import check_policy_names, resolve
    from steersman.simulation.run import Simulator

    check_policy_names(names)
    warn = Warnings()
    (source,) = inputs.read(warn)
    arrivals.warn_of(source, warn)

    from steersman.evaluation.replay_file import RunOptions, replay_file
    from steersman.live.dashboard.simulation.sources import SimulatedRun

    policies = [resolve(name) for name in names]
    results, simulator = [], Simulator(source)
    with Progress("simulating") as progress:
        for done, each in enumerate(policies):
            progress.update(done, len(policies))
            results.append(simulator.run(each, seed=seed, record=True, **arrivals.settings))
    for result in results:
        warn(result.warnings)
    options = RunOptions(names[0], *arrivals.numbers)
    common = replay_file(source, options, names[0], results[0].protocol, seed).arrivals()
    return [SimulatedRun(source, each, result, common) for each, result in zip(policies, results, strict=True)]


def screens_of(simulated: Sequence[RunSource], given: Sequence[Path]) -> list[Screen]:
    """Return the screens of simulated runs and of what is in folders and files, without those with nothing to show."""
    from steersman.live.dashboard.comparison.screen import ComparisonScreen
    from steersman.live.dashboard.runs import Kind, find_runs
    from steersman.live.dashboard.simulation.screen import SimulationScreen
    from steersman.live.dashboard.simulation.sources import FolderRun, RecordingRun
    from steersman.live.dashboard.workload import WorkloadScreen

    found, problems = find_runs(given)
    Warnings()([str(problem) for problem in problems])
    by_kind = {kind: [run for run in found if run.kind == kind] for kind in get_args(Kind)}
    simulations = [*simulated, *map(FolderRun, by_kind["simulation"])]
    played = [*simulations, *map(RecordingRun, by_kind["bindings"])]
    screens: list[Screen] = [SimulationScreen(played)] if played else []
    if by_kind["evaluation"]:
        screens.append(ComparisonScreen(by_kind["evaluation"]))
    if by_kind["deployments"] or by_kind["bindings"]:
        screen = WorkloadScreen([*by_kind["deployments"], *by_kind["bindings"]])
        screens.insert(len(screens) if simulations else 0, screen)  # what a recording says comes before its replay
    return screens


JUPYTER_PORT, TENSORBOARD_PORT = 8888, 6006
WORKBENCH_NODES = 10


@with_options
def workbench(
    folder: Path | None = path_option(
        "What JupyterLab opens; TensorBoard reads its folder runs. [default: docs/tutorials of a checkout, "
        "else the working directory]",
        metavar="FOLDER",
    ),
    count: int = option("Simulated nodes of the cluster.", default=WORKBENCH_NODES, min=1),
    jupyter_port: int = option(
        "Port of JupyterLab on 127.0.0.1; 0 takes a free one.", default=JUPYTER_PORT, min=0, max=65535
    ),
    tensorboard_port: int = option("Port of TensorBoard, likewise.", default=TENSORBOARD_PORT, min=0, max=65535),
    dashboard_port: int = option("Port of the dashboard, likewise.", default=PORT, min=0, max=65535),
    *,
    existing: ExistingCluster,
) -> None:
    """Start JupyterLab with the tutorials, TensorBoard, the dashboard and a cluster with simulated nodes.

    Prints the address of each; Ctrl-C ends all of them. JupyterLab and the dashboard have random tokens. TensorBoard
    has none, but like the others it listens on 127.0.0.1 alone. The cluster is **steersman cluster up --name
    workbench**. Needs the extra workbench.

    **Example**: steersman workbench --jupyter-port 0
    """
    from steersman.live import workbench as services
    from steersman.live.local_cluster.cluster import check_new, take_down
    from steersman.live.local_cluster.record import require
    from steersman.live.workbench import choose_port, running, watch

    require_extra("the workbench", "workbench", "jupyterlab", "ipykernel", "tensorboard")
    in_existing = existing.load() is not None  # what is wrong with it is said before anything starts
    opened = services.default_folder() if folder is None else folder.absolute()
    if not opened.is_dir():
        raise UsageError(f"--folder {opened}: there is no such folder")
    with tempfile.TemporaryDirectory(prefix="steersman-workbench-") as scratch:
        every = (
            services.jupyterlab(choose_port("--jupyter-port", jupyter_port), opened, Path(scratch)),
            services.tensorboard(choose_port("--tensorboard-port", tensorboard_port), opened),
            services.dashboard(choose_port("--dashboard-port", dashboard_port)),
        )
        check_new(services.CLUSTER)  # what was there before stays
        try:
            # Pods of a cluster that was there must not be scheduled on nodes that start no container.
            local = UpOptions(services.CLUSTER, count, yes=True)
            start(local, NodeCreationOptions(kwok_taint=in_existing), existing)
            environment = services.environment_of(require(services.CLUSTER).kubeconfig)
            with running(every, Path(scratch), environment) as started:
                for each in started:
                    print(f"{each.service.name + ':':<12} {each.address}")
                    if each.service.note:
                        print(f"{'':<12} ({each.service.note})")
                print("Ctrl-C ends all of them, and the cluster.", flush=True)
                watch(started)
        finally:
            with defer_signals(), status_if_slow(f"stopping cluster {services.CLUSTER!r}"):
                take_down(services.CLUSTER, say)
