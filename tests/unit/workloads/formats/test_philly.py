"""Microsoft's Philly trace as a table of jobs."""

from pathlib import Path

import pytest
from tests.support.errors import raises

from steersman.core.errors import InputError
from steersman.workloads.loading import load_pods, load_workload

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster"
ROWS = (
    "2017-09-04 10:30:41,100.5,8,804.0,7f04ca",
    "2017-09-04 10:31:41,60,1,60.0,6214E9_x",
    "2017-09-04 10:31:42,7,16,112,7f04ca",
)
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn-0,64000,65536,{gpus},V100\nn-1,64000,65536,1,V100\n"


def write(folder: Path, *rows: str, header: str = f"{HEADER}\n", name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_jobs_are_pods(tmp_path: Path) -> None:
    first, second, third = load_pods(write(tmp_path, *ROWS), ())
    assert (first.name, first.namespace, first.owner) == ("job-1", "7f04ca", "VirtualCluster/7f04ca")
    assert (first.requests.gpu_count, first.requests.gpu_milli) == (8, 1000)
    assert (first.requests.cpu_milli, first.requests.memory_bytes) == (0, 0)
    assert (first.creation_time, first.deletion_time) == (0.0, 100.5)
    assert (first.estimated_seconds, first.gang) == (None, "")
    assert (second.namespace, second.owner) == ("6214e9-x", "VirtualCluster/6214E9_x")
    assert (second.creation_time, second.deletion_time) == (60.0, 120.0)
    assert (third.requests.gpu_count, third.gang) == (16, "")


def test_rows_are_ordered_by_time_and_keep_their_numbers(tmp_path: Path) -> None:
    unsorted = load_pods(write(tmp_path, *reversed(ROWS)), ())
    assert [pod.name for pod in unsorted] == ["job-3", "job-2", "job-1"]
    plain = load_pods(write(tmp_path, *ROWS), ())
    assert [pod.creation_time for pod in unsorted] == [pod.creation_time for pod in plain]
    assert [pod.requests for pod in unsorted] == [pod.requests for pod in plain]


def test_several_tables_are_one_trace(tmp_path: Path) -> None:
    write(tmp_path, ROWS[1], name="b.csv")
    write(tmp_path, ROWS[2], ROWS[0], header=HEADER, name="c.csv")
    pods = load_pods(tmp_path, ())
    assert [(pod.name, pod.creation_time) for pod in pods] == [("job-3", 0.0), ("job-1", 60.0), ("job-2", 61.0)]


def test_jobs_larger_than_a_node_are_gangs(tmp_path: Path) -> None:
    trace = write(tmp_path, *ROWS)
    for gpus, shapes in ((8, [[8], [1], [8, 8]]), (6, [[4, 4], [1], [6, 6, 4]]), (0, [[1] * 8, [1], [1] * 16])):
        (tmp_path / "nodes.csv").write_text(NODES.format(gpus=gpus))
        workload = load_workload(tmp_path / "nodes.csv", trace)
        pods = [(pod.gang or pod.name, pod.requests.gpu_count) for pod in workload.pods]
        assert pods == [(f"job-{i}", gpus) for i, shape in enumerate(shapes, start=1) for gpus in shape]
    said = "3 jobs of 2 virtual clusters, CPU and memory are not stated and count as 0; 2 gangs of 24 pods"
    assert workload.understood == said


def test_layout_of_other_programs_is_read(tmp_path: Path) -> None:
    plain = load_pods(write(tmp_path, *ROWS), ())
    text = (tmp_path / "trace.csv").read_text()
    (tmp_path / "crlf.csv").write_bytes(text.replace("\n", "\r\n").encode())
    (tmp_path / "semicolons.csv").write_text(text.replace(",", ";"))
    (tmp_path / "zones.csv").write_text(text.replace(" 10:", "T10:").replace("41,", "41Z,"))
    for name in ("crlf.csv", "semicolons.csv", "zones.csv"):
        assert load_pods(tmp_path / name, ()) == plain


@pytest.mark.parametrize(
    ("old", "new", "field", "value"),
    [
        ("2017-09-04 10:31:41", "2017-13-04 10:31:41", "timestamp", "2017-13-04"),
        ("2017-09-04 10:31:41", "", "timestamp", "''"),
        ("2017-09-04 10:31:41", "60", "timestamp", "60"),
        (",60,", ",-60,", "duration", "-60"),
        (",60,", ",,", "duration", "empty"),
        (",60,", ",1h,", "duration", "1h"),
        (",1,", ",0,", "num_gpus", "0"),
        (",1,", ",0.5,", "num_gpus", "0.5"),
        (",1,", ",-1,", "num_gpus", "-1"),
        (",1,", ",1000001,", "num_gpus", "1000001"),
        ("6214E9_x", "", "cluster", "empty"),
    ],
)
def test_an_invalid_row_fails_in_one_line(tmp_path: Path, old: str, new: str, field: str, value: str) -> None:
    with raises(InputError, value, where="line 4", field=field):
        load_pods(write(tmp_path, ROWS[0], ROWS[1].replace(old, new, 1)), ())


def test_columns_that_are_not_used_may_be_missing(tmp_path: Path) -> None:
    given = load_pods(write(tmp_path, *ROWS), ())
    without = (",".join(cell for i, cell in enumerate(row.split(",")) if i != 3) for row in ROWS)
    assert load_pods(write(tmp_path, *without, header=HEADER.replace(",gpu_time", "")), ()) == given


def test_a_table_without_a_column_or_a_row_fails_in_one_line(tmp_path: Path) -> None:
    with raises(InputError, "line 1", "cluster"):
        load_pods(write(tmp_path, header=HEADER.removesuffix(",cluster")), ())
    with raises(InputError, "only a header"):
        load_pods(write(tmp_path), ())
    with raises(InputError, "line 3"):
        load_pods(write(tmp_path, ROWS[0].removesuffix(",7f04ca")), ())
    with raises(InputError, "no nodes"):
        load_workload(None, write(tmp_path, *ROWS))
