"""What recipes say is what programs do: users of images and files, kubeconfigs, owners of namespaces."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"), *DEPLOY.rglob("*.md")]


def namespaces() -> dict[Path, str]:
    """File of each Namespace."""
    found = {}
    for file in (each for each in DEPLOY.rglob("*.yaml") if "templates" not in each.parts):
        for each in yaml.safe_load_all(file.read_text()):
            if isinstance(each, dict) and each.get("kind") == "Namespace":
                found[file] = each["metadata"]["name"]
    return found


def test_namespace_has_one_owner() -> None:
    assert len(set(namespaces().values())) == len(namespaces())
    for file, name in namespaces().items():
        users = {
            kustomization.parent
            for kustomization in DEPLOY.rglob("kustomization.yaml")
            if yaml.safe_load(kustomization.read_text()).get("namespace") == name
        }
        assert file.parent.name == "namespace" or users == {file.parent}, "deleting it would delete what others own"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_recipe_gives_kube_scheduler_a_kubeconfig_that_it_ignores(page: Path) -> None:
    text = page.read_text().replace("\\\n", " ")
    commands = [line for line in text.splitlines() if re.match(r"\s*\S*kube-scheduler .*--config\b", line)]
    assert [line for line in commands if re.search(r"\s--kubeconfig\b", line)] == []


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*/kube-scheduler.yaml")), ids=lambda f: f.parent.name)
def test_examples_name_the_kubeconfig_in_their_configuration(file: Path) -> None:
    assert yaml.safe_load(file.read_text())["clientConnection"]["kubeconfig"] == "KUBECONFIG"
    assert 'sed "s|KUBECONFIG|' in (file.parent / "README.md").read_text()


def test_static_pod_user_can_read_its_kubeconfig() -> None:
    patch = yaml.safe_load((DEPLOY / "kube-scheduler" / "patches" / "kube-scheduler+json.yaml").read_text())
    (context,) = (each["value"] for each in patch if each["path"].endswith("/securityContext"))
    assert "USER 65532:65532" in (DEPLOY / "kube-scheduler" / "Containerfile").read_text()
    assert context["runAsUser"] == 0
