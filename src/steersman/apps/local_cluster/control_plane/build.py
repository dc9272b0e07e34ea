"""Build the programs of a control plane once from Go modules, into the user's cache folder.

Kubernetes publishes its servers as images and etcd as archives, neither of which is available everywhere; the Go module
proxy usually is. Versions are pinned by this package: by `go.mod` for the newest minor of Kubernetes, by files such as
`go-1.36.mod` for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from steersman.apps.local_cluster.control_plane.go_module import (
    Module,
    Report,
    build_tags,
    built,
    kubernetes_minors,
    mod_file,
    version_flags,
)
from steersman.core.errors import SteersmanError, UsageError

KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-scheduler-explain", "kubectl")
"""Links to the one binary that contains all of them."""
WITHOUT_GO = (
    "a local control plane needs Go 1.26 or newer to be built (https://go.dev/dl, once, about 6 minutes), or "
    "kwokctl and a running Docker, Podman or nerdctl; or name a cluster that you have: --kubeconfig FILE"
)


def sources() -> Path:
    """Return the folder of the Go sources: in an installed package beside its data, in a checkout at its root.

    Raises:
        SteersmanError: neither exists.
    """
    package = Path(__file__).resolve().parents[3]
    for folder in (package / "data" / "controlplane", package.parents[1] / "controlplane"):
        if (folder / "go.mod").is_file():
            return folder
    raise SteersmanError(f"{package / 'data' / 'controlplane'}: is missing; reinstall steersman")


def find_minor(wanted: str | None) -> str:
    """Return the minor of Kubernetes to build, such as `1.37`: the newest if none is wanted.

    Raises:
        UsageError: the minor is not supported.
    """
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
    """Return the folder with `KUBERNETES`, etcd, kwok and kwokctl, building them if they are missing.

    Args:
        report: called with the progress of compilation.
        say: called with a line about what takes long.
        minor: of Kubernetes, as of `find_minor`; None: the newest.

    Raises:
        UsageError: the minor is not supported.
        SteersmanError: Go is missing, or the build failed; the message names its log.
    """
    from steersman.core.compiled import cache_root

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
