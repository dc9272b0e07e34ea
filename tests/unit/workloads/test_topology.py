"""Racks, servers and zones for workloads that state none."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cluster_dump import controller, node, pod
from tests.support.errors import raises

from steersman.cli.commands.workload import app
from steersman.cli.main import main
from steersman.cluster.model import Node
from steersman.core.errors import InputError, UsageError
from steersman.workloads.loading import load_nodes, load_pods, load_workload
from steersman.workloads.topology import ZONE, Hierarchy, label_nodes, write_hierarchy

EXAMPLE = Path(__file__).parents[2] / "data" / "simon-example" / "cluster"
NODE_LIST, POD_LIST = "openb_node_list_example", "openb_pod_list_example"
NODES_CSV = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{i},64000,262144,2,T4\n" for i in range(5))
PODS_CSV = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np0,1000,1024,1,500,T4\np1,1000,1024,0,0,\n"


def workload_folder(base: Path, name: str) -> Path:
    folder = base / name
    shutil.copytree(EXAMPLE, folder)
    return folder


def labels_of(folder: Path) -> list[tuple[str, ...]]:
    return [tuple(node.labels.get(key, "") for key in ("rack", "server", ZONE)) for node in load_nodes(folder)]


def hier(folder: Path, stem: str) -> Path:
    return folder / f"{stem}-hier.yaml"


def test_folders_get_labels_beside_the_originals(tmp_path: Path) -> None:
    folders = [workload_folder(tmp_path, f"openb_pod_list_{name}") for name in ("a", "b")]
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.yaml")}
    written = write_hierarchy([tmp_path], Hierarchy(servers_per_rack=2, racks_per_zone=2), "rl-scheduler")
    assert [w.path for w in written] == [hier(f, stem) for f in folders for stem in (NODE_LIST, POD_LIST)]
    assert [(w.nodes, w.pods, w.kept_schedulers) for w in written] == [(6, 0, 0), (0, 13, 0)] * 2
    for folder in folders:
        assert labels_of(folder) == [
            ("rack-0", "srv-0", "zone-0"),
            ("rack-0", "srv-1", "zone-0"),
            ("rack-1", "srv-0", "zone-0"),
            ("rack-1", "srv-1", "zone-0"),
            ("rack-2", "srv-0", "zone-1"),
            ("rack-2", "srv-1", "zone-1"),
        ]
        assert {pod.scheduler_name for pod in load_pods(folder)} == {"rl-scheduler"}
    assert {file: file.read_bytes() for file in before} == before


def test_only_labels_and_scheduler_change(tmp_path: Path) -> None:
    folder = workload_folder(tmp_path, "w")
    write_hierarchy([folder], Hierarchy(4), "rl-scheduler")
    for stem, change in ((NODE_LIST, "labels"), (POD_LIST, "schedulerName")):
        old, new = (list(yaml.safe_load_all(f.read_text())) for f in (folder / f"{stem}.yaml", hier(folder, stem)))
        for one, other in zip(old, new, strict=True):
            assert one != other
            if change == "labels":
                assert one["metadata"].pop("labels").items() <= other["metadata"].pop("labels").items()
            else:
                assert other["spec"].pop("schedulerName") == "rl-scheduler"
            assert one == other


def test_a_second_run_gives_the_same_files(tmp_path: Path) -> None:
    folder = workload_folder(tmp_path, "w")
    first = [w.path.read_bytes() for w in write_hierarchy([folder], Hierarchy())]
    second = write_hierarchy([folder], Hierarchy())
    assert [w.path.read_bytes() for w in second] == first
    assert sorted(file.name for file in folder.iterdir()) == sorted(
        f"{stem}{suffix}.yaml" for stem in (NODE_LIST, POD_LIST) for suffix in ("", "-hier")
    )


def test_existing_labels_and_schedulers_are_kept(tmp_path: Path) -> None:
    schedulers = {"a": "other", "b": "default-scheduler", "c": None}
    pods = [pod(name, schedulerName=scheduler) for name, scheduler in schedulers.items()]
    objects = [node("n", labels={"rack": "mine"}), *pods, controller("Deployment", "d")]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
    (written,) = write_hierarchy([tmp_path], Hierarchy(), "rl-scheduler")
    assert (written.nodes, written.pods, written.kept_schedulers) == (1, 4, 1)
    workload = load_workload(tmp_path, None)
    assert workload.nodes[0].labels == {"rack": "mine", "server": "srv-0"}
    assert [pod.scheduler_name for pod in workload.pods] == ["other", *["rl-scheduler"] * 3]


def test_openb_lists_become_yaml(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES_CSV)
    (tmp_path / "pods.csv.gz").write_bytes(gzip.compress(PODS_CSV.encode()))
    before = load_workload(tmp_path, None)
    write_hierarchy([tmp_path], Hierarchy(servers_per_rack=4), "s")
    after = load_workload(tmp_path, None)
    unnamed = [replace(pod.requests, gpu_resource="") for pod in after.pods]  # YAML names GPUs, openb's CSV does not
    assert unnamed == [pod.requests for pod in before.pods]
    assert [pod.constraints for pod in after.pods] == [pod.constraints for pod in before.pods]
    labels = [(n.name, n.labels["rack"], n.labels["server"]) for n in after.nodes]
    assert labels[3:] == [("n3", "rack-0", "srv-3"), ("n4", "rack-1", "srv-0")]
    assert [(n.gpu_count, n.gpu_model) for n in after.nodes] == [(2, "T4")] * 5


def test_single_files_and_a_file_a_node(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES_CSV)
    (written,) = write_hierarchy([], Hierarchy(2), node_list=tmp_path / "nodes.csv")
    assert (written.path, written.nodes) == (tmp_path / "nodes-hier.yaml", 5)
    one_each = tmp_path / "one-each"
    one_each.mkdir()
    for i, document in enumerate((EXAMPLE / f"{NODE_LIST}.yaml").read_text().split("\n---\n")):
        (one_each / f"node-{i}.yaml").write_text(document)
    write_hierarchy([one_each], Hierarchy(4))
    assert [labels[:2] for labels in labels_of(one_each)][3:5] == [("rack-0", "srv-3"), ("rack-1", "srv-0")]


def test_lists_of_the_same_nodes_are_numbered_independently(tmp_path: Path) -> None:
    for name in ("all", "gpu"):
        (tmp_path / f"{name}.csv").write_text(NODES_CSV)
    write_hierarchy([tmp_path], Hierarchy(4))
    assert labels_of(hier(tmp_path, "all")) == labels_of(hier(tmp_path, "gpu"))


def test_invalid_input_writes_nothing(tmp_path: Path) -> None:
    workload_folder(tmp_path, "a")
    bad = tmp_path / "b" / "pods.yaml"
    bad.parent.mkdir()
    bad.write_text("apiVersion: v1\nkind: Pod\nmetadata: 5\n")
    with raises(InputError, "b/pods.yaml", "1"):
        write_hierarchy([tmp_path], Hierarchy())
    assert not list(tmp_path.rglob("*-hier*"))
    assert not list(tmp_path.rglob(".*"))


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    with raises(InputError):
        write_hierarchy([tmp_path / "nowhere"], Hierarchy())
    with raises(InputError):
        write_hierarchy([tmp_path], Hierarchy())
    with raises(UsageError, "0"):
        Hierarchy(0)
    with raises(UsageError, "--data-dir"):
        app(["topology"], standalone_mode=False)


def test_other_lists_and_bad_names_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nodes.csv").write_text(NODES_CSV)
    (tmp_path / "pods.csv").write_text(PODS_CSV)
    with raises(InputError, "pods.csv", "--nodes"):
        app(["topology", "--nodes", str(tmp_path / "pods.csv")], standalone_mode=False)
    with raises(InputError, "nodes.csv", "--pods"):
        app(["topology", "--pods", str(tmp_path / "nodes.csv")], standalone_mode=False)
    assert main(["workload", "topology", "--data-dir", str(tmp_path), "--scheduler-name", "bad name!"]) == 2
    assert "'--scheduler-name': 'bad name!' is not a name of a scheduler" in capsys.readouterr().err
    assert not list(tmp_path.glob("*-hier*"))


def test_the_command_takes_several_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [str(workload_folder(tmp_path, name)) for name in "ab"]
    command = ["topology", "--data-dir", *folders, "--servers-per-rack", "3", "--scheduler-name", "s"]
    assert main(["workload", *command]) == 0
    assert [labels_of(Path(folder))[3][:2] for folder in folders] == [("rack-1", "srv-0")] * 2
    said = capsys.readouterr().err
    assert said.count("wrote ") == 4
    assert "openb_node_list_example-hier.yaml: 6 nodes, 0 pods" in said


@given(st.integers(1, 7), st.integers(0, 3), st.integers(0, 40))
def test_only_the_last_rack_is_partial(servers: int, racks: int, count: int) -> None:
    nodes = label_nodes([Node(f"n{i}", 1, 1) for i in range(count)], Hierarchy(servers, racks))
    places = [(node.labels["rack"], node.labels["server"]) for node in nodes]
    assert len(set(places)) == count
    per_rack = [sum(rack == f"rack-{i}" for rack, _ in places) for i in range(-(-count // servers))]
    assert all(n == servers for n in per_rack[:-1])
    assert all((ZONE in node.labels) == (racks > 0) for node in nodes)
