"""Minors of Kubernetes: which can be built, from which files, and where a cluster's minor is kept."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.support.errors import raises
from tests.unit.live.local_cluster.test_local_cluster import a_go, nothing

from steersman.cli.commands.cluster import UpOptions
from steersman.cli.main import main
from steersman.cli.options.declaring import annotations_of
from steersman.core.errors import UsageError
from steersman.live.local_cluster.cluster import find_control_plane
from steersman.live.local_cluster.control_plane import build, servers
from steersman.live.local_cluster.control_plane.build import Module, build_tags, kubernetes_minors, mod_file

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Go sources for two minors."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for name, version in (("go", "v1.10.2"), ("go-1.9", "v1.9.4"), ("go-1.8", "v1.8.0")):
        (folder / f"{name}.mod").write_text(f"require (\n\tk8s.io/kubernetes {version}\n)\n")
        (folder / f"{name}.sum").write_text("")
    return folder


def test_minors_are_numbers_newest_first_each_before_all_newer_ones(sources: Path) -> None:
    assert list(kubernetes_minors(sources).items()) == [("1.10", "v1.10.2"), ("1.9", "v1.9.4"), ("1.8", "v1.8.0")]
    assert [mod_file(sources, minor) for minor in ("1.10", "1.9", "1.8")] == ["go.mod", "go-1.9.mod", "go-1.8.mod"]
    tags = [build_tags(sources, minor) for minor in ("1.10", "1.9", "1.8")]
    assert tags == ["", "before1.10", "before1.10,before1.9"]


def test_requirements_of_other_minors_do_not_matter_to_a_build(sources: Path) -> None:
    def digests() -> list[str]:
        return [
            Module(sources, "", "", "", "", lambda part: part, mod_file=name).digest()
            for name in ("go.mod", "go-1.9.mod", "go-1.8.mod")
        ]

    before = digests()
    (sources / "go-1.9.sum").write_text("changed")
    assert [old == new for old, new in zip(before, digests(), strict=True)] == [True, False, True]


def test_control_plane_and_plugin_have_the_same_versions() -> None:
    versions = kubernetes_minors(ROOT / "controlplane")
    assert kubernetes_minors(ROOT / "plugin") == versions
    for folder in ("controlplane", "plugin"):
        for minor, version in versions.items():
            content = (ROOT / folder / mod_file(ROOT / folder, minor)).read_text()
            replaced = set(re.findall(r"^\tk8s\.io/\S+ => k8s\.io/\S+ (v\S+)$", content, re.MULTILINE))
            assert replaced == {version.replace("v1.", "v0.")}, (folder, minor)


def test_help_names_oldest_and_newest_minor() -> None:
    help_text = annotations_of(UpOptions)["kubernetes"][1][0].help
    newest, *_, oldest = kubernetes_minors(build.sources())
    assert f"[default: the newest of {oldest} to {newest}]" in help_text


def test_minor_is_built_from_its_own_requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = a_go(tmp_path, monkeypatch)
    monkeypatch.setenv("STEERSMAN_CACHE_DIR", str(tmp_path / "cache"))
    newest, older = list(kubernetes_minors(build.sources()))[:2]
    found = {minor: build.programs(nothing, nothing, minor) for minor in (newest, older)}
    assert {minor: path.parent.name for minor, path in found.items()} == {newest: newest, older: older}
    first, second = (line for line in calls.read_text().splitlines() if line.startswith("build"))
    assert f"-modfile=go.mod -tags= -ldflags -s -w -X k8s.io/component-base/version.gitVersion=v{newest}." in first
    assert f"-modfile=go-{older}.mod -tags=before{newest} -ldflags" in second
    assert f"version.gitVersion=v{older}." in second


def test_unknown_minor_is_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with raises(UsageError, "--kubernetes 1.20"):
        find_control_plane(nothing, nothing, "1.20")
    assert main(["cluster", "up", "--name", "never", "--kubernetes", "1.20"]) == 2
    assert "--kubernetes 1.20: there are 1.34, 1.35, 1.36 and 1.37" in capsys.readouterr().err
    assert main(["cluster", "up", "--kubernetes", "1.37", "--kubeconfig", "here"]) == 2
    assert "--kubernetes and --kubeconfig exclude each other" in capsys.readouterr().err


def test_containers_are_of_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "run_kwokctl", nothing)
    servers.start_containers("podman", "v1.35.4", tmp_path, "one", tmp_path / "kubeconfig", None)
    configuration, _, stages = (tmp_path / "kwok" / "kwok.yaml").read_text().partition("\n---")
    assert json.loads(configuration)["options"] == {"kubeVersion": "v1.35.4"}
    assert "kind: Stage" in stages
