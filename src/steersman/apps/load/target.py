"""Find the cluster that a command acts on, and require consent for clusters that steersman did not start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from steersman.apps.local_cluster import record
from steersman.apps.local_cluster.record import ClusterBackend
from steersman.core.errors import UsageError
from steersman.kubernetes import config
from steersman.kubernetes.config import KubeConfig


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """Cluster that a command acts on.

    Attributes:
        config: connection.
        is_local: whether `steersman cluster up` started it.
        by_default: whether it is the local cluster, chosen since no option names another.
    """

    config: KubeConfig
    is_local: bool
    by_default: bool = False

    def require_consent(self, what: str, *, yes: bool) -> None:
        """Raise UsageError if steersman did not start the cluster and `--yes` was not given.

        Args:
            what: what would be done, as after "this would".
            yes: whether `--yes` was given.
        """
        if not (self.is_local or yes):
            raise UsageError(
                f"this would {what} at {self.config.cluster.server} (context {self.config.context!r}), which steersman "
                "did not start; --yes if that is meant"
            )


def find_target(kubeconfig: Path | None = None, context: str | None = None, name: str | None = None) -> ClusterTarget:
    """Return the cluster that options name, else the one that kubectl would use, else the local one.

    Args:
        kubeconfig: file.
        context: context of that file, or of those that kubectl reads.
        name: cluster of `steersman cluster`.

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
        require = record.require(record.check_name(name))
        kubeconfig, context = Path(require.kubeconfig), require.context
    loaded = config.load(kubeconfig, context)
    return ClusterTarget(loaded, _is_ours(loaded), by_default)


def _is_ours(loaded: KubeConfig) -> bool:
    for name in record.names():
        recorded = record.find(name)
        # A cluster of a kubeconfig was not started by steersman, though it has a record.
        if recorded is None or recorded.way is ClusterBackend.KUBECONFIG or recorded.context != loaded.context:
            continue
        if Path(recorded.kubeconfig).resolve() == loaded.source.resolve():
            return True
    return False
