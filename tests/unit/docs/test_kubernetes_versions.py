"""The page about minors of Kubernetes against the build lists, the chart and the feature gates that it cites."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from steersman.cluster.objects.fields import UNMODELLED, kubernetes_table
from steersman.live.local_cluster.control_plane import build
from steersman.live.local_cluster.control_plane.build import kubernetes_minors

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "reference" / "kubernetes-versions.md").read_text()
MINORS = kubernetes_minors(build.sources())


def test_rows_are_the_minors_that_can_be_built() -> None:
    assert re.findall(r"^\| (\d\.\d+) \| (v\S+) \|", PAGE, re.MULTILINE) == list(MINORS.items())


def test_tested_minors_are_those_that_can_be_built() -> None:
    newest, *_, oldest = MINORS
    ranges = re.findall(r"\| (1\.\d+) to (1\.\d+) \|", PAGE)
    assert len(ranges) == 4
    assert set(ranges) == {(oldest, newest)}


def test_chart_needs_what_the_page_says() -> None:
    stated = re.search(r"^\| chart \| (\S+), ", PAGE, re.MULTILINE)
    assert stated is not None
    chart = (ROOT / "deploy" / "helm" / "steersman" / "Chart.yaml").read_text()
    assert f'kubeVersion: ">={stated[1]}.0-0"' in chart


def test_unmodelled_fields_are_on_the_page() -> None:
    fields = {
        name for rules in kubernetes_table().fields.values() for name, rule in rules.items() if rule.use == UNMODELLED
    }
    assert fields == {"schedulingGroup", "resourceClaims", "bindMountOptions"}
    assert all(each in PAGE for each in ("spec.schedulingGroup", "spec.resourceClaims", "bind mount options"))
    assert f"## What of {kubernetes_table().minor} is not modelled" in PAGE


def test_every_older_minor_is_tested_each_night() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yaml").read_text())
    assert sorted(workflow["jobs"]["minors"]["strategy"]["matrix"]["kubernetes"]) == sorted(list(MINORS)[1:])
