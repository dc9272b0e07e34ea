"""Build the programs of a control plane once from Go modules, into the user's cache folder.

Kubernetes publishes its servers as images and etcd as archives, neither of which is available everywhere; the Go module
proxy usually is. Versions are pinned by the `go.mod` and `go.sum` of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from steersman.apps.local_cluster.control_plane.go_module import Module, Report, built, version_flags
from steersman.core.errors import SteersmanError

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


def programs(report: Report, say: Callable[[str], None]) -> Path:
    """Return the folder with `KUBERNETES`, etcd, kwok and kwokctl, building them if they are missing.

    Args:
        report: called with the progress of compilation.
        say: called with a line about what takes long.

    Raises:
        SteersmanError: Go is missing, or the build failed; the message names its log.
    """
    from steersman.core.compiled import cache_root

    folder = sources()
    module = Module(
        folder, "the control plane", "about 6 minutes on 2 cores", WITHOUT_GO, version_flags(folder), _arranged
    )
    return built(module, cache_root().absolute() / "controlplane", report, say)


def _arranged(part: Path) -> Path:
    programs = part / "programs"
    programs.mkdir()
    for program in ("kubernetes", "etcd", "kwok", "kwokctl"):
        (part / program).rename(programs / program)
    for name in KUBERNETES:
        (programs / name).symlink_to("kubernetes")
    return programs
