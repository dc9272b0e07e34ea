"""Build the programs of a control plane once from Go modules, into the user's cache folder.

Kubernetes publishes its servers as images and etcd as archives, neither of which is available everywhere; the Go module
proxy usually is. Versions are pinned by this package: by `go.mod` for the newest minor of Kubernetes, by files such as
`go-1.36.mod` for the others. The build tag `before1.37` holds for all minors before 1.37, so that a build without tags
is the newest. Programs are in folders by a digest of the module's files.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from steersman.core.errors import SteersmanError, UsageError
from steersman.live.local_cluster.record import locked

KEPT_BUILDS = 2  # builds that are kept of a module, and of each minor of Kubernetes; one of a control plane has 260 MB
NEWEST = "go.mod"
SAID_LINES = 3
DOWNLOADING = "go: downloading "
SAID_EVERY_SECONDS = 10.0
Report = Callable[[int, int], None]  # called with the number of compiled packages and of all
KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-scheduler-explain", "kubectl")
"""Links to the one binary that contains all of them."""
WITHOUT_GO = (
    "a local control plane needs Go 1.26 or newer to be built (https://go.dev/dl, once, about 6 minutes), or "
    "kwokctl and a running Docker, Podman or nerdctl; or name a cluster that you have: --kubeconfig FILE"
)


@dataclass(frozen=True)
class Module:
    """A Go module and its programs."""

    folder: Path  # folder of its sources
    what: str  # what it builds, for messages ("the control plane")
    takes: str  # how long that takes, for messages ("about 6 minutes on 2 cores")
    without_go: str  # message where Go is missing
    flags: str  # linker flags
    finish: Callable[[Path], Path]  # arranges the programs, built into its first argument, in its second
    tests: bool = True  # whether test files belong to the digest
    mod_file: str = NEWEST  # name of the file with its requirements, as of `mod_file`
    tags: str = ""  # build tags, as of `build_tags`

    def digest(self) -> str:
        """Return a digest of everything that goes into the programs."""
        digest = hashlib.sha256(f"{platform.system()} {platform.machine()} {self.flags}".encode())
        own = (self.mod_file, self.mod_file.removesuffix("mod") + "sum")
        for file in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            if not self.tests and (file.name.endswith("_test.go") or "testdata" in file.parts):
                continue
            if file.parent == self.folder and file.suffix in (".mod", ".sum") and file.name not in own:
                continue
            content = file.read_bytes()
            digest.update(f"\n{file.relative_to(self.folder).as_posix()} {len(content)}\n".encode() + content)
        return digest.hexdigest()[:16]


def built(module: Module, builds: Path, report: Report, say: Callable[[str], None]) -> Path:
    """Return the folder with the module's programs, building them if they are missing."""
    target = builds / module.digest()
    if target.is_dir():
        # Used now: `_forget_old` removes the builds that were not used for longest.
        os.utime(target)
        return target
    go = shutil.which("go")
    if go is None:
        raise SteersmanError(module.without_go)
    with locked(builds / "lock", lambda: say(f"waiting for another steersman that builds {module.what}")):
        # The one that held the lock before may have built it.
        if not target.is_dir():
            say(f"building {module.what} from Go modules (once, {module.takes})")
            _build(go, module, target, report, say)
            _forget_old(builds)
    return target


def kubernetes_minors(folder: Path) -> dict[str, str]:
    """Return the minors of Kubernetes that Go sources can be built against, newest first, and the version of each.

    For example `{"1.37": "v1.37.2", "1.36": "v1.36.3"}`.
    """
    versions = [_kubernetes_version(folder / NEWEST), *map(_kubernetes_version, folder.glob("go-*.mod"))]
    return {
        _minor(version): version
        for version in sorted(versions, key=lambda each: tuple(map(int, _minor(each).split("."))), reverse=True)
    }


def mod_file(folder: Path, minor: str) -> str:
    """Return the name of the file in `folder` with the requirements of a minor of `kubernetes_minors`."""
    return NEWEST if minor == next(iter(kubernetes_minors(folder))) else f"go-{minor}.mod"


def build_tags(folder: Path, minor: str) -> str:
    """Return the build tags of a minor, separated by commas: `before1.37` for 1.36."""
    minors = list(kubernetes_minors(folder))
    return ",".join(f"before{later}" for later in minors[: minors.index(minor)])


def version_flags(version: str) -> str:
    """Return linker flags: no debugging symbols, and the version that the programs report, such as `v1.37.2`."""
    major, minor = _minor(version).split(".")
    texts = {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "sigs.k8s.io/kwok/pkg/consts.KubeVersion": version.removeprefix("v"),
    }
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in texts.items())])


def _kubernetes_version(file: Path) -> str:
    match = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None
    return match[1]


def _minor(version: str) -> str:
    return ".".join(version.removeprefix("v").split(".")[:2])


