"""Build the images as OCI layouts without a container engine, and push them signed to a registry.

    python3 -m release.images build                         # all, into build/images
    python3 -m release.images push --registry REGISTRY --key cosign.key

The Containerfiles say what is in an image. Debian's packages make the base (mmdebstrap), buildah follows the
instructions, syft lists the packages. `push` uploads by digest (crane), signs image and list (cosign), and sets the
tags last: under a tag there is never an image without its signature. Where both architectures were built, the tag is
that of an index of both.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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

OUTPUT = ROOT / "build" / "images"
RELEASE = "bookworm"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
ARCHITECTURES = ("amd64", "arm64")
NATIVE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine())
"""The architecture whose programs this machine runs by itself."""
EMULATORS = {
    "amd64": Path("/proc/sys/fs/binfmt_misc/qemu-x86_64"),
    "arm64": Path("/proc/sys/fs/binfmt_misc/qemu-aarch64"),
}
"""The file that a Linux machine has if it emulates programs of an architecture."""
LEFT_OUT = (
    *(f"/usr/share/{each}/*" for each in ("doc", "info", "lintian", "locale", "man")),
    "/usr/lib/*/gconv/*",
)
"""Files of Debian's packages that no program here reads."""
PACKAGES = ("usr-is-merged", "ca-certificates", "libstdc++6", "python3-venv")
"""Debian's packages in the base, with those that they need. The first one replaces one that needs Perl."""
REMOVED = (
    # Perl, and what installs packages: an image is replaced, not updated.
    *("perl-base", "dpkg", "libmd0", "debconf", "libdebconfclient0", "base-passwd", "usr-is-merged"),
    # What makes the certificates' file, which is there by then.
    "openssl",
    # What starts a machine, and lets people log in.
    *("init-system-helpers", "sysvinit-utils", "hostname", "login", "libaudit1", "libaudit-common", "libcap-ng0"),
    *("libpam0g", "libpam-modules", "libpam-modules-bin", "libpam-runtime"),
    *("util-linux", "util-linux-extra", "bsdutils", "libblkid1", "libmount1", "libsmartcols1", "libudev1"),
    *("libsystemd0", "libgcrypt20", "libgpg-error0", "liblz4-1", "libzstd1"),
    # Tools of the command line that no script here calls.
    *("debianutils", "diffutils", "gzip", "mawk", "ncurses-bin"),
)
"""Debian's packages that are in every Debian, and that no program here needs. The list of packages lacks them, too."""
REMOVALS = (
    # Scripts of a package would start those of another that is gone already.
    'rm "$1"/var/lib/dpkg/info/*.prerm "$1"/var/lib/dpkg/info/*.postrm',
    'dpkg --root="$1" --purge --force-depends --force-remove-essential --force-remove-protected ' + " ".join(REMOVED),
    # What the removed programs alone read.
    'rm -rf "$1"/var/cache/debconf "$1"/var/lib/dpkg/info/*.symbols "$1"/var/lib/dpkg/info/*.templates',
)
"""Commands of the shell that remove them from a folder, $1. The machine's own dpkg does it."""


@dataclass(frozen=True)
class ImageSpec:
    """How an image is built.

    Attributes:
        containerfile: its instructions.
        target: the stage that it is; the last without one.
        arguments: values of ARG instructions.
        needs: file that a target of make builds, and that the instructions copy; of arm64 it ends in -arm64.
        repository: its name in a registry; None: that of the image.
        suffix: of its tag, after the version.
        only_copies: no instruction runs a program of the image, so that any machine builds it for any architecture.
    """

    containerfile: str
    target: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, str] | None = None
    repository: str | None = None
    suffix: str = ""
    only_copies: bool = False

    def needed(self, architecture: str) -> str | None:
        """Return the file of this architecture that the instructions copy."""
        return layout_name(self.needs[0], architecture) if self.needs else None

    @property
    def tag(self) -> str:
        """Return its tag."""
        return f"{version()}{self.suffix}"


def layout_name(name: str, architecture: str) -> str:
    """Return the name of what is built for an architecture: amd64 has no suffix."""
    return name if architecture == "amd64" else f"{name}-{architecture}"


