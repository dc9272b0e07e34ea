"""The table of instances of Alibaba's trace gpu-v2025."""

from pathlib import Path

import pytest
from tests.support.errors import raises

from steersman.core.errors import InputError
from steersman.workloads.loading import load_pods, load_workload

HEADER = (
    "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
    "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time"
)
ROWS = (
    "a-1,HN,app_1,8,8,1,1,25,25,120.5,120.5,680.0,800.0,1,,,",
    "a-2,HN,app_1,8,8,1.0,1,25,25,120.5,120.5,680.0,800.0,1.0,NaN,NaN,500.0",
    "b-1,CN,app_2,0.5,64,0,0,1,1,320.0,320.0,255.0,300.0,-1,1435629.0,1435629.0,1435760.0",
    "c-1,CN,app_3,2,2,0,0,1,1,4,4,0,0,8,20,25,",
)
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn-0,64000,1048576,4,T4\nn-1,64000,1048576,4,T4\n"


def write(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_instances_are_pods(tmp_path: Path) -> None:
    first, second, third, fourth = load_pods(write(tmp_path, *ROWS), ())
    assert first.name == "a-1"
    assert first.requests.cpu_milli == 8000
    assert first.requests.memory_bytes == 241 << 29
    assert first.requests.ephemeral_bytes == 680 << 30
    assert (first.requests.gpu_count, first.requests.gpu_milli) == (1, 1000)
    assert (first.owner, first.labels) == ("Application/app_1", {"app": "app_1", "role": "HN"})
    assert (first.creation_time, first.deletion_time) == (0.0, None)
    assert (second.creation_time, second.deletion_time) == (0.0, 500.0)
    assert third.requests.cpu_milli == 500
    assert (third.requests.gpu_count, third.requests.gpu_milli) == (0, 0)
    assert (third.creation_time, third.deletion_time) == (1435629.0, 1435760.0)
    assert first.constraints.anti_affinity
    assert first.constraints == second.constraints
    assert not third.constraints.anti_affinity
    assert not fourth.constraints.anti_affinity


def test_warning_names_missing_columns(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    workload = load_workload(tmp_path / "nodes.csv", write(tmp_path, *ROWS))
    assert workload.understood == (
        "4 instances of 3 applications (2 CN, 2 HN), 2 there from the start, 2 without an end, "
        "role, RDMA bandwidth and scheduled_time are not used, max_instance_per_node above 1 is not used (1)"
    )


def test_folder_may_combine_it_with_nodes_and_objects(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    write(tmp_path, *(row.replace(",", ";") for row in ROWS), header=HEADER.replace(",", ";"))
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n"
    (tmp_path / "pod.yaml").write_text(pod)
    workload = load_workload(tmp_path, None)
    assert (len(workload.nodes), len(workload.pods)) == (2, 5)
    assert workload.understood.startswith("1 pods of 0 owners (1 without one), 0 running, 1 waiting; 4 instances")


@pytest.mark.parametrize(
    ("old", "new", "field", "value"),
    [
        ("HN", "GPU", "role", "GPU"),
        ("app_1", "", "app_name", ""),
        ("a-1", "", "instance_sn", ""),
        ("HN,app_1,8", "HN,app_1,-8", "cpu_request", "-8"),
        ("HN,app_1,8", "HN,app_1,much", "cpu_request", "much"),
        ("HN,app_1,8", "HN,app_1,Infinity", "cpu_request", "Infinity"),
        ("120.5,", "1e30,", "memory_request", "1e30"),
        ("8,8,1,1", "8,8,0.5,1", "gpu_request", "0.5"),
        (",1,,,", ",0,,,", "max_instance_per_node", "0"),
        (",1,,,", ",-2,,,", "max_instance_per_node", "-2"),
        (",1,,,", ",1,9,9,8", "deletion_time", "8"),
        (",1,,,", ",1,-1,,", "creation_time", "-1"),
    ],
)
def test_an_invalid_row_fails_in_one_line(tmp_path: Path, old: str, new: str, field: str, value: str) -> None:
    path = write(tmp_path, ROWS[2], ROWS[0].replace(old, new, 1))
    with raises(InputError, "line 3", field, value):
        load_pods(path, ())


def test_a_table_without_a_column_or_a_row_fails_in_one_line(tmp_path: Path) -> None:
    with raises(InputError, "line 1", "app_name"):
        load_pods(write(tmp_path, header=HEADER.replace("app_name", "app")), ())
    with raises(InputError, "only a header"):
        load_pods(write(tmp_path), ())
    with raises(InputError, "is in line 2, too", where="line 3", field="instance_sn"):
        load_pods(write(tmp_path, ROWS[0], ROWS[0]), ())
