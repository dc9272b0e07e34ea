"""The programs of a control plane, built once from Go modules and kept in the user's cache folder.

Kubernetes publishes its servers as images and etcd as archives, neither of which can be had everywhere; the Go module
proxy usually can. What is built is pinned by the `go.mod` and `go.sum` that come with this package.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from steersman.errors import SteersmanError
from steersman.localcluster.folders import locked

KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
"""Links to the one binary that is all of them."""
PROGRAMS = (*KUBERNETES, "etcd", "kwok", "kwokctl")
KEPT_BUILDS = 3
SAID_LINES = 3

Report = Callable[[int, int], None]
"""Told how many of how many packages are compiled."""


def sources() -> Path:
    """The folder of the Go sources: in an installed package beside its data, in a checkout at its root.

    Raises:
        SteersmanError: neither is there.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "data" / "controlplane", package.parents[1] / "controlplane"):
        if (folder / "go.mod").is_file():
            return folder
    raise SteersmanError(f"{package / 'data' / 'controlplane'}: is missing; install steersman anew")


def kubernetes_version(folder: Path) -> str:
    """The version of Kubernetes that the Go sources in `folder` ask for: `v1.36.3`."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (folder / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def programs(report: Report, say: Callable[[str], None]) -> Path:
    """The folder with `PROGRAMS`, which are built if they are not there.

    Args:
        report: told how far the compilation is.
        say: told in a line what takes long.

    Raises:
        SteersmanError: Go is missing, or the build failed; the message says where its log is.
    """
    from steersman.compiled import cache_root

    folder = sources()
    builds = cache_root().absolute() / "controlplane"
    target = builds / _digest(folder)
    if target.is_dir():
        os.utime(target)
        return target
    go = shutil.which("go")
    if go is None:
        raise SteersmanError(
            "a local control plane needs Go 1.26 or newer to be built (https://go.dev/dl, once, about 6 minutes), or "
            "kwokctl and a running Docker, Podman or nerdctl; or name a cluster that you have: --kubeconfig FILE"
        )
    with locked(builds / "lock", lambda: say("waiting for another steersman that builds the control plane")):
        if not target.is_dir():
            say("building the control plane from Go modules (once, about 6 minutes on 2 cores)")
            _build(go, folder, target, report)
            _forget_old(builds)
    return target


def _digest(folder: Path) -> str:
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()} {_flags(folder)}".encode())
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        digest.update(f"\n{file.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _flags(folder: Path) -> str:
    """The linker's flags: no debugging symbols, and the versions that the programs say they are."""
    version = kubernetes_version(folder)
    major, minor = version.removeprefix("v").split(".")[:2]
    texts = {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "sigs.k8s.io/kwok/pkg/consts.KubeVersion": version.removeprefix("v"),
    }
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in texts.items())])


def _environment() -> dict[str, str]:
    """The user's environment, with what makes two builds of the same sources the same."""
    flags = "-mod=readonly -trimpath -buildvcs=false"
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": flags, "GOWORK": "off"}


def _build(go: str, folder: Path, target: Path, report: Report) -> None:
    """Build into a folder beside `target`, which appears when all of it is there."""
    for old in target.parent.glob("*.part"):  # of a build that was killed; we hold the lock
        shutil.rmtree(old)
    log = target.parent / "build.log"
    with tempfile.TemporaryDirectory(suffix=".part", dir=target.parent, ignore_cleanup_errors=True) as temporary:
        part = Path(temporary)
        with log.open("w", encoding="utf-8") as file:
            packages = sum(1 for _ in _lines([go, "list", "-deps", "./cmd/..."], folder, file, log))
            command = [go, "build", "-v", "-ldflags", _flags(folder), "-o", f"{part}{os.sep}", "./cmd/..."]
            for compiled, _ in enumerate(_lines(command, folder, file, log), start=1):
                report(min(compiled, packages), packages)
        made = part / "programs"
        made.mkdir()
        for program in ("kubernetes", "etcd", "kwok", "kwokctl"):
            (part / program).rename(made / program)
        for name in KUBERNETES:
            (made / name).symlink_to("kubernetes")
        made.rename(target)
    log.unlink()


def _lines(command: list[str], folder: Path, file: object, log: Path) -> Iterator[str]:
    """Run Go and hand on the lines of its output, all of which go to the log. Raises SteersmanError: it failed."""
    last: deque[str] = deque(maxlen=SAID_LINES)
    with subprocess.Popen(
        command,
        cwd=folder,
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
                last.append(line.strip())
                yield line
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        said = " | ".join(last) or f"exit status {process.returncode}"
        raise SteersmanError(f"the control plane could not be built: {said} (log: {log})")


def _forget_old(builds: Path) -> None:
    """Remove builds of former versions but the latest; servers that still run keep what they have open."""
    finished = [path for path in builds.iterdir() if path.is_dir()]
    for old in sorted(finished, key=lambda path: path.stat().st_mtime)[:-KEPT_BUILDS]:
        shutil.rmtree(old, ignore_errors=True)
