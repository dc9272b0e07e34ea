"""Build the images as OCI layouts without a container engine, and push them signed to a registry.

    python3 -m release.images build                         # all, into build/images
    python3 -m release.images push --registry REGISTRY --key cosign.key

The Containerfiles say what is in an image. Debian's packages make the base (mmdebstrap), buildah follows the
instructions, syft lists the packages. `push` uploads by digest (crane), signs image and list (cosign), and sets the
tags last: under a tag there is never an image without its signature.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from release.tools import ROOT, ReleaseError, check_key, exit_status, run, signing_options, source_date, tool, version

OUTPUT = ROOT / "build" / "images"
RELEASE = "bookworm"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
ARCHITECTURES = ("amd64", "arm64")
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/lib/*/gconv/*")
"""Files of Debian's packages that no program here reads."""
PACKAGES = ("usr-is-merged", "ca-certificates", "libstdc++6", "python3-venv")
"""Debian's packages in the base, with those that they need. The first one replaces one that needs Perl."""


@dataclass(frozen=True)
class ImageSpec:
    """How an image is built.

    Attributes:
        containerfile: its instructions.
        target: the stage that it is; the last without one.
        arguments: values of ARG instructions.
        needs: file that a target of make builds, and that the instructions copy.
        repository: its name in a registry; None: that of the image.
        suffix: of its tag, after the version.
    """

    containerfile: str
    target: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, str] | None = None
    repository: str | None = None
    suffix: str = ""

    @property
    def tag(self) -> str:
        """Return its tag."""
        return f"{version()}{self.suffix}"


def older_minors() -> list[str]:
    """Return the minors of Kubernetes, but for the newest, that kube-scheduler with the plugin is built for."""
    return sorted(file.name.removeprefix("go-").removesuffix(".mod") for file in (ROOT / "plugin").glob("go-*.mod"))


def scheduler_image(minor: str) -> ImageSpec:
    """Return the image of kube-scheduler of an older minor: another tag of the newest one's repository."""
    program = f"build/steersman-kube-scheduler-{minor}"
    return ImageSpec(
        "deploy/kube-scheduler/Containerfile",
        arguments={"PROGRAM": program},
        needs=(program, f"make plugin KUBERNETES={minor}"),
        repository="steersman-kube-scheduler",
        suffix=f"-kubernetes{minor}",
    )


IMAGES = {
    "steersman": ImageSpec("deploy/Containerfile", "commands"),
    "steersman-kube-scheduler": ImageSpec(
        "deploy/kube-scheduler/Containerfile", needs=("build/steersman-kube-scheduler", "make plugin")
    ),
    **{f"steersman-kube-scheduler-{minor}": scheduler_image(minor) for minor in older_minors()},
    "steersman-learn": ImageSpec("deploy/Containerfile", "commands", {"REQUIREMENTS": "learn"}),
    "steersman-workbench": ImageSpec("deploy/Containerfile", "workbench", {"REQUIREMENTS": "workbench"}),
}


