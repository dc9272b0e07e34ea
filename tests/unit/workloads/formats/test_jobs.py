"""Hand-written tables of jobs."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.errors import raises

from steersman.cluster.model import Constraints, Node, Pod, PodClass, Requests
from steersman.core.errors import InputError
from steersman.workloads.formats.base import LossError
from steersman.workloads.formats.registry import convert
from steersman.workloads.loading import load_pods, load_workload
from steersman.workloads.workload import Workload

HEADER = "submit,duration,name,cpu,memory,gpus,gpu_model,owner,namespace,priority,nodes,estimate"
ROW = "60,3600,train,2.5,8,4,A100|H100,alice,research,-5,2,7200"


def write(folder: Path, *rows: str, header: str = HEADER, name: str = "jobs.csv") -> Path:
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_rows_are_pods(tmp_path: Path) -> None:
    first, second = load_pods(write(tmp_path, ROW), ())
    assert first.requests == Requests(2500, 8 << 30, gpu_count=4, gpu_milli=1000)
    assert first.constraints == Constraints(gpu_models=("A100", "H100"))
    assert (first.name, first.gang, first.namespace) == ("train-0", "train", "research")
    assert (first.owner, first.priority, first.estimated_seconds) == ("User/alice", -5, 7200.0)
    assert (first.creation_time, first.deletion_time) == (60.0, 3660.0)
    assert second == replace(first, name="train-1")


def test_two_columns_are_enough(tmp_path: Path) -> None:
    first, second = load_pods(write(tmp_path, "5,10", "0,", header="submit,duration"), ())
    assert first == Pod("job-1", PodClass(Requests()), creation_time=5.0, deletion_time=15.0)
    assert second == Pod("job-2", PodClass(Requests()), creation_time=0.0)
    assert load_workload(None, tmp_path / "jobs.csv", partial=True).understood == "2 jobs, 1 without an end"


def test_the_documented_table_is_read(tmp_path: Path) -> None:
    page = Path(__file__).parents[4] / "docs" / "reference" / "workload-files.md"
    (tmp_path / "jobs.csv").write_text(page.read_text().partition("```csv\n")[2].partition("```")[0])
    workload = load_workload(None, tmp_path / "jobs.csv", partial=True)
    assert workload.understood == "2 jobs, 2 with an estimate; 1 gang of 4 pods"
    assert [pod.name for pod in workload.pods] == ["notebook", *(f"train-{i}" for i in range(4))]
    assert workload.pods[0].requests.gpu_milli == 500


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("cpu", "500m", Requests(500)),
        ("cpu", "0.0001", Requests(1)),
        ("memory", "0.5", Requests(0, 1 << 29)),
        ("memory", "100Mi", Requests(0, 100 << 20)),
        ("memory", "1e9", Requests(0, 10**9)),
        ("gpus", "0.25", Requests(gpu_count=1, gpu_milli=250)),
        ("gpus", "2.0", Requests(gpu_count=2, gpu_milli=1000)),
        ("gpus", "0", Requests()),
        ("gpu_model", "A100", Requests()),
    ],
)
def test_requests_have_usual_units(tmp_path: Path, column: str, cell: str, expected: Requests) -> None:
    (pod,) = load_pods(write(tmp_path, f"0,1,{cell}", header=f"submit,duration,{column}"), ())
    assert pod.pod_class == PodClass(expected)


def test_dates_count_from_the_first_one(tmp_path: Path) -> None:
    rows = ("2024-05-01T12:01:00Z,10", "2024-05-01 12:00:00,10", "2024-05-01T13:00:30+01:00,10")
    write(tmp_path, *rows, header="submit,duration")
    write(tmp_path, "2024-04-30,1", header="submit,duration", name="k.csv")
    assert [pod.creation_time for pod in load_pods(tmp_path / "jobs.csv", ())] == [60.0, 0.0, 30.0]
    assert [pod.creation_time for pod in load_pods(tmp_path, ())] == [129660.0, 129600.0, 129630.0, 0.0]


@pytest.mark.parametrize(
    ("column", "cell", "value"),
    [
        ("submit", "", "empty"),
        ("submit", "-1", "-1"),
        ("submit", "soon", "soon"),
        ("submit", "2024-02-30 00:00:00", "2024-02-30"),
        ("submit", "2024-02-01 00:00:00", "earlier rows"),
        ("duration", "-1", "-1"),
        ("duration", "1h", "1h"),
        ("duration", "nan", "nan"),
        ("estimate", "0", "0"),
        ("estimate", "-1", "-1"),
        ("estimate", "x", "x"),
        ("cpu", "-1", "-1"),
        ("cpu", "two", "two"),
        ("cpu", "1000001", "1000001"),
        ("memory", "8GB", "8GB"),
        ("memory", "8589934592", "8589934592"),
        ("gpus", "1.5", "1.5"),
        ("gpus", "-1", "-1"),
        ("gpus", "many", "many"),
        ("gpu_model", "A100||H100", "A100||H100"),
        ("nodes", "0", "0"),
        ("nodes", "1.5", "1.5"),
        ("nodes", "1000001", "1000001"),
        ("priority", "high", "high"),
        ("priority", "99999999999", "99999999999"),
        ("namespace", "My Space", "My Space"),
        ("name", "a\x07", "a"),
    ],
)
def test_an_invalid_cell_fails_in_one_line(tmp_path: Path, column: str, cell: str, value: str) -> None:
    cells = dict(zip(HEADER.split(","), ROW.split(","), strict=True)) | {column: cell}
    with raises(InputError, "jobs.csv", value, where="line 3", field=column):
        load_pods(write(tmp_path, ROW, ",".join(cells.values())), ())


def test_columns_may_have_capitals_and_those_of_other_tables(tmp_path: Path) -> None:
    (pod,) = load_pods(write(tmp_path, "0,10,2,1", header="Submit,Duration,GPUs,num_gpu"), ())
    assert (pod.deletion_time, pod.requests.gpu_count) == (10.0, 2)
    with raises(InputError, "appears twice", field="submit"):
        load_pods(write(tmp_path, "0,1,10", header="Submit,submit,duration"), ())


def test_a_table_without_a_column_or_a_row_fails_in_one_line(tmp_path: Path) -> None:
    with raises(InputError, "line 1", "duration"):
        load_pods(write(tmp_path, header="submit,name"), ())
    with raises(InputError, "line 1", "submit,duration"):
        load_pods(write(tmp_path, header="duration,name"), ())
    with raises(InputError, "only a header"):
        load_pods(write(tmp_path), ())
    with raises(InputError, "is empty"):
        load_pods(write(tmp_path, header=""), ())
    with raises(InputError, "default/x is in line 2, too", "leave out the column name", where="line 4", field="name"):
        load_pods(write(tmp_path, "0,1,x", "0,1,y", "0,1,x", header="submit,duration,name"), ())
    with raises(InputError, "default/x-1 is in line 2, too", where="line 3"):
        load_pods(write(tmp_path, "0,1,x,2", "0,1,x-1,", header="submit,duration,name,nodes"), ())


names = st.integers(0, 10**6).map(lambda i: f"n{i}")
requests = st.builds(
    lambda cpu, memory, gpus, share: Requests(
        cpu, memory, gpu_count=1 if share else gpus, gpu_milli=share or (1000 if gpus else 0)
    ),
    *(st.integers(0, 10_000_000), st.integers(0, 1 << 48), st.integers(0, 8), st.integers(0, 999)),
)


@st.composite
def pods_of_jobs(draw: st.DrawFn) -> list[Pod]:
    """What a table can say: single pods, and gangs of equal ones."""
    pods: list[Pod] = []
    for name in draw(st.lists(names, unique=True, min_size=1, max_size=6)):
        wanted = draw(requests)
        models = draw(st.sampled_from([(), ("A100",), ("A100", "T4")])) if wanted.gpu_count else ()
        created = draw(st.floats(0, 1e9))
        length = draw(st.none() | st.floats(0, 1e9))
        pod = Pod(
            name,
            PodClass(wanted, Constraints(gpu_models=models)),
            namespace=draw(st.sampled_from(["default", "a-1"])),
            priority=draw(st.integers(-(2**31) + 1, 2**31 - 1)),
            owner=draw(st.sampled_from(["", "User/u", "Job/a/b"])),
            creation_time=created,
            deletion_time=None if length is None else created + length,
            estimated_seconds=draw(st.none() | st.floats(1e-3, 1e9)),
        )
        count = draw(st.integers(1, 4))
        pods += [pod] if count == 1 else [replace(pod, name=f"{name}-{i}", gang=name) for i in range(count)]
    return pods


@given(pods_of_jobs())
def test_tables_round_trip(tmp_path_factory: pytest.TempPathFactory, pods: list[Pod]) -> None:
    folder = tmp_path_factory.mktemp("jobs") / "out"
    convert(Workload("w", (), tuple(pods)), "jobs", folder)
    again = load_pods(folder, ())
    for pod, other in zip(pods, again, strict=True):
        if pod.deletion_time is not None:
            assert other.deletion_time == pytest.approx(pod.deletion_time)
        assert replace(other, deletion_time=pod.deletion_time) == pod
    second = folder.parent / "second"
    convert(Workload("w", (), again), "jobs", second)
    assert (second / "jobs.csv").read_bytes() == (folder / "jobs.csv").read_bytes()


POD = Pod("p", PodClass(Requests(1000, 1 << 30)), creation_time=0.0, deletion_time=5.0)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"labels": {"a": "b"}}, "labels"),
        ({"gang": "g"}, "gang"),
        ({"creation_time": None}, "creation_time"),
        ({"pod_class": PodClass(Requests(1000, ephemeral_bytes=5))}, "requests.ephemeral_bytes"),
        ({"pod_class": PodClass(Requests(1000, gpu_count=2, gpu_milli=500))}, "requests.gpu_milli"),
        ({"namespace": "Not_A_Namespace"}, "namespace"),
        ({"estimated_seconds": 1e20}, "estimate"),
    ],
)
def test_what_a_table_cannot_represent_is_an_error(tmp_path: Path, change: dict[str, object], field: str) -> None:
    workload = Workload("w", (Node("n", 1000, 1 << 30),), (POD, replace(POD, name="q", **change)))  # type: ignore[arg-type]
    with raises(LossError, field):
        convert(workload, "jobs", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nodes_and_gangs_are_written(tmp_path: Path) -> None:
    equal = [replace(POD, name=f"g-{i}", gang="g") for i in range(3)]
    other = replace(POD, name="h-0", gang="h")
    larger = replace(other, name="h-1", pod_class=PodClass(Requests(2000)))
    workload = Workload("w", (Node("n", 1000, 1 << 30),), (*equal, other, larger))
    (warning,) = convert(workload, "jobs", tmp_path / "out", lossy=True)
    assert "pod gang (2)" in warning
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["jobs.csv", "nodes.yaml"]
    again = load_workload(tmp_path / "out", None)
    assert again.pods[:3] == workload.pods[:3]
    assert [pod.name for pod in again.pods] == ["g-0", "g-1", "g-2", "h-0", "h-1"]


def test_tables_survive_a_round_trip_through_yaml(tmp_path: Path) -> None:
    page = "submit,duration,gpus,nodes,estimate\n0,3600,0.5,1,7200\n60,,8,2,\n90,1,,,\n"
    (tmp_path / "first.csv").write_text(page)
    first = load_workload(None, tmp_path / "first.csv", partial=True)
    convert(first, "yaml", tmp_path / "yaml")
    convert(load_workload(None, tmp_path / "yaml", partial=True), "jobs", tmp_path / "jobs")
    assert load_pods(tmp_path / "jobs", ()) == first.pods
