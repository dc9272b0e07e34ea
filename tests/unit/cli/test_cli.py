"""What a user types and what comes back: one line for an error, the right exit status, and no file for a bad input."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table
from tests.support.errors import raises
from tests.support.run_results import made_experiment, made_run
from tests.support.servers.score_servers import steersman_server

from steersman.cli.main import main
from steersman.cli.options.common import parse_seeds, repeat_flags
from steersman.cli.output.display import TrainingProgressBar, wrapped
from steersman.cli.output.tables import comparison_table, run_table, workloads_table
from steersman.core.early_signals import SIGNALS
from steersman.core.errors import UsageError
from steersman.core.signals import interruptible
from steersman.evaluation.report.headline import Headline
from steersman.evaluation.summary import summarise
from steersman.live.http_policy.policy import blocking_client
from steersman.objectives.registry import OBJECTIVES
from steersman.orders.registry import BUILT_IN as ORDERS
from steersman.policies.registry import BUILT_IN, TELEMETRY_POLICIES
from steersman.simulation.result import Metric
from steersman.training.run import TrainingProgress

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,32000,64000,4,T4\nn2,32000,64000,4,V100\nn3,64000,64000,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    "p1,1000,1000,1,500,\np2,2000,1000,1,1000,T4\np3,4000,2000,2,1000,\np4,1000,1000,0,0,\np5,1000,1000,1,300,V100\n"
)
RUN = ("--policy", "best-fit", "--policy", "fgd", "--seeds", "1-3", "--jobs", "1")

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in with a small cluster in `nodes.csv` and its workload in `pods.csv`."""
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluate(*more: str, nodes: str = "nodes.csv", pods: str = "pods.csv", output: str = "out") -> int:
    return main(["evaluate", "--nodes", nodes, "--pods", pods, "--output", output, *more])


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def error_line(capsys: Capture) -> str:
    """The one line that was said on standard error."""
    said = capsys.readouterr().err
    assert said.startswith("error: "), said
    assert said.count("\n") == 1, said
    return said


def test_evaluate_writes_files_and_prints_the_result(cluster: Path, capsys: Capture) -> None:
    assert evaluate(*RUN) == 0
    assert sorted(path.name for path in (cluster / "out").iterdir()) == [
        "metrics.csv",
        "report.html",
        "results.csv",
        "summary.csv",
    ]
    results = rows(cluster / "out" / "results.csv")
    assert {(row["workload"], row["policy"], row["seed"]) for row in results} == {
        ("pods", policy, seed) for policy in ("best-fit", "fgd") for seed in "123"
    }
    said = capsys.readouterr()
    assert "best-fit" in said.out
    assert "on pods" in said.out
    assert "error" not in said.err


def test_several_values_after_one_flag(cluster: Path) -> None:
    (cluster / "more.csv").write_text(PODS)
    more = ("--policy", "best-fit", "fgd", "--seeds", "7", "--jobs", "1")
    assert main(["evaluate", "--nodes", "nodes.csv", "--pods", "pods.csv", "more.csv", "--output", "out", *more]) == 0
    found = {(row["workload"], row["policy"]) for row in rows(cluster / "out" / "summary.csv")}
    assert found == {(w, p) for w in ("pods", "more", "all") for p in ("best-fit", "fgd")}


@pytest.mark.parametrize("protocol", ["inflation", "timed", "arrivals"])
def test_every_protocol(cluster: Path, protocol: str) -> None:
    times = PODS.replace("gpu_spec\n", "gpu_spec,creation_time,deletion_time\n")
    lines = times.splitlines()
    timed = "\n".join([lines[0], *(f"{line},{i},{i + 5}" for i, line in enumerate(lines[1:]))])
    (cluster / "pods.csv").write_text(timed + "\n")
    assert evaluate(*RUN, "--protocol", protocol) == 0
    assert {row["protocol"] for row in rows(cluster / "out" / "metrics.csv")} == {protocol}


def test_others_are_compared_with_the_baseline(cluster: Path) -> None:
    assert evaluate(*RUN, "--baseline", "fgd") == 0
    compared = {(row["policy"], row["baseline"]) for row in rows(cluster / "out" / "summary.csv")}
    assert compared == {("best-fit", "fgd"), ("fgd", "")}


def test_json_and_csv_output_is_machine_readable(cluster: Path, capsys: Capture) -> None:
    assert evaluate(*RUN, "--format", "json") == 0
    records = json.loads(capsys.readouterr().out)
    assert evaluate(*RUN, "--format", "csv") == 0
    text = capsys.readouterr().out
    assert text == (cluster / "out" / "summary.csv").read_text()
    assert len(records) == text.count("\n") - 1
    assert records[0]["baseline"] is None


def test_simulate_lists_every_placement(cluster: Path, capsys: Capture) -> None:
    files = ("--nodes", "nodes.csv", "--pods", "pods.csv")
    assert main(["simulate", *files, "--policy", "fgd", "--protocol", "arrivals", "--output", "run"]) == 0
    placements = rows(cluster / "run" / "placements.csv")
    assert [row["pod"] for row in placements] == ["p1", "p2", "p3", "p4", "p5"]
    assert {row["outcome"] for row in placements} == {"bound"}
    assert {row["pod"]: row["node"] for row in placements}["p5"] == "n2"
    assert sorted(path.name for path in (cluster / "run").iterdir()) == [
        "metrics.csv",
        "placements.csv",
        "replay.json.gz",
        "timeline.csv",
    ]
    assert "gpu_allocation_percent" in capsys.readouterr().out