class ImageBuilder:
    """Build images in a working folder.

    Args:
        folder: an empty folder; it takes up to 30 GB while the largest image is built.
        architecture: the images' processor, as Debian and OCI name it.
        logs: folder that takes a log of each step.
    """

    def __init__(self, folder: Path, architecture: str, logs: Path) -> None:
        self._folder = folder
        self._architecture = architecture
        self._logs = logs
        self._date = source_date()

    def base(self, mirror: str | None) -> str:
        """Make the base of Debian's packages, and return its name."""
        context = self._folder / "base"
        context.mkdir()
        command = [tool("mmdebstrap"), "--variant=essential", f"--architectures={self._architecture}"]
        command += ["--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", "--dpkgopt=force-unsafe-io"]
        command += [f"--dpkgopt=path-exclude={files}" for files in LEFT_OUT]
        command += ["--dpkgopt=path-include=/usr/share/doc/*/copyright", f"--include={','.join(PACKAGES)}"]
        command += [RELEASE, str(context / "base.tar"), *([mirror] if mirror else [])]
        date = {"SOURCE_DATE_EPOCH": str(self._date)}
        run(command, what="the base cannot be made", log=self._log_file("base"), environment=date)
        self._build_image("base", ImageSpec("deploy/base/Containerfile"), {}, context)
        shutil.rmtree(context)
        return "localhost/base"

    def build(self, name: str, base: str, layout: Path) -> None:
        """Build an image and write it as an OCI layout."""
        image = IMAGES[name]
        arguments = {"BASE": base, "SOURCE_DATE_EPOCH": str(self._date), **image.arguments}
        self._build_image(name, image, arguments, ROOT)
        target = f"oci:{layout}:{image.tag}"
        run(
            self._buildah("push", "--quiet", name, target), what=f"{name} cannot be written", log=self._log_file("push")
        )

    def _build_image(self, name: str, image: ImageSpec, arguments: Mapping[str, str], context: Path) -> None:
        containerfile = ROOT / image.containerfile
        declared = set(re.findall(r"^ARG (\w+)", containerfile.read_text(), re.M))
        options = [f"--build-arg={key}={value}" for key, value in arguments.items() if key in declared]
        if image.target:
            options.append(f"--target={image.target}")
        # A proxy's certificate may be among the machine's.
        if name != "base" and Path(CERTIFICATES).exists():
            options.append(f"--volume={CERTIFICATES}:{CERTIFICATES}:ro")
        command = self._buildah("bud", "--isolation=chroot", "--layers=false", "--identity-label=false")
        command += [f"--timestamp={self._date}", f"--arch={self._architecture}"]
        command += [*options, f"--file={containerfile}", f"--tag={name}", str(context)]
        run(command, what=f"{name} cannot be built", log=self._log_file(name))

    def _buildah(self, *words: str) -> list[str]:
        # In a namespace of mounts, so that what buildah mounts is gone when it ends.
        folders = [f"--root={self._folder / 'storage'}", f"--runroot={self._folder / 'run'}"]
        environment = ["env", f"TMPDIR={self._folder}"]
        return ["unshare", "--mount", *environment, tool("buildah"), *folders, *words]

    def _log_file(self, name: str) -> Path:
        return self._logs / f"{name}.log"


def repository(name: str) -> str:
    """Return the name of an image in a registry."""
    return IMAGES[name].repository or name


def reference(name: str) -> str:
    """Return the name of an image in a registry, with its tag."""
    return f"{repository(name)}:{IMAGES[name].tag}"


def digest(layout: Path) -> str:
    """Return the digest of a layout's only image."""
    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    found: str = entry["digest"]
    return found


def sizes(layout: Path) -> tuple[int, int]:
    """Return the MB of an image's layers, packed and unpacked."""
    blobs = layout / "blobs" / "sha256"
    packed = unpacked = 0
    for layer in json.loads((blobs / digest(layout).removeprefix("sha256:")).read_text())["layers"]:
        blob = blobs / layer["digest"].removeprefix("sha256:")
        packed += blob.stat().st_size
        with gzip.open(blob) as opened:
            while block := opened.read(1 << 20):
                unpacked += len(block)
    return round(packed / 1e6), round(unpacked / 1e6)


def list_packages(name: str, layout: Path, target: Path, log: Path) -> None:
    """Write what is installed in an image, as SPDX."""
    command = [tool("syft"), "scan", f"oci-dir:{layout}", f"--source-name={name}", f"--source-version={version()}"]
    quiet = {"SYFT_CHECK_FOR_APP_UPDATE": "false"}
    what = f"packages of {name} cannot be listed"
    run([*command, f"--output=spdx-json={target}"], what=what, log=log, environment=quiet)
    listed = json.loads(target.read_text())
    # syft takes the time of the scan and a random name: a second list of the same image would differ.
    date = datetime.fromtimestamp(source_date(), UTC)
    listed["creationInfo"]["created"] = date.strftime("%Y-%m-%dT%H:%M:%SZ")
    listed["documentNamespace"] = f"https://steersman.dev/spdx/{name}-{digest(layout).removeprefix('sha256:')}"
    target.write_text(json.dumps(listed, indent=1, sort_keys=True))


def chosen(names: Sequence[str]) -> Sequence[str]:
    """Return the named images, or all if none is named. Raises ReleaseError: an image is unknown."""
    if unknown := [name for name in names if name not in IMAGES]:
        raise ReleaseError(f"unknown image {unknown[0]}; expected one of {', '.join(IMAGES)}", 2)
    return names or list(IMAGES)