def _environment() -> dict[str, str]:
    flags = "-mod=readonly -trimpath -buildvcs=false"
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": flags, "GOWORK": "off"}


def _build(go: str, module: Module, target: Path, report: Report, say: Callable[[str], None]) -> None:
    for old in target.parent.glob("*.part"):  # left by a build that was killed; we hold the lock
        shutil.rmtree(old)
    log = target.parent / "build.log"
    with tempfile.TemporaryDirectory(suffix=".part", dir=target.parent, ignore_cleanup_errors=True) as temporary:
        part = Path(temporary)
        with log.open("w", encoding="utf-8") as file:
            options = [f"-modfile={module.mod_file}", f"-tags={module.tags}"]
            listed = _lines([go, "list", *options, "-deps", "./cmd/..."], module, file, log)
            packages = sum(1 for _ in _without_downloads(listed, say))
            command = [go, "build", "-v", *options, "-ldflags", module.flags, "-o", f"{part}{os.sep}", "./cmd/..."]
            for compiled, _ in enumerate(_without_downloads(_lines(command, module, file, log), say), start=1):
                # Go also prints lines that do not name packages.
                report(min(compiled, packages), packages)
        module.finish(part).rename(target)
    log.unlink()


def _without_downloads(lines: Iterable[str], say: Callable[[str], None]) -> Iterator[str]:
    """Yield Go's lines except those about downloaded modules, whose number is reported periodically."""
    downloads, reported_at = 0, -math.inf
    for line in lines:
        if not line.startswith(DOWNLOADING):
            yield line
            continue
        downloads += 1
        if time.monotonic() > reported_at + SAID_EVERY_SECONDS:
            reported_at = time.monotonic()
            say(f"downloading Go modules: {downloads} begun")


def _lines(command: list[str], module: Module, file: object, log: Path) -> Iterator[str]:
    problems: list[str] = []
    with subprocess.Popen(
        command,
        cwd=module.folder,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(line, end="", file=file)  # type: ignore[call-overload]
                if line.startswith("# "):  # the package that the next lines are about
                    problems.clear()
                # Names of packages follow errors: what Go compiles beside them.
                if " " in line.strip():
                    problems.append(line.strip())
                yield line
        except BaseException:
            # Also when the caller stops reading: `Popen` would wait for the whole build.
            process.terminate()
            raise
    if process.returncode:
        found = problems[:SAID_LINES] if problems and problems[0].startswith("# ") else problems[-SAID_LINES:]
        message = " | ".join(found) or f"exit status {process.returncode}"
        raise SteersmanError(f"{module.what} could not be built: {message} (log: {log})")


def _forget_old(builds: Path) -> None:
    """Remove builds of previous versions except the latest; running programs keep their open files."""
    finished = [path for path in builds.iterdir() if path.is_dir()]
    for old in sorted(finished, key=lambda path: path.stat().st_mtime)[:-KEPT_BUILDS]:
        shutil.rmtree(old, ignore_errors=True)


def sources() -> Path:
    """Return the folder of the Go sources: in an installed package beside its data, in a checkout at its root."""
    package = Path(__file__).resolve().parents[3]
    for folder in (package / "data" / "controlplane", package.parents[1] / "controlplane"):
        if (folder / "go.mod").is_file():
            return folder
    raise SteersmanError(f"{package / 'data' / 'controlplane'}: is missing; reinstall steersman")


def find_minor(wanted: str | None) -> str:
    """Return the minor of Kubernetes to build, such as `1.37`: the newest if none is wanted."""
    minors = list(kubernetes_minors(sources()))
    if wanted is None:
        return minors[0]
    if wanted not in minors:
        raise UsageError(f"--kubernetes {wanted}: there are {', '.join(minors[:0:-1])} and {minors[0]}")
    return wanted


def version_of(minor: str) -> str:
    """Return the version of Kubernetes that is built for a minor of `find_minor`, such as `v1.37.2`."""
    return kubernetes_minors(sources())[minor]


def programs(report: Report, say: Callable[[str], None], minor: str | None = None) -> Path:
    """Return the folder with `KUBERNETES`, etcd, kwok and kwokctl, building them if they are missing."""
    from steersman.core.cache import cache_root

    folder, minor = sources(), find_minor(minor)
    module = Module(
        folder,
        f"the control plane of Kubernetes {minor}",
        "about 6 minutes on 2 cores",
        WITHOUT_GO,
        version_flags(version_of(minor)),
        _arranged,
        mod_file=mod_file(folder, minor),
        tags=build_tags(folder, minor),
    )
    return built(module, cache_root().absolute() / "controlplane" / minor, report, say)


def _arranged(part: Path) -> Path:
    programs = part / "programs"
    programs.mkdir()
    for program in ("kubernetes", "etcd", "kwok", "kwokctl"):
        (part / program).rename(programs / program)
    for name in KUBERNETES:
        (programs / name).symlink_to("kubernetes")
    return programs