def test_a_pod_that_fits_nowhere_is_a_warning_and_has_a_reason(cluster: Path, capsys: Capture) -> None:
    (cluster / "pods.csv").write_text(PODS + "whale,1000,1000,1,1000,H100\n")
    files = ("--nodes", "nodes.csv", "--pods", "pods.csv")
    assert main(["simulate", *files, "--policy", "fgd", "--protocol", "arrivals", "--output", "run"]) == 0
    (failed,) = [row for row in rows(cluster / "run" / "placements.csv") if row["outcome"] == "failed"]
    assert failed["pod"] == "whale"
    assert "nodes are available" in failed["reason"]
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len([line for line in warnings if "whale" in line]) == 1


BAD_PODS: dict[str, tuple[str, tuple[str, ...]]] = {
    "missing column": (PODS.replace("gpu_milli", "milli"), ("pods.csv", "gpu_milli")),
    "negative quantity": (PODS.replace("p1,1000", "p1,-1000"), ("pods.csv", "line 2", "cpu_milli")),
    "absurd quantity": (PODS.replace("p1,1000", "p1,99999999999"), ("pods.csv", "line 2", "cpu_milli")),
    "not a number": (PODS.replace("p4,1000", "p4,many"), ("pods.csv", "line 5", "cpu_milli", "many")),
    "GPU milli above a device": (PODS.replace("1,500", "1,1500"), ("pods.csv", "line 2", "gpu_milli", "1500")),
    "duplicate name": (PODS.replace("p3,", "p1,"), ("pods.csv", "line 4", "name", "p1")),
    "short row": (PODS + "p9,1\n", ("pods.csv", "line 7")),
    "empty file": ("", ("pods.csv", "empty")),
    "header only": (PODS.splitlines()[0] + "\n", ("pods.csv", "no pods")),
    "no header of ours": ("a,b\n1,2\n", ("pods.csv",)),
}


@pytest.mark.parametrize("case", BAD_PODS)
def test_bad_pods_are_named_by_file_row_and_field(cluster: Path, capsys: Capture, case: str) -> None:
    text, parts = BAD_PODS[case]
    (cluster / "pods.csv").write_text(text)
    assert evaluate(*RUN) == 1
    line = error_line(capsys)
    assert all(part in line for part in parts), line
    assert not (cluster / "out").exists()


def test_bad_yaml_is_named(cluster: Path, capsys: Capture) -> None:
    (cluster / "pods.yaml").write_text("hello: [world\n")
    assert evaluate(*RUN, pods="pods.yaml") == 1
    assert "pods.yaml" in error_line(capsys)
    (cluster / "pods.yaml").write_text("hello: world\n")
    assert evaluate(*RUN, pods="pods.yaml") == 1
    assert "pods.yaml" in error_line(capsys)
    assert not (cluster / "out").exists()


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("missing", ["nodes", "pods"])
def test_a_missing_file_is_named(capsys: Capture, missing: str) -> None:
    assert evaluate(*RUN, **{missing: "nowhere.csv"}) == 1
    assert "nowhere.csv" in error_line(capsys)


def test_evaluate_has_defaults_for_policies_and_output(cluster: Path, capsys: Capture) -> None:
    options = ("--nodes", "nodes.csv", "--pods", "pods.csv", "--seeds", "2", "--jobs", "1", "--protocol", "arrivals")
    assert main(["evaluate", *options, "--format", "csv"]) == 0
    found = {row["policy"] for row in csv.DictReader(capsys.readouterr().out.splitlines())}
    assert found == {"kube-default", "fgd", "steersman"}
    assert {run["seed"] for run in rows(cluster / "comparison" / "metrics.csv")} == {"42", "43"}


@pytest.mark.usefixtures("cluster")
def test_first_table_shows_a_workload_where_policies_differ(capsys: Capture) -> None:
    options = ("--workload", "default-small", "--policy", "kube-default", "fgd", "--seeds", "2", "--jobs", "1")
    assert main(["evaluate", *options, "--output", "out"]) == 0
    said = capsys.readouterr().out
    assert said.index("default-small: inflation") < said.index("default-small: timed")
    assert "No pod has to wait" in said


