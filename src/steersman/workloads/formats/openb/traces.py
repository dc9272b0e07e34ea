"""openb traces: the node and pod lists (CSV) of a production GPU cluster, read strictly.

Format: pods `name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec,...,creation_time,deletion_time]`, nodes
`sn,cpu_milli,memory_mib,gpu,model`; further columns are ignored. Source: Weng et al., "Beware of Fragmentation", USENIX
ATC 2023.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path

from steersman.cluster.model import GPU_MILLI, Constraints, Node, Pod, PodClass, Requests
from steersman.cluster.node_labels import with_standard_labels
from steersman.core.errors import InputError, unknown_name
from steersman.core.quantities import MAX_CPU_MILLI, MAX_MEMORY_BYTES, MAX_NODE_GPUS, MAX_POD_GPUS
from steersman.workloads.workload import Workload

POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
NODE_FILE = "openb_node_list_gpu_node"
POD_FILE = "openb_pod_list_"
SMALL = "default-small"
"""An embedded workload of 64 nodes and 510 pods, spread evenly over those of `default`."""

MAX_MEMORY_MIB = MAX_MEMORY_BYTES >> 20


class _Row:
    """One CSV row with its position, so that every error names file, line and field."""

    def __init__(self, file: str, line: int, cells: Mapping[str, str]) -> None:
        self.file = file
        self.line = line
        self.cells = cells

    def error(self, field: str, problem: str) -> InputError:
        return InputError(self.file, f"line {self.line}", field, problem)

    def name(self, field: str) -> str:
        value = self.cells[field].strip()
        if not value:
            raise self.error(field, "is empty; every row needs a name")
        return self.text(field)

    def text(self, field: str) -> str:
        value = self.cells.get(field, "").strip()
        if not value.isprintable():
            raise self.error(field, f"{value!r} has a character that cannot be printed")
        return value

    def integer(self, field: str, limit: int) -> int:
        text = self.cells[field].strip()
        # Plain ASCII digits only: int() would also take "1_000", "²" and the like.
        if not (text.isascii() and text.isdigit()):
            raise self.error(field, f"{text!r} is not a whole number of 0 or more")
        value = int(text) if len(text) < 20 else limit + 1
        if value > limit:
            raise self.error(field, f"{text} is beyond any real machine (at most {limit})")
        return value

    def seconds(self, field: str) -> float | None:
        text = self.cells.get(field, "").strip()
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise self.error(field, f"{text!r} is not a number of seconds") from None
        if not 0 <= value < 1e15:
            raise self.error(field, f"{text} is not a time of 0 seconds or more")
        return value


def read_text(path: str | Path) -> str:
    """Return the text of a file, decompressed if its name ends in `.gz`: UTF-8, or UTF-16 as PowerShell writes it.

    Raises:
        InputError: the file is missing, unreadable, not gzip or neither UTF-8 nor UTF-16.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        if path.name.endswith(".gz"):
            data = gzip.decompress(data)
        return data.decode(_encoding(data))
    except FileNotFoundError:
        raise InputError(path, "", "", "no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(path, "", "", f"cannot be read: {reason}") from None
    except UnicodeDecodeError as error:
        encoding = "UTF-16" if error.encoding.startswith("utf-16") else "UTF-8"
        raise InputError(path, f"byte {error.start}", "", f"is not {encoding} text") from None


def _encoding(data: bytes) -> str:
    """Return the encoding of a text that begins with an ASCII character or a byte order mark."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if data[:1] and b"\0" in data[:2]:
        return "utf-16-be" if data[0] == 0 else "utf-16-le"
    return "utf-8-sig"


def delimiter_of(text: str) -> str:
    """Return what separates the columns of a CSV text: a comma, or the semicolon or tab that spreadsheets write."""
    header = text.partition("\n")[0]
    return max(",;\t", key=header.count)


def header_of(file: Path) -> set[str]:
    """Return the columns that the first line of a CSV file names. Raises InputError: it is empty or unreadable."""
    text = read_text(file)
    if not text.strip():
        raise InputError(file, "", "", "is empty")
    return {cell.strip(' "') for cell in text.splitlines()[0].split(delimiter_of(text))}


def _rows(file: str, text: str, required: Sequence[str]) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter_of(text))
    try:
        header = next(reader, None)
        if header is None:
            raise InputError(file, "", "", f"is empty; expected a header with {','.join(required)}")
        header = [cell.strip() for cell in header]
        for column in required:
            if column not in header:
                raise InputError(file, "line 1", column, f"column is missing; the header needs {','.join(required)}")
        for column in header:
            if column and header.count(column) > 1:
                raise InputError(file, "line 1", column, "column appears twice")
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                problem = f"has {len(cells)} cells where the header has {len(header)}"
                raise InputError(file, f"line {reader.line_num}", "", problem)
            yield _Row(file, reader.line_num, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise csv_error(file, reader.line_num, error) from None


def csv_error(file: str | Path, line: int, error: csv.Error) -> InputError:
    """Return an error for what Python's CSV reader reports, in words that help."""
    problem = f"is not CSV: {error}"
    if "field limit" in str(error):
        problem = f"has a cell of more than {csv.field_size_limit()} characters; is a quote never closed?"
    return InputError(file, f"line {line}", "", problem)


def parse_nodes(file: str, text: str) -> tuple[Node, ...]:
    """Return the nodes of a node list; `file` is only named in errors."""
    nodes: dict[str, Node] = {}
    for row in _rows(file, text, NODE_COLUMNS):
        name = row.name("sn")
        if name in nodes:
            raise row.error("sn", f"{name!r} is there already; node names must be unique")
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


def _pod_class(row: _Row) -> PodClass:
    count = row.integer("num_gpu", MAX_POD_GPUS)
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
    classes: dict[tuple[str | None, ...], PodClass] = {}
    for row in _rows(file, text, POD_COLUMNS):
        name = row.name("name")
        if name in pods:
            raise row.error("name", f"{name!r} is there already; pod names must be unique")
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
