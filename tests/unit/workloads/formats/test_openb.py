"""openb files are read strictly: every complaint names the file, the line, the field and what would be right."""

import gzip

import pytest
from tests.support.errors import raises

from steersman.core.errors import InputError, UsageError
from steersman.workloads.formats.openb import embedded, embedded_names, parse_nodes, parse_pods, read_nodes, read_pods

POD_HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
NODE_HEADER = "sn,cpu_milli,memory_mib,gpu,model\n"


def test_a_pod_has_the_units_of_the_model():
    (pod,) = parse_pods("pods.csv", POD_HEADER + "a,1500,1024,2,1000,T4|P100,10,25.5\n")
    assert pod.requests.cpu_milli == 1500
    assert pod.requests.memory_bytes == 1 << 30
    assert (pod.requests.gpu_count, pod.requests.gpu_milli, pod.requests.gpu_total_milli) == (2, 1000, 2000)
    assert pod.constraints.gpu_models == ("T4", "P100")
    assert (pod.creation_time, pod.deletion_time) == (10, 25.5)


def test_equal_requests_share_one_class():
    pods = parse_pods("pods.csv", POD_HEADER + "a,1,1,0,0,,0,1\nb,1,1,0,0,,5,6\nc,2,1,0,0,,5,6\n")
    assert pods[0].pod_class is pods[1].pod_class
    assert pods[0].pod_class != pods[2].pod_class


def test_columns_may_come_in_any_order_and_gpu_spec_may_be_missing():
    (pod,) = parse_pods("p.csv", "gpu_milli,num_gpu,name,memory_mib,cpu_milli,note\n500,1,a,7,9,x\n")
    assert (pod.requests.cpu_milli, pod.requests.gpu_milli, pod.constraints.gpu_models) == (9, 500, ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "pods.csv: is empty; expected a header"),
        (POD_HEADER, "pods.csv: has no pods"),
        ("name,cpu_milli,memory_mib,num_gpu\na,1,1,0\n", "pods.csv, line 1, gpu_milli: column is missing"),
        (POD_HEADER + "a,-1,1,0,0,,,\n", "pods.csv, line 2, cpu_milli: '-1' is not a whole number of 0 or more"),
        (POD_HEADER + "a,1.5,1,0,0,,,\n", "pods.csv, line 2, cpu_milli: '1.5' is not a whole number"),
        (POD_HEADER + "a,1,,0,0,,,\n", "pods.csv, line 2, memory_mib: '' is not a whole number"),
        (POD_HEADER + "a,1,99999999999999999999999,0,0,,,\n", "line 2, memory_mib: 99999999999999999999999 is beyond"),
        (POD_HEADER + "a,99999999,1,0,0,,,\n", "line 2, cpu_milli: 99999999 is beyond any real machine"),
        (POD_HEADER + "a,1,1,1,1001,,,\n", "pods.csv, line 2, gpu_milli: 1001 is more than one device"),
        (POD_HEADER + "a,1,1,1,0,,,\n", "line 2, gpu_milli: 0 of each of 1 GPUs"),
        (POD_HEADER + "a,1,1,0,500,,,\n", "line 2, num_gpu: 0 devices with 500 milli"),
        (POD_HEADER + "a,1,1,1,500,A||B,,\n", "line 2, gpu_spec: 'A||B' has an empty model"),
        (POD_HEADER + "a,1,1,0,0,,9,3\n", "line 2, deletion_time: 3 is before the creation_time 9"),
        (POD_HEADER + "a,1,1,0,0,,x,3\n", "line 2, creation_time: 'x' is not a number of seconds"),
        (POD_HEADER + "a,1,1,0,0,,nan,3\n", "line 2, creation_time: nan is not a time"),
        (POD_HEADER + "a,1,1,0,0,,,\na,1,1,0,0,,,\n", "line 3, name: 'a' is in line 2, too"),
        (POD_HEADER + ",1,1,0,0,,,\n", "line 2, name: is empty"),
        (POD_HEADER + "a\x00b,1,1,0,0,,,\n", "line 2, name: 'a\\x00b' has a character that cannot be printed"),
        (POD_HEADER + "a,1,1,1,1,T\x07,,\n", "line 2, gpu_spec: 'T\\x07' has a character that cannot be printed"),
        (POD_HEADER + "a" * 200_000 + ",1,1,0,0,,,\n", "line 2: has a cell of more than 131072 characters"),
        (POD_HEADER + "a,1,1,0\n", "pods.csv, line 2: has 4 cells where the header has 8"),
        (POD_HEADER + '"a,1,1,0,0,,,\n', "pods.csv, line 2: is not CSV"),
        ("name,name,cpu_milli,memory_mib,num_gpu,gpu_milli\n", "line 1, name: column appears twice"),
    ],
)
def test_bad_pods_are_named(text, message):
    with pytest.raises(InputError) as error:
        parse_pods("pods.csv", text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sn,cpu_milli,memory_mib,gpu\n", "nodes.csv, line 1, model: column is missing"),
        (NODE_HEADER, "nodes.csv: has no nodes"),
        (NODE_HEADER + "a,1,1,63,T4\n", "line 2, gpu: 63 is beyond any real machine (at most 62)"),
        (NODE_HEADER + "a,1,1,1,T4\na,1,1,1,T4\n", "line 3, sn: 'a' is in line 2, too"),
    ],
)
def test_bad_nodes_are_named(text, message):
    with pytest.raises(InputError) as error:
        parse_nodes("nodes.csv", text)
    assert message in str(error.value)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with raises(InputError, "absent.csv"):
        read_pods(tmp_path / "absent.csv")
    (tmp_path / "x.csv.gz").write_bytes(b"not gzip")
    with raises(InputError, "x.csv.gz"):
        read_nodes(tmp_path / "x.csv.gz")
    broken = bytearray(gzip.compress(b"sn,cpu_milli\n" * 1000))
    broken[20:40] = bytes(20)
    (tmp_path / "z.csv.gz").write_bytes(broken)
    with raises(InputError, "z.csv.gz"):
        read_nodes(tmp_path / "z.csv.gz")
    (tmp_path / "y.csv").write_bytes(b"\xff\xff")
    with raises(InputError, "y.csv", "0", "8"):
        read_nodes(tmp_path / "y.csv")


def test_the_embedded_traces_are_complete():
    assert len(embedded_names()) == 15
    workload = embedded("default")
    assert workload.name == "openb_pod_list_default"
    assert len(workload.nodes) == 1213
    assert sum(node.gpu_count for node in workload.nodes) == 6212
    assert len(workload.pods) == 8152
    with raises(UsageError):
        embedded("nothing")


def test_small_workload_is_a_subset_of_default():
    small, whole = embedded("default-small"), embedded("default")
    assert (small.name, len(small.nodes), len(small.pods)) == ("default-small", 64, 510)
    assert set(small.nodes) < set(whole.nodes)
    assert {pod.name for pod in small.pods} < {pod.name for pod in whole.pods}
