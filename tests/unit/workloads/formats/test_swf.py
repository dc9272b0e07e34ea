"""Logs in the Standard Workload Format."""

import gzip
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.support.errors import raises

from steersman.cluster.model import Pod
from steersman.core.errors import InputError
from steersman.simulation.arrivals import schedule
from steersman.workloads.formats.swf import FIELDS
from steersman.workloads.loading import load_nodes, load_pods, load_workload

HEADER = "; Version: 2.2\n; UnixStartTime: 844128000\n;   MaxNodes: 40\n;MaxProcs:  64\n"
JOB = "7 100 5 60 4 -1 -1 8 3600 2048 1 3 2 -1 1 0 -1 -1"
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn-0,{cpu},4096,0,\nn-1,1000,4096,0,\n"


def write(folder: Path, *lines: str, header: str = HEADER, name: str = "log.swf") -> Path:
    path = folder / name
    path.write_text(header + "\n".join(lines) + "\n")
    return path


def job(number: int = 1, **fields: object) -> str:
    """A line of a job that ran on a processor for a minute, with other values of some fields, such as run_time."""
    values = {name.replace(" ", "_").lower(): "-1" for name in FIELDS}
    values |= {"job_number": str(number), "submit_time": "0", "run_time": "60", "allocated_processors": "1"}
    assert fields.keys() <= values.keys()
    return " ".join(str((values | {"status": "1"} | fields)[name]) for name in values)


def test_jobs_are_pods(tmp_path: Path) -> None:
    (pod,) = load_pods(write(tmp_path, JOB), ())
    assert (pod.name, pod.namespace, pod.owner) == ("job-7", "group-2", "User/user-3")
    assert (pod.requests.cpu_milli, pod.requests.memory_bytes, pod.requests.gpu_count) == (8000, 8 * 2048 << 10, 0)
    assert (pod.creation_time, pod.deletion_time, pod.estimated_seconds) == (100.0, 160.0, 3600.0)
    assert pod.labels == {"queue": "1", "partition": "0"}
    assert pod.gang == ""


def test_unknown_fields_are_not_stated(tmp_path: Path) -> None:
    (pod,) = load_pods(write(tmp_path, job(5)), ())
    assert (pod.name, pod.namespace, pod.owner, pod.labels) == ("job-5", "default", "", {})
    assert (pod.requests.cpu_milli, pod.requests.memory_bytes, pod.estimated_seconds) == (1000, 0, None)


def test_header_gives_one_node_that_other_nodes_replace(tmp_path: Path) -> None:
    log = write(tmp_path, JOB)
    workload = load_workload(None, log)
    (pool,) = workload.nodes
    assert (workload.name, pool.name, pool.cpu_milli, pool.gpu_count) == ("log", "pool", 64_000, 0)
    (pool,) = load_nodes(write(tmp_path, JOB, header="; MaxNodes: 40\n", name="nodes.swf"))
    assert pool.cpu_milli == 40_000
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "nodes.csv").write_text(NODES.format(cpu=8000))
    given_nodes = load_workload(tmp_path / "sub", log)
    assert [node.name for node in given_nodes.nodes] == ["n-0", "n-1"]
    assert given_nodes.warnings == ()
    log.rename(tmp_path / "sub" / "log.swf")
    assert load_workload(tmp_path / "sub", None).nodes == given_nodes.nodes


def test_log_without_a_machine_has_no_nodes(tmp_path: Path) -> None:
    for header in ("", "; MaxProcs: -1\n", "; MaxProcs: 0\n", "; MaxProcs: unknown\n"):
        with raises(InputError, "no nodes"):
            load_workload(None, write(tmp_path, JOB, header=header))


def test_pool_has_the_memory_of_all_jobs(tmp_path: Path) -> None:
    huge = job(allocated_processors=64, requested_memory=1 << 33)
    (pool,) = load_workload(None, write(tmp_path, huge, JOB)).nodes
    assert pool.memory_bytes == 64 << 43


