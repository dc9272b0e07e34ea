"""`steersman workbench`: JupyterLab, TensorBoard, the dashboard and a cluster by one command."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

from steersman.cli.commands.cluster.command import UpOptions, start
from steersman.cli.commands.cluster.nodes import ExistingCluster, NodeCreationOptions
from steersman.cli.commands.dashboard import PORT as DASHBOARD_PORT
from steersman.cli.options.common import path_option
from steersman.cli.options.declaring import option, with_options
from steersman.cli.output.display import say, status_if_slow
from steersman.core.errors import UsageError
from steersman.core.extras import require_extra
from steersman.core.signals import defer_signals

JUPYTER_PORT, TENSORBOARD_PORT = 8888, 6006
DEFAULT_COUNT = 10


@with_options
def workbench(
    folder: Annotated[
        Path | None,
        path_option(
            "What JupyterLab opens; TensorBoard reads its folder runs. [default: docs/tutorials of a checkout, "
            "else the working directory]",
            metavar="FOLDER",
        ),
    ] = None,
    count: Annotated[int, option("Simulated nodes of the cluster.", min=1)] = DEFAULT_COUNT,
    jupyter_port: Annotated[
        int, option("Port of JupyterLab on 127.0.0.1; 0 takes a free one.", min=0, max=65535)
    ] = JUPYTER_PORT,
    tensorboard_port: Annotated[int, option("Port of TensorBoard, likewise.", min=0, max=65535)] = TENSORBOARD_PORT,
    dashboard_port: Annotated[int, option("Port of the dashboard, likewise.", min=0, max=65535)] = DASHBOARD_PORT,
    *,
    existing: ExistingCluster,
) -> None:
    """Start JupyterLab with the tutorials, TensorBoard, the dashboard and a cluster with simulated nodes.

    Prints the address of each; Ctrl-C ends all of them. JupyterLab and the dashboard have random tokens. TensorBoard
    has none, but like the others it listens on 127.0.0.1 alone. The cluster is **steersman cluster up --name
    workbench**. Needs the extra workbench.

    **Example**: steersman workbench --jupyter-port 0
    """
    from steersman.apps import workbench as services
    from steersman.apps.local_cluster.cluster import check_new, take_down
    from steersman.apps.local_cluster.record import require
    from steersman.apps.workbench import choose_port, running, watch

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
