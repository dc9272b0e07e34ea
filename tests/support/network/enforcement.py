"""Ask a release's ports from other pods, while kube-router enforces its NetworkPolicies: run inside `unshare --net`.

Every pod is a network namespace with the address that the API server has for it, behind a pair of virtual devices. The
namespace of this process is the node: it forwards between them, and kube-router filters what it forwards.

    unshare --net --mount --pid --fork --mount-proc python -m tests.support.network.enforcement FOLDER KUBE_ROUTER

Prints one JSON object: for each pair of pods whether a connection is open without kube-router, and with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.conftest import STEERSMAN
from tests.support.chart.helm import ALL, template

from steersman.live.local_cluster.control_plane import build

NAMESPACE, NODE_ADDRESS, LINK = "steersman", "10.99.0.1", "169.254.1.1"
NAMESPACES = (NAMESPACE, "monitoring", "default")
COMPONENTS = ("steersman", "steersman-service", "steersman-dashboard", "steersman-plugin")
STRANGERS = (("monitoring", "prometheus"), ("default", "stranger"))
PEERS = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
"""Of the service, whose default also has all private addresses: those of these pods."""
ENFORCED_AFTER_SECONDS = 60.0
SERVER = """
import socketserver, sys
class Handler(socketserver.BaseRequestHandler):
    def handle(self): pass
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("", int(sys.argv[1])), Handler).serve_forever()
"""
ASK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 1.0).close()
except OSError:
    sys.exit(1)
"""


def run(*command: str | Path, stdin: str = "") -> str:
    """Run a command, which has to succeed; what it printed."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Pods:
    """The cluster's pods as network namespaces."""

    def __init__(self, kubectl: Path, kubeconfig: Path) -> None:
        self._kubectl, self._kubeconfig = kubectl, kubeconfig
        self.addresses: dict[str, str] = {}
        self.holders: dict[str, subprocess.Popen[bytes]] = {}

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return run(self._kubectl, "--kubeconfig", self._kubeconfig, *arguments, stdin=stdin)

    def create(self, namespace: str, name: str, labels: dict[str, str], ports: list[int]) -> None:
        """Create a pod on the only node, wait for its address, and connect a network namespace that listens."""
        container = {"name": "main", "image": "pause"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"nodeName": "node-0000", "containers": [container]},
        }
        self.kubectl("create", "-f", "-", stdin=json.dumps(pod))
        address = ""
        while not address:
            address = self.kubectl("get", "pod", name, "-n", namespace, "-o", "jsonpath={.status.podIP}")
        self.addresses[name] = address
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self.holders[name] = holder
        while os.readlink(f"/proc/{holder.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.01)
        device = f"veth{len(self.holders)}"
        run("ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        Path(f"/proc/sys/net/ipv4/conf/{device}/proxy_arp").write_text("1")
        run("ip", "link", "set", device, "up")
        run("ip", "route", "add", f"{address}/32", "dev", device)
        for words in (
            ("link", "set", "lo", "up"),
            ("addr", "add", f"{address}/32", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("route", "add", LINK, "dev", "eth0", "scope", "link"),
            ("route", "add", "default", "via", LINK, "dev", "eth0"),
        ):
            run(*self._inside(name), "ip", *words)
        for port in ports:
            server = [*self._inside(name), sys.executable, "-c", SERVER, str(port)]
            self.holders[f"{name}:{port}"] = subprocess.Popen(server)
            end = time.monotonic() + 20
            while not self.open(name, name, port):
                assert time.monotonic() < end, f"{name} does not listen on {port}"

    def open(self, source: str, target: str, port: int) -> bool:
        """Return whether a pod, or the node "", reaches a port of another one."""
        command = [*self._inside(source), sys.executable, "-c", ASK, self.addresses[target], str(port)]
        return subprocess.run(command, check=False, timeout=60).returncode == 0

    def _inside(self, name: str) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.holders[name].pid}/ns/net"] if name else []

    def close(self) -> None:
        for holder in reversed(self.holders.values()):
            holder.kill()
            holder.wait()


@contextmanager
def cluster(folder: Path) -> Iterator[Pods]:
    """Run a control plane of one node in this network namespace."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "node", "type", "bridge")
    run("ip", "addr", "add", f"{NODE_ADDRESS}/32", "dev", "node")
    run("ip", "link", "set", "node", "up")
    run("ip", "route", "add", "default", "dev", "node")  # kube-apiserver advertises the address of this route
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    os.environ["STEERSMAN_STATE_DIR"] = str(folder / "state")
    kubectl = build.programs(lambda *_: None, print) / "kubectl"
    name = ("--name", "network")
    run(STEERSMAN, "cluster", "up", *name, "--count", "1")
    pods = Pods(kubectl, folder / "state" / "clusters" / "network" / "kubeconfig")
    try:
        address = {"status": {"addresses": [{"type": "InternalIP", "address": NODE_ADDRESS}]}}
        pods.kubectl(
            "patch", "node", "node-0000", "--subresource=status", "--type=merge", f"--patch={json.dumps(address)}"
        )
        yield pods
    finally:
        pods.close()
        run(STEERSMAN, "cluster", "down", *name)


@contextmanager
def kube_router(program: Path, folder: Path) -> Iterator[None]:
    """Enforce NetworkPolicies."""
    command: list[str | Path] = [program, f"--kubeconfig={folder / 'state/clusters/network/kubeconfig'}"]
    command += [
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
        "--hostname-override=node-0000",
    ]
    with (folder / "kube-router.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
        assert process.poll() is None, (folder / "kube-router.log").read_text()[-2000:]
    finally:
        process.terminate()
        process.wait()


def ports_of(objects: list[dict[str, Any]], name: str) -> tuple[dict[str, str], list[int]]:
    """Return the labels of a Deployment's pods, and the ports that they listen on."""
    (found,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == ("Deployment", name))
    pod = found["spec"]["template"]
    ports = [port["containerPort"] for each in pod["spec"]["containers"] for port in each.get("ports", ())]
    return pod["metadata"]["labels"], ports


def main(folder: Path, program: Path) -> dict[str, dict[str, bool]]:
    """Return what is open without and with kube-router: `SOURCE -> TARGET` by name."""
    objects = template(*ALL, values={"service": {"networkPolicy": {"peers": PEERS}}})
    policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
    with cluster(folder) as pods:
        for namespace in NAMESPACES[:-1]:
            pods.kubectl("create", "namespace", namespace)
        for name in COMPONENTS:
            labels, ports = ports_of(objects, name)
            pods.create(NAMESPACE, name, labels, ports)
        for namespace, name in STRANGERS:
            pods.create(namespace, name, {"app": name}, [])
        targets = {name: ports_of(objects, name)[1][0] for name in COMPONENTS[:2]}
        pairs = [
            (source, target)
            for target in targets
            for source in ("", *COMPONENTS, *(name for _, name in STRANGERS))
            if source != target
        ]

        def ask() -> dict[str, bool]:
            return {
                f"{source or 'node'} -> {target}": pods.open(source, target, targets[target])
                for source, target in pairs
            }

        found = {"without": ask()}
        for policy in policies:
            pods.kubectl("create", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(policy))
        with kube_router(program, folder):
            end = time.monotonic() + ENFORCED_AFTER_SECONDS
            while pods.open("stranger", "steersman", targets["steersman"]) and time.monotonic() < end:
                time.sleep(0.2)
            found["with"] = ask()
        return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]))))