def test_jobs_larger_than_a_node_are_gangs(tmp_path: Path) -> None:
    sizes = {1: 128, 2: 100, 3: 130, 4: 64, 5: 1}
    lines = [job(number, allocated_processors=size, user=1, requested_memory=4) for number, size in sizes.items()]
    (tmp_path / "nodes.csv").write_text(NODES.format(cpu=64_900))
    workload = load_workload(tmp_path / "nodes.csv", write(tmp_path, *lines))
    cpus: dict[str, list[int]] = {}
    for pod in workload.pods:
        cpus.setdefault(pod.gang or pod.name, []).append(pod.requests.cpu_milli // 1000)
        assert pod.requests.memory_bytes == pod.requests.cpu_milli // 1000 * 4096
        assert (pod.creation_time, pod.deletion_time, pod.owner) == (0.0, 60.0, "User/user-1")
    assert cpus == {"job-1": [64, 64], "job-2": [50, 50], "job-3": [64, 64, 2], "job-4": [64], "job-5": [1]}
    assert [pod.name for pod in workload.pods][:3] == ["job-1-0", "job-1-1", "job-2-0"]
    assert [pod.gang for pod in workload.pods][-2:] == ["", ""]
    assert workload.understood.endswith("3 gangs of 7 pods")


def test_lines_without_a_run_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = (
        job(1, status=5, run_time=0),
        job(2, status=5, run_time=-1, allocated_processors=0, requested_time=0, submit_time=-1),
        job(3, status=0, run_time=0),
        job(4, status=5, run_time=30),
        job(5, status=1, run_time=0),
        job(6, status=1, run_time=-1),
        job(7, status=2),
        job(7, status=4),
        job(7, status=1),
    )
    workload = load_workload(None, write(tmp_path, *lines))
    assert [pod.name for pod in workload.pods] == ["job-4", "job-5", "job-7"]
    assert workload.pods[1].deletion_time == workload.pods[1].creation_time
    assert workload.understood == (
        "3 jobs, 3 left out (did not run), 2 left out (part of a job with a line of its own), "
        "1 left out (without a run time), the machine of 64 processors is one node where no nodes are given, "
        "wait times, used memory and dependencies are not used"
    )


def test_odd_layout_is_read(tmp_path: Path) -> None:
    plain = load_pods(write(tmp_path, JOB, job(9, submit_time=20)), ())
    assert [pod.name for pod in plain] == ["job-9", "job-7"]  # by submission
    text = f"\ufeff{HEADER}\n\n  {JOB.replace(' ', chr(9) + '  ')}  \n;\n; end of März\n{job(9, submit_time='20.0')}"
    for name, data in {
        "crlf.swf": text.replace("\n", "\r\n").encode(),
        "gz.swf.gz": gzip.compress(text.encode()),
        "latin.swf": text.removeprefix("\ufeff").encode("latin-1"),
        "utf-16.swf": text.removeprefix("\ufeff").encode("utf-16"),
    }.items():
        (tmp_path / name).write_bytes(data)
        assert load_pods(tmp_path / name, ()) == plain


@pytest.mark.parametrize(
    ("fields", "field", "value"),
    [
        ({"run_time": -5}, "field 4 (run time)", "-5"),
        ({"submit_time": -1}, "field 2 (submit time)", "-1"),
        ({"submit_time": "soon"}, "field 2 (submit time)", "soon"),
        ({"used_memory": "12x"}, "field 7 (used memory)", "12x"),
        ({"think_time": "nan"}, "field 18 (think time)", "nan"),
        ({"run_time": "1_0"}, "field 4 (run time)", "1_0"),
        ({"run_time": "1e400"}, "field 4 (run time)", "1e400"),
        ({"requested_time": 0}, "field 9 (requested time)", "0"),
        ({"requested_time": -2}, "field 9 (requested time)", "-2"),
        ({"allocated_processors": -1}, "field 8 (requested processors)", "field 5"),
        ({"allocated_processors": 0, "requested_processors": 0}, "field 8 (requested processors)", "at least 1"),
        ({"allocated_processors": "1.5"}, "field 5 (allocated processors)", "1.5"),
        ({"allocated_processors": 1_000_001}, "field 5 (allocated processors)", "1000001"),
        ({"requested_processors": 1_000_001}, "field 8 (requested processors)", "1000001"),
        ({"requested_memory": 1 << 44}, "field 10 (requested memory)", 1 << 44),
        ({"user": -7}, "field 12 (user)", "-7"),
        ({"job_number": "1.5"}, "field 1 (job number)", "1.5"),
        ({"job_number": -1}, "field 1 (job number)", "-1"),
    ],
)
def test_an_invalid_field_fails_in_one_line(
    tmp_path: Path, fields: dict[str, object], field: str, value: object
) -> None:
    with raises(InputError, "log.swf", value, where="line 6", field=field):
        load_pods(write(tmp_path, job(1), job(2, **fields)), ())


def test_an_invalid_file_fails_in_one_line(tmp_path: Path) -> None:
    with raises(InputError, "line 6", "17", "18"):
        load_pods(write(tmp_path, JOB, JOB.rpartition(" ")[0]), ())
    with raises(InputError, "line 5", "19", "18"):
        load_pods(write(tmp_path, f"{JOB} 1"), ())
    with raises(InputError, "line 1", "MaxProcs", "99999999999"):
        load_pods(write(tmp_path, JOB, header="; MaxProcs: 99999999999\n"), ())
    with raises(InputError, "has no jobs"):
        load_pods(write(tmp_path, header=""), ())
    with raises(InputError, "no job that ran", "1"):
        load_pods(write(tmp_path, job(status=5, run_time=-1)), ())
    with raises(InputError, "zipped.swf.gz", "cannot be read"):
        load_pods(write(tmp_path, JOB, name="zipped.swf.gz"), ())
    with raises(InputError, "job-7 is in line 5, too", where="line 6", field="field 1 (job number)"):
        load_pods(write(tmp_path, JOB, JOB), ())


def test_a_number_in_two_logs_is_named_with_both_lines(tmp_path: Path) -> None:
    other = write(tmp_path, job(1), JOB, name="other.swf")
    write(tmp_path, JOB)
    with raises(InputError, "job-7 is in", "log.swf, line 5, too", where="line 6", file=str(other)):
        load_pods(tmp_path, ())


def did_run(fields: dict[str, str]) -> bool:
    run = float(fields["run_time"])
    return fields["status"] not in ("2", "3", "4") and (run > 0 or (run == 0 and fields["status"] == "1"))


def processors_of(fields: dict[str, str]) -> int:
    return max(int(fields["allocated_processors"]), int(fields["requested_processors"]))


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "submit_time": st.integers(0, 10**9).map(str),
                "run_time": st.one_of(st.integers(-1, 10**6).map(str), st.floats(0, 1e6).map(repr)),
                "allocated_processors": st.integers(-1, 300).map(str),
                "requested_processors": st.integers(-1, 300).map(str),
                "requested_time": st.one_of(st.just("-1"), st.integers(1, 10**6).map(str)),
                "status": st.integers(-1, 5).map(str),
                "user": st.integers(-1, 3).map(str),
                "group": st.integers(-1, 3).map(str),
            }
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 130),
)
def test_pods_add_up_to_the_jobs(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[dict[str, str]], cpu: int
) -> None:
    ran = [fields for fields in jobs if did_run(fields)]
    assume(ran and all(processors_of(fields) > 0 for fields in ran))
    folder = tmp_path_factory.mktemp("swf")
    log = write(folder, *(job(i, **fields) for i, fields in enumerate(jobs, start=1)))
    (folder / "nodes.csv").write_text(NODES.format(cpu=cpu * 1000))
    workload = load_workload(folder / "nodes.csv", log)
    members: dict[str, list[Pod]] = {}
    for pod in workload.pods:
        members.setdefault(pod.gang or pod.name, []).append(pod)
        assert pod.requests.cpu_milli <= cpu * 1000
    assert [pod for pods in members.values() for pod in pods] == list(workload.pods)  # gangs are consecutive
    for name, pods in members.items():
        fields = jobs[int(name.removeprefix("job-")) - 1]
        processors = processors_of(fields)
        assert sum(pod.requests.cpu_milli for pod in pods) == processors * 1000
        assert len(pods) == -(-processors // cpu)
        assert {pod.creation_time for pod in pods} == {float(fields["submit_time"])}
        assert {pod.deletion_time for pod in pods} == {float(fields["submit_time"]) + float(fields["run_time"])}
        estimate = float(fields["requested_time"])
        assert {pod.estimated_seconds for pod in pods} == {None if estimate < 0 else estimate}
    assert len(members) == len(ran)


def test_timed_arrivals_follow_the_log(tmp_path: Path) -> None:
    workload = load_workload(None, write(tmp_path, job(1, submit_time=50, run_time=9), job(2, run_time=0)))
    plan = schedule(workload, "timed", seed=1, ratio=1, load=None)
    assert (plan.time.tolist(), plan.duration.tolist()) == ([0, 50], [0, 9])
