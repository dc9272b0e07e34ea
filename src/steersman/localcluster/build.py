"""The programs of a control plane, built once from Go modules and kept in the user's cache folder.

Kubernetes publishes its servers as images and etcd as archives, neither of which can be had everywhere; the Go module
proxy usually can. What is built is pinned by the `go.mod` and `go.sum` that come with this package.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from steersman.errors import SteersmanError
from steersman.localcluster.gomodule import Module, Report, built, version_flags

KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
"""Links to the one binary that is all of them."""
WITHOUT_GO = (
    "a local control plane needs Go 1.26 or newer to be built (https://go.dev/dl, once, about 6 minutes), or "
    "kwokctl and a running Docker, Podman or nerdctl; or name a cluster that you have: --kubeconfig FILE"
)


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


def programs(report: Report, say: Callable[[str], None]) -> Path:
    """Return the folder with `KUBERNETES`, etcd, kwok and kwokctl, which are built if they are not there.

    Args:
        report: told how far the compilation is.
        say: told in a line what takes long.

    Raises:
        SteersmanError: Go is missing, or the build failed; the message says where its log is.
    """
    from steersman.compiled import cache_root

    folder = sources()
    module = Module(
        folder, "the control plane", "about 6 minutes on 2 cores", WITHOUT_GO, version_flags(folder), _arranged
    )
    return built(module, cache_root().absolute() / "controlplane", report, say)


def _arranged(part: Path) -> Path:
    made = part / "programs"
    made.mkdir()
    for program in ("kubernetes", "etcd", "kwok", "kwokctl"):
        (part / program).rename(made / program)
    for name in KUBERNETES:
        (made / name).symlink_to("kubernetes")
    return made
