"""The manifests that spread work over machines: an indexed Job whose pods are played, a RayJob that is valid."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.conftest import STEERSMAN, LocalCluster, until

pytestmark = pytest.mark.e2e

DEPLOY = Path(__file__).parents[3] / "deploy"
KUBERAY = "github.com/ray-project/kuberay/ray-operator@v1.5.0"
INDEX = "batch.kubernetes.io/job-completion-index"
PARTS, SEEDS = 2, 2


def manifest(path: str) -> dict[str, Any]:
    """Return the first object of a manifest."""
    found: dict[str, Any] = next(iter(yaml.safe_load_all((DEPLOY / path).read_text())))
    return found


def pods(cluster: LocalCluster) -> dict[int, dict[str, Any]]:
    """Return the pods of the Job by index."""
    found = [each for each in cluster.objects("pods") if INDEX in each["metadata"]["annotations"]]
    return {int(each["metadata"]["annotations"][INDEX]): each for each in found}


def play(pod: dict[str, Any], results: Path) -> None:
    """Run a pod's container as a kubelet does: arguments with the values of its environment."""
    (container,) = pod["spec"]["containers"]
    (variable,) = container["env"]
    assert variable["name"] == "JOB_COMPLETION_INDEX"
    kind, _, name = variable["valueFrom"]["fieldRef"]["fieldPath"].removeprefix("metadata.").partition("['")
    value = pod["metadata"][kind][name.removesuffix("']")]
    arguments = [each.replace("$(JOB_COMPLETION_INDEX)", value) for each in container["args"]]
    command = [STEERSMAN, *(each.replace("/results", str(results)) for each in arguments)]
    subprocess.run(command, check=True, capture_output=True, env=os.environ, timeout=300)


def rows(*files: Path) -> set[tuple[str, ...]]:
    """Return the rows of result files."""
    return {tuple(row) for file in files for row in csv.reader(file.read_text().splitlines())}


def test_parts_of_an_indexed_job_are_the_whole_comparison(cluster: LocalCluster, tmp_path: Path) -> None:
    job = manifest("jobs/evaluate.yaml")
    job["spec"] |= {"completions": PARTS, "parallelism": PARTS}
    (container,) = job["spec"]["template"]["spec"]["containers"]
    # Two seeds of the ten, on a small workload.
    container["args"] = [
        each.replace("=default", "=default-small").replace("_INDEX)9", f"_INDEX){SEEDS - 1}")
        for each in container["args"]
    ]
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(job))
    try:
        until(lambda: len(pods(cluster)) == PARTS)
        for pod in pods(cluster).values():
            play(pod, tmp_path)
            status = json.dumps({"status": {"phase": "Succeeded"}})
            cluster.kubectl("patch", "pod", pod["metadata"]["name"], "--subresource=status", "--patch", status)
        name = job["metadata"]["name"]
        cluster.kubectl("wait", "--for=condition=Complete", "--timeout=60s", f"job/{name}")
    finally:
        cluster.kubectl("delete", "job", job["metadata"]["name"])
    whole = [each for each in container["args"] if not each.startswith(("--seeds", "--output"))]
    seeds = ",".join(f"1{part}{seed}" for part in range(PARTS) for seed in range(SEEDS))
    folder = tmp_path / "whole"
    cluster.must(*whole, f"--seeds={seeds}", f"--output={folder}")
    for file in ("metrics.csv", "results.csv"):
        assert rows(*tmp_path.glob(f"part-*/{file}")) == rows(folder / file)


def test_ray_job_is_valid(cluster: LocalCluster) -> None:
    done = subprocess.run(["go", "mod", "download", "-json", KUBERAY], capture_output=True, text=True, check=True)
    definitions = Path(json.loads(done.stdout)["Dir"], "config", "crd", "bases", "ray.io_rayjobs.yaml")
    cluster.kubectl("apply", "--server-side", "-f", str(definitions))
    try:
        until(lambda: "rayjobs" in cluster.kubectl("api-resources", "--api-group=ray.io", "-o", "name"))
        said = cluster.kubectl(
            "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", str(DEPLOY / "ray" / "rayjob.yaml")
        )
        assert "rayjob.ray.io/steersman-evaluate serverside-applied (server dry run)" in said
    finally:
        cluster.kubectl("delete", "-f", str(definitions))
