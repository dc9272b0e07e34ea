"""Which cluster a command acts on, and whether steersman started it: others are left alone unless that is meant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steersman.errors import UsageError
from steersman.kube import config
from steersman.kube.config import KubeConfig
from steersman.localcluster import record
from steersman.localcluster.record import Way


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster.

    Attributes:
        config: how it is reached.
        ours: whether `steersman cluster up` started it.
        by_default: whether it is the local cluster, chosen since nothing names any other.
    """

    config: KubeConfig
    ours: bool
    by_default: bool = False

    def require_consent(self, what: str, *, yes: bool) -> None:
        """Raise UsageError if the cluster is somebody's and `--yes` was not given.

        Args:
            what: would be done, as after "this would".
            yes: whether that is meant.
        """
        if not (self.ours or yes):
            raise UsageError(
                f"this would {what} at {self.config.cluster.server} (context {self.config.context!r}), which steersman "
                "did not start; --yes if that is meant"
            )


def find(kubeconfig: Path | None = None, context: str | None = None, name: str | None = None) -> Target:
    """The cluster that options name, else the one that kubectl would use, else the local one.

    Args:
        kubeconfig: a file.
        context: of that file, or of those that kubectl reads.
        name: a cluster of `steersman cluster`.

    Raises:
        UsageError: a name and a file are given.
        SteersmanError: there is no such cluster.
    """
    if name is not None and (kubeconfig is not None or context is not None):
        raise UsageError("--name is a cluster of steersman's, --kubeconfig and --context are others; give one of them")
    by_default = False
    if name is None and kubeconfig is None and context is None and not config.is_configured():
        local = record.find(record.DEFAULT_NAME)
        by_default = local is not None and local.ready
        name = record.DEFAULT_NAME if by_default else None
    if name is not None:
        found = record.require(record.check_name(name))
        kubeconfig, context = Path(found.kubeconfig), found.context
    loaded = config.load(kubeconfig, context)
    return Target(loaded, _is_ours(loaded), by_default)


def _is_ours(loaded: KubeConfig) -> bool:
    for name in record.names():
        found = record.find(name)
        if found is None or found.way is Way.KUBECONFIG or found.context != loaded.context:
            continue
        if Path(found.kubeconfig).resolve() == loaded.source.resolve():
            return True
    return False