def check_prerequisites(names: Sequence[str], base: str | None = None) -> None:
    """Check that images can be built. Raises ReleaseError: a tool, a right or a file is missing."""
    for name in ("buildah", "syft", *(() if base else ("mmdebstrap",))):
        tool(name)
    if os.geteuid():
        raise ReleaseError("building changes owners of files and mounts; run it as root", 2)
    for name in names:
        needs = IMAGES[name].needs
        if needs and not (ROOT / needs[0]).exists():
            raise ReleaseError(f"{needs[0]} is missing; build it: {needs[1]}", 2)


def build(
    names: Sequence[str],
    output: Path,
    mirror: str | None = None,
    base: str | None = None,
    architecture: str = ARCHITECTURES[0],
) -> None:
    """Build images into a folder: an OCI layout and a list of packages for each; what fails replaces nothing.

    Args:
        names: of the images.
        output: folder of the layouts.
        mirror: of Debian; None: that of mmdebstrap.
        base: image to build from; None: one of Debian's packages is made.
        architecture: the images' processor.
    """
    check_prerequisites(names, base)
    logs = output / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=output) as folder:
        builder = ImageBuilder(Path(folder), architecture, logs)
        start = time.monotonic()
        if base is None:
            base = builder.base(mirror)
            print(f"base: {time.monotonic() - start:.0f} s", flush=True)
        for name in names:
            start = time.monotonic()
            layout, packages = Path(folder) / "layouts" / name, Path(folder) / f"{name}.spdx.json"
            layout.parent.mkdir(exist_ok=True)
            builder.build(name, base, layout)
            built = time.monotonic() - start
            list_packages(name, layout, packages, logs / f"{name}-packages.log")
            shutil.rmtree(output / name, ignore_errors=True)
            layout.rename(output / name)
            packages.rename(output / packages.name)
            packed, unpacked = sizes(output / name)
            figures = f"{packed} MB packed, {unpacked} MB unpacked, {built:.0f} s"
            print(f"{reference(name)} {digest(output / name)} ({figures})", flush=True)


def push(names: Sequence[str], output: Path, registry: str, key: Path) -> None:
    """Upload images with their lists of packages, both signed; tags are set when all is there."""
    for name in ("crane", "cosign"):
        tool(name)
    check_key(key)
    for name in names:
        if not (output / name / "index.json").exists():
            raise ReleaseError(f"{output / name} is missing; build it: make images", 2)
    with tempfile.TemporaryDirectory() as folder:
        signing = signing_options(key, Path(folder))
        for name in names:
            address = f"{registry}/{repository(name)}@{digest(output / name)}"
            run([tool("crane"), "push", output / name, address], what=f"{registry} does not take {name}")
            run([tool("cosign"), "sign", *signing, address], what=f"{name} cannot be signed")
            packages = [f"--predicate={output / f'{name}.spdx.json'}", "--type=spdxjson"]
            command = [tool("cosign"), "attest", *signing, *packages, address]
            run(command, what=f"the packages of {name} cannot be signed")
        for name in names:
            address = f"{registry}/{repository(name)}@{digest(output / name)}"
            run([tool("crane"), "tag", address, IMAGES[name].tag], what=f"{registry} sets no tag of {name}")
            print(f"{registry}/{reference(name)} {digest(output / name)}")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    described = argparse.ArgumentParser(prog="python3 -m release.images", description=(__doc__ or "").split("\n\n")[0])
    commands = described.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="build images as OCI layouts")
    pushing = commands.add_parser("push", help="upload built images, signed")
    for command in (building, pushing):
        command.add_argument("names", nargs="*", metavar="IMAGE", help=f"of {', '.join(IMAGES)}; all without one")
        command.add_argument("--output", type=Path, default=OUTPUT, help="folder of the layouts [build/images]")
    building.add_argument("--base", help="image with Python 3.11 to build from, instead of Debian's packages")
    building.add_argument("--debian", metavar="URL", help="mirror of Debian, such as a snapshot [that of mmdebstrap]")
    building.add_argument("--architecture", choices=ARCHITECTURES, default="amd64", help="processor [%(default)s]")
    pushing.add_argument("--registry", required=True, help="registry and folder, such as registry.example/team")
    pushing.add_argument("--key", type=Path, required=True, help="private key; $COSIGN_PASSWORD is its password")
    return described


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = parser().parse_args(arguments)

    def work() -> None:
        names = chosen(options.names)
        if options.command == "build":
            build(names, options.output.resolve(), options.debian, options.base, options.architecture)
        else:
            push(names, options.output.resolve(), options.registry, options.key)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