WRONG_USAGE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "seeds backwards": (("--policy", "fgd", "--seeds", "9-3"), ("9-3", "3-9")),
    "seeds that are none": (("--policy", "fgd", "--seeds", "many"), ("--seeds", "many", "42-51")),
    "a seed twice": (("--policy", "fgd", "--seeds", "1-3,2"), ("--seeds", "2 is there twice")),
    "too many seeds": (("--policy", "fgd", "--seeds", "0-999999999"), ("--seeds", "100000")),
    "unknown policy": (("--policy", "fdg"), ("fdg", "did you mean", "fgd")),
    "unknown module": (("--policy", "no.such:Policy"), ("no.such",)),
    "a policy twice": (("--policy", "fgd", "--policy", "fgd"), ("fgd",)),
    "baseline that does not run": (("--policy", "fgd", "--baseline", "best-fit"), ("--baseline", "best-fit")),
    "a format as folder": (("--policy", "fgd", "--output", "json"), ("--output json", "--format json")),
    "a cluster's name without one": (("--policy", "fgd", "--name", "one"), ("--name", "--cluster")),
    "ratio of zero": (("--policy", "fgd", "--ratio", "0"), ("--ratio",)),
    "ratio without inflation": (("--policy", "fgd", "--ratio", "2", "--protocol", "timed"), ("--ratio", "inflation")),
    "ratio that is not a number": (("--policy", "fgd", "--ratio", "much"), ("error: --ratio much: is not a number",)),
    "jobs that are no number": (("--policy", "fgd", "--jobs", "x"), ("error: --jobs x: is not a whole number",)),
    "no nodes": (("--policy", "fgd", "--nodes", ""), ("--nodes", "empty")),
    "no output": (("--policy", "fgd", "--output", ""), ("--output", "empty")),
    "ratio that is none": (("--policy", "fgd", "--ratio", "nan"), ("--ratio",)),
    "load without time": (("--policy", "fgd", "--load", "0.9"), ("--load", "timed")),
    "no process": (("--policy", "fgd", "--jobs", "0"), ("error: --jobs 0: must be at least 1",)),
    "unknown protocol": (("--policy", "fgd", "--protocol", "deflation"), ("--protocol", "inflation")),
    "unknown format": (("--policy", "fgd", "--format", "xml"), ("--format", "json")),
    "unknown option": (("--policy", "fgd", "--sedes", "1"), ("--sedes", "--seeds")),
    "a workload twice": (("--policy", "fgd", "--pods", "pods.csv"), ("workload pods",)),
}


@pytest.mark.parametrize("case", WRONG_USAGE)
def test_wrong_usage_is_one_line_and_leaves_nothing(cluster: Path, capsys: Capture, case: str) -> None:
    options, parts = WRONG_USAGE[case]
    assert evaluate(*options) == 2
    line = error_line(capsys)
    assert all(part in line for part in parts), line
    assert not (cluster / "out").exists()


