"""release.images: what it builds is described, and what is wrong is said in one line before anything is written."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from release import images
from release.images import IMAGES, ImageSpec, older_minors, reference
from release.tools import ReleaseError

from steersman.version import __version__

CHECKOUT = Path(__file__).parents[3]
RECORDS = '#!/bin/sh\necho "${0##*/} $*" >> "$RECORD"\n'
REFUSES = '#!/bin/sh\necho "UNAUTHORIZED: log in first" >&2\nexit 1\n'


DATE = "2026-01-01T00:00:00Z"


def write_layout(folder: Path, date: str = DATE) -> str:
    """Write a layout whose image has a date and no layer, and return its digest."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def write(content: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(content)
        name = hashlib.sha256(text.encode()).hexdigest()
        (blobs / name).write_text(text)
        return {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": f"sha256:{name}",
            "size": len(text),
        }

    described = write({"config": write({"created": date, "name": folder.name}), "layers": []})
    (folder / "index.json").write_text(json.dumps({"manifests": [described | {"annotations": {"tag": "1.2.3"}}]}))
    folder.with_name(f"{folder.name}.spdx.json").touch()
    return str(described["digest"])


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """A folder with a layout."""
    write_layout(tmp_path / "layouts" / "steersman")
    return tmp_path / "layouts"


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


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        ("steersman/index.json", r"\S+/steersman is not an OCI layout of one image; build it: make images"),
        ("steersman.spdx.json", r"\S+/steersman\.spdx\.json is missing; build it: make images"),
    ],
)
def test_unfinished_image_is_named_before_anything_is_uploaded(
    layout: Path, tmp_path: Path, spoilt: str, says: str
) -> None:
    (layout / spoilt).rename(layout / "away")
    if spoilt.endswith("index.json"):
        (layout / spoilt).write_text('{"manifests": [')
    key = tmp_path / "key"
    key.touch()
    status, errors, called = call(tmp_path, *push(layout, key), crane=RECORDS, cosign=RECORDS)
    assert (status, called) == (2, [])
    assert re.fullmatch(f"error: {says}\n", errors)


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
    assert [line.split()[1] for line in called] == ["public-key", "signing-config"]


