"""A cluster in files, instead of a live one."""

from __future__ import annotations

from dataclasses import dataclass

from steersman.cli.options.cluster import ClusterOptions
from steersman.cli.options.declaring import given_options
from steersman.cli.options.inputs import FileInputs
from steersman.core.errors import UsageError
from steersman.workloads.workload import RunningPods


@dataclass(frozen=True, slots=True)
class RecordedCluster(FileInputs):
    """A cluster in files, whose pods with `spec.nodeName` run, or a packaged one; none given: the live one."""

    @property
    def running(self) -> RunningPods:
        return RunningPods.AS_WRITTEN

    def is_chosen(self, cluster: ClusterOptions) -> bool:
        """Return whether the files are given, else the live cluster is asked."""
        if not given_options(self):
            return False
        if given_options(cluster):
            raise UsageError(
                "--kubeconfig, --context and --name select a live cluster; leave them out, or leave out --nodes, "
                "--pods and --workload"
            )
        self.check()
        return True
