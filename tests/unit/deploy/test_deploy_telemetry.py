"""What `deploy/prometheus` holds fits what is asked of Prometheus."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from steersman.prometheus.configuration import DEFAULT_FEATURES

DEPLOY = Path(__file__).parents[3] / "deploy"
PROMETHEUS = DEPLOY / "prometheus"


def objects(*files: Path) -> list[dict[str, Any]]:
    return [obj for file in files for obj in yaml.safe_load_all(file.read_text())]


def pods() -> dict[str, dict[str, Any]]:
    found = objects(PROMETHEUS / "node-exporter.yaml", PROMETHEUS / "prometheus.yaml")
    return {
        obj["metadata"]["name"]: obj["spec"]["template"]["spec"] for obj in found if "template" in obj.get("spec", {})
    }


@pytest.mark.parametrize("folder", [PROMETHEUS, PROMETHEUS / "service-monitors"], ids=lambda path: path.name)
def test_kustomization_includes_every_file(folder: Path) -> None:
    content = yaml.safe_load((folder / "kustomization.yaml").read_text())
    generated = [file for each in content.get("configMapGenerator", ()) for file in each["files"]]
    listed = [name for name in content["resources"] if not name.startswith("..")]
    expected = {*listed, *generated, "kustomization.yaml"}
    assert {file.name for file in folder.iterdir() if file.is_file()} - {"telemetry.yaml"} == expected


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
    scraped = {"node-exporter;", "steersman;latency-probe"}
    pods = (*scraped, "prometheus;", "steersman;scheduler")
    assert {each for each in pods if re.fullmatch(keep["regex"], each)} == scraped
    (monitor,) = objects(PROMETHEUS / "service-monitors" / "service-monitors.yaml")
    assert monitor["spec"]["selector"]["matchLabels"] == {"app.kubernetes.io/name": "node-exporter"}
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["relabelings"] == [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "instance"}]


def test_exporter_enables_every_queried_metric() -> None:
    (container,) = pods()["node-exporter"]["containers"]
    collectors = {
        arg.removeprefix("--collector.") for arg in container["args"] if re.fullmatch(r"--collector\.\w+", arg)
    }
    shown = {"cpu": "node_cpu", "filesystem": "node_filesystem", "meminfo": "node_memory", "netdev": "node_network"}
    shown["netstat"] = "node_netstat"
    asked = " ".join(feature.query for feature in DEFAULT_FEATURES.values())
    assert collectors == {name for name, prefix in shown.items() if prefix in asked} == set(shown)
