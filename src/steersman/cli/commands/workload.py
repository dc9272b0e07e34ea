"""`steersman workload`: generate and convert workload files, and add racks. `live_workload` has what uses clusters."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from steersman.cli.commands.live_workload import record, replay, run, snapshot
from steersman.cli.completing import formats, workloads
from steersman.cli.options.arrivals import FillingOptions, parse_range
from steersman.cli.options.cluster import check_new_folder, dns_label, optional_scheduler, scheduler
from steersman.cli.options.common import CommandGroup, ManyValues, path_option
from steersman.cli.options.declaring import Excludes, advanced, option, with_options
from steersman.cli.options.inputs import EMBEDDED_HELP, FileInputs
from steersman.cli.output.display import Warnings, say, status_if_slow
from steersman.core.atomic_files import replacing
from steersman.core.errors import UsageError
from steersman.workloads.files import check_writable
from steersman.workloads.formats.registry import WRITTEN, find_format
from steersman.workloads.workload import RunningPods, Workload

app = CommandGroup(help="Generate, convert and record workloads, and run them on a live cluster.")
for live in (run, replay, record, snapshot):
    app.command()(live)


class RandomDistribution(enum.StrEnum):
    TRAINING = "training"
    VALIDATION = "validation"


Folder = Annotated[Path, path_option("Folder of the files: new or empty.", "--output", metavar="FOLDER")]
Nodes = Annotated[
    Path | None, path_option("Nodes: an openb node list (CSV), or a file or folder of Kubernetes YAML.", metavar="PATH")
]


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    output: Folder
    nodes: Nodes = None
    node_count: int = option(
        "Without --nodes: this many equal nodes, and one tainted control-plane node.", default=10, min=1, max=1_000_000
    )
    node_cpu: str = advanced("CPU of each such node.", default="64")
    node_memory: str = advanced("Memory of each such node.", default="256Gi")
    node_pods: int = advanced("Pods of each such node.", default=110, min=1, max=1_000_000)
    scheduler_name: str = option(
        "The pods' schedulerName.", default="custom-scheduler", parser=scheduler, metavar="NAME"
    )
    namespace: str = advanced("The pods' namespace.", default="default", parser=dns_label, metavar="NAME")
    seed: int = option("Seed of the workload; the same seed gives the same files.", default=42, min=0)
    csv: Path | None = path_option("Also write the Deployments as a CSV for --replay.")
    replay: Path | None = path_option("Take the Deployments from such a CSV instead.")


@app.command()
@with_options
def generate(options: GenerateOptions, filling: FillingOptions) -> None:
    """Generate random Deployments that fill a cluster to a target load, several times.

    Writes nodes.yaml and pods.yaml, whose pods have creation and deletion times for `--protocol timed`.
    The CSV has the columns name, pod_count, cpu_request, cpu_limit, mem_request, mem_limit, action (add or delete).

    **Example**: steersman workload generate --node-count 20 --cpu-load 0.7 --cluster-resets 3 --output busy
    """
    import numpy as np

    from steersman.workloads.formats.registry import convert
    from steersman.workloads.generators import deployments
    from steersman.workloads.loading import load_nodes

    output, csv = options.output, options.csv
    if csv is not None and csv.resolve().is_relative_to(output.resolve()):
        raise UsageError(
            f"--csv {csv} lies in --output, where its Deployments would count twice; put it beside the folder"
        )
    check_new_folder(output)
    if csv is not None:
        check_writable("--csv", csv)
    settings = filling.settings
    if options.nodes is not None:
        with status_if_slow(f"reading {options.nodes}"):
            cluster = load_nodes(options.nodes)
    else:
        cpu, memory = options.node_cpu, options.node_memory
        cluster = deployments.cluster(options.node_count, cpu=cpu, memory=memory, pods=options.node_pods)
    with status_if_slow("making the pods"):
        if options.replay is not None:
            rows = deployments.read_rows(options.replay)
        else:
            rows = deployments.generate(settings, cluster, np.random.default_rng(options.seed))
        pods = deployments.replay(
            rows,
            interval_seconds=filling.interval,
            wait_seconds=filling.wait,
            scheduler_name=options.scheduler_name,
            namespace=options.namespace,
            file=str(options.replay or ""),
        )
    with status_if_slow(f"writing {len(cluster)} nodes and {len(pods)} pods"):
        convert(Workload(output.name, cluster, pods), "yaml", output)
    if csv is not None:
        with replacing(csv) as part:
            deployments.write_rows(rows, part)
    added = sum(1 for row in rows if row.action == deployments.ADD)
    say(f"wrote {output}: {len(cluster)} nodes, {added} Deployments, {len(pods)} pods")


@app.command()
@with_options
def random(
    output: Folder,
    count: int = option("How many clusters, in sub-folders if several.", default=1, min=1, max=10_000),
    seed: int = option("Of the first one; the others have the seeds that follow.", default=1, min=0),
    node_range: str = option(
        "The smallest and the largest number of nodes.", "--nodes", default="5-2000", metavar="LOW-HIGH"
    ),
    distribution: RandomDistribution = option(
        "training, or validation: other shapes of nodes, other sizes of pods, and other random numbers.",
        default=RandomDistribution.VALIDATION,
    ),
) -> None:
    """Generate random GPU clusters with pods, to compare policies on many shapes.

    Writes nodes.yaml and pods.yaml. Sizes, GPU models, shares and whole GPUs, CPU and memory per GPU, constraints,
    the order of pods and their times are drawn as steersman.workloads.generators.clusters documents.

    **Example**: steersman workload random --count 20 --nodes 5-200 --output clusters
    """
    from steersman.workloads.formats.registry import convert
    from steersman.workloads.generators.clusters import Distribution, random_cluster

    low, high = parse_range("--nodes", node_range)
    if count == 1:
        check_new_folder(output)
    check_writable("--output", output, "nodes.yaml")
    with status_if_slow(f"drawing {count} clusters"):
        for number in range(seed, seed + count):
            workload = random_cluster(number, distribution=Distribution(distribution.value), nodes=(low, high))
            convert(workload, "yaml", output if count == 1 else output / workload.name)
    say(f"wrote {count} clusters to {output}" if count > 1 else f"wrote nodes.yaml and pods.yaml to {output}")


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    output: Folder
    to: str = option(
        f"The format to write: {', '.join(WRITTEN)}, or that of a package.",
        default=...,
        metavar="FORMAT",
        autocompletion=formats,
    )
    nodes: Nodes = None
    pods: Path | None = path_option(
        "Pods: a CSV table (openb, Deployments, gpu-v2025, Philly, jobs), a log of jobs (.swf), or a file or "
        "folder of Kubernetes YAML.",
        metavar="PATH",
    )
    workload: str | None = option(
        f"Instead of --nodes and --pods: {EMBEDDED_HELP}.",
        Excludes("nodes"),
        Excludes("pods"),
        metavar="NAME",
        autocompletion=workloads,
    )
    lossy: bool = option("Leave out what the format cannot say, and count it, instead of ending there.", default=False)


@app.command()
@with_options
def convert(options: ConvertOptions) -> None:
    """Write a workload in another format.

    yaml: nodes.yaml and pods.yaml, with Deployments and other controllers expanded into pods.
    openb: nodes.csv and pods.csv.
    jobs: nodes.yaml and jobs.csv (name, submit, duration, cpu, memory, gpus, ...).
    deployments: nodes.yaml and deployments.csv (name, pod_count, cpu_request, ..., action).
    One of --nodes and --pods is enough if a folder holds both, or to convert only nodes or pods.

    **Example**: steersman workload convert --nodes nodes.csv --pods monday.csv --to yaml --output monday
    """
    from steersman.workloads.formats.registry import convert as write
    from steersman.workloads.loading import load_workload

    find_format(options.to)
    check_new_folder(options.output)

    warn, nodes, pods = Warnings(), options.nodes, options.pods
    if options.workload is not None:
        inputs = FileInputs(workload=[options.workload])
        inputs.check()
        (source,) = inputs.read(warn)
    else:
        with status_if_slow(f"reading {pods or nodes}"):
            source = load_workload(nodes, pods, partial=True, running=RunningPods.AS_WRITTEN)
        warn(source.warnings)
    with status_if_slow(f"writing {len(source.nodes)} nodes and {len(source.pods)} pods"):
        files = {"nodes_file": nodes or pods or source.name, "pods_file": pods or nodes or source.name}
        warn(write(source, options.to, options.output, lossy=options.lossy, **files))
    say(f"wrote {options.output}: {len(source.nodes)} nodes, {len(source.pods)} pods")


@app.command(cls=ManyValues)
@with_options
def topology(
    data_dir: list[Path] | None = path_option(
        "Workload folders, or folders of them; each is numbered from 1. Several may follow.", metavar="FOLDER"
    ),
    nodes: Path | None = path_option("A single node list instead of a folder."),
    pods: Path | None = path_option("A single pod list instead of a folder."),
    servers_per_rack: int = option("Nodes that share a rack, in the order of the list.", default=4, min=1),
    racks_per_zone: int = option(
        "Racks that share a zone (topology.kubernetes.io/zone); 0: no zones.", default=0, min=0
    ),
    scheduler_name: str = option(
        "Written into pods that name no scheduler, or the default one. [default: pods stay as they are]",
        default="",
        parser=optional_scheduler,
        metavar="NAME",
    ),
) -> None:
    """Label the nodes of workloads with racks and servers, and name a scheduler in the pods.

    Labels every node rack=rack-I and server=srv-J in the order of the list; existing labels are kept.
    Writes YAML beside each node and pod list (YAML or openb CSV), with -hier at the end of its name. Such a file
    replaces its original when a folder is read later.

    **Example**: steersman workload topology --data-dir data/monday data/tuesday --servers-per-rack 4
    """
    from steersman.workloads.topology import Hierarchy, write_hierarchy

    if not data_dir and nodes is None and pods is None:
        raise UsageError("give --data-dir FOLDER, or --nodes FILE and --pods FILE")
    with status_if_slow("labelling the nodes"):
        written = write_hierarchy(
            data_dir or (), Hierarchy(servers_per_rack, racks_per_zone), scheduler_name, node_list=nodes, pod_list=pods
        )
    for file in written:
        say(f"wrote {file.path}: {file.nodes} nodes, {file.pods} pods")
    kept = sum(file.kept_schedulers for file in written)
    if kept:
        Warnings()([f"{kept} pods name another scheduler than {scheduler_name} and keep it"])
