"""`steersman wait`: what is read of a cluster's files, what is printed, and what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.support.errors import check_text

from steersman.cli.main import main
from steersman.orders.run_time_history import RunTimeHistory, write_run_times


def at(minutes: int) -> str:
    """Return a time of the day, in minutes before noon."""
    return f"2026-11-01T{(720 - minutes) // 60:02}:{(720 - minutes) % 60:02}:00Z"


def pod(
    name: str, created: int, started: int | None = None, ended: int | None = None, cpu: str = "4", **spec: object
) -> dict[str, object]:
    """Return a pod with its times in minutes before noon."""
    status: dict[str, object] = {"phase": "Pending"}
    if started is not None:
        status = {"phase": "Running", "startTime": at(started)}
        spec["nodeName"] = "n"
    if ended is not None:
        state = {"terminated": {"finishedAt": at(ended)}}
        status |= {"phase": "Succeeded", "containerStatuses": [{"name": "x", "state": state}]}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
    meta = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "creationTimestamp": at(created),
        "ownerReferences": [owner],
    }
    container = {"name": "x", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container], **spec},
        "status": status,
    }


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}},
}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "new", "namespace": "team"},
    "spec": {
        "parallelism": 2,
        "completions": 2,
        "template": {"spec": {"containers": [{"name": "x", "resources": {"requests": {"cpu": "4"}}}]}},
    },
}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    ended = [pod(f"e{k}", 400 - k, 400 - k, 390 - k) for k in range(0, 300, 10)]
    others = [
        pod("runs", 10, 5),
        pod("waits", 3),
        pod("large", 2, cpu="9"),
        pod("gated", 1, schedulingGates=[{"name": "g"}]),
        pod("last", 0),
    ]
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([NODE, *ended, *others]))
    return ["--nodes", str(file), "--pods", str(file), "--policy", "best-fit"]


def test_prediction_is_printed(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Pods take ten minutes, and one has run for five."""
    assert main(["wait", "--pod", "waits", *files]) == 0
    out = capsys.readouterr().out
    assert "team/waits starts in " in out
    assert "(median of 50 simulated futures under best-fit, order age)" in out
    assert "now: 0/1 nodes are available: 1 Insufficient cpu." in out
    # Another one can never start.
    assert "0 of 1 other waiting pod goes before it" in out
    assert "with half the CPU" not in out


