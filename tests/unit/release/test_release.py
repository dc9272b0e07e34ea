"""python -m release: what is published is what was built, and mistakes are one line before anything is sent."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from release.__main__ import repack_with_date

CHECKOUT = Path(__file__).parents[3]
RECORDS = '#!/bin/sh\necho "${0##*/} $*" >> "$RECORD"\n'
CRANE = '#!/bin/sh\necho "crane $*" >> "$RECORD"\n[ "$1" != digest ] || echo sha256:34\n'
REFUSES = '#!/bin/sh\necho "denied: log in first" >&2\nexit 1\n'
DIGEST = "sha256:12"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a release of one image, a chart and a wheel, that nobody looks into."""
    shutil.copytree(CHECKOUT / "release", tmp_path / "release")
    version = tmp_path / "src" / "steersman" / "version.py"
    version.parent.mkdir(parents=True)
    version.write_text('__version__ = "1.2.3"\n')
    layout = tmp_path / "build" / "images" / "steersman"
    layout.mkdir(parents=True)
    (layout / "index.json").write_text(f'{{"manifests": [{{"digest": "{DIGEST}"}}]}}')
    (layout.parent / "steersman.spdx.json").touch()
    release = tmp_path / "dist" / "1.2.3"
    release.mkdir(parents=True)
    (release / "steersman-1.2.3-cp311-cp311-any.whl").write_text("wheel")
    (release / "steersman-1.2.3.tar.gz").write_text("sdist")
    (release / "steersman-chart-1.2.3.tgz").write_text("chart")
    (release / "images.txt").write_text(f"steersman steersman:1.2.3 {DIGEST}\n")
    digests = subprocess.run(
        f"cd {release} && sha256sum * | LC_ALL=C sort -k 2", shell=True, capture_output=True, text=True, check=True
    )
    (release / "SHA256SUMS").write_text(digests.stdout)
    (tmp_path / "key").touch()
    return tmp_path


