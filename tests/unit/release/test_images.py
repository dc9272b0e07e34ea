"""release.images: what it builds is described, and what is wrong is said in one line before anything is written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from release.images import IMAGES, ImageSpec, older_minors, reference

from steersman.version import __version__

CHECKOUT = Path(__file__).parents[3]
RECORDS = '#!/bin/sh\necho "${0##*/} $*" >> "$RECORD"\n'
REFUSES = '#!/bin/sh\necho "UNAUTHORIZED: log in first" >&2\nexit 1\n'


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """A folder with a layout that nobody looks into."""
    folder = tmp_path / "layouts" / "steersman"
    folder.mkdir(parents=True)
    (folder / "index.json").write_text('{"manifests": [{"digest": "sha256:12"}]}')
    return folder.parent


def call(tmp_path: Path, *words: str | Path, **tools: str) -> tuple[int, str, list[str]]:
    """Run the program with these tools alone: its status, its errors, and what it called."""
    folder, record = tmp_path / "tools", tmp_path / "record"
    folder.mkdir()
    record.touch()
    for name, text in tools.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    shutil.copytree(CHECKOUT / "release", tmp_path / "release")
    (tmp_path / "plugin").mkdir()
    for file in (CHECKOUT / "plugin").glob("go-*.mod"):
        shutil.copy(file, tmp_path / "plugin")
    version = tmp_path / "src" / "steersman" / "version.py"
    version.parent.mkdir(parents=True)
    version.write_text('__version__ = "1.2.3"\n')
    done = subprocess.run(
        [sys.executable, "-m", "release.images", *words],
        cwd=tmp_path,
        env={"PATH": str(folder), "RECORD": str(record)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr, record.read_text().splitlines()


def push(layout: Path, key: Path) -> tuple[str | Path, ...]:
    return ("push", "steersman", "--output", layout, "--registry", "registry.example/team", "--key", key)


def test_missing_tool_is_named_with_its_installation(tmp_path: Path) -> None:
    expected = (2, "error: buildah is missing; install it: apt-get install buildah\n", [])
    assert call(tmp_path, "build", "steersman", "--output", tmp_path / "layouts") == expected
    assert not (tmp_path / "layouts").exists()


def test_missing_key_is_named_before_anything_is_uploaded(layout: Path, tmp_path: Path) -> None:
    status, errors, called = call(tmp_path, *push(layout, tmp_path / "no.key"), crane=RECORDS, cosign=RECORDS)
    assert (status, called) == (2, [])
    assert re.fullmatch(r"error: \S+/no\.key is missing; name the private key of `cosign generate-key-pair`\n", errors)


def test_missing_layout_is_named_before_anything_is_uploaded(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch()
    status, errors, called = call(tmp_path, *push(tmp_path / "none", key), crane=RECORDS, cosign=RECORDS)
    assert (status, called) == (2, [])
    assert re.fullmatch(r"error: \S+/none/steersman is missing; build it: make images\n", errors)


def test_unknown_image_is_named_with_those_that_exist(tmp_path: Path) -> None:
    status, errors, _ = call(tmp_path, "build", "other")
    assert status == 2
    assert errors == f"error: unknown image other; expected one of {', '.join(IMAGES)}\n"


def test_refusing_registry_gets_no_tag(layout: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch()
    status, errors, called = call(tmp_path, *push(layout, key), crane=REFUSES, cosign=RECORDS)
    assert (status, errors) == (
        1,
        "error: registry.example/team does not take steersman: UNAUTHORIZED: log in first\n",
    )
    assert [line.split()[1] for line in called] == ["signing-config"]


def test_tag_is_set_when_image_and_packages_are_signed(layout: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch()
    status, errors, called = call(tmp_path, *push(layout, key), crane=RECORDS, cosign=RECORDS)
    assert (status, errors) == (0, "")
    assert [" ".join(line.split()[:2]) for line in called] == [
        "cosign signing-config",
        "crane push",
        "cosign sign",
        "cosign attest",
        "crane tag",
    ]
    assert called[-1] == "crane tag registry.example/team/steersman@sha256:12 1.2.3"


def copied(image: ImageSpec) -> list[str]:
    """What the instructions of an image copy from the checkout."""
    text = (CHECKOUT / image.containerfile).read_text()
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)", text, re.M)) | dict(image.arguments)
    words = [word for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.M) for word in line.split()[:-1]]
    return [arguments[word[1:]] if word.startswith("$") else word for word in words]


@pytest.mark.parametrize("name", IMAGES)
def test_containerfile_has_target_and_arguments(name: str) -> None:
    image = IMAGES[name]
    text = (CHECKOUT / image.containerfile).read_text()
    assert image.target is None or re.search(rf"^FROM \S+ AS {image.target}$", text, re.M)
    assert set(image.arguments) <= set(re.findall(r"^ARG (\w+)", text, re.M))
    for source in copied(image):
        assert (CHECKOUT / source).exists() or (image.needs is not None and source == image.needs[0])


def test_requirements_of_each_image_are_pinned() -> None:
    for name in {image.arguments.get("REQUIREMENTS", "base") for image in IMAGES.values()}:
        assert "--hash=sha256:" in (CHECKOUT / "requirements" / f"{name}.txt").read_text()


def test_compose_file_builds_the_workbench_as_images_do() -> None:
    built = yaml.safe_load((CHECKOUT / "deploy" / "compose.yaml").read_text())["services"]["workbench"]["build"]
    image = IMAGES["steersman-workbench"]
    assert (built["dockerfile"], built["target"], built["args"]) == (image.containerfile, image.target, image.arguments)


def test_context_has_all_that_is_copied() -> None:
    lines = (CHECKOUT / ".containerignore").read_text().splitlines()
    kept = [line[1:] for line in lines if line.startswith("!")]
    for source in {source for image in IMAGES.values() for source in copied(image)}:
        assert any(fnmatch(source, each) or source.startswith(f"{each}{os.sep}") for each in kept), source


def test_minors_are_tags_of_one_repository() -> None:
    minors = older_minors()
    assert minors == sorted(minors, key=lambda minor: int(minor.removeprefix("1.")))
    assert {reference(f"steersman-kube-scheduler-{minor}") for minor in minors} == {
        f"steersman-kube-scheduler:{__version__}-kubernetes{minor}" for minor in minors
    }
    assert reference("steersman-kube-scheduler") == f"steersman-kube-scheduler:{__version__}"