def test_json_has_seconds_from_the_latest_time_of_the_files(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["wait", "--pod", "team/waits", "--format", "json", "--rollouts", "20", *files]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 200 < found["p50"] < 500
    assert found["p10"] <= found["p50"] <= found["p90"]
    assert (found["rollouts"], found["pods"], found["ahead"]) == (20, ["team/waits"], 0)
    assert found["now"] == 1793534400


def test_now_is_the_latest_time_that_any_object_states(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A node's heartbeat, and the request to delete a pod, whose deletion itself is to come."""
    asked = ["wait", *files, "--rollouts", "5"]
    cluster = Path(files[1])
    objects = list(yaml.safe_load_all(cluster.read_text()))
    objects[0]["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": at(-7)}]
    cluster.write_text(yaml.safe_dump_all(objects))
    assert main([*asked, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["now"] == 1793534400 + 7 * 60
    objects[-1]["metadata"] |= {"deletionTimestamp": at(-60), "deletionGracePeriodSeconds": 3000}
    cluster.write_text(yaml.safe_dump_all(objects))
    assert main([*asked, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["now"] == 1793534400 + 10 * 60
    assert main(asked) == 0
    assert ", the latest time in the files\n" in capsys.readouterr().out


def test_now_may_be_stated(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["wait", *files, "--rollouts", "5", "--pod", "waits", "--now", "2026-11-01T13:00:00+01:00"]
    assert main([*asked, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["now"] == 1793534400
    assert main(asked) == 0
    assert ", as --now says\n" in capsys.readouterr().out
    assert main(["wait", "--now", "2026-11-01T12:00:00Z"]) == 2
    assert "--now is for a cluster in files" in capsys.readouterr().err


def test_pods_of_a_file_are_put_behind_the_queue(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump(JOB))
    assert main(["wait", "--pod", str(job), "--format", "json", *files]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["pods"]) == 2
    # Behind `waits` and `last`, and one after the other.
    assert found["p50"] > 200 + 3 * 500
    # A third one can never start.
    assert found["ahead"] == 2


def test_objects_of_the_cluster_apply_to_pods_of_a_file(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its priority class, the limits of its namespace, and what its runtime adds; unknown classes are named."""
    classes = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 7},
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "vm"},
            "handler": "vm",
            "overhead": {"podFixed": {"cpu": "1"}},
        },
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "l", "namespace": "team"},
            "spec": {"limits": [{"type": "Container", "defaultRequest": {"memory": "2Gi"}}]},
        },
    ]
    cluster, new = Path(files[1]), tmp_path / "new.yaml"
    cluster.write_text(f"{cluster.read_text()}---\n{yaml.safe_dump_all(classes)}")
    spec = {"containers": [{"name": "x", "resources": {"requests": {"cpu": "3"}}}], "priorityClassName": "urgent"}
    there = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new", "namespace": "team"}, "spec": spec}
    new.write_text(yaml.safe_dump(there | {"spec": spec | {"runtimeClassName": "vm"}}))
    asked = ["wait", *files, "--pod", str(new), "--format", "json"]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["needs"] == "4 CPUs, 2 GiB"
    assert found["ahead"] == 0
    new.write_text(yaml.safe_dump(there | {"spec": spec | {"priorityClassName": "absent"}}))
    assert main(asked) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["ahead"] == 2
    assert f"warning: {new}: PriorityClass absent is not in the input; its priority counts as 0" in printed.err


def test_a_priority_that_does_not_help_is_said(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The pod that goes next gains nothing by it, and the last one does."""
    assert main(["wait", *files, "--pod", "waits", "--priority", "10"]) == 0
    assert "with priority 10: no clear gain" in capsys.readouterr().out
    assert main(["wait", *files, "--pod", "last", "--priority", "10"]) == 0
    out = capsys.readouterr().out
    assert "with priority 10" in out
    assert "no clear gain" not in out


def test_a_file_of_pods_with_gates_is_refused(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a pod of the cluster that has them."""
    new = tmp_path / "new.yaml"
    new.write_text(yaml.safe_dump(pod("new", 0, schedulingGates=[{"name": "g"}])))
    assert main(["wait", *files, "--pod", str(new)]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(
        f"error: --pod {new}: no scheduler looks at its pods: they have scheduling gates; leave out"
    )


def test_times_that_are_not_stated_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = [pod("e0", 9, 9, 8), pod("e1", 9, 9, 8), pod("runs", 5, 5), pod("waits", 3)]
    for each in pods:
        del each["metadata"]["creationTimestamp"]  # type: ignore[attr-defined]
        each["status"] = {"phase": each["status"]["phase"]}  # type: ignore[index]
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([NODE, *pods]))
    assert main(["wait", "--pods", str(file), "--policy", "best-fit", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["assumptions"][:3] == [
        "pods that ended state no times (2): run times may be anything from seconds to weeks",
        "running pods that state no time (1) are taken to have begun now",
        "waiting pods that state no time (1) are taken to have come now",
    ]
    assert found["now"] is None


@pytest.mark.parametrize(("parallelism", "first"), [(3, 3), (None, 1), (20, 10)])
def test_of_a_job_the_pods_that_start_at_once_are_predicted(
    parallelism: int | None, first: int, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump(JOB | {"spec": JOB["spec"] | {"parallelism": parallelism, "completions": 10}}))  # type: ignore[operator]
    asked = ["wait", *files, "--pod", str(job), "--rollouts", "5"]
    assert main([*asked, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (len(found["pods"]), found["later"]) == (first, 10 - first)
    assert main(asked) == 0
    out = " ".join(capsys.readouterr().out.split())
    is_said = f"of the 10 pods of {job} the first {first} {'is' if first == 1 else 'are'} predicted: parallelism" in out
    assert is_said == (first < 10)


def test_a_job_that_starts_no_pod_is_refused(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump(JOB | {"spec": JOB["spec"] | {"parallelism": 0}}))  # type: ignore[operator]
    assert main(["wait", *files, "--pod", str(job)]) == 1
    assert "job.yaml: has no pods" in capsys.readouterr().err


def test_a_senseless_annotation_is_named_and_its_pod_waits(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, notes = (
        Path(files[1]),
        {"steersman.dev/expected-seconds": "2h", "steersman.dev/latency-soft-constraint": "x"},
    )
    objects = list(yaml.safe_load_all(cluster.read_text()))
    for each in objects[-2:]:
        each["metadata"]["annotations"] = notes
        each["spec"].pop("schedulingGates", None)
    cluster.write_text(yaml.safe_dump_all(objects))
    assert main(["wait", *files, "--format", "json", "--rollouts", "5"]) == 0
    printed = capsys.readouterr()
    waiting = [each["pod"] for each in json.loads(printed.out)["pods"]]
    assert waiting[-2:] == ["team/gated", "team/last"]
    assert (
        "annotation steersman.dev/expected-seconds of 2 pods, such as team/gated: '2h' is not a number of seconds "
        "above 0, such as 3600; ignored"
    ) in printed.err
    assert "annotation steersman.dev/latency-soft-constraint of 2 pods" in printed.err


def test_a_pod_too_large_is_said_to_never_start(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wait", "--pod", "large", *files]) == 0
    assert capsys.readouterr().out == "team/large can never start: 0/1 nodes are available: 1 Insufficient cpu.\n"


def test_a_pod_without_room_beside_pods_that_stay_is_said_to_start_in_no_future(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = pod("agent", 300, 299, cpu="2")
    agent["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"  # type: ignore[index]
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([NODE, agent, pod("waits", 3, cpu="3")]))
    assert main(["wait", "--pod", "waits", "--nodes", str(file), "--pods", str(file), "--policy", "best-fit"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("team/waits starts in none of 50 simulated futures under best-fit, order age: no node could")
    assert "within" not in out.replace("does not start within", "")


def test_without_a_pod_the_queue_is_listed(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wait", *files]) == 0
    out = capsys.readouterr().out
    assert "1 can never start: 0/1 nodes are available: 1 Insufficient cpu." in out
    rows = [line.split() for line in out.splitlines() if "team/" in line]
    assert [row[0] for row in rows] == ["team/waits", "team/large", "team/last"]
    assert rows[1][-1] == "never"
    assert main(["wait", "--format", "json", "--rollouts", "5", *files]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["pod"] for each in found["pods"]] == ["team/waits", "team/large", "team/last"]
    assert found["pods"][0]["p50"] < found["pods"][2]["p50"]
    assert main(["wait", "--priority", "5", *files]) == 2
    assert capsys.readouterr().err == "error: --priority is tried for one pod; name it with --pod\n"


def test_a_cluster_in_which_all_has_ended_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody waits there, and a new pod starts at once."""
    objects, job = tmp_path / "objects.yaml", tmp_path / "job.yaml"
    objects.write_text(yaml.safe_dump_all([NODE, pod("done", 20, 20, 10)]))
    job.write_text(yaml.safe_dump(JOB | {"spec": JOB["spec"] | {"parallelism": 1, "completions": 1}}))  # type: ignore[operator]
    there = ["wait", "--policy", "best-fit", "--pods", str(objects)]
    assert main(there) == 0
    assert capsys.readouterr().out == "no pod waits\n"
    assert main([*there, "--pod", str(job)]) == 0
    assert "team/new-0001 starts in 0 s" in capsys.readouterr().out


def test_a_gang_is_named_with_its_size(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Path(files[1])
    objects = list(yaml.safe_load_all(cluster.read_text()))
    for each in (objects[-4], objects[-1]):
        each["metadata"]["annotations"] = {"steersman.dev/gang": "train"}
        each["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    cluster.write_text(yaml.safe_dump_all(objects))
    assert main(["wait", *files, "--pod", "last", "--rollouts", "5"]) == 0
    assert "it is one of the 2 pods of gang train, which start together" in capsys.readouterr().out
    assert main(["wait", *files, "--rollouts", "5"]) == 0
    assert "team/last (gang train of 2)" in capsys.readouterr().out


def test_run_times_of_a_file_replace_those_of_the_cluster(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In an empty history the running pod may take days."""
    kept = tmp_path / "run-times.json"
    write_run_times(kept, RunTimeHistory().copy())
    assert main(["wait", "--pod", "waits", "--run-times", str(kept), "--format", "json", *files]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["p50"] > 500
    assert any("no pod is known to have ended" in each for each in found["assumptions"])


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--pod", "runs"], 1, "it does not wait: it runs on n since 2026-11-01"),
        (["--pod", "e0"], 1, "it does not wait: it ended at 2026-11-01"),
        (["--pod", "gated"], 1, "no scheduler looks at it"),
        (["--pod", "nobody"], 1, "there is no such pod"),
        (["--pod", "waits", "--rollouts", "-1"], 2, "--rollouts"),
        (["--pod", "waits", "--rollouts", "nan"], 2, "--rollouts"),
        (["--pod", "waits", "--order", "oldest"], 2, "unknown order"),
        (["--pod", "waits", "--order", "age@oracle"], 2, "no live cluster knows true run times"),
        (["--pod", "waits", "--policy", "fgd+shortest", "--order", "age"], 2, "names an order"),
        (["--pod", "missing.yaml"], 1, "no such file"),
        (["--pod", "waits", "--priority", "0"], 2, "--priority 0: must be above the pod's own, which is 0"),
        (["--pod", "waits", "--now", "noon"], 2, "--now noon: is not a time; expected one such as 2026-11-01T12:00"),
    ],
)
def test_what_cannot_be_answered_is_one_line(
    arguments: list[str], status: int, text: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The last option counts, so that the arguments come last."""
    assert main(["wait", *files, *arguments]) == status
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line.lower()]
    assert text in error


@pytest.mark.parametrize("times", [(3,), (9, 9, 1)])
def test_a_name_in_two_namespaces_is_said_to_be_ambiguous(
    times: tuple[int, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether pods wait or have ended."""
    pods = [pod("twin", *times), pod("twin", *times)]  # type: ignore[arg-type]
    pods[1]["metadata"]["namespace"] = "other"  # type: ignore[index]
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([NODE, *pods]))
    assert main(["wait", "--pods", str(file), "--policy", "best-fit", "--pod", "twin"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "error: --pod twin: several pods have that name; choose one of other/twin, team/twin"


@pytest.mark.parametrize("command", [["wait"], ["explain", "--pod", "default/job-1", "--order", "shortest"]])
def test_a_trace_is_no_cluster_at_a_time(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, nodes = tmp_path / "jobs.csv", tmp_path / "nodes.yaml"
    trace.write_text("submit,duration,cpu\n0,10,1\n10,10,1\n")
    nodes.write_text(yaml.safe_dump(NODE))
    assert main([*command, "--nodes", str(nodes), "--pods", str(trace), "--policy", "best-fit"]) == 2
    check_text(capsys.readouterr().err.splitlines()[-1])


def test_a_file_of_another_format_is_no_history(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"run_times": 99, "groups": []}')
    assert main(["wait", "--pod", "waits", "--run-times", str(other), *files]) == 1
    assert "run_times: 99 is of another version of steersman" in capsys.readouterr().err