def call(checkout: Path, *words: str, **tools: str) -> tuple[int, str, list[str]]:
    """Run the program with these tools alone: its status, its errors, and what it called."""
    folder, record = checkout / "tools", checkout / "record"
    folder.mkdir()
    record.touch()
    for name, text in tools.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "release", *words],
        cwd=checkout,
        env={"PATH": str(folder), "RECORD": str(record)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr, record.read_text().splitlines()


def push(checkout: Path, **tools: str) -> tuple[int, str, list[str]]:
    given = {"crane": CRANE, "cosign": RECORDS, "helm": RECORDS} | tools
    return call(checkout, "push", "--registry", "registry.example/team", "--key", "key", **given)


def test_chart_follows_its_images_and_checksums_are_signed(checkout: Path) -> None:
    status, errors, called = push(checkout)
    assert (status, errors) == (0, "")
    assert [" ".join(line.split()[:2]) for line in called] == [
        *("cosign public-key", "cosign signing-config", "crane push", "cosign sign", "cosign attest", "crane tag"),
        *("cosign public-key", "cosign signing-config", "helm push", "crane digest", "cosign sign", "cosign sign-blob"),
    ]
    assert called[8].endswith("/dist/1.2.3/steersman-chart-1.2.3.tgz oci://registry.example/team/charts")
    assert called[10].endswith(" registry.example/team/charts/steersman@sha256:34")
    assert called[11].endswith("/dist/1.2.3/SHA256SUMS")


def test_an_image_of_two_architectures_is_published_as_an_index(checkout: Path) -> None:
    release, arm64 = checkout / "dist" / "1.2.3", checkout / "build" / "images" / "steersman-arm64"
    for layout, digest in ((arm64, "sha256:56"), (arm64.parent / "steersman", DIGEST)):
        (layout / "blobs" / "sha256").mkdir(parents=True)
        entry = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": 2}
        (layout / "index.json").write_text(json.dumps({"manifests": [entry]}))
    (arm64.parent / "steersman-arm64.spdx.json").touch()
    # That of a later build is not part of the release.
    (arm64.parent / "steersman-learn-arm64").mkdir()
    with (release / "images.txt").open("a") as file:
        file.write("steersman-arm64 steersman:1.2.3 sha256:56\n")
    sums = f"cd {release} && rm SHA256SUMS && sha256sum * | LC_ALL=C sort -k 2 >../sums && mv ../sums SHA256SUMS"
    subprocess.run(sums, shell=True, check=True)
    status, errors, called = push(checkout)
    assert (status, errors) == (0, "")
    assert called[2].startswith("crane push --index ")
    assert [line.rpartition("@")[2] for line in called if line.startswith("cosign attest")] == [DIGEST, "sha256:56"]
    assert sum(line.startswith("crane tag") for line in called) == 1


def test_changed_file_is_not_published(checkout: Path) -> None:
    (checkout / "dist" / "1.2.3" / "steersman-chart-1.2.3.tgz").write_text("other")
    status, errors, called = push(checkout)
    assert (status, called) == (2, [])
    assert errors.endswith("/SHA256SUMS does not match the files beside it; build them again: make release\n")


def test_image_of_another_build_is_not_published(checkout: Path) -> None:
    (checkout / "build" / "images" / "steersman" / "index.json").write_text('{"manifests": [{"digest": "sha256:13"}]}')
    status, errors, called = push(checkout)
    assert (status, called) == (2, [])
    assert re.fullmatch(r"error: \S+/images/steersman is not sha256:12; build it again: make release\n", errors)


def test_missing_release_is_named(checkout: Path) -> None:
    shutil.rmtree(checkout / "dist")
    status, errors, called = push(checkout)
    assert (status, called) == (2, [])
    assert errors.endswith("/dist/1.2.3/SHA256SUMS is missing; build it: make release\n")


def test_refusing_registry_gets_neither_tag_nor_chart(checkout: Path) -> None:
    status, errors, called = push(checkout, crane=REFUSES)
    assert (status, errors) == (1, "error: registry.example/team does not take steersman: denied: log in first\n")
    assert [line.split()[1] for line in called] == ["public-key", "signing-config"]


def test_refused_chart_is_told_in_one_line(checkout: Path) -> None:
    status, errors, _ = push(checkout, helm=REFUSES)
    assert (status, errors) == (1, "error: registry.example/team does not take the chart: denied: log in first\n")


def test_archives_of_checkouts_of_other_times_are_equal(tmp_path: Path) -> None:
    made = []
    for time in (1_700_000_000, 1_800_000_000):
        file, archive, written = tmp_path / "Chart.yaml", tmp_path / f"{time}.tgz", tmp_path / f"{time}-written.tgz"
        file.write_text("name: steersman\n")
        os.utime(file, (time, time))
        with tarfile.open(archive, "w:gz") as opened:
            opened.add(file, "steersman/Chart.yaml")
        repack_with_date(archive, written, 1_750_000_000)
        made.append(written.read_bytes())
    assert made[0] == made[1]
    with tarfile.open(written) as opened:
        (member,) = opened.getmembers()
        assert (member.name, member.mtime, member.size) == ("steersman/Chart.yaml", 1_750_000_000, 16)
        content = opened.extractfile(member)
        assert content is not None
        assert content.read() == b"name: steersman\n"


def test_version_without_notes_builds_nothing(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.2\n\nOld.\n")
    status, errors, called = call(checkout, "build", "steersman")
    assert (status, called) == (2, [])
    assert errors == "error: CHANGELOG.md: expected a section '## 1.2.3', the version of the package\n"


def test_missing_part_of_the_wheel_is_named(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("## 1.2.3\n\nNew.\n")
    status, errors, _ = call(checkout, "build", "steersman")
    assert (status, errors) == (2, "error: build/site is missing; build it: make site\n")
    assert (checkout / "dist" / "1.2.3" / "steersman-1.2.3.tar.gz").read_text() == "sdist"
