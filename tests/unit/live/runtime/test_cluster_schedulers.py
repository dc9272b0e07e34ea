"""What the API tells of a cluster's schedulers: flags of pods, ConfigMaps of Deployments, arguments of K3s."""

import json
from typing import Any

import pytest
from aiohttp import web
from tests.support.servers.fake_api_server import failure
from tests.support.servers.live_cluster import NODES, LiveDouble, node, with_double

from steersman.kubernetes.client import Client
from steersman.live.runtime.cluster_schedulers import FoundScheduler, find_schedulers, flags_of, mounted

SYSTEM = "/api/v1/namespaces/kube-system"
DEPLOYMENTS = "/apis/apps/v1/namespaces/kube-system/deployments"
Object = dict[str, Any]


def static_pod(name: str, *flags: str, component: str = "kube-scheduler") -> Object:
    container = {"name": component, "image": component, "command": [component, *flags]}
    metadata = {"name": name, "labels": {"component": component}}
    return {"metadata": metadata, "spec": {"nodeName": "cp", "containers": [container]}}


def deployment(name: str, *flags: str, mounts: list[Object], volumes: list[Object], image: str = "scheduler") -> Object:
    container = {"name": "c", "image": image, "args": list(flags), "volumeMounts": mounts}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], "volumes": volumes}}
    return {"metadata": {"name": name}, "spec": {"replicas": 0, "template": template}}


CONFIG = {"mountPath": "/etc/config", "name": "config"}


@with_double
async def test_schedulers_are_found(double: LiveDouble, client: Client) -> None:
    flags = "--config", "/etc/a.yaml", "--feature-gates=A=true"
    double.put(f"{SYSTEM}/pods", static_pod("kube-scheduler-cp", *flags))
    double.put(f"{SYSTEM}/pods", static_pod("kube-apiserver-cp", "--config=/x", component="kube-apiserver"))
    double.put(f"{SYSTEM}/configmaps", {"metadata": {"name": "second"}, "data": {"my.yaml": "kind: A"}})
    of_map = {"name": "config", "configMap": {"name": "second", "items": [{"key": "my.yaml", "path": "s.yaml"}]}}
    flag = "--config=/etc/config/s.yaml"
    double.put(DEPLOYMENTS, deployment("second", flag, mounts=[CONFIG], volumes=[of_map]))
    gone = {"name": "config", "configMap": {"name": "absent"}}
    double.put(DEPLOYMENTS, deployment("third", flag, mounts=[CONFIG], volumes=[gone]))
    double.put(DEPLOYMENTS, deployment("web", flag, mounts=[CONFIG], volumes=[of_map], image="web"))
    arguments = ["server", "--kube-scheduler-arg", "config=/etc/k3s.yaml", "--kube-scheduler-arg=v=2"]
    for name, given in (("server", arguments), ("agent", ["agent"]), ("odd", "x")):
        k3s = node(name)
        k3s["metadata"]["annotations"] = {"k3s.io/node-args": json.dumps(given)}
        double.put(NODES, k3s)
    where = "Deployment kube-system/second"
    assert await find_schedulers(client) == [
        FoundScheduler("pod kube-system/kube-scheduler-cp", "cp", "/etc/a.yaml", "A=true"),
        FoundScheduler(where, "", "/etc/config/s.yaml", "", "ConfigMap kube-system/second", "kind: A"),
        FoundScheduler("Deployment kube-system/third", "", "/etc/config/s.yaml", "", "ConfigMap kube-system/absent"),
        FoundScheduler("K3s on node server", "server", "/etc/k3s.yaml"),
    ]


@with_double
async def test_what_may_not_be_read_is_left_out(double: LiveDouble, client: Client) -> None:
    double.put(f"{SYSTEM}/pods", static_pod("kube-scheduler-cp"))

    async def refuse(request: web.Request) -> web.Response | None:
        return None if request.path.endswith("/nodes") else failure(403, "Forbidden")

    double.fault = refuse
    assert await find_schedulers(client) == []


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        (["--config=a", "-v=2"], {"config": "a", "v": "2"}),
        (["kube-scheduler", "--config", "a", "--leader-elect"], {"config": "a"}),
        (["--leader-elect", "--config"], {}),
    ],
)
def test_flags(arguments: list[str], flags: dict[str, str]) -> None:
    assert flags_of(arguments) == flags


@pytest.mark.parametrize(
    ("mount", "volume", "expected"),
    [
        (CONFIG, {"configMap": {"name": "m"}}, ("m", "s.yaml")),
        ({"mountPath": "/etc/config/s.yaml", "subPath": "key"}, {"configMap": {"name": "m"}}, ("m", "key")),
        (CONFIG, {"projected": {"sources": [{"secret": {}}, {"configMap": {"name": "p"}}]}}, ("p", "s.yaml")),
        (CONFIG, {"configMap": {"name": "m", "items": [{"key": "k", "path": "other"}]}}, None),
        (CONFIG, {"hostPath": {"path": "/etc"}}, None),
        ({"mountPath": "/var"}, {"configMap": {"name": "m"}}, None),
    ],
)
def test_the_config_map_of_a_file(mount: Object, volume: Object, expected: object) -> None:
    spec = {"volumes": [{"name": "config", **volume}]}
    assert mounted(spec, {"volumeMounts": [{**mount, "name": "config"}]}, "/etc/config/s.yaml") == expected
