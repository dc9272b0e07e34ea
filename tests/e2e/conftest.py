"""A real control plane for all end-to-end tests: built once, started once a session, gone afterwards."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.kubernetes import control_plane_programs, minor

from steersman.kubernetes import config
from steersman.kubernetes.credentials import Credentials
from steersman.live.local_cluster import record
from steersman.live.local_cluster.control_plane import servers

STEERSMAN = Path(sys.executable).with_name("steersman")
NODES = 10
NAME = "e2e"
COLLECTIONS = {
    "csidrivers": "/apis/storage.k8s.io/v1/csidrivers",
    "csinodes": "/apis/storage.k8s.io/v1/csinodes",
    "csistoragecapacities": "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities",
    "events": "/apis/events.k8s.io/v1/namespaces/default/events",
    "nodes": "/api/v1/nodes",
    "persistentvolumeclaims": "/api/v1/namespaces/default/persistentvolumeclaims",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "pods": "/api/v1/namespaces/default/pods",
    "resourceclaims": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    "storageclasses": "/apis/storage.k8s.io/v1/storageclasses",
}
"""What tests look at again and again, by kubectl's name, and its path."""
LONGEST = ("test_live_notebooks.py", "test_learning.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no worker waits for another at the end."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@dataclass(frozen=True)
class LocalCluster:
    """A cluster that a test may fill; it asks for `clean` itself when that matters."""

    name: str
    environment: dict[str, str]
    kubeconfig: Path
    kubectl_path: Path

    def steersman(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command, whatever it ends with."""
        command: list[str | Path] = [STEERSMAN, *arguments]
        return subprocess.run(command, env=self.environment, text=True, capture_output=True, check=False, timeout=300)

    def must(self, *arguments: str) -> str:
        """Run the command, which has to succeed; what it printed."""
        done = self.steersman(*arguments)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl, which has to succeed; what it printed."""
        done = subprocess.run(
            [self.kubectl_path, *arguments],
            env=self.environment | {"KUBECONFIG": str(self.kubeconfig)},
            input=stdin,
            text=True,
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def objects(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of a kind; those with a namespace of `default`.

        Without kubectl, since tests ask again and again until something is there, and each start of kubectl takes a
        tenth of a second of a core from the servers that they wait for.
        """
        found: list[dict[str, Any]] = self._ask("GET", kind)["items"]
        return found

    def node_names(self) -> list[str]:
        """Return the names of the nodes in order."""
        return sorted(each["metadata"]["name"] for each in self.objects("nodes"))

    def delete_all(self, kind: str) -> None:
        """Delete the objects of a kind by one request and wait until they are gone; kubectl does each by itself."""
        self._ask("DELETE", kind)
        until(lambda: not self.objects(kind))

    def _ask(self, method: str, kind: str) -> dict[str, Any]:
        kubeconfig = config.load(self.kubeconfig)
        server = urlsplit(kubeconfig.cluster.server)
        context = Credentials(kubeconfig).context
        connection = http.client.HTTPSConnection(str(server.hostname), server.port, context=context, timeout=60)
        try:
            connection.request(method, COLLECTIONS[kind])
            answer = connection.getresponse()
            content: dict[str, Any] = json.load(answer)
        finally:
            connection.close()
        assert answer.status == 200, content
        return content


def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster of ten nodes on ports that were free, its state in a folder of the session.

    The programs are built into the user's cache folder, so that only the first run of all pays for it.
    """
    state = tmp_path_factory.mktemp("state")
    environment = os.environ | {"STEERSMAN_STATE_DIR": str(state)}
    programs = control_plane_programs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEERSMAN_STATE_DIR", str(state))
        folder = record.folder_of(NAME)
    cluster = LocalCluster(NAME, environment, folder / "kubeconfig", programs / "kubectl")
    try:
        cluster.must("cluster", "up", "--name", NAME, "--count", str(NODES), "--kubernetes", minor())
        yield cluster
    finally:
        started = servers.running(folder)
        cluster.steersman("cluster", "down", "--name", NAME)
        for pid in servers.running(folder).values():  # only what was ours, and is left against all expectation
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not servers.running(folder), started


@pytest.fixture
def cluster(control_plane: LocalCluster) -> LocalCluster:
    """The same without pods."""
    control_plane.must("cluster", "clean", "--name", NAME)
    return control_plane
