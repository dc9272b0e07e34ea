"""A stand-in for an API server, in a process of its own: lists nodes and pods, and sends changes to whoever watches.

`python -m benchmarks.service.api_server NODES PODS WAITING CHANGES`: prints its port, then binds CHANGES waiting pods a
second and deletes as many running ones. It only serves what a watch reads, so that 5,000 nodes need no etcd.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec
from aiohttp import web

GPUS = {"alibabacloud.com/gpu-count": "8", "alibabacloud.com/gpu-milli": "8000"}
SHARES = (0, 0, 0, 250, 500, 1000)
SIZES = 20
encode = msgspec.json.encode


def node_object(i: int) -> dict[str, Any]:
    """Return a node as kubelets describe themselves, every other one with eight GPUs."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "100Gi"} | (GPUS if i % 2 else {})
    conditions = [{"type": kind, "status": "False"} for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node_name(i), "uid": f"n{i}", "labels": {"kubernetes.io/hostname": node_name(i)}},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": conditions},
    }


def node_name(i: int) -> str:
    """As cloud providers call them."""
    return f"ip-10-{i // 256 % 256}-{i % 256}-7.eu-central-1.compute.internal"


def pod_object(i: int, node: str = "") -> dict[str, Any]:
    """Return a pod of a Deployment as the API server has it, with what admission adds: some 3 KB."""
    requests = {"cpu": f"{100 * (1 + i % SIZES)}m", "memory": f"{128 * (1 + i % 7)}Mi"}
    share = SHARES[i % len(SHARES)]
    notes = {"alibabacloud.com/gpu-count": "1", "alibabacloud.com/gpu-milli": str(share)} if share else {}
    token = {"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    container = {
        "name": "main",
        "image": "registry.example.com/shop/web:1.42.0",
        "env": [{"name": f"SETTING_{k}", "value": f"value of setting {k}"} for k in range(12)],
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "resources": {"requests": requests, "limits": requests},
        "volumeMounts": [token],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10},
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"web-{i % SIZES}-6d5f9c", "uid": f"r{i % SIZES}"}
    gone = [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for what in ("not-ready", "unreachable")
    ]
    fields: dict[str, Any] = {
        f"f:{key}": {"f:nested": {}, "f:another": {}} for key in ("metadata", "labels", "containers", "volumes")
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"web-{i % SIZES}-6d5f9c-{i:05d}",
            "generateName": f"web-{i % SIZES}-6d5f9c-",
            "namespace": "default",
            "uid": f"p{i}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": f"web-{i % SIZES}", "pod-template-hash": "6d5f9c"},
            "annotations": notes,
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": fields}],
        },
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [container],
            "volumes": [{"name": "kube-api-access-x7k2p", "projected": {"sources": sources, "defaultMode": 420}}],
            "tolerations": gone,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "securityContext": {},
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        | ({"nodeName": node} if node else {}),
        "status": {"phase": "Running" if node else "Pending", "qosClass": "Guaranteed"},
    }


class Api:
    """What watches see. Pods 0 to `waiting` - 1 wait; of the others, pod i runs on node i % nodes."""

    def __init__(self, nodes: int, pods: int, waiting: int) -> None:
        self.nodes, self.version = nodes, 1
        self.watching: list[web.StreamResponse] = []
        running = [encode(pod_object(i, node_name(i % nodes))) for i in range(waiting, pods)]
        listed = {
            "nodes": [encode(node_object(i)) for i in range(nodes)],
            "pods": [encode(pod_object(i)) for i in range(waiting)] + running,
        }
        self._listed = {kind: self._list(items) for kind, items in listed.items()}

    def _list(self, items: list[bytes]) -> bytes:
        return b'{"metadata":{"resourceVersion":"1"},"items":[' + b",".join(items) + b"]}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer lists and watches."""
        kind = request.path.rpartition("/")[2]
        if kind not in self._listed:
            return web.json_response({})
        if "watch" not in request.query:
            return web.Response(body=self._listed[kind], content_type="application/json")
        response = web.StreamResponse()
        await response.prepare(request)
        if kind == "pods":
            self.watching.append(response)
        await asyncio.Event().wait()
        return response

    async def change(self, first: int, changes: int, waiting: int) -> None:
        """Bind and delete pods from `first` on, evenly, as many a second as `changes`, while somebody watches."""
        loop, done = asyncio.get_running_loop(), 0
        while not self.watching:
            await asyncio.sleep(0.1)
        began = loop.time()
        while done < waiting:
            due = int((loop.time() - began) * changes)
            for i in range(done, min(due, waiting)):
                bound = pod_object(i, node_name(i * 7919 % self.nodes))
                await self._tell("MODIFIED", bound)
                gone = first + i
                await self._tell("DELETED", pod_object(gone, node_name(gone % self.nodes)))
            done = max(done, due)
            await asyncio.sleep(0.005)

    async def _tell(self, kind: str, obj: dict[str, Any]) -> None:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        line = encode({"type": kind, "object": obj}) + b"\n"
        for response in self.watching:
            await response.write(line)


async def main(nodes: int, pods: int, waiting: int, changes: int) -> None:
    """Serve until killed."""
    api = Api(nodes, pods, waiting)
    app = web.Application()
    app.router.add_get("/{path:.*}", api.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    if changes:
        await api.change(waiting, changes, waiting)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*(int(argument) for argument in sys.argv[1:])))
