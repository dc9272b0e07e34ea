"""Formats are found out, and converting a workload back and forth changes nothing."""

from __future__ import annotations

import gzip
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.nightly import examples

from steersman.cli.commands.workload import app
from steersman.cli.main import main
from steersman.cli.output import display
from steersman.cluster.gpu_units import with_standard_labels
from steersman.cluster.model import SHARED_GPUS, Constraints, Node, Pod, PodClass, Requests, Toleration
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.core.quantities import bytes_, cpu_milli
from steersman.workloads.formats.base import LossError
from steersman.workloads.formats.registry import convert
from steersman.workloads.generators.deployments import read_rows
from steersman.workloads.loading import load_nodes, load_pods, load_workload
from steersman.workloads.workload import SpreadSelectors, Workload

EXAMPLE = Path(__file__).parents[2] / "data" / "simon-example" / "cluster"
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,T4\nn1,32000,131072,0,\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
PODS += "p0,1000,1024,1,500,T4|P100,5,70\n"
ROWS = "name,pod_count,cpu_request,cpu_limit,mem_request,mem_limit,action\nweb,2,500m,1,1Gi,1Gi,add\n"


def files(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def refusal(nodes: Path | None, pods: Path | None) -> str:
    with pytest.raises(SteersmanError) as caught:
        load_workload(nodes, pods)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_formats_are_detected(tmp_path: Path) -> None:
    files(tmp_path, nodes=NODES, pods=PODS, rows=ROWS)
    (tmp_path / "pods.csv.gz").write_bytes(gzip.compress(PODS.encode()))
    assert [node.name for node in load_nodes(tmp_path / "nodes.csv")] == ["n0", "n1"]
    openb = load_pods(tmp_path / "pods.csv")
    assert load_pods(tmp_path / "pods.csv.gz") == openb
    assert (openb[0].creation_time, openb[0].constraints.gpu_models) == (5.0, ("T4", "P100"))
    assert [pod.name for pod in load_pods(tmp_path / "rows.csv")] == ["web-0001", "web-0002"]
    assert len(load_pods(EXAMPLE)) == 13
    workload = load_workload(tmp_path / "nodes.csv", tmp_path / "pods.csv.gz")
    assert (workload.name, workload.warnings) == ("pods", ())


def test_either_path_may_hold_nodes_and_pods(tmp_path: Path) -> None:
    both = load_workload(EXAMPLE, None)
    assert load_workload(None, EXAMPLE) == both
    assert load_workload(EXAMPLE, EXAMPLE) == both
    files(tmp_path, nodes=NODES)
    mixed = load_workload(tmp_path / "nodes.csv", EXAMPLE)
    assert ([n.name for n in mixed.nodes], mixed.pods) == (["n0", "n1"], both.pods)
    assert mixed.warnings == (f"{EXAMPLE}: its nodes are not used, those of {tmp_path / 'nodes.csv'} are",)
    assert "its pods are not used" in load_workload(EXAMPLE, EXAMPLE / "openb_pod_list_example.yaml").warnings[0]


def test_a_folder_may_mix_formats(tmp_path: Path) -> None:
    files(tmp_path, nodes=NODES, pods=PODS)
    (tmp_path / "more.yaml").write_text((EXAMPLE / "openb_pod_list_example.yaml").read_text())
    assert len(load_workload(tmp_path, None).pods) == 14
    files(tmp_path, again=PODS)
    assert f"{tmp_path}, pod default/p0, name: is there twice" in refusal(tmp_path, None)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            "job_id,submit_time,duration,num_gpu,user",
            "column is missing; the table is read as openb's list of pods, which needs name,cpu_milli,memory_mib,"
            "num_gpu,gpu_milli; a table of jobs written by hand needs submit,duration",
        ),
        ("duration,action", "column is missing; the table is read as a list of Deployments, which needs name,"),
    ],
)
def test_a_table_without_a_column_says_what_it_was_taken_for(tmp_path: Path, header: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(header + "\n")
    with raises(InputError, message, where="line 1", field="name"):
        load_pods(tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.csv", "", "x.csv: is empty"),
        (
            "x.csv",
            "a,b\n1,2\n",
            "x.csv, line 1: no known table has the columns a,b; nearest is a table of jobs written by hand, which "
            "needs submit,duration",
        ),
        (
            "x.csv",
            "Instance,Role,App_name,CPU_request,GPU_request,some,more,columns,than,an,error,shows\n",
            "x.csv, line 1: no known table has the columns Instance,Role,App_name,CPU_request,GPU_request,some,more,"
            "col...; nearest is a table of gpu-v2025's instances, which needs instance_sn,",
        ),
        ("x.csv", NODES, "x.csv: has no pods"),
        ("x.csv", NODES.splitlines()[0], "x.csv: has no nodes, only a header"),
        ("x.csv", PODS, "x.csv: has no nodes; an openb node list or Kubernetes Nodes are needed"),
        ("x.csv", NODES.replace("sn,", "node,"), "x.csv, line 1, sn: column is missing"),
        ("x.csv.gz", "not gzip", "x.csv.gz: cannot be read"),
        ("x.yaml", "", "x.yaml: is empty"),
        ("x.txt", "text", "x.txt: no format has its content, nor its suffix; expected .csv, .csv.gz, .json,"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    assert message in refusal(tmp_path / name, None)


def test_a_missing_column_and_quoted_headers(tmp_path: Path) -> None:
    files(tmp_path, nodes=NODES, pods=PODS.replace("gpu_milli", "milli"))
    assert "pods.csv, line 1, gpu_milli: column is missing" in refusal(tmp_path / "nodes.csv", tmp_path / "pods.csv")
    files(tmp_path, quoted=PODS.replace("name,", '"name",'))
    assert len(load_pods(tmp_path / "quoted.csv")) == 1


def test_missing_paths_are_named(tmp_path: Path) -> None:
    assert "give a file or folder of nodes and one of pods" in refusal(None, None)
    assert "nowhere: no such file or folder" in refusal(tmp_path / "nowhere", None)
    assert "is a folder without .yaml, .yml, .json, .csv or .swf files" in refusal(tmp_path, None)


# Converting

names = st.text("abcdefgh", min_size=1, max_size=6)
cpu, mebibytes = st.integers(0, 10**6), st.integers(0, 1 << 20)
times = st.one_of(st.none(), st.integers(0, 10**9).map(float), st.floats(0, 1e9))


@st.composite
def openb_workloads(draw: st.DrawFn) -> Workload:
    def node(name: str) -> Node:
        gpus = draw(st.integers(0, 8))
        model = draw(st.sampled_from(["", "T4", "V100M32"])) if gpus else ""
        return with_standard_labels(Node(name, draw(cpu), draw(mebibytes) << 20, gpu_count=gpus, gpu_model=model))

    def pod(name: str) -> Pod:
        gpus = draw(st.integers(0, 8))
        models = tuple(draw(st.lists(st.sampled_from(["T4", "P100", "G2"]), max_size=2))) if gpus else ()
        milli = draw(st.integers(1, 1000)) if gpus else 0
        requests = Requests(draw(cpu), draw(mebibytes) << 20, gpu_count=gpus, gpu_milli=milli)
        created, deleted = draw(times), draw(times)
        if created is not None and deleted is not None:
            created, deleted = sorted((created, deleted))
        return Pod(name, PodClass(requests, Constraints(models)), creation_time=created, deletion_time=deleted)

    nodes = [node(f"n-{name}") for name in draw(st.lists(names, min_size=1, max_size=4, unique=True))]
    pods = [pod(f"p-{name}") for name in draw(st.lists(names, min_size=1, max_size=4, unique=True))]
    return Workload("w", tuple(nodes), tuple(pods))


def _asking_by_annotations(pod: Pod) -> Pod:
    """The pod as its YAML says it: openb's pods have no name for their GPUs, Kubernetes objects have one."""
    if not pod.requests.gpu_count:
        return pod
    requests = replace(pod.requests, gpu_resource=SHARED_GPUS)
    return replace(pod, pod_class=replace(pod.pod_class, requests=requests))


def through(workload: Workload, target: str, lossy: bool = False) -> Workload:
    with tempfile.TemporaryDirectory() as folder:
        assert convert(workload, target, Path(folder) / "w", lossy=lossy) == ()
        return load_workload(Path(folder) / "w", None)


@settings(max_examples=examples(60), deadline=None)
@given(openb_workloads())
def test_openb_round_trips_through_csv_and_yaml(workload: Workload) -> None:
    assert through(workload, "openb") == workload
    by_yaml = through(workload, "yaml")
    assert list(by_yaml.pods) == [_asking_by_annotations(pod) for pod in workload.pods]
    # The YAML has the GPU model as a label; going back to CSV, which says it already, nothing is lost.
    assert through(by_yaml, "openb") == workload


def test_every_object_of_a_folder_round_trips_through_yaml() -> None:
    example = load_workload(EXAMPLE, None)
    services = SpreadSelectors((("paib-gpu", (("app", "x"),)), ("default", (("a", "b"), ("c", "d")))))
    found = through(Workload("w", example.nodes, example.pods, services), "yaml")
    assert found == Workload("w", example.nodes, example.pods, services)


def test_deployments_round_trip_through_yaml_and_csv(tmp_path: Path) -> None:
    files(tmp_path, nodes=NODES, rows=ROWS + "db,3,2,2,4Gi,4Gi,add\nweb,2,500m,1,1Gi,1Gi,delete\n")
    workload = load_workload(tmp_path / "nodes.csv", tmp_path / "rows.csv")
    assert [pod.deletion_time for pod in workload.pods] == [70.0] * 2 + [None] * 3
    assert through(workload, "yaml").pods == workload.pods
    assert through(workload, "deployments").pods == workload.pods


@pytest.mark.parametrize(
    ("target", "change", "message"),
    [
        ("openb", {"namespace": "a"}, "pod p: namespace cannot be represented in openb CSV; --lossy"),
        ("openb", {"labels": {"a": "b"}}, "pod p: labels cannot"),
        ("openb", {"estimated_seconds": 60.0}, "pod p: estimated_seconds cannot"),
        ("openb", {"gang": "g"}, "pod p: gang cannot"),
        ("openb", {"constraints": Constraints(tolerations=(Toleration("a"),))}, "pod p: constraints.tolerations"),
        ("openb", {"requests": Requests(1, 5)}, "pod p: requests.memory_bytes"),
        ("openb", {"requests": Requests(1, 0, cpu_nonzero_milli=5)}, "pod p: requests.cpu_nonzero_milli"),
        ("deployments", {}, "pod p: name cannot be represented in Deployments as CSV"),
    ],
)
def test_losses_of_a_format_are_reported(tmp_path: Path, target: str, change: dict[str, object], message: str) -> None:
    requests = change.pop("requests", Requests(1, 0))
    pod_class = PodClass(requests, change.pop("constraints", Constraints()))  # type: ignore[arg-type]
    workload = Workload("w", (Node("n", 1, 0),), (Pod("p", pod_class, **change),))  # type: ignore[arg-type]
    output = tmp_path / "out"
    with pytest.raises(LossError) as caught:
        convert(workload, target, output)
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    (warning,) = convert(workload, target, output, lossy=True)
    field = message.split()[2]
    assert f"pod {field} (1)" in warning
    assert len(load_pods(output)) == 1


def test_unsupported_nodes_and_services_are_reported(tmp_path: Path) -> None:
    nodes = (Node("n", 1, 0, labels={"zone": "a"}),)
    with raises(LossError):
        convert(Workload("w", nodes, ()), "openb", tmp_path / "out")
    services = SpreadSelectors((("default", (("a", "b"),)),))
    with raises(LossError):
        convert(Workload("w", (Node("n", 1, 0),), (), services), "openb", tmp_path / "out")


def test_output_is_never_overwritten_or_partial(tmp_path: Path) -> None:
    workload = load_workload(EXAMPLE, None)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with raises(InputError):
        convert(workload, "yaml", tmp_path / "full")
    (tmp_path / "empty").mkdir()
    convert(workload, "yaml", tmp_path / "empty")
    assert sorted(p.name for p in (tmp_path / "empty").iterdir()) == ["nodes.yaml", "pods.yaml"]
    # openb's reader knows no machine this large: nothing stays behind.
    with raises(LossError, "mine.yaml", "nodes.csv", "2", "cpu_milli"):
        convert(Workload("w", (Node("n", 10**9, 0),), ()), "openb", tmp_path / "large", nodes_file="mine.yaml")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "full"]


# Commands


def run(*arguments: object) -> None:
    app([str(argument) for argument in arguments], standalone_mode=False)


def amounts(file: Path) -> set[tuple[object, ...]]:
    """What the rows of a CSV state, however it is spelt."""
    parse = {"cpu_request": cpu_milli, "cpu_limit": cpu_milli, "mem_request": bytes_, "mem_limit": bytes_}
    return {(row.name, row.pod_count, *(read(getattr(row, c)) for c, read in parse.items())) for row in read_rows(file)}


def test_loss_errors_name_the_file(tmp_path: Path) -> None:
    run("generate", "--output", tmp_path / "w", "--node-count", 1)
    with pytest.raises(LossError) as caught:
        run("convert", "--pods", tmp_path / "w" / "pods.yaml", "--to", "openb", "--output", tmp_path / "out")
    assert str(caught.value).startswith(f"{tmp_path / 'w' / 'pods.yaml'}, pod ")


def test_commands_read_each_others_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generated, replayed = tmp_path / "generated", tmp_path / "replayed"
    run("generate", "--output", generated, "--csv", tmp_path / "rows.csv", "--cluster-resets", 2, "--seed", 3)
    run("generate", "--output", replayed, "--replay", tmp_path / "rows.csv", "--seed", 4)
    assert (generated / "pods.yaml").read_bytes() == (replayed / "pods.yaml").read_bytes()
    run("convert", "--nodes", generated, "--to", "deployments", "--output", tmp_path / "csv")
    run("convert", "--nodes", tmp_path / "csv", "--to", "yaml", "--output", tmp_path / "yaml")
    assert amounts(tmp_path / "csv" / "deployments.csv") == amounts(tmp_path / "rows.csv")
    for name in ("nodes.yaml", "pods.yaml"):
        assert (tmp_path / "yaml" / name).read_bytes() == (generated / name).read_bytes()
    source = EXAMPLE / "openb_pod_list_example.yaml"
    run("convert", "--pods", source, "--to", "openb", "--lossy", "--output", tmp_path / "pods")
    assert [p.name for p in (tmp_path / "pods").iterdir()] == ["pods.csv"]
    said = capsys.readouterr().err
    assert "left out, openb CSV cannot say it: pod constraints.images (13), pod cpu_limit_milli (13)," in said
    assert "pod memory_limit_bytes (13), pod namespace (13)" in said


def test_generated_files_do_not_depend_on_the_clock(tmp_path: Path) -> None:
    for name in "ab":
        run("generate", "--output", tmp_path / name, "--node-count", 3)
    for file in ("nodes.yaml", "pods.yaml"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    pods = list(yaml.safe_load_all((tmp_path / "a" / "pods.yaml").read_text()))
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"custom-scheduler"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--replicas", "many"], "--replicas many: expected a number such as 10 or a range such as 5-15"),
        (["--csv", "OUT/rows.csv"], "lies in --output"),
        (["--cpu-requests", "1,x"], "--cpu-requests: 'x' is not a Kubernetes quantity"),
        (["--cpu-requests", "0"], "--cpu-requests 0: must be above 0"),
        (["--node-cpu", "0"], "--node-cpu 0: must be above 0"),
        (["--cpu-requests", "100"], "--cpu-requests 100 is more than any node has"),
        (["--cpu-load", "-1"], "--cpu-load -1.0 is out of range"),
    ],
)
def test_wrong_options_of_generate_are_named(tmp_path: Path, arguments: list[str], message: str) -> None:
    output = tmp_path / "OUT"
    with pytest.raises(UsageError) as caught:
        run("generate", "--output", output, *(argument.replace("OUT", str(output)) for argument in arguments))
    assert message in str(caught.value)
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--node-count", "100000000000"], "--node-count 100000000000: must be at most 1000000"),
        (["--node-pods", "100000000000"], "--node-pods 100000000000: must be at most 1000000"),
        (["--namespace", "A_B"], "'--namespace': 'A_B' is not a name of a namespace"),
        (["--scheduler-name", "bad name!"], "'--scheduler-name': 'bad name!' is not a name of a scheduler"),
    ],
)
def test_impossible_generate_options_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["workload", "generate", "--output", str(tmp_path / "out"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_long_reading_is_announced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "PATIENCE_SECONDS", 0.0)
    run("generate", "--output", tmp_path / "w", "--node-count", 50)
    said = capsys.readouterr().err
    assert "making the pods" in said
    assert "writing 51 nodes and " in said
