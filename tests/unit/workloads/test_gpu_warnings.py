"""Why no pod of a workload gets a GPU device, in words that say what its nodes offer."""

from tests.support.cluster_dump import node, pod
from tests.support.objects import node_from_object
from tests.unit.workloads.test_account import cluster

from steersman.workloads.warnings import no_devices
from steersman.workloads.workload import Workload


def test_slices_alone_count_as_gpus() -> None:
    mig = "nvidia.com/mig-1g.5gb"
    sliced = node("n", 0)
    sliced["status"]["allocatable"][mig] = "7"
    asking = pod("p")
    asking["spec"]["containers"][0]["resources"]["limits"] = {mig: "1"}
    assert no_devices(cluster(sliced, asking)) == (
        f"its nodes offer GPUs only as {mig}, which policies see as amounts like CPU"
    )
    assert no_devices(cluster(node("n", 2), pod("p", gpus=1))) == ""
    assert no_devices(cluster(node("n", 2), pod("p"))) == "its nodes or pods have no GPU"
    assert no_devices(Workload("w", (node_from_object(node("n", 0)),), ())) == "its nodes or pods have no GPU"
