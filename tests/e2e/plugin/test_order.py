"""kube-scheduler with the plugin `SteersmanOrder`: who gets the room that a pod leaves."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.scheduler.test_schedule import bound, create, events, pod
from tests.support.servers.plugin_scheduler import SCHEDULER, configuration, plugged, profile, scheduler_program

pytestmark = pytest.mark.e2e
__all__ = ["scheduler_program"]

ORDER = "SteersmanOrder"
EXPECTED_SECONDS = "steersman.dev/expected-seconds"
BACKOFF = 1
"""Seconds; with as many at most, pods that were tried before are as soon tried again as new ones."""


def ordered(order: str, name: str = SCHEDULER) -> dict[str, Any]:
    """A profile whose queue follows an order."""
    found = profile(None, ORDER, name=name)
    found["plugins"]["queueSort"] = {"disabled": [{"name": "PrioritySort"}]}
    found["pluginConfig"] = [{"name": ORDER, "args": {"order": order}}]
    return found


@pytest.mark.minors
@pytest.mark.parametrize(
    ("order", "first_to_last"),
    [("shortest", ("short", "middle", "long")), ("age", ("long", "middle", "short"))],
)
def test_waiting_pods_get_a_node_that_becomes_free_in_the_order(
    cluster: LocalCluster, scheduler_program: Path, tmp_path: Path, order: str, first_to_last: tuple[str, ...]
) -> None:
    node = cluster.objects("nodes")[0]
    cpus, name = node["status"]["allocatable"]["cpu"], node["metadata"]["name"]
    here: dict[str, Any] = {"schedulerName": SCHEDULER, "nodeSelector": {"kubernetes.io/hostname": name}}
    backoff = {"podInitialBackoffSeconds": BACKOFF, "podMaxBackoffSeconds": BACKOFF}
    settings = configuration(cluster.kubeconfig, [ordered(order)], **backoff)
    with plugged(scheduler_program, tmp_path, settings):
        create(cluster, pod("full", cpus, **here))
        until(lambda: "full" in bound(cluster))
        for each, seconds in (("long", "5000"), ("middle", "500"), ("short", "50")):
            create(cluster, pod(each, cpus, {EXPECTED_SECONDS: seconds}, **here))
            until(lambda each=each: each in events(cluster, "FailedScheduling"))  # type: ignore[misc]
        running = "full"
        for following in first_to_last:
            time.sleep(2 * BACKOFF + 0.5)  # it ends on a whole second
            cluster.kubectl("delete", "pod", running, "--grace-period=0", "--force")
            until(lambda: bound(cluster))
            assert list(bound(cluster)) == [following]
            running = following


@pytest.mark.parametrize(
    ("profiles", "says"),
    [
        ([ordered("wfp3:easy")], 'args.order: "wfp3:easy" holds other pods back'),
        ([ordered("/none/order.safetensors")], "order file /none/order.safetensors: cannot be read: no such file"),
        ([ordered("area"), ordered("wfp3", "other")], 'different queue sort plugin args for profile "other"'),
        ([ordered("area"), profile(None, name="other")], "profiles[1].plugins.queueSort: "),
    ],
)
def test_order_that_cannot_be_followed_is_refused_at_the_start(
    cluster: LocalCluster, scheduler_program: Path, tmp_path: Path, profiles: list[dict[str, Any]], says: str
) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps(configuration(cluster.kubeconfig, profiles)))
    command: list[str | Path] = [scheduler_program, f"--config={file}", "--secure-port=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert [line for line in done.stderr.replace('\\"', '"').splitlines() if says in line], done.stderr
    assert "goroutine" not in done.stderr
