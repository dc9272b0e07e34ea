"""Make a release, and publish it: wheel, sdist, images, chart, krew plugin, notes and checksums.

    python -m release build                                 # into dist/VERSION
    python -m release push --registry REGISTRY --key cosign.key --package-index URL

The same commit gives the same bytes, as long as Debian has the same packages. `push` sends what the checksums name and
nothing else. It starts with the images, and ends with the packages, which no index takes back.
"""

from __future__ import annotations

import argparse
import gzip
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from release import images, krew
from release.tools import (
    ROOT,
    ReleaseError,
    check_key,
    exit_status,
    run,
    sha256,
    signing_options,
    source_date,
    tool,
    version,
)

DIST = ROOT / "dist"
CHART = ROOT / "deploy" / "helm" / "steersman"
CHECKSUMS, IMAGES, NOTES = "SHA256SUMS", "images.txt", "NOTES.md"
SIGNATURE = f"{CHECKSUMS}.sigstore.json"


def notes() -> str:
    """Return what the changelog says of this version. Raises ReleaseError: nothing."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    found = re.search(rf"^## {re.escape(version())}\b[^\n]*\n(.+?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ReleaseError(f"CHANGELOG.md: expected a section '## {version()}', the version of the package", 2)
    return f"# steersman {version()}\n\n{found[1].strip()}\n"


def build_packages(folder: Path) -> None:
    """Write wheel and sdist; the wheel has what `make site` and `make core` built."""
    date = {"SOURCE_DATE_EPOCH": str(source_date())}
    # Apart: a wheel that is built from the sdist has no site.
    for kind in ("sdist", "wheel"):
        command = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", f"--outdir={folder}", str(ROOT)]
        run(command, what=f"the {kind} cannot be built", environment=date)


def package_chart(folder: Path) -> None:
    """Write the chart's archive, apart in name from the sdist, with the date of the commit, not of the checkout."""
    run([tool("helm"), "package", CHART, "--destination", folder], what="the chart cannot be packaged")
    packaged = folder / f"steersman-{version()}.tgz"
    repack_with_date(packaged, folder / chart_file(), source_date())
    packaged.unlink()


