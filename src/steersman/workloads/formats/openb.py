"""openb traces: the node and pod lists (CSV) of a production GPU cluster, read strictly.

Format: pods `name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec,...,creation_time,deletion_time]`, nodes
`sn,cpu_milli,memory_mib,gpu,model`; further columns are ignored. Source: Weng et al., "Beware of Fragmentation", USENIX
ATC 2023.
"""

from __future__ import annotations

import gzip
from importlib import resources
from pathlib import Path

from steersman.cluster.gpu_units import with_standard_labels
from steersman.cluster.model import GPU_MILLI, Constraints, Node, Pod, PodClass, Requests
from steersman.core.errors import InputError, unknown_name
from steersman.core.quantities import MAX_CPU_MILLI, MAX_MEMORY_BYTES, MAX_NODE_GPUS, MAX_POD_GPUS
from steersman.workloads.formats.tables import TableRow, read_text, rows
from steersman.workloads.workload import Workload

POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
NODE_LIST, POD_LIST = "openb's list of nodes", "openb's list of pods"
NODE_FILE = "openb_node_list_gpu_node"
POD_FILE = "openb_pod_list_"
SMALL = "default-small"  # an embedded workload of 64 nodes and 510 pods, spread evenly over those of `default`

MAX_MEMORY_MIB = MAX_MEMORY_BYTES >> 20


def parse_nodes(file: str, text: str) -> tuple[Node, ...]:
    """Return the nodes of a node list; `file` is only named in errors."""
    nodes: dict[str, Node] = {}
    lines: dict[str, int] = {}
    for row in rows(file, text, NODE_COLUMNS, NODE_LIST):
        name = row.name("sn")
        if name in nodes:
            raise row.error("sn", f"{name!r} is in line {lines[name]}, too; names must be unique: number them")
        lines[name] = row.line
        gpus = row.integer("gpu", MAX_NODE_GPUS)
        nodes[name] = with_standard_labels(
            Node(
                name=name,
                cpu_milli=row.integer("cpu_milli", MAX_CPU_MILLI),
                memory_bytes=row.integer("memory_mib", MAX_MEMORY_MIB) << 20,
                gpu_count=gpus,
                gpu_model=row.text("model") if gpus else "",
            )
        )
    if not nodes:
        raise InputError(file, "", "", "has no nodes, only a header")
    return tuple(nodes.values())


def _pod_class(row: TableRow) -> PodClass:
    count = row.integer("num_gpu", MAX_POD_GPUS)
    # With a limit that never applies, since the next error says more.
    milli = row.integer("gpu_milli", 1 << 40)
    if milli > GPU_MILLI:
        raise row.error("gpu_milli", f"{milli} is more than one device; it is per device, 0 to {GPU_MILLI}")
    if count and not milli:
        raise row.error("gpu_milli", f"0 of each of {count} GPUs; give 1 to {GPU_MILLI}")
    if milli and not count:
        raise row.error("num_gpu", f"0 devices with {milli} milli each; give the number of GPUs")
    spec = row.text("gpu_spec") if count else ""
    requests = Requests(
        cpu_milli=row.integer("cpu_milli", MAX_CPU_MILLI),
        memory_bytes=row.integer("memory_mib", MAX_MEMORY_MIB) << 20,
        gpu_count=count,
        gpu_milli=milli,
    )
    models = tuple(spec.split("|")) if spec else ()
    if any(not model.strip() for model in models):
        raise row.error("gpu_spec", f"{spec!r} has an empty model; write models as A|B")
    return PodClass(requests, Constraints(gpu_models=models))


def parse_pods(file: str, text: str) -> tuple[Pod, ...]:
    """Return the pods of a pod list; `file` is only named in errors. Pods with equal requests share a `PodClass`."""
    pods: dict[str, Pod] = {}
    lines: dict[str, int] = {}
    classes: dict[tuple[str | None, ...], PodClass] = {}
    for row in rows(file, text, POD_COLUMNS, POD_LIST):
        name = row.name("name")
        if name in pods:
            raise row.error("name", f"{name!r} is in line {lines[name]}, too; names must be unique: number them")
        lines[name] = row.line
        key = tuple(row.cells.get(column) for column in (*POD_COLUMNS[1:], "gpu_spec"))
        pod_class = classes.get(key)
        if pod_class is None:
            pod_class = classes[key] = _pod_class(row)
        created, deleted = row.seconds("creation_time"), row.seconds("deletion_time")
        if created is not None and deleted is not None and deleted < created:
            raise row.error("deletion_time", f"{deleted:g} is before the creation_time {created:g}")
        pods[name] = Pod(name, pod_class, creation_time=created, deletion_time=deleted)
    if not pods:
        raise InputError(file, "", "", "has no pods, only a header")
    return tuple(pods.values())


def read_nodes(path: str | Path) -> tuple[Node, ...]:
    """Return the nodes of an openb node list (`.csv` or `.csv.gz`), in file order."""
    return parse_nodes(str(path), read_text(path))


def read_pods(path: str | Path) -> tuple[Pod, ...]:
    """Return the pods of an openb pod list (`.csv` or `.csv.gz`), in file order."""
    return parse_pods(str(path), read_text(path))


def embedded_names() -> tuple[str, ...]:
    """Return the names of the pod lists in the package: `default`, `cpu050` and so on."""
    files = (entry.name for entry in resources.files("steersman.data.openb").iterdir())
    return tuple(sorted(f[len(POD_FILE) : -len(".csv.gz")] for f in files if f.startswith(POD_FILE)))


def known_names() -> tuple[str, ...]:
    """Return the names that `embedded` takes: the pod lists and `SMALL`."""
    return (*embedded_names(), SMALL)


def embedded(name: str) -> Workload:
    """Return a packaged workload by its short name, on the 1,213 GPU nodes of the published experiments, or `SMALL`."""
    if name == SMALL:
        whole = embedded("default")
        return Workload(SMALL, whole.nodes[::19], whole.pods[::16])
    if name not in embedded_names():
        raise unknown_name("workload", name, known_names())

    def text(stem: str) -> str:
        data = resources.files("steersman.data.openb").joinpath(f"{stem}.csv.gz").read_bytes()
        return gzip.decompress(data).decode("utf-8")

    stem = POD_FILE + name
    return Workload(stem, parse_nodes(NODE_FILE, text(NODE_FILE)), parse_pods(stem, text(stem)))