def test_wrong_key_or_password_is_named_before_anything_is_uploaded(layout: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch()
    status, errors, called = call(tmp_path, *push(layout, key), crane=RECORDS, cosign=REFUSES)
    assert (status, called) == (1, [])
    assert (
        errors == f"error: {key} is not a private key whose password is $COSIGN_PASSWORD: UNAUTHORIZED: log in first\n"
    )


def test_tag_is_set_when_image_and_packages_are_signed(layout: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch()
    status, errors, called = call(tmp_path, *push(layout, key), crane=RECORDS, cosign=RECORDS)
    assert (status, errors) == (0, "")
    assert [" ".join(line.split()[:2]) for line in called] == [
        "cosign public-key",
        "cosign signing-config",
        "crane push",
        "cosign sign",
        "cosign attest",
        "crane tag",
    ]
    digest = images.digest(layout / "steersman")
    assert called[-1] == f"crane tag registry.example/team/steersman@{digest} 1.2.3"


def test_tag_is_of_an_index_where_both_architectures_were_built(layout: Path, tmp_path: Path) -> None:
    digests = [images.digest(layout / "steersman"), write_layout(layout / "steersman-arm64")]
    key = tmp_path / "key"
    key.touch()
    status, errors, called = call(tmp_path, *push(layout, key), crane=RECORDS, cosign=RECORDS)
    assert (status, errors) == (0, "")
    index = images.join({"amd64": layout / "steersman", "arm64": layout / "steersman-arm64"}, tmp_path / "joined")
    place = "registry.example/team/steersman"
    _, _, pushed, signed, *attested, tagged = called
    assert re.fullmatch(rf"crane push --index \S+ {place}@{index}", pushed)
    assert signed.startswith("cosign sign ")
    assert signed.endswith(f" --recursive {place}@{index}")
    assert [re.findall(r"--predicate=\S+/(\S+) .*@(\S+)$", line)[0] for line in attested] == [
        ("steersman.spdx.json", digests[0]),
        ("steersman-arm64.spdx.json", digests[1]),
    ]
    assert tagged == f"crane tag {place}@{index} 1.2.3"


def test_index_names_each_architecture_and_has_all_blobs(tmp_path: Path) -> None:
    layouts = {each: tmp_path / each for each in images.ARCHITECTURES}
    digests = {each: write_layout(folder) for each, folder in layouts.items()}
    images.join(layouts, tmp_path / "joined")
    index = json.loads((tmp_path / "joined" / "index.json").read_text())
    assert {each["platform"]["architecture"]: each["digest"] for each in index["manifests"]} == digests
    blobs = {file.name: file.read_bytes() for folder in layouts.values() for file in folder.glob("blobs/*/*")}
    assert {file.name: file.read_bytes() for file in tmp_path.glob("joined/blobs/*/*")} == blobs


def test_architectures_of_different_commits_are_not_uploaded(layout: Path, tmp_path: Path) -> None:
    write_layout(layout / "steersman-arm64", "2026-02-02T00:00:00Z")
    key = tmp_path / "key"
    key.touch()
    status, errors, called = call(tmp_path, *push(layout, key), crane=RECORDS, cosign=RECORDS)
    assert (status, called) == (2, [])
    assert re.fullmatch(
        r"error: \S+/steersman and \S+/steersman-arm64 are of different commits; build both again, or remove one\n",
        errors,
    )


def test_release_has_the_other_architecture_of_the_same_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["steersman", "steersman-learn"]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")  # `DATE`
    write_layout(tmp_path / "steersman-arm64")
    expected = {"steersman": [tmp_path / "steersman-arm64"], "steersman-learn": []}
    assert images.other_architectures(names, tmp_path) == expected
    assert images.parse_layout_name("steersman-arm64") == ("steersman", "arm64")
    assert images.parse_layout_name("steersman-kube-scheduler-1.35") == ("steersman-kube-scheduler-1.35", "amd64")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225601")
    with pytest.raises(ReleaseError, match="steersman-arm64 is of another commit; build it again, or remove it"):
        images.other_architectures(names, tmp_path)


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine of amd64 with all tools and no emulator; the folder where built programs lie."""
    monkeypatch.setattr(images, "tool", lambda name: name)
    monkeypatch.setattr(images.os, "geteuid", lambda: 0)
    monkeypatch.setattr(images, "NATIVE", "amd64")
    monkeypatch.setattr(images, "EMULATORS", {"arm64": tmp_path / "emulator"})
    monkeypatch.setattr(images, "ROOT", tmp_path)
    (tmp_path / "build").mkdir()
    return tmp_path / "build"


def test_programs_of_another_architecture_need_an_emulator(ready: Path) -> None:
    images.check_prerequisites(["steersman"], architecture="amd64")
    expected = "steersman needs a machine that runs arm64 programs, or emulates: apt-get install qemu-user-static "
    with pytest.raises(ReleaseError, match=re.escape(expected)):
        images.build(["steersman"], ready / "images", architecture="arm64")
    assert not (ready / "images").exists()
    (ready.parent / "emulator").touch()
    images.check_prerequisites(["steersman"], architecture="arm64")


def test_image_that_only_copies_needs_no_emulator(ready: Path) -> None:
    expected = "build/steersman-kube-scheduler-1.35-arm64 is missing; build it: make plugin KUBERNETES=1.35 "
    with pytest.raises(ReleaseError, match=re.escape(f"{expected}ARCHITECTURE=arm64")):
        images.check_prerequisites(["steersman-kube-scheduler-1.35"], architecture="arm64")
    (ready / "steersman-kube-scheduler-1.35-arm64").touch()
    images.check_prerequisites(["steersman-kube-scheduler-1.35"], architecture="arm64")
    for image in IMAGES.values():
        instructions = (CHECKOUT / image.containerfile).read_text()
        assert image.only_copies != bool(re.search(r"^RUN ", instructions, re.M))


def copied(image: ImageSpec) -> list[str]:
    """What the instructions of an image copy from the checkout."""
    text = (CHECKOUT / image.containerfile).read_text()
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)", text, re.M)) | dict(image.arguments)
    if program := image.needed("amd64"):
        arguments["PROGRAM"] = program
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
    built = yaml.safe_load((CHECKOUT / "compose.yaml").read_text())["services"]["workbench"]["build"]
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