def repack_with_date(archive: Path, target: Path, date: int) -> None:
    """Write a compressed tar archive again, with one date, in seconds, for all its files."""
    # No name and no date in the head of the compressed file.
    with (
        tarfile.open(archive) as read,
        target.open("wb") as opened,
        gzip.GzipFile("", "wb", fileobj=opened, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for member in read:
            member.mtime, member.pax_headers = date, {}
            written.addfile(member, read.extractfile(member) if member.isfile() else None)


def chart_file() -> str:
    """Return the name of the chart's archive."""
    return f"steersman-chart-{version()}.tgz"


def package_krew(folder: Path, url: str | None) -> None:
    """Write the krew plugin, and its manifest if the address of the release's files is known."""
    archive = "kubectl-steersman.zip"
    digest = krew.write_archive(folder / archive)
    if url is not None:
        (folder / "steersman.yaml").write_text(krew.manifest(f"{url.rstrip('/')}/{archive}", digest))


def build(names: Sequence[str], url: str | None, output: Path) -> None:
    """Make a release in its own folder; on failure the previous one stays.

    Args:
        names: of the images; they are built into build/images. Those of another architecture than amd64 that were built
            there of the same commit belong to the release, too.
        url: folder where the files will be downloaded, for krew.
        output: folder of releases.
    """
    text = notes()
    if not (ROOT / "build" / "site").is_dir():
        raise ReleaseError("build/site is missing; build it: make site", 2)
    tool("helm")
    images.check_prerequisites(names)
    others = images.other_architectures(names, images.OUTPUT)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=output) as name:
        folder = Path(name) / version()
        folder.mkdir()
        (folder / NOTES).write_text(text)
        package_krew(folder, url)
        package_chart(folder)
        build_packages(folder)
        images.build(names, images.OUTPUT)
        lines = []
        for image in names:
            for layout in (images.OUTPUT / image, *others[image]):
                shutil.copy(images.OUTPUT / f"{layout.name}.spdx.json", folder)
                lines.append(f"{layout.name} {images.reference(image)} {images.digest(layout)}\n")
        (folder / IMAGES).write_text("".join(lines))
        (folder / CHECKSUMS).write_text(checksums(folder))
        shutil.rmtree(output / version(), ignore_errors=True)
        folder.rename(output / version())
    for file in sorted((output / version()).iterdir()):
        print(f"{file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}  {file.stat().st_size / 1e6:.1f} MB")


def checksums(folder: Path) -> str:
    """Return the SHA-256 of each file, as sha256sum prints them."""
    excluded = {CHECKSUMS, SIGNATURE}
    return "".join(f"{sha256(file)}  {file.name}\n" for file in sorted(folder.iterdir()) if file.name not in excluded)


def push(folder: Path, registry: str, key: Path, index: str | None) -> None:
    """Publish a release: images, chart, and with an index its packages.

    Args:
        folder: the release.
        registry: registry and folder of images; the chart goes to its folder charts.
        key: private key that signs images, chart and checksums.
        index: address that takes wheels and sdists; None: they are not published.
    """
    for name in ("crane", "cosign", "helm"):
        tool(name)
    check_key(key)
    if not (folder / CHECKSUMS).exists():
        raise ReleaseError(f"{folder / CHECKSUMS} is missing; build it: make release", 2)
    if checksums(folder) != (folder / CHECKSUMS).read_text():
        raise ReleaseError(
            f"{folder / CHECKSUMS} does not match the files beside it; build them again: make release", 2
        )
    built: dict[str, dict[str, Path]] = {}
    for line in (folder / IMAGES).read_text().splitlines():
        name, _, expected = line.split()
        layout = images.OUTPUT / name
        if not (layout / "index.json").exists() or images.digest(layout) != expected:
            raise ReleaseError(f"{layout} is not {expected}; build it again: make release", 2)
        image, architecture = images.parse_layout_name(name)
        built.setdefault(image, {})[architecture] = layout
    images.push(built, images.OUTPUT, registry, key)
    with tempfile.TemporaryDirectory() as work:
        signing = signing_options(key, Path(work))
        charts = f"{registry}/charts"
        # Helm reaches registries on loopback by HTTP alone, as crane does by itself.
        plain = ["--plain-http"] if re.match(r"(localhost|127\.0\.0\.1)(:|/)", registry) else []
        command = [tool("helm"), "push", str(folder / chart_file()), f"oci://{charts}", *plain]
        run(command, what=f"{registry} does not take the chart")
        reference = f"{charts}/steersman:{version()}"
        digest = run([tool("crane"), "digest", reference], what=f"{reference} cannot be read").strip()
        run([tool("cosign"), "sign", *signing, f"{charts}/steersman@{digest}"], what="the chart cannot be signed")
        print(f"{reference} {digest}")
        signed = [f"--bundle={folder / SIGNATURE}", str(folder / CHECKSUMS)]
        run([tool("cosign"), "sign-blob", *signing, *signed], what="the checksums cannot be signed")
    if index is not None:
        packages = sorted(each for each in folder.iterdir() if each.name.endswith((".whl", ".tar.gz")))
        command = [sys.executable, "-m", "uv", "publish", "--publish-url", index, *map(str, packages)]
        run(command, what=f"{index} does not take the packages")
        print(f"{index} {' '.join(each.name for each in packages)}")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    described = argparse.ArgumentParser(prog="python -m release", description=(__doc__ or "").split("\n\n")[0])
    commands = described.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="make wheel, sdist, images, chart, krew plugin, notes and checksums")
    building.add_argument("names", nargs="*", metavar="IMAGE", help=f"of {', '.join(images.IMAGES)}; all without one")
    building.add_argument("--url", help="folder where the files will be downloaded; without it krew has no manifest")
    pushing = commands.add_parser("push", help="publish a release that was built")
    pushing.add_argument("--registry", required=True, help="registry and folder, such as registry.example/team")
    pushing.add_argument("--key", type=Path, required=True, help="private key; $COSIGN_PASSWORD is its password")
    pushing.add_argument(
        "--package-index", metavar="URL", help="index for the packages; $UV_PUBLISH_TOKEN is its token"
    )
    for command in (building, pushing):
        command.add_argument("--output", type=Path, default=DIST, help="folder of releases [dist]")
    return described


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = parser().parse_args(arguments)

    def work() -> None:
        if options.command == "build":
            build(images.chosen(options.names), options.url, options.output.resolve())
        else:
            push(options.output.resolve() / version(), options.registry, options.key, options.package_index)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
