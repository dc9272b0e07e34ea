"""Recorded traces of other systems: what their rows become, and what is left out."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.errors import raises

from steersman.cluster.model import Pod
from steersman.core.errors import InputError
from steersman.workloads.formats.registry import format_of
from steersman.workloads.formats.traces import shares
from steersman.workloads.loading import load_pods, load_workload

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn-0,96000,204800,8,NVIDIA-A100-SXM4-80GB\nn-1,64000,102400,4,T4\n"
SACCT = "JobID|User|Account|Partition|Submit|Start|End|Elapsed|Timelimit|NNodes|ReqCPUS|ReqMem|ReqTRES|AllocTRES|State"
DAY = "2025-03-29T"
GIB = 1 << 30


def read(folder: Path, text: str, name: str = "trace.csv", nodes: str = NODES) -> tuple[Sequence[Pod], str]:
    (folder / name).write_text(text)
    (folder / "nodes.csv").write_text(nodes)
    workload = load_workload(folder / "nodes.csv", folder / name)
    return workload.pods, workload.understood


def sizes(pod: Pod) -> tuple[int, float, int, int]:
    requests = pod.requests
    return requests.cpu_milli, round(requests.memory_bytes / GIB, 3), requests.gpu_count, requests.gpu_milli


def life(pod: Pod) -> tuple[float | None, float | None]:
    return pod.creation_time, pod.deletion_time


def sacct(*rows: str) -> str:
    return "\n".join((SACCT, *rows)) + "\n"


def test_jobs_of_slurm(tmp_path: Path) -> None:
    typed = "cpu=12,gres/gpu:a100=3,mem=96G,node=1"
    text = sacct(
        f"7|ann|bio|long|{DAY}10:00:00|{DAY}11:00:00|2025-03-31T12:30:00|2-00:30:00|3-00:00:00|1|12|96G|{typed}|{typed}|COMPLETED",
        f"7.batch||bio||{DAY}11:00:00|{DAY}11:00:00|2025-03-31T12:30:00|2-00:30:00||1|12||||COMPLETED",
        f"7.extern||bio||{DAY}11:00:00|{DAY}11:00:00|2025-03-31T12:30:00|2-00:30:00||1|12||||COMPLETED",
        f"8|bob|||{DAY}10:01:00|{DAY}10:02:00|{DAY}10:07:30|05:30|10:00|3|6|4Gc|||TIMEOUT",
        f"9|bob|||{DAY}10:02:00|{DAY}10:03:00|Unknown|01:00|UNLIMITED|1|2|500Mn|||RUNNING",
        f"10|bob|||{DAY}10:03:00|None|{DAY}10:04:00|00:00:00|1:00:00|1|2|1Gn|||CANCELLED by 12",
        f"11|bob|||{DAY}10:04:00|{DAY}10:05:00|{DAY}10:06:00|00:01:00|1:00:00|1|2|1Gn|||CANCELLED by 12",
        f"12|bob|||{DAY}10:05:00|Unknown|{DAY}10:06:00|00:00:00|1:00:00|1|2|1Gn|||BOOT_FAIL",
    )
    pods, understood = read(tmp_path, text, "jobs.txt")
    first, second, third, fourth, running, cancelled = pods
    assert (first.name, first.owner, first.namespace, first.labels) == ("7", "User/ann", "bio", {"partition": "long"})
    assert (sizes(first), first.constraints.gpu_models) == ((12_000, 96.0, 3, 1000), ("NVIDIA-A100-SXM4-80GB",))
    assert (life(first), first.estimated_seconds) == ((0.0, 174_600.0), 259_200.0)
    assert [(pod.name, pod.gang) for pod in (second, third, fourth)] == [(f"8-{i}", "8") for i in range(3)]
    assert (sizes(second), life(second), second.estimated_seconds) == ((2000, 8.0, 0, 0), (60.0, 390.0), 600.0)
    assert (sizes(running), life(running), running.estimated_seconds) == ((2000, 0.488, 0, 0), (120.0, None), None)
    assert (cancelled.name, life(cancelled)) == ("11", (240.0, 300.0))
    for part in (
        *("4 jobs of 2 users", "1 without an end", "1 left out (cancelled before they started)"),
        *("1 left out (never started)", "2 left out (steps of jobs)", "1 gang of 3 pods"),
    ):
        assert part in understood


def test_waiting_tasks_of_arrays(tmp_path: Path) -> None:
    def row(job: str) -> str:
        return f"{job}|u|a|p|{DAY}10:00:00|Unknown|Unknown|00:00:00|1-12|1|4|8G|cpu=4,gres/gpu=1,mem=8G||PENDING"

    pods, _ = read(tmp_path, sacct(row("5_[0-8:4,11%2]"), row("6_3"), row("7+1")))
    assert [pod.name for pod in pods] == ["5-0", "5-4", "5-8", "5-11", "6-3", "7-1"]
    found = {(sizes(pod), life(pod), pod.estimated_seconds) for pod in pods}
    assert found == {((4000, 8.0, 1, 1000), (0.0, None), 129_600.0)}
    pods, understood = read(tmp_path, sacct(row("5_[0-2,...%4]")))
    assert [pod.name for pod in pods] == ["5-0", "5-1", "5-2"]
    assert "1 left out (tasks of an array that sacct abbreviates" in understood
    (tmp_path / "odd.csv").write_text(sacct(row("5_[0-8,odd]")))
    with raises(InputError, "'odd'", where="line 2", field="jobid"):
        load_pods(tmp_path / "odd.csv", ())


def test_jobs_of_slurm_without_resources_are_left_out(tmp_path: Path) -> None:
    """AllocTRES of a job that waits is empty; it is no job without requests."""
    text = "State|Comment|End|Elapsed|JobID|Submit|Start|AllocTRES\n"
    text += f"PENDING||Unknown|00:00:00|5_[1-4,7]|{DAY}10:00:00|Unknown|\n"
    text += f"RUNNING|x|Unknown|00:01:00|6|{DAY}10:00:00|{DAY}10:00:00|billing=1,cpu=1,gres/gpu=1,mem=1G\n"
    pods, understood = read(tmp_path, text)
    assert [pod.name for pod in pods] == ["6"]
    assert "5 left out (no resources stated)" in understood


def test_a_trailing_bar_and_quotes_are_read(tmp_path: Path) -> None:
    text = "JobID|JobName|Submit|Start|End|Elapsed|State|\n"
    text += f'3|"a, b|{DAY}10:00:00|{DAY}10:00:00|{DAY}10:00:09|00:00:09|COMPLETED|\n'
    (pod,), _ = read(tmp_path, text)
    assert (pod.name, life(pod), pod.namespace, pod.owner) == ("3", (0.0, 9.0), "default", "")


@pytest.mark.parametrize("column", ["Elapsed", "Start", "End"])
def test_a_missing_column_of_sacct_is_named_as_such(tmp_path: Path, column: str) -> None:
    names = ["JobID", "User", "Submit", "Start", "End", "Elapsed", "State"]
    names.remove(column)
    (tmp_path / "s.txt").write_text("|".join(names) + "\n")
    with raises(InputError, "the table is read as a table of sacct", where="line 1", field=column.lower()):
        load_pods(tmp_path / "s.txt", ())


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("|05:30|", "|soon|", "elapsed"),
        (f"|{DAY}10:01:00|", "|yesterday|", "submit"),
        (f"|{DAY}10:01:00|", "||", "submit"),
        ("|4Gc|", "|4X|", "reqmem"),
        ("|cpu=8|", "|cpu=many|", "alloctres"),
        ("|cpu=8|", "|cpu=8,gres/gpu=999999999|", "alloctres"),
        ("8|bob", "job|bob", "jobid"),
    ],
)
def test_an_invalid_cell_of_slurm_is_one_line(tmp_path: Path, old: str, new: str, field: str) -> None:
    row = f"8|bob|||{DAY}10:01:00|{DAY}10:02:00|{DAY}10:07:30|05:30|10:00|1|6|4Gc||cpu=8|TIMEOUT"
    if field == "reqmem":
        row = row.replace("cpu=8", "")
    (tmp_path / "s.csv").write_text(sacct(row.replace(old, new, 1)))
    with raises(InputError, where="line 2", field=field):
        load_pods(tmp_path / "s.csv", ())


def test_jobs_of_helios_and_acme(tmp_path: Path) -> None:
    helios = (
        "job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "17,uA,vcX_1,job,24,96,3,COMPLETED,2020-06-01 00:00:00,2020-06-01 00:00:05,2020-06-01 00:01:45,100,5\n"
        "18,uB,vcY,job,0,4,1,FAILED,2020-06-01 00:00:30,2020-06-01 00:00:30,2020-06-01 00:00:37,7,0\n"
        "19,uB,vcY,job,1,4,1,CANCELLED,2020-06-01 00:00:31,,,0,0\n"
    )
    pods, understood = read(tmp_path, helios)
    assert [pod.name for pod in pods] == ["17-0", "17-1", "17-2", "18"]
    assert {(pod.gang, pod.namespace) for pod in pods} == {("17", "vcx-1"), ("", "vcy")}
    assert (sizes(pods[0]), life(pods[0])) == ((32_000, 0.0, 8, 1000), (0.0, 100.0))
    assert (sizes(pods[3]), life(pods[3])) == ((4000, 0.0, 0, 0), (30.0, 37.0))
    assert "2 jobs of 2 users, 1 left out (never ran)" in understood
    kalos = (
        "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,"
        "end_time,fail_time,stop_time,duration,queue,gpu_time\n"
        "dlcX9,u7,2,16,240,500,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,"
        "2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,288.0\n"
    )
    (first, second), _ = read(tmp_path, kalos)
    # The wait of 10 s is no part of the run.
    assert (first.name, second.gang) == ("dlcx9-0", "dlcx9")
    assert (sizes(first), life(first)) == ((120_000, 500.0, 8, 1000), (0.0, 8.0))


PAI = "a1,worker,2,Terminated,1000.0,1300.0,600.0,29.296875,25.0,T4\nb2,ps,1,Failed,1100.0,,450.0,,,\n"
PAI += "c3,chief,1,Running,1200.0,,100.0,1.0,200.0,MISC\nd4,chief,1,Waiting,,,100.0,1.0,200.0,V100\n"
PAI += "e5,worker,1.0,Terminated,1300.0,1301.0,100.0,1.0,100.0,P100\n"


PAI_COLUMNS = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"


@pytest.mark.parametrize("header", ["", PAI_COLUMNS])
def test_tasks_of_pai(tmp_path: Path, header: str) -> None:
    pods, understood = read(tmp_path, header + PAI)
    assert [pod.name for pod in pods] == ["a1-worker-0", "a1-worker-1", "b2-ps", "c3-chief", "e5-worker"]
    assert [sizes(pod) for pod in pods[1:3]] == [(6000, 29.297, 1, 250), (4500, 0.0, 0, 0)]
    assert [sizes(pod) for pod in pods[3:]] == [(1000, 1.0, 2, 1000), (1000, 1.0, 1, 1000)]
    assert [pod.constraints.gpu_models for pod in pods] == [("T4",), ("T4",), (), (), ()]
    assert [life(pod) for pod in pods[1:]] == [(0.0, 300.0), (100.0, None), (200.0, None), (300.0, 301.0)]
    assert not any(pod.gang for pod in pods)
    for part in ("4 tasks of 4 jobs, 2 without an end, 1 left out (never ran)", "required where a node has them (2)"):
        assert part in understood
    assert load_pods(tmp_path / "trace.csv", ())[-1].constraints.gpu_models == ("P100",)


def test_batch_tasks_of_2018(tmp_path: Path) -> None:
    text = "M1,2.0,j_1,1,Terminated,500,560,50.0,0.5\nR2_1,1.0,j_1,1,Running,560,0,,\ntask_X,1.0,j_2,1,Waiting,,,,\n"
    pods, understood = read(tmp_path, text)
    assert [(pod.name, sizes(pod), life(pod)) for pod in pods] == [
        ("j-1-m1-0", (500, 1.0, 0, 0), (0.0, 60.0)),
        ("j-1-m1-1", (500, 1.0, 0, 0), (0.0, 60.0)),
        ("j-1-r2-1", (0, 0.0, 0, 0), (60.0, None)),
    ]
    assert "2 tasks of 1 job, 1 without an end, 1 left out (never ran)" in understood


def test_virtual_machines_of_azure(tmp_path: Path) -> None:
    text = "Zx/1=,s1,d1,300,3900,99.1,2.0,50.1,Delay-insensitive,2,3.5\nq+2,s2,d2,0,600,9,2,5,Interactive,>24,>64\n"
    pods, understood = read(tmp_path, text)
    assert [(pod.name, sizes(pod), life(pod), pod.labels) for pod in pods] == [
        ("q-2", (30_000, 70.0, 0, 0), (0.0, 600.0), {"category": "interactive"}),
        ("zx-1", (2000, 3.5, 0, 0), (300.0, 3900.0), {"category": "delay-insensitive"}),
    ]
    assert "2 virtual machines of 2 subscriptions" in understood


def event(time: float, kind: int, collection: int, index: int = 0, **further: Any) -> str:
    common = {"time": str(int(time * 1e6)), "type": kind, "collection_id": str(collection)}
    common |= {"instance_index": str(index), "collection_type": "0", "priority": "103"}
    return json.dumps({"resource_request": {"cpus": 0.25, "memory": 0.125}, **common, **further})


@pytest.mark.parametrize("name", ["events.json.gz", "events.json", "events"])
def test_instances_of_google(tmp_path: Path, name: str) -> None:
    lines = (
        event(600, 0, 5, 1),
        event(610, 3, 5, 1),
        event(640, 4, 5, 1),
        event(640, 0, 5, 1),
        event(700, 3, 5, 1),
        event(790, 6, 5, 1),
        event(0, 3, 6),
        event(700, 0, 7),
        event(710, 7, 7),
        event(0, 0, 8, collection_type="1"),
        event(650, 0, 9, alloc_collection_id="8"),
        event(900, 6, 10, machine_id="77", resource_request=None),
        event(650, 0, 11, alloc_collection_id="123"),
    )
    content = "\n".join(lines).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    (tmp_path / "nodes.csv").write_text(NODES)
    workload = load_workload(tmp_path / "nodes.csv", tmp_path / name)
    assert [(pod.name, life(pod)) for pod in workload.pods] == [
        ("6-0", (0.0, None)),
        ("8-0", (0.0, None)),
        ("5-1", (600.0, 720.0)),
        ("11-0", (650.0, None)),
        ("10-0", (900.0, 900.0)),
    ]
    assert sizes(workload.pods[0]) == (24_000, 25.0, 0, 0)
    assert workload.pods[0].priority == 103
    assert "5 instances of 5 collections" in workload.understood
    assert "1 left out (never ran), 1 left out (run in an alloc set that counts)" in workload.understood


def test_a_line_that_is_no_event_is_named(tmp_path: Path) -> None:
    (tmp_path / "e.json").write_text(event(1, 0, 2) + '\n{"time": "soon"}\n')
    with raises(InputError, "time", where="line 2"):
        load_pods(tmp_path / "e.json", ())


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, Any]:
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{k}" for k in range(count)]} for i, count in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


def test_the_log_of_philly(tmp_path: Path) -> None:
    day = "2017-10-07 01:"
    jobs = [
        ("app_1", f"{day}00:00", [attempt(f"{day}00:30", f"{day}01:00", 8), attempt(f"{day}01:10", f"{day}02:30", 8)]),
        ("app_2", f"{day}00:10", []),
        ("app_3", f"{day}00:20", [attempt(None, None, 2), attempt(f"{day}03:00", None, 8, 4)]),
    ]
    log = [
        {"status": "Pass", "vc": "6214e9", "jobid": job, "attempts": attempts, "submitted_time": when, "user": "u"}
        for job, when, attempts in jobs
    ]
    for name in ("cluster_job_log", "log.json"):
        pods, understood = read(tmp_path, json.dumps(log, indent=1), name)
        assert format_of(tmp_path / name).name == "philly"
        assert [(pod.name, pod.gang, sizes(pod)[2], life(pod)) for pod in pods] == [
            ("app-1", "", 8, (0.0, 120.0)),
            ("app-3-0", "app-3", 6, (20.0, None)),
            ("app-3-1", "app-3", 6, (20.0, None)),
        ]
        assert {pod.owner for pod in pods} == {"VirtualCluster/6214e9"}
        assert "2 jobs of 1 virtual cluster, 1 without an end, 1 left out (never ran)" in understood


def test_a_trace_without_a_job_says_what_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("d4,chief,1,Waiting,,,100.0,1.0,200.0,V100\n")
    with raises(InputError, "1 left out (never ran)"):
        load_pods(tmp_path / "w.csv", ())


def test_a_job_that_is_there_twice_is_named_with_both_lines(tmp_path: Path) -> None:
    row = f"8|bob|||{DAY}10:01:00|{DAY}10:02:00|{DAY}10:07:30|05:30|10:00|1|6|4Gc|||TIMEOUT"
    (tmp_path / "s.csv").write_text(sacct(row, row))
    with raises(InputError, "line 2", where="line 3"):
        load_pods(tmp_path / "s.csv", ())


# Jobs that are larger than a node


def test_shares_are_equal_or_fill_nodes() -> None:
    assert shares(16, 8) == (8, 8)
    assert shares(100, 64) == (50, 50)
    assert shares(101, 64) == (64, 37)
    assert shares(8, 8) == (8,)
    assert shares(8, 0) == (8,)


@given(st.integers(1, 10_000), st.integers(0, 300))
def test_shares_are_the_fewest_that_fit(amount: int, largest: int) -> None:
    parts = shares(amount, largest)
    assert sum(parts) == amount
    if largest:
        assert len(parts) == -(-amount // largest)
        assert 0 < min(parts) <= max(parts) <= largest
        assert len(set(parts)) == 1 or set(parts[:-1]) == {largest}
    else:
        assert parts == (amount,)
