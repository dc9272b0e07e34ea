"""Helm, built once into the user's cache folder, and the chart of `deploy/helm` as it makes objects of values."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from steersman.core.cache import cache_root
from steersman.live.local_cluster.control_plane.build import Module, built

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy" / "helm" / "steersman"
SOURCES = Path(__file__).with_name("program")
RELEASE = "steersman"

ALL = (
    "service.enabled=true",
    "plugin.enabled=true",
    "plugin.policy.file.configMap=steersman-policy",
    "latencyProbe.enabled=true",
    "dashboard.enabled=true",
    "admission.enabled=true",
)
"""Values with which every component is rendered; the scheduler is by default."""
TLS = (*ALL, "service.tls.enabled=true", "plugin.mode=service", "plugin.scoreService.caSecret=authority")
"""The same with a plugin that asks the service by HTTPS."""


@cache
def helm_program() -> Path:
    """The program. Raises SteersmanError: it could not be built."""
    version = re.search(r"helm\.sh/helm/v4 (v\S+)", (SOURCES / "go.mod").read_text())
    assert version is not None
    flags = f"-s -w -X helm.sh/helm/v4/internal/version.version={version[1]}"
    module = Module(SOURCES, "Helm", "3 minutes", "Helm needs Go 1.26 or newer to be built", flags, lambda part: part)
    return built(module, cache_root().absolute() / "helm", lambda *_: None, print) / "helm"


def helm(*arguments: str | Path, home: Path, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Helm, whatever it ends with.

    Args:
        arguments: of the command.
        home: folder of its caches and settings, so that none of the user's matters.
        kubeconfig: the cluster; None: none is asked.
    """
    folders = {f"HELM_{each}_HOME": str(home / each.lower()) for each in ("CACHE", "CONFIG", "DATA")}
    environment = {**os.environ, **folders, "KUBECONFIG": str(kubeconfig or home / "none")}
    command = [helm_program(), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def options(settings: Iterable[str], values: Mapping[str, Any] | None, folder: Path) -> list[str | Path]:
    """Return options for values: texts as of --set, and a mapping that is written to a file."""
    found: list[str | Path] = [f"--set={each}" for each in settings]
    if values is not None:
        file = folder / f"values-{len(list(folder.glob('values-*.yaml')))}.yaml"
        file.write_text(yaml.safe_dump(dict(values)))
        found += ["--values", file]
    return found


def template(
    *settings: str,
    values: Mapping[str, Any] | None = None,
    namespace: str = "steersman",
    versions: Iterable[str] = (),
    release: str = RELEASE,
) -> list[dict[str, Any]]:
    """Return the objects of a release by values; tests of the release are hooks and among them.

    Args:
        settings: values as texts of --set.
        values: values as a mapping.
        namespace: of the release.
        versions: further API versions that the cluster has.
        release: name of the release.
    """
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        given = options(settings, values, home)
        has = [f"--api-versions={version}" for version in versions]
        done = helm("template", release, CHART, "--namespace", namespace, *has, *given, home=home)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def find(objects: Iterable[Mapping[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """Return the one object of a kind and name."""
    (found,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return dict(found)


def rights(objects: Iterable[Mapping[str, Any]], name: str) -> set[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    """Return what the roles of an account allow: group, resource, verbs, and names of objects."""
    objects = list(objects)
    roles = {
        (each["roleRef"]["kind"], each["roleRef"]["name"])
        for each in objects
        if each["kind"].endswith("Binding") and any(subject["name"] == name for subject in each.get("subjects", ()))
    }
    return {
        (group, resource, tuple(sorted(rule["verbs"])), tuple(rule.get("resourceNames", ())))
        for each in objects
        if (each["kind"], each["metadata"]["name"]) in roles
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
