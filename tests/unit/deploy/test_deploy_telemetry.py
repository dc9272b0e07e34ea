"""What `deploy/prometheus` and `deploy/latency-probe` hold fits the program and what is asked of Prometheus."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import steersman
from steersman.cli.commands.probe import PORT, probe
from steersman.prometheus.configuration import DEFAULT_FEATURES
from steersman.prometheus.probe import parse_target

DEPLOY = Path(__file__).parents[3] / "deploy"
PROMETHEUS, PROBE = DEPLOY / "prometheus", DEPLOY / "latency-probe"


def objects(*files: Path) -> list[dict[str, Any]]:
    return [obj for file in files for obj in yaml.safe_load_all(file.read_text())]


def pods() -> dict[str, dict[str, Any]]:
    found = objects(PROMETHEUS / "node-exporter.yaml", PROMETHEUS / "prometheus.yaml", PROBE / "daemon-set.yaml")
    return {
        obj["metadata"]["name"]: obj["spec"]["template"]["spec"] for obj in found if "template" in obj.get("spec", {})
    }


@pytest.mark.parametrize("folder", [PROMETHEUS, PROBE, PROMETHEUS / "service-monitors"], ids=lambda path: path.name)
def test_kustomization_includes_every_file(folder: Path) -> None:
    content = yaml.safe_load((folder / "kustomization.yaml").read_text())
    generated = [file for each in content.get("configMapGenerator", ()) for file in each["files"]]
    listed = [name for name in content["resources"] if not name.startswith("..")]
    expected = {*listed, *generated, "kustomization.yaml"}
    assert {file.name for file in folder.iterdir() if file.is_file()} - {"telemetry.yaml"} == expected


def test_probe_image_has_this_version_and_valid_arguments() -> None:
    (image,) = yaml.safe_load((PROBE / "kustomization.yaml").read_text())["images"]
    assert image == {"name": "steersman", "newTag": steersman.__version__}
    (container,) = pods()["latency-probe"]["containers"]
    command, *options = container["args"]
    assert command == probe.__name__
    known = {"--target", *(f"--{name.replace('_', '-')}" for name in inspect.signature(probe).parameters)}
    assert {option.split("=")[0] for option in options} <= known
    assert f"--port={PORT}" in options
    assert container["ports"] == [{"name": "metrics", "containerPort": PORT}]
    for option in options:
        if option.startswith("--target="):
            assert parse_target(option.removeprefix("--target=")).port


@pytest.mark.parametrize("name", sorted(pods()))
def test_pods_are_unprivileged(name: str) -> None:
    spec = pods()[name]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(container["resources"]["limits"]) == {"memory"}


def test_scraped_series_name_the_node_of_the_pod() -> None:
    (job,) = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
    keep, _, instance = job["relabel_configs"]
    assert instance == {"source_labels": ["__meta_kubernetes_pod_node_name"], "target_label": "instance"}
    names = {"node-exporter", "latency-probe"}
    assert {name for name in (*names, "prometheus") if re.fullmatch(keep["regex"], name)} == names
    monitors = objects(PROMETHEUS / "service-monitors" / "service-monitors.yaml")
    assert {each["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] for each in monitors} == names
    for monitor in monitors:
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["relabelings"] == [
            {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "instance"}
        ]


def test_exporter_enables_every_queried_metric() -> None:
    (container,) = pods()["node-exporter"]["containers"]
    collectors = {
        arg.removeprefix("--collector.") for arg in container["args"] if re.fullmatch(r"--collector\.\w+", arg)
    }
    shown = {"cpu": "node_cpu", "filesystem": "node_filesystem", "meminfo": "node_memory", "netdev": "node_network"}
    shown["netstat"] = "node_netstat"
    asked = " ".join(feature.query for feature in DEFAULT_FEATURES.values())
    assert collectors == {name for name, prefix in shown.items() if prefix in asked} == set(shown)


def test_scheduler_arguments_name_a_mounted_file() -> None:
    content = yaml.safe_load((PROMETHEUS / "scheduler" / "kustomization.yaml").read_text())
    (patch,) = content["patches"]
    operations = {each["path"].rpartition("/spec/")[2]: each["value"] for each in yaml.safe_load(patch["patch"])}
    folder = operations["containers/0/volumeMounts/-"]["mountPath"]
    assert operations["containers/0/args/-"] == f"--telemetry={folder}/telemetry.yaml"
    assert operations["volumes/-"]["name"] == operations["containers/0/volumeMounts/-"]["name"]