def test_cluster_without_gpus_is_compared_by_cpu(cluster: Path, capsys: Capture) -> None:
    (cluster / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,32000,64000,0,\n")
    assert evaluate(*RUN, "--protocol", "inflation") == 1
    said = capsys.readouterr().err.splitlines()
    assert len([line for line in said if line.startswith("error: ")]) == 1
    assert "--protocol arrivals" in said[-1]
    assert not (cluster / "out").exists()
    assert evaluate(*RUN) == 0
    said = capsys.readouterr()
    assert "compared in arrivals: " in said.err
    assert "pods's nodes have no GPU" in said.err
    assert "CPU %" in said.out
    assert evaluate(*RUN, "--ratio", "2", output="other") == 2
    assert "--ratio belongs to inflation" in error_line(capsys)


def with_times(ends: bool = True) -> str:
    header, *lines = PODS.splitlines()
    columns = [
        f"{header},creation_time,deletion_time",
        *(f"{line},{i},{i + 5 if ends else ''}" for i, line in enumerate(lines)),
    ]
    return "\n".join(columns) + "\n"


def test_default_protocol_follows_from_the_data(cluster: Path, capsys: Capture) -> None:
    def protocols(file: str) -> set[str]:
        return {row["protocol"] for row in rows(cluster / "out" / file)}

    assert evaluate(*RUN) == 0
    said = capsys.readouterr()
    assert "compared in inflation and arrivals: the pods of pods have no creation times and durations" in said.err
    assert protocols("metrics.csv") == protocols("summary.csv") == {"inflation", "arrivals"}
    assert "(inflation)" in said.out
    assert "(arrivals)" in said.out
    page = (cluster / "out" / "report.html").read_text()
    for protocol in ("inflation", "arrivals"):
        assert f'data-workload="pods" data-protocol="{protocol}"' in page
    assert "By the data: the pods of pods have no creation times" in page
    (cluster / "pods.csv").write_text(with_times())
    assert evaluate(*RUN) == 0
    assert "compared in timed and inflation: pods have creation times and durations" in capsys.readouterr().err
    assert protocols("metrics.csv") == {"timed", "inflation"}
    results = (cluster / "out" / "results.csv").read_bytes()
    assert evaluate(*RUN, "--protocol", "inflation") == 0
    assert "compared in" not in capsys.readouterr().err
    assert (cluster / "out" / "results.csv").read_bytes() == results
    assert protocols("metrics.csv") == {"inflation"}


def test_of_several_workloads_one_without_times_decides(cluster: Path, capsys: Capture) -> None:
    (cluster / "timed.csv").write_text(with_times())
    assert main(["evaluate", "--nodes", "nodes.csv", "--pods", "timed.csv", "pods.csv", "--output", "out", *RUN]) == 0
    assert "compared in inflation and arrivals: the pods of pods have" in capsys.readouterr().err


def test_missing_durations_are_assumed_with_a_warning(cluster: Path, capsys: Capture) -> None:
    (cluster / "pods.csv").write_text(with_times(ends=False))
    assert evaluate(*RUN) == 0
    assert "compared in inflation and arrivals" in capsys.readouterr().err
    assert evaluate(*RUN, "--protocol", "timed", "--load", "2") == 0
    assert "durations of 5 of 5 pods are not in the data: exponential with mean 1 h assumed" in capsys.readouterr().err
    assumed = (cluster / "out" / "metrics.csv").read_bytes()
    assert evaluate(*RUN, "--protocol", "timed", "--load", "2", "--mean-duration", "60m") == 0
    assert "durations" not in capsys.readouterr().err
    assert (cluster / "out" / "metrics.csv").read_bytes() == assumed
    assert evaluate(*RUN, "--protocol", "timed", "--load", "2", "--mean-duration", "2h") == 0
    assert (cluster / "out" / "metrics.csv").read_bytes() != assumed
    capsys.readouterr()
    assert evaluate(*RUN, "--protocol", "timed") == 0
    assert "they run to the end; --mean-duration draws" in capsys.readouterr().err
    assert evaluate(*RUN, "--mean-duration", "30s") == 0
    said = capsys.readouterr().err
    assert "compared in timed and inflation" in said
    assert "durations of" not in said
    files = ("--nodes", "nodes.csv", "--pods", "pods.csv", "--policy", "fgd", "--output", "run")
    assert main(["simulate", *files, "--protocol", "timed", "--mean-duration", "30s"]) == 0
    finished = [row for row in rows(cluster / "run" / "placements.csv") if row["outcome"] == "finished"]
    assert len(finished) == 5
    assert main(["simulate", *files, "--protocol", "timed"]) == 0
    assert not [row for row in rows(cluster / "run" / "placements.csv") if row["outcome"] == "finished"]


@pytest.mark.parametrize("text", ["2", "h", "-1h", "0s", "1w", "1h30", "٣h", "1e3s"])
def test_invalid_duration_is_rejected(cluster: Path, capsys: Capture, text: str) -> None:
    assert evaluate(*RUN, f"--mean-duration={text}") == 2
    assert "such as 90s, 30m, 2h or 1.5d" in error_line(capsys)
    assert not (cluster / "out").exists()


EMBEDDED = ("--workload", "default-small", "--policy", "fgd")


@pytest.mark.usefixtures("cluster")
def test_embedded_workloads_are_known_by_name_everywhere(capsys: Capture) -> None:
    short = ("--ratio", "0.1")
    assert main(["simulate", *EMBEDDED, *short, "--output", "run"]) == 0
    assert "fgd on default-small" in capsys.readouterr().out
    assert main(["evaluate", *EMBEDDED, *short, "--protocol", "inflation", "--seeds", "1", "--output", "out"]) == 0
    assert {row["workload"] for row in rows(Path("out/summary.csv"))} == {"default-small"}
    capsys.readouterr()
    assert main(["explain", *EMBEDDED, "--pod", "openb-pod-0016", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["node"].startswith("openb-node-")
    assert main(["workload", "convert", "--workload", "default-small", "--to", "openb", "--output", "small"]) == 0
    assert len(rows(Path("small/nodes.csv"))) == 64
    assert main(["workload", "convert", "--workload", "default-small", "--to", "yaml", "--output", "yaml"]) == 0
    files = ("--nodes", "yaml/nodes.yaml", "--pods", "yaml/pods.yaml")
    assert main(["simulate", *files, "--policy", "fgd", *short, "--output", "again"]) == 0
    assert Path("again/placements.csv").read_bytes() == Path("run/placements.csv").read_bytes()
    assert (
        main(["fit", "policy", "--policy", "steersman", "--workload", "default-small", "--output", "p.safetensors"])
        == 0
    )
    assert Path("p.safetensors").exists()


WAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "none": ((), ("there is no workload", "--workload NAME", "--cluster")),
    "half of files": (("--nodes", "nodes.csv"), ("--pods is missing", "--nodes alone")),
    "the other half": (("--pods", "pods.csv"), ("--nodes is missing", "no nodes in pods.csv")),
    "files and a name": (
        ("--nodes", "nodes.csv", "--pods", "pods.csv", "--workload", "default"),
        ("--nodes and --pods and --workload",),
    ),
    "a name and a cluster": (("--workload", "default", "--cluster"), ("--workload and --cluster", "give one")),
    "a context without a cluster": (("--workload", "default", "--context", "prod"), ("--context", "--cluster")),
    "no such name": (("--workload", "defualt"), ("--workload", "defualt", "did you mean", "default")),
}


@pytest.mark.parametrize("case", WAYS)
@pytest.mark.parametrize("command", ["evaluate", "simulate", "fit"])
def test_workload_options_are_exclusive(cluster: Path, capsys: Capture, command: str, case: str) -> None:
    options, parts = WAYS[case]
    commands = {"fit": ["fit", "policy", "--output", "x.safetensors"]}
    begin = commands.get(command, [command, "--output", "out"])
    assert main([*begin, "--policy", "steersman", *options]) == 2
    line = error_line(capsys)
    assert all(part in line for part in parts), line
    assert sorted(path.name for path in cluster.iterdir()) == ["nodes.csv", "pods.csv"]


def test_a_log_that_states_its_machine_needs_no_nodes(cluster: Path, capsys: Capture) -> None:
    lines = (f"{i} {i} -1 60 {size} -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1" for i, size in ((1, 1), (2, 4), (3, 4)))
    (cluster / "log.swf").write_text("; MaxProcs: 4\n" + "\n".join(lines) + "\n")
    run = ("simulate", "--policy", "best-fit", "--protocol", "timed", "--pods", "log.swf")
    assert main([*run, "--output", "alone"]) == 0
    assert "3 jobs" in capsys.readouterr().err
    bound = [row for row in rows(Path("alone/placements.csv")) if row["outcome"] == "bound"]
    assert [(row["pod"], row["node"], row["time"]) for row in bound] == [
        ("job-1", "pool", "1"),
        ("job-2", "pool", "61"),
        ("job-3", "pool", "121"),
    ]
    assert main([*run, "--nodes", "nodes.csv", "--output", "beside"]) == 0
    assert "pool" not in Path("beside/placements.csv").read_text()
    assert "warning" not in capsys.readouterr().err
    (cluster / "log.swf").write_text("\n")
    assert main([*run, "--output", "none"]) == 1
    assert "has no jobs" in error_line(capsys)


@pytest.mark.parametrize("flag", ["--pods", "--workload"])
def test_a_command_for_one_workload_refuses_a_second(cluster: Path, capsys: Capture, flag: str) -> None:
    value = {"--pods": ("--nodes", "nodes.csv", "--pods", "pods.csv"), "--workload": ("--workload", "default")}[flag]
    more = (flag, value[-1])
    assert main(["simulate", "--policy", "fgd", "--output", "out", *value, *more]) == 2
    assert f"{flag} names 2 workloads; give one" in error_line(capsys)
    assert not (cluster / "out").exists()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--cluster", "--workload", "default-small"), "--workload and --cluster exclude each other"),
        (("--cluster", "--nodes", "nodes.csv"), "--nodes and --cluster exclude each other"),
        (("--workload", "default-small", "--context", "prod"), "--context belongs to --cluster"),
        (("--protocol", "deployments", "--cluster"), "--cluster belongs to --protocol inflation, arrivals or timed"),
        ((), "needs --workload, such as --workload default or a file of pods, or --cluster"),
    ],
)
def test_train_takes_one_workload_source(cluster: Path, capsys: Capture, options: tuple[str, ...], part: str) -> None:
    assert main(["train", "--output", "run", *options]) == 2
    assert part in error_line(capsys)
    assert not (cluster / "run").exists()