def parse_layout_name(layout: str) -> tuple[str, str]:
    """Return the image and the architecture of what `layout_name` names."""
    for architecture in ARCHITECTURES[1:]:
        if layout.endswith(f"-{architecture}"):
            return layout.removesuffix(f"-{architecture}"), architecture
    return layout, ARCHITECTURES[0]


def older_minors() -> list[str]:
    """Return the minors of Kubernetes, but for the newest, that kube-scheduler with the plugin is built for."""
    return sorted(file.name.removeprefix("go-").removesuffix(".mod") for file in (ROOT / "plugin").glob("go-*.mod"))


def scheduler_image(minor: str) -> ImageSpec:
    """Return the image of kube-scheduler of an older minor: another tag of the newest one's repository."""
    program = f"build/steersman-kube-scheduler-{minor}"
    return ImageSpec(
        "deploy/kube-scheduler/Containerfile",
        needs=(program, f"make plugin KUBERNETES={minor}"),
        repository="steersman-kube-scheduler",
        suffix=f"-kubernetes{minor}",
        only_copies=True,
    )


IMAGES = {
    "steersman": ImageSpec("deploy/Containerfile", "commands"),
    "steersman-kube-scheduler": ImageSpec(
        "deploy/kube-scheduler/Containerfile", needs=("build/steersman-kube-scheduler", "make plugin"), only_copies=True
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
        self._bases: dict[str, str] = {}

    def base(self, image: ImageSpec, mirror: str | None) -> str:
        """Return the name of the base of an image, which is made of Debian's packages for the first that needs it."""
        architecture = NATIVE if image.only_copies and NATIVE else self._architecture
        if architecture not in self._bases:
            start = time.monotonic()
            self._bases[architecture] = self._make_base(mirror, architecture)
            print(f"base of {architecture}: {time.monotonic() - start:.0f} s", flush=True)
        return self._bases[architecture]

    def _make_base(self, mirror: str | None, architecture: str) -> str:
        context = self._folder / "base"
        context.mkdir()
        name = f"base-{architecture}"
        command = [tool("mmdebstrap"), "--variant=essential", f"--architectures={architecture}"]
        command += ["--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", "--dpkgopt=force-unsafe-io"]
        command += [f"--dpkgopt=path-exclude={files}" for files in LEFT_OUT]
        command += ["--dpkgopt=path-include=/usr/share/doc/*/copyright", f"--include={','.join(PACKAGES)}"]
        command += [f"--customize-hook={each}" for each in REMOVALS]
        command += [RELEASE, str(context / "base.tar"), *([mirror] if mirror else [])]
        date = {"SOURCE_DATE_EPOCH": str(self._date)}
        run(command, what="the base cannot be made", log=self._log_file(name), environment=date)
        self._build_image(name, ImageSpec("deploy/base/Containerfile"), {}, context, architecture)
        shutil.rmtree(context)
        return f"localhost/{name}"

    def build(self, name: str, base: str, layout: Path) -> None:
        """Build an image and write it as an OCI layout."""
        image = IMAGES[name]
        arguments = {"BASE": base, "SOURCE_DATE_EPOCH": str(self._date), **image.arguments}
        if NATIVE:
            arguments["BUILDPLATFORM"] = f"linux/{NATIVE}"
        if program := image.needed(self._architecture):
            arguments["PROGRAM"] = program
        self._build_image(name, image, arguments, ROOT, self._architecture)
        target = f"oci:{layout}:{image.tag}"
        run(
            self._buildah("push", "--quiet", name, target), what=f"{name} cannot be written", log=self._log_file("push")
        )

    def _build_image(
        self, name: str, image: ImageSpec, arguments: Mapping[str, str], context: Path, architecture: str
    ) -> None:
        containerfile = ROOT / image.containerfile
        declared = set(re.findall(r"^ARG (\w+)", containerfile.read_text(), re.M))
        options = [f"--build-arg={key}={value}" for key, value in arguments.items() if key in declared]
        if image.target:
            options.append(f"--target={image.target}")
        # A proxy's certificate may be among the machine's.
        if context == ROOT and Path(CERTIFICATES).exists():
            options.append(f"--volume={CERTIFICATES}:{CERTIFICATES}:ro")
        command = self._buildah("bud", "--isolation=chroot", "--layers=false", "--identity-label=false")
        command += [f"--timestamp={self._date}", f"--arch={architecture}"]
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
    """Return the digest of a layout's only image. Raises ReleaseError: it has none."""
    try:
        (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
        found: str = entry["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ReleaseError(f"{layout} is not an OCI layout of one image; build it: make images", 2) from None
    return found


def blob(layout: Path, digest: str) -> Path:
    """Return the file of a layout's blob."""
    return layout / "blobs" / "sha256" / digest.removeprefix("sha256:")


def manifest(layout: Path) -> dict[str, Any]:
    """Return the manifest of a layout's only image."""
    read: dict[str, Any] = json.loads(blob(layout, digest(layout)).read_text())
    return read


def commit_date() -> str:
    """Return the date of the commit as images and lists of packages state it."""
    return f"{datetime.fromtimestamp(source_date(), UTC):%Y-%m-%dT%H:%M:%SZ}"


def created(layout: Path) -> str:
    """Return the date of a layout's only image, which is that of its commit."""
    found: str = json.loads(blob(layout, manifest(layout)["config"]["digest"]).read_text())["created"]
    return found


def sizes(layout: Path) -> tuple[int, int]:
    """Return the MB of an image's layers, packed and unpacked."""
    packed = unpacked = 0
    for layer in manifest(layout)["layers"]:
        file = blob(layout, layer["digest"])
        packed += file.stat().st_size
        with gzip.open(file) as opened:
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
    listed["creationInfo"]["created"] = commit_date()
    listed["documentNamespace"] = f"https://steersman.dev/spdx/{name}-{digest(layout).removeprefix('sha256:')}"
    target.write_text(json.dumps(listed, indent=1, sort_keys=True))


def chosen(names: Sequence[str]) -> Sequence[str]:
    """Return the named images, or all if none is named. Raises ReleaseError: an image is unknown."""
    if unknown := [name for name in names if name not in IMAGES]:
        raise ReleaseError(f"unknown image {unknown[0]}; expected one of {', '.join(IMAGES)}", 2)
    return names or list(IMAGES)


def check_prerequisites(names: Sequence[str], base: str | None = None, architecture: str = ARCHITECTURES[0]) -> None:
    """Check that images can be built. Raises ReleaseError: a tool, a right, a file or an emulator is missing."""
    for name in ("buildah", "syft", *(() if base else ("mmdebstrap",))):
        tool(name)
    if os.geteuid():
        raise ReleaseError("building changes owners of files and mounts; run it as root", 2)
    for name in names:
        image = IMAGES[name]
        if image.needs and not (ROOT / str(image.needed(architecture))).exists():
            command = image.needs[1] + (f" ARCHITECTURE={architecture}" if architecture != ARCHITECTURES[0] else "")
            raise ReleaseError(f"{image.needed(architecture)} is missing; build it: {command}", 2)
        if not image.only_copies and architecture != NATIVE and not EMULATORS[architecture].exists():
            install = "apt-get install qemu-user-static binfmt-support"
            raise ReleaseError(f"{name} needs a machine that runs {architecture} programs, or emulates: {install}", 2)


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
    check_prerequisites(names, base, architecture)
    logs = output / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=output) as folder:
        builder = ImageBuilder(Path(folder), architecture, logs)
        for name in names:
            built_from = base or builder.base(IMAGES[name], mirror)
            start = time.monotonic()
            target = output / layout_name(name, architecture)
            layout, packages = Path(folder) / "layouts" / target.name, Path(folder) / f"{target.name}.spdx.json"
            layout.parent.mkdir(exist_ok=True)
            builder.build(name, built_from, layout)
            built = time.monotonic() - start
            list_packages(name, layout, packages, logs / f"{name}-packages.log")
            shutil.rmtree(target, ignore_errors=True)
            layout.rename(target)
            packages.rename(output / packages.name)
            packed, unpacked = sizes(target)
            figures = f"{architecture}, {packed} MB packed, {unpacked} MB unpacked, {built:.0f} s"
            print(f"{reference(name)} {digest(target)} ({figures})", flush=True)


def existing_layouts(name: str, output: Path, architectures: Sequence[str]) -> dict[str, Path]:
    """Return those layouts of an image that exist, by architecture."""
    layouts = {each: output / layout_name(name, each) for each in architectures}
    return {each: layout for each, layout in layouts.items() if (layout / "index.json").exists()}


def built_layouts(name: str, output: Path) -> dict[str, Path]:
    """Return the layouts of an image by architecture. Raises ReleaseError: there is none, or they do not match."""
    found = existing_layouts(name, output, ARCHITECTURES)
    if not found:
        raise ReleaseError(f"{output / name} is missing; build it: make images", 2)
    if len(found) > 1 and len({*map(created, found.values())}) > 1:
        names = " and ".join(map(str, found.values()))
        raise ReleaseError(f"{names} are of different commits; build both again, or remove one", 2)
    return found


def other_architectures(names: Sequence[str], output: Path) -> dict[str, list[Path]]:
    """Return the layouts of each image that were built for another architecture than amd64.

    Raises:
        ReleaseError: one is of another commit than this one.
    """
    found = {}
    for name in names:
        found[name] = [*existing_layouts(name, output, ARCHITECTURES[1:]).values()]
        for layout in found[name]:
            if created(layout) != commit_date():
                raise ReleaseError(f"{layout} is of another commit; build it again, or remove it", 2)
    return found


def join(layouts: Mapping[str, Path], folder: Path) -> str:
    """Write a layout with an index of an image's architectures into a folder, and return the index's digest.

    The folder is on the file system of the layouts: crane follows no symbolic links.
    """
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    manifests = []
    for architecture, layout in layouts.items():
        for file in (layout / "blobs" / "sha256").iterdir():
            if not (blobs / file.name).exists():
                (blobs / file.name).hardlink_to(file)
        (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
        described = {key: entry[key] for key in ("mediaType", "digest", "size")}
        manifests.append({**described, "platform": {"architecture": architecture, "os": "linux"}})
    kind = "application/vnd.oci.image.index.v1+json"
    index = folder / "index.json"
    index.write_text(json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": manifests}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return f"sha256:{sha256(index)}"


def push(built: Mapping[str, Mapping[str, Path]], output: Path, registry: str, key: Path) -> None:
    """Upload images with their lists of packages, both signed; tags are set when all is there.

    Args:
        built: layouts by image and architecture; an index names those of an image that has more than one.
        output: folder of the layouts.
        registry: registry and folder of the images.
        key: private key that signs.
    """
    for name in ("crane", "cosign"):
        tool(name)
    check_key(key)
    for layout in (each for layouts in built.values() for each in layouts.values()):
        digest(layout)
        if not (listed := output / f"{layout.name}.spdx.json").exists():
            raise ReleaseError(f"{listed} is missing; build it: make images", 2)
    uploaded = {}
    with tempfile.TemporaryDirectory(prefix=".pushing-", dir=output) as folder:
        signing = signing_options(key, Path(folder))
        for name, layouts in built.items():
            place = f"{registry}/{repository(name)}"
            if len(layouts) > 1:
                joined = Path(folder) / name
                uploaded[name] = join(layouts, joined)
                upload: list[str | Path] = [tool("crane"), "push", "--index", joined]
            else:
                (layout,) = layouts.values()
                uploaded[name] = digest(layout)
                upload = [tool("crane"), "push", layout]
            address = f"{place}@{uploaded[name]}"
            run([*upload, address], what=f"{registry} does not take {name}")
            # The index, and each image that it names.
            run([tool("cosign"), "sign", *signing, "--recursive", address], what=f"{name} cannot be signed")
            for layout in layouts.values():
                packages = [f"--predicate={output / f'{layout.name}.spdx.json'}", "--type=spdxjson"]
                command = [tool("cosign"), "attest", *signing, *packages, f"{place}@{digest(layout)}"]
                run(command, what=f"the packages of {layout.name} cannot be signed")
        for name in built:
            address = f"{registry}/{repository(name)}@{uploaded[name]}"
            run([tool("crane"), "tag", address, IMAGES[name].tag], what=f"{registry} sets no tag of {name}")
            print(f"{registry}/{reference(name)} {uploaded[name]} ({', '.join(built[name])})")


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
            output = options.output.resolve()
            push({name: built_layouts(name, output) for name in names}, output, options.registry, options.key)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