def test_unreachable_cluster_fails_in_one_line(cluster: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster / "none"))
    for command in (("evaluate",), ("simulate",)):
        assert main([*command, "--cluster", "--policy", "fgd", "--output", "out"]) == 1
        assert "none" in error_line(capsys)


def test_user_files_are_kept(cluster: Path) -> None:
    assert evaluate(*RUN) == 0
    (cluster / "out" / "thesis.tex").write_text("mine")
    assert evaluate(*RUN) == 0
    assert (cluster / "out" / "thesis.tex").read_text() == "mine"
    assert (cluster / "out" / "summary.csv").exists()


def test_former_results_are_overwritten(cluster: Path) -> None:
    assert evaluate(*RUN) == 0
    before = (cluster / "out" / "results.csv").read_bytes()
    assert evaluate(*RUN, "--policy", "gpu-packing") == 0
    assert (cluster / "out" / "results.csv").read_bytes() != before


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--nodes", "nodes.csv", "--policy", "fgd"),
        ("--cluster-config", "c.yaml"),
        ("--cluster-config", "c.yaml", "--scheduler-config", "s.yaml", "--pods", "pods.csv"),
        ("--cluster-config", "c.yaml", "--scheduler-config", "s.yaml", "--ratio", "1.3"),
        ("--cluster-config", "c.yaml", "--scheduler-config", "s.yaml", "--protocol", "inflation"),
        ("--cluster-config", "c.yaml", "--scheduler-config", "s.yaml", "--load", "0.5"),
    ],
)
def test_simulate_reports_conflicting_options(cluster: Path, capsys: Capture, options: tuple[str, ...]) -> None:
    assert main(["simulate", "--output", "run", *options]) == 2
    error_line(capsys)
    assert not (cluster / "run").exists()


@pytest.mark.usefixtures("cluster")
def test_internal_error_is_one_line(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no\nluck")

    monkeypatch.setattr("steersman.workloads.loading.load_workload", broken)
    assert evaluate(*RUN) == 1
    line = error_line(capsys)
    assert "ZeroDivisionError: no luck" in line
    assert "STEERSMAN_TRACEBACK" in line


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "secret.csv"), "secret.csv: Permission denied"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (MemoryError(), "out of memory"),
    ],
)
def test_operating_system_error_is_one_line(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("steersman.workloads.loading.load_workload", refuse)
    assert evaluate(*RUN) == 1
    assert message in error_line(capsys)


def test_ctrl_c_before_anything_ran(cluster: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("steersman.workloads.loading.load_workload", interrupt)
    assert evaluate(*RUN) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert not (cluster / "out").exists()


OWN = """import sys
class Odd(Exception):
    def __reduce__(self):
        raise TypeError("cannot be pickled")
class Own:
    name = "own"
    def prepare(self, state, mix, seed): pass
    def scores(self, state, class_id, feasible): raise Odd("no\\nluck")
class Exits(Own):
    def scores(self, state, class_id, feasible): sys.exit(0)
class Nameless(Own):
    @property
    def name(self): raise ValueError("no name")
class Clean(Own):
    def __init__(self): raise type("Fine", (__import__("steersman").errors.SteersmanError,), {"exit_status": 0})("fine")
"""


@pytest.mark.parametrize("name", ["Own", "Exits", "Nameless", "Clean"])
@pytest.mark.parametrize("command", ["evaluate", "simulate"])
def test_failing_policy_is_one_line_and_no_internal_error(
    cluster: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    (cluster / "own_policies.py").write_text(OWN)
    monkeypatch.syspath_prepend(cluster)
    more = ("--jobs", "1", "--seeds", "1-2") if command == "evaluate" else ()
    files = ("--nodes", "nodes.csv", "--pods", "pods.csv", "--output", "out")
    assert main([command, *files, "--policy", f"own_policies:{name}", *more]) == 1
    line = error_line(capsys)
    assert "bug" not in line
    assert not (cluster / "out").exists()


@pytest.mark.usefixtures("cluster")
def test_exit_within_a_policy_is_no_success(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steersman.workloads.loading.load_workload", lambda *_, **__: sys.exit(0))
    assert evaluate(*RUN) == 1
    error_line(capsys)


def test_a_workload_called_all_is_rejected_beside_others(cluster: Path, capsys: Capture) -> None:
    (cluster / "all.csv").write_text(PODS)
    assert evaluate(*RUN, "--pods", "all.csv") == 2
    assert "rename its file" in error_line(capsys)
    assert evaluate("--policy", "fgd", "--seeds", "1", "--jobs", "1", pods="all.csv") == 0


def test_names_are_not_parsed_as_markup(cluster: Path, capsys: Capture) -> None:
    name = "jobs[bold]:fire:"
    for file in (f"{name}.csv", "[red]more.csv"):
        (cluster / file).write_text(PODS)
    assert evaluate(*RUN, "--pods", "[red]more.csv", pods=f"{name}.csv") == 0
    printed = capsys.readouterr().out
    assert name in printed
    assert "[red]more" in printed
    files = ("--nodes", "nodes.csv", "--pods", f"{name}.csv")
    assert main(["simulate", *files, "--policy", "fgd", "--output", "run"]) == 0
    assert f"fgd on {name}," in capsys.readouterr().out


def test_foreign_results_are_rejected_before_the_run(cluster: Path, capsys: Capture) -> None:
    (cluster / "out").mkdir()
    (cluster / "out" / "summary.csv").write_text("precious\n")
    files = ("--nodes", "nodes.csv", "--pods", "pods.csv", "--output", "out")
    assert main(["evaluate", *files, "--policy", "fgd"]) == 2
    assert "summary.csv is there and no result" in error_line(capsys)
    assert (cluster / "out" / "summary.csv").read_text() == "precious\n"


def printed(table: Table, width: int) -> str:
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        console.print(table)
    text = captured.get()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    return text


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("long", ["fgd=500,gpu-packing=500", "my.own.package.policies:Policy"])
def test_numbers_are_not_cut_at_any_width(width: int, long: str) -> None:
    ends = {"kube-default": [90.0, 91.0], long: [95.0, 96.5], "balanced-allocation": [88.0, 88.5]}
    runs = made_experiment(ends, workloads=["one", "two"])
    headline = Headline(runs, summarise(runs, "kube-default"), "kube-default")
    table = printed(comparison_table(headline, width), width)
    for number in ("95.75", "90.50", "88.25", "+5.25", "−2.25", "+2.07 to +8.43", "−5.43 to +0.93"):
        assert number in table
    if "No room here" not in table:
        assert all(title in table for title in ("GPUs", "failed"))
    by_workload = printed(workloads_table(headline, width), width)
    assert by_workload.count("95.75") == 2
    assert "Metric" in printed(run_table(runs[0]), width)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_long_waits_are_not_cut(width: int) -> None:
    def waits(seconds: float) -> list[Metric]:
        names = ("waiting_time_mean_seconds", "waiting_time_p95_seconds", "pods_waiting")
        shares = ("gpu_allocation_over_time_percent", "cpu_allocation_over_time_percent")
        return [*(Metric(name, "", seconds) for name in names), *(Metric(name, "percent", 55.55) for name in shares)]

    runs = [
        made_run(policy, seed, protocol="timed", metrics=waits(wait + seed))
        for policy, wait in (("kube-default", 1e6), ("fgd=500,gpu-packing=500", 2e6))
        for seed in (1, 2)
    ]
    headline = Headline(runs, summarise(runs, "kube-default"), "kube-default")
    table = printed(comparison_table(headline, width), width)
    numbers = {part for part in table.split() if re.match(r"\d[\d.]*,", part)}
    assert {"1,000,001.5", "2,000,001.5"} <= numbers <= {"1,000,001.5", "2,000,001.5", "1,000,002", "2,000,002"}


def test_text_wraps_at_words_and_commands_do_not_wrap() -> None:
    text = wrapped("one two three-four five\n\n  steersman evaluate --nodes nodes.csv", 12)
    assert text == "one two\nthree-four\nfive\n\n  steersman evaluate --nodes nodes.csv"


@pytest.mark.parametrize("command", ["evaluate", "simulate"])
def test_help_names_the_list_of_policies(capsys: Capture, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([command, "--help-all"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "a name of 'steersman policy list'" in text
    assert "[default: 1.3]" in text
    assert "default: (" not in text


def test_list_has_every_policy_and_order(capsys: Capture) -> None:
    assert main(["policy", "list"]) == 0
    listed = {line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("│")}
    assert listed == {*BUILT_IN, *TELEMETRY_POLICIES, *ORDERS, "NAME:none,", "NAME@SOURCE", "NAME@ageing:2h"}


@pytest.mark.parametrize("command", ["train", "tune"])
def test_help_names_every_objective_and_protocol(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([command, "--help-all"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for name in OBJECTIVES:
        assert f" {name}," in text
    assert " arrivals:" in text
    assert "--minutes" in text


def test_workload_without_subcommand_prints_help(capsys: Capture) -> None:
    assert main(["workload"]) == 2
    said = capsys.readouterr()
    assert "generate" in said.out
    assert said.err == ""


def test_invalid_ratio_error_names_file_and_field(cluster: Path, capsys: Capture) -> None:
    config = (SIMON / "cluster-config.yaml").read_text()
    (cluster / "c.yaml").write_text(
        re.sub(r"ratio: *[0-9.]+", "ratio: 999", config).replace("customConfig: ", f"customConfig: {SIMON}/", 1)
    )
    pair = ("--cluster-config", "c.yaml", "--scheduler-config", str(SIMON / "scheduler-config.yaml"))
    assert main(["simulate", *pair, "--output", "out"]) == 1
    line = error_line(capsys)
    assert all(part in line for part in ("c.yaml", "spec.customConfig.workloadTuningConfig.ratio", "999"))


@pytest.fixture
def _handlers() -> Iterator[None]:
    former = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("cluster", "_handlers")
@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_sigterm_is_an_interruption(capsys: Capture, monkeypatch: pytest.MonkeyPatch, number: str, status: int) -> None:
    def end(*_: object, **__: object) -> None:
        for _ in range(3):
            signal.raise_signal(getattr(signal, number))

    monkeypatch.setattr("steersman.workloads.loading.load_workload", end)
    assert evaluate(*RUN) == status
    signal.raise_signal(getattr(signal, number))  # while Python ends
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.usefixtures("_handlers")
def test_ignored_signals_stay_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with interruptible() as received:
        signal.raise_signal(signal.SIGHUP)
    assert received.signal is None


@pytest.mark.parametrize("command", ["evaluate", "simulate"])
def test_written_files_are_reported_with_a_closed_stdout(
    cluster: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rich.console.Console.print", full)
    files = ("--nodes", "nodes.csv", "--pods", "pods.csv", "--output", "out")
    assert main([command, *files, "--policy", "fgd"]) == 1
    assert "metrics.csv" in next(line for line in capsys.readouterr().err.splitlines() if line.startswith("wrote "))
    assert (cluster / "out" / "metrics.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "closed", "status"),
    [("'--version'", ">&-", 1), ("'--version'", "2>&-", 1), ("'nope'", "2>&-", 2), ("'evaluate', '--help'", ">&-", 1)],
)
def test_closed_streams_are_no_internal_error(arguments: str, closed: str, status: int) -> None:
    program = f"import sys; from steersman.cli.main import main; sys.exit(main([{arguments}]))"
    command = f'{sys.executable} -c "{program}" {closed}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "")
    assert "error" not in done.stdout


@pytest.mark.parametrize("arguments", ["'--version'", "'evaluate', '--help'", "'policy', 'show', 'greedy-forecast'"])
def test_full_standard_output_is_reported(arguments: str) -> None:
    program = f"import sys; from steersman.cli.main import main; sys.exit(main([{arguments}]))"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
    assert (done.returncode, done.stderr) == (1, "error: standard output: No space left on device\n")


@pytest.mark.parametrize(
    ("arguments", "purpose"),
    [
        ([], "Which scheduler should a Kubernetes cluster run"),
        (["--help"], "Which scheduler should a Kubernetes cluster run"),
        (["evaluate", "--help"], "Compare policies by simulation"),
        (["simulate", "-h"], "Simulate one policy on one workload"),
        (["workload", "run", "-h"], "Fill a live cluster with random Deployments"),
        (["cluster", "nodes", "add", "-h"], "Add simulated nodes to a cluster that runs"),
        (["demo", "--help"], "Train a policy for a minute"),
    ],
)
def test_help_states_the_purpose(arguments: list[str], purpose: str, capsys: Capture) -> None:
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert "Usage: steersman" in output
    assert purpose in output


def test_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(
        r"steersman \S+\ncore (native \(rustc \S+\)|portable \(WebAssembly\))\n", capsys.readouterr().out
    )


def test_help_and_usage_errors_do_not_import_numba() -> None:
    program = (
        "import sys; from steersman.cli.main import main\n"
        "main(['evaluate', '--help']); main(['evaluate', '--nodes', 'a', '--pods', 'b', '--policy', 'fgd', "
        "'--output', 'o', '--seeds', '9-3'])\n"
        "sys.exit(', '.join(name for name in ('numba', 'plotly') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[1:] == [""], done.stderr


def test_closed_pipe_is_no_error() -> None:
    program = "import sys; from steersman.cli.main import main; sys.exit(main(['evaluate', '--help']))"
    command = f'{sys.executable} -c "{program}" | true; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("3", (42, 43, 44)),
        ("42-42", (42,)),
        ("42-44", (42, 43, 44)),
        ("1,2,5-7", (1, 2, 5, 6, 7)),
        ("7,3", (7, 3)),
        (" 1 , 2-3 ", (1, 2, 3)),
    ],
)
def test_seeds(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "-", "1-", "-1", "1,", "1--2", "1.5", "²", "1_0", "9" * 25, "0x1", "0", "100001"])
def test_invalid_seed_is_rejected(text: str) -> None:
    with raises(UsageError, "--seeds"):
        parse_seeds(text)


@pytest.mark.parametrize(
    ("arguments", "repeated"),
    [
        (["--pods", "a", "b"], ["--pods", "a", "--pods", "b"]),
        (["--pods", "a", "--pods", "b", "c"], ["--pods", "a", "--pods", "b", "--pods", "c"]),
        (["--pods=a", "b", "--seeds", "1"], ["--pods=a", "--pods", "b", "--seeds", "1"]),
        (["--seeds", "1", "2"], ["--seeds", "1", "2"]),
        (["--pods", "-", "a"], ["--pods", "-", "--pods", "a"]),
        (["--pods"], ["--pods"]),
    ],
)
def test_several_values_are_repeated_flags(arguments: list[str], repeated: list[str]) -> None:
    assert repeat_flags(arguments, {"--pods"}) == repeated


SIMON = Path(__file__).resolve().parents[2] / "data" / "simon-example"


def test_a_pair_of_configurations_is_run_and_its_pods_are_placed(
    cluster: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = ("--cluster-config", str(SIMON / "cluster-config.yaml"))
    fixed = (*pair, "--scheduler-config", str(SIMON / "scheduler-config.yaml"))
    assert main(["simulate", *fixed, "--output", "one"]) == 0
    placements = rows(cluster / "one" / "placements.csv")
    bound = [row for row in placements if row["outcome"] == "bound"]
    assert len(bound) > len(placements) / 2
    assert all(row["node"] for row in bound)
    assert {row["seed"] for row in rows(cluster / "one" / "metrics.csv")} == {"233"}  # as the file says
    capsys.readouterr()

    learned = (*pair, "--scheduler-config", str(SIMON / "scheduler-config-learned.yaml"), "--output", "two")
    monkeypatch.setenv("RL_SCHEDULER_ENDPOINT", "http://127.0.0.1:1/score")
    assert main(["simulate", *learned]) == 1
    assert "http://127.0.0.1:1/score: cannot be reached" in error_line(capsys)
    assert not (cluster / "two").exists()
    with steersman_server("best-fit") as url:
        monkeypatch.setenv("RL_SCHEDULER_ENDPOINT", url)
        assert main(["simulate", *learned[:-1], "three"]) == 0
        blocking_client(url).close()
    assert {row["outcome"] for row in rows(cluster / "three" / "placements.csv")} >= {"bound"}
    assert {row["policy"] for row in rows(cluster / "three" / "metrics.csv")} == {url}
    capsys.readouterr()
    assert main(["simulate", *learned, "--policy", "best-fit", "--seed", "7"]) == 0
    assert {(row["policy"], row["seed"]) for row in rows(cluster / "two" / "metrics.csv")} == {("best-fit", "7")}


def test_training_progress_without_metrics_shows_progress_and_best(capsys: Capture) -> None:
    with TrainingProgressBar(2, None) as progress:
        progress.update(TrainingProgress(iteration=1, seconds=1.0), {})
        progress.update(TrainingProgress(iteration=2, seconds=2.0, best=14.451), {})
    assert capsys.readouterr().err.splitlines() == ["training: 2 of 2, about 0 s left: best validation 14.45"]


def test_a_full_disk_is_named_by_its_file_and_finished_runs_are_kept(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (cluster / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(cluster / "tmp"))

    def fill(folder: Path, *_: object, **__: object) -> None:
        (folder / "results.csv").write_text("half of it")
        with Path("/dev/full").open("w") as full:
            full.write("the rest")

    monkeypatch.setattr("steersman.evaluation.evaluation.write_evaluation", fill)
    options = "--nodes nodes.csv --pods pods.csv --policy best-fit --seeds 1-2 --protocol inflation --jobs 1"
    assert main(["evaluate", *options.split(), "--output", "out"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "out/results.csv: cannot be written: No space left on device; the finished runs are in " in said
    assert len(Path(said.rpartition(" ")[2]).read_text().splitlines()) > 2
    assert not (cluster / "out").exists()


@pytest.mark.parametrize("more", [(), ("--no-leader-elect",), ("--lease-namespace", "mine")])
def test_name_of_the_clusters_own_scheduler_is_refused(capsys: Capture, more: tuple[str, ...]) -> None:
    assert main(["schedule", "--policy", "fgd", "--scheduler-name", "default-scheduler", *more]) == 2
    line = error_line(capsys)
    assert all(part in line for part in ("--scheduler-name default-scheduler", "kube-scheduler", "--shadow")), line
