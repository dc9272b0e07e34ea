"""Random nodes, pods, controllers and Services, as objects that the API server takes, for comparisons of schedulers.

They use everything that scheduling looks at and the model knows, crowded enough that every reason to refuse a node
comes up, and alike enough that pods concern each other.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]

SCHEDULER = "parity"
NAMESPACES = ("parity-a", "parity-b", "parity-c")
HOSTNAME, ZONE, REGION = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
RACK, POOL, RANK = "example.com/rack", "example.com/pool", "example.com/rank"
KEYS = (HOSTNAME, ZONE, REGION, RACK)
GPU, FPGA = "nvidia.com/gpu", "example.com/fpga"
IMAGES = {
    "registry.example/web:1": 40 << 20,
    "registry.example/web:2": 260 << 20,
    "registry.example/model:latest": 900 << 20,
    "registry.example/tool": 20 << 20,
    "registry.example:5000/base:3": 2200 << 20,
}
TAINTS = (
    ("example.com/team", "red"),
    ("example.com/team", "blue"),
    ("example.com/spot", ""),
    ("example.com/old", "yes"),
)
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule", "PreferNoSchedule")
LABELS = {"app": "abcd", "tier": "xyz", "rev": "12"}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Maker:
    """Makes objects from one random stream.

    Args:
        seed: the same seed makes the same objects. An even one makes nodes of one size and simpler pods: ties.
        nodes: how many nodes the cluster has.
    """

    def __init__(self, seed: int, nodes: int) -> None:
        self.seed, self.size, self.rng = seed, nodes, random.Random(seed)
        self.zones = self.rng.choice((2, 3, 5))
        self.alike = seed % 2 == 0

    def chance(self, share: float) -> bool:
        """True as often as `share` says."""
        return self.rng.random() < share

    def some(self, values: Any, most: int) -> list[Any]:
        """One to `most` of the values, each at most once."""
        values = list(values)
        return self.rng.sample(values, self.rng.randint(1, min(most, len(values))))

    # Nodes ---------------------------------------------------------------------------------------------------------

    def nodes(self) -> list[Object]:
        """The nodes, in the order of their names."""
        return [self._node(i) for i in range(self.size)]

    def _node(self, number: int) -> Object:
        rng, name = self.rng, f"s{self.seed}-n{number:03}"
        labels = {HOSTNAME: name, POOL: rng.choice(("big", "small", "odd")), RANK: str(rng.randint(1, 20))}
        if self.chance(0.92):
            labels[ZONE] = f"z{rng.randrange(self.zones)}"
            labels[REGION] = f"r{int(labels[ZONE][1:]) // 2}"
        if self.chance(0.7):
            labels[RACK] = f"k{rng.randrange(6)}"
        if self.chance(0.05):
            del labels[HOSTNAME]
        amounts = {"cpu": "8", "memory": "16Gi", "pods": "40", "ephemeral-storage": "50Gi"}
        mixed = {
            "cpu": rng.choice(("2", "4", "3920m", "8", "15500m")),
            "memory": rng.choice(("4Gi", "8Gi", "16131824Ki", "32Gi", "6500M")),
            "pods": rng.choice(("110", "110", "8", "16")),
            "ephemeral-storage": rng.choice(("20Gi", "100Gi")),
        }
        if not self.alike:
            amounts = mixed
        if self.chance(0.3):
            amounts[GPU] = rng.choice(("1", "2", "4", "8"))
        if self.chance(0.15):
            amounts[FPGA] = rng.choice(("1", "2"))
        spec: Object = {"unschedulable": True} if self.chance(0.08) else {}
        if self.chance(0.35):
            spec["taints"] = [self._taint(key, value) for key, value in dict(self.some(TAINTS, 2)).items()]
        return {
            "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "spec": spec,
            "status": {"allocatable": amounts, "capacity": amounts, "images": self._images(), **_healthy(name)},
        }

    def _taint(self, key: str, value: str) -> Object:
        """A taint with any effect, most often one that only scores."""
        return {"key": key, "value": value, "effect": self.rng.choice(EFFECTS)}

    def _images(self) -> list[Object]:
        found = []
        for name, size in IMAGES.items():
            if self.chance(0.05 if self.alike else 0.3):
                tagged = name if ":" in name.rsplit("/")[-1] else f"{name}:latest"
                found.append({"names": [tagged], "sizeBytes": size + (1 << 20 if self.chance(0.1) else 0)})
        return found

    # Pods ----------------------------------------------------------------------------------------------------------

    def labels(self) -> dict[str, str]:
        """Labels of a pod that no controller owns."""
        return {key: self.rng.choice(values) for key, values in LABELS.items() if self.chance(0.75)}

    def pod(self, name: str, *, pod_level: bool) -> Object:
        """A pod of its own; `pod_level`: with resources for all its containers together."""
        labels = self.labels()
        metadata = {"name": name, "namespace": self.rng.choice(NAMESPACES), "labels": labels}
        spec = self.pod_spec(labels, rich=0.2 if self.alike else 0.5)
        if pod_level:
            spec |= {"containers": [self._container("only", most="400m")], "initContainers": []}
            spec["resources"] = {"requests": {"cpu": "1500m", "memory": "5500Mi"}}
        return {"metadata": metadata, "spec": spec}

    def pod_spec(self, labels: dict[str, str], rich: float) -> Object:
        """What a pod runs and where; `rich` is how often it has each kind of constraint, relative to 1."""
        rng = self.rng
        containers = [self._container(f"c{i}") for i in range(rng.choice((1, 1, 1, 2, 3)))]
        spec: Object = {
            "schedulerName": SCHEDULER,
            "terminationGracePeriodSeconds": 0,
            "containers": containers,
            "initContainers": [self._init(f"i{i}") for i in range(rng.choice((0, 0, 0, 1, 2)))],
            "affinity": self._affinity(labels, rich),
            "tolerations": [self._toleration() for _ in range(rng.choice((0, 0, 1, 2)))],
        }
        if self.chance(0.15):
            containers[0]["resources"] = {"limits": {GPU: rng.choice(("1", "1", "2", "4"))}}
        elif self.chance(0.05):
            containers[0]["resources"] = {"limits": {FPGA: "1"}}
        if self.chance(0.1):
            spec["runtimeClassName"] = "parity"
        if self.chance(0.2):
            spec["priorityClassName"] = f"parity-{rng.choice((10, 1000))}"
        if self.chance(0.3 * rich):
            spec["nodeSelector"] = dict([rng.choice(((POOL, "big"), (POOL, "small"), (ZONE, "z0"), (RACK, "k1")))])
        if self.chance(0.25 * rich):
            spec["containers"][0]["ports"] = [self._port(port) for port in self.some((8000, 8001, 8002), 2)]
        if self.chance(rich):
            spec["topologySpreadConstraints"] = self._spread(labels)
        return spec

    def _container(self, name: str, most: str = "") -> Object:
        rng, requests = self.rng, {}
        if self.chance(0.7):
            requests["cpu"] = most or rng.choice(("50m", "100m", "250m", "0.3", "1", "1500m", "5m", "3600m"))
        if self.chance(0.65):
            requests["memory"] = rng.choice(("64Mi", "100M", "333Mi", "1Gi", "1500Mi", "2500k", "5Gi"))
        if self.chance(0.1):
            requests["ephemeral-storage"] = rng.choice(("1Gi", "9Gi"))
        kind = "limits" if self.chance(0.2) and not most else "requests"
        return {"name": name, "image": self._image(), "resources": {kind: requests} if requests else {}}

    def _init(self, name: str) -> Object:
        container = self._container(name)
        return {**container, "restartPolicy": "Always"} if self.chance(0.5) else container

    def _image(self) -> str:
        return self.rng.choice((*IMAGES, *IMAGES, "registry.example/nowhere:9"))

    def _port(self, port: int) -> Object:
        found: Object = {"containerPort": port, "hostPort": port, "protocol": self.rng.choice(("TCP", "TCP", "UDP"))}
        return {**found, "hostIP": self.rng.choice(("127.0.0.1", "10.0.0.1"))} if self.chance(0.3) else found

    def _toleration(self) -> Object:
        key, value = self.rng.choice(TAINTS)
        effect = self.rng.choice(("", *EFFECTS))
        found: Object = {"key": key, "operator": "Equal", "value": value, "effect": effect}
        if self.chance(0.4):
            found = {"key": key, "operator": "Exists", "effect": effect}
        elif self.chance(0.1):
            found = {"operator": "Exists", "effect": effect}
        elif self.chance(0.15):
            found = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
        return found

    # Selectors -----------------------------------------------------------------------------------------------------

    def _selector(self, labels: dict[str, str]) -> Object:
        """A label selector, which the pod's own labels often match."""
        rng = self.rng
        key = rng.choice(list(LABELS))
        value = labels.get(key, rng.choice(LABELS[key])) if self.chance(0.6) else rng.choice(LABELS[key])
        if self.chance(0.6):
            return {"matchLabels": {key: value}}
        if self.chance(0.1):
            return {}
        operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        expression: Object = {"key": key, "operator": operator}
        if operator in ("In", "NotIn"):
            expression["values"] = sorted({value, rng.choice(LABELS[key])})
        return {"matchExpressions": [expression]}

    def _node_term(self) -> Object:
        """A term of a node selector."""
        rng = self.rng
        expressions: list[Object] = []
        if self.chance(0.6):
            key, there = rng.choice(((POOL, ("big", "small", "odd")), (ZONE, ("z0", "z1", "z2")), (RACK, ("k1", "k2"))))
            expressions.append({"key": key, "operator": rng.choice(("In", "NotIn")), "values": self.some(there, 2)})
        if self.chance(0.3):
            expressions.append({"key": rng.choice((RACK, ZONE)), "operator": rng.choice(("Exists", "DoesNotExist"))})
        if self.chance(0.3):
            values = [str(rng.randint(3, 17))]
            expressions.append({"key": RANK, "operator": rng.choice(("Gt", "Lt")), "values": values})
        if expressions and self.chance(0.85):
            return {"matchExpressions": expressions}
        operator = rng.choice(("In", "In", "NotIn"))
        name = f"s{self.seed}-n{rng.randrange(self.size):03}"
        return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}

    def _affinity(self, labels: dict[str, str], rich: float) -> Object:
        rng = self.rng
        node: Object = {}
        near: Object = {}
        far: Object = {}
        if self.chance(0.35 * rich):
            terms = [self._node_term() for _ in range(rng.choice((1, 1, 2)))]
            if self.chance(0.05):  # terms that contradict themselves
                fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("one", "other")]
                terms = [{"matchFields": fields}]
            node[REQUIRED] = {"nodeSelectorTerms": terms}
        if self.chance(0.5 * rich):
            weighted = [
                {"weight": rng.randint(1, 100), "preference": self._node_term()} for _ in range(rng.randint(1, 3))
            ]
            node[PREFERRED] = weighted
        for kind, share, of in (
            (REQUIRED, 0.2, near),
            (REQUIRED, 0.2, far),
            (PREFERRED, 0.4, near),
            (PREFERRED, 0.4, far),
        ):
            if self.chance(share * rich):
                terms = [self._pod_term(labels, far=of is far) for _ in range(rng.choice((1, 1, 2)))]
                of[kind] = (
                    terms
                    if kind == REQUIRED
                    else [{"weight": rng.randint(1, 100), "podAffinityTerm": term} for term in terms]
                )
        found = {"nodeAffinity": node, "podAffinity": near, "podAntiAffinity": far}
        return {key: value for key, value in found.items() if value}

    def _pod_term(self, labels: dict[str, str], *, far: bool) -> Object:
        rng = self.rng
        # Pods that keep away from whole zones would soon refuse each other everywhere.
        term: Object = {"topologyKey": rng.choice((HOSTNAME, RACK)) if far else rng.choice(KEYS)}
        if self.chance(0.95):
            term["labelSelector"] = self._selector(labels)
            if self.chance(0.15):
                free = sorted(set(LABELS) - _keys_of(term["labelSelector"]))
                if free:
                    term[rng.choice(("matchLabelKeys", "mismatchLabelKeys"))] = [rng.choice(free)]
        if self.chance(0.25):
            term["namespaces"] = self.some(NAMESPACES, 2)
        elif self.chance(0.15):
            term["namespaceSelector"] = {}
        return term

    def _spread(self, labels: dict[str, str]) -> list[Object]:
        rng = self.rng
        found = {}
        for _ in range(rng.choice((1, 1, 2))):
            hard = self.chance(0.45)
            each: Object = {
                "maxSkew": rng.choice((1, 1, 2, 5)),
                "topologyKey": rng.choice(KEYS),
                "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
            }
            if self.chance(0.95):
                each["labelSelector"] = self._selector(labels)
                free = sorted(set(labels) - _keys_of(each["labelSelector"]))
                if free and self.chance(0.2):
                    each["matchLabelKeys"] = [rng.choice(free)]
            if hard and self.chance(0.3):
                each["minDomains"] = rng.choice((1, 2, 4, 9))
            for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
                if self.chance(0.3):
                    each[policy] = rng.choice(("Honor", "Ignore"))
            found[each["topologyKey"], hard] = each
        return list(found.values())

    # What makes pods, and what selects them ------------------------------------------------------------------------

    def controller(self, name: str) -> tuple[str, Object]:
        """A collection and a controller for it, of no pods yet."""
        rng, namespace = self.rng, self.rng.choice(NAMESPACES)
        collection = rng.choice(("replicasets", "deployments", "statefulsets", "replicationcontrollers"))
        labels = {**self.labels(), "set": name}
        template = {"metadata": {"labels": labels}, "spec": self.pod_spec(labels, rich=0.12)}
        spec: Object = {"replicas": 0, "template": template, "selector": {"matchLabels": {"set": name}}}
        if collection == "replicationcontrollers":
            spec["selector"] = {"set": name}
        elif self.chance(0.3) and (others := sorted(set(labels) - {"set"})):
            # An expression of which more than the controller's own pods are examples.
            key = rng.choice(others)
            expressions = [
                {"key": "set", "operator": "In", "values": [name, "other"]},
                {"key": key, "operator": "Exists"},
            ]
            spec["selector"] = {"matchExpressions": expressions}
        if collection == "statefulsets":
            spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
        group = "/api/v1" if collection == "replicationcontrollers" else "/apis/apps/v1"
        return f"{group}/namespaces/{namespace}/{collection}", {"metadata": {"name": name}, "spec": spec}

    def service(self, name: str) -> tuple[str, Object]:
        """A collection and a Service for it that selects some of the pods that there may be."""
        keys = self.some(LABELS, 2)
        selector = {key: self.rng.choice(LABELS[key]) for key in keys}
        spec: Object = {"clusterIP": "None", "selector": selector, "ports": [{"port": 80}]}
        return f"/api/v1/namespaces/{self.rng.choice(NAMESPACES)}/services", {"metadata": {"name": name}, "spec": spec}


def _keys_of(selector: Object) -> set[str]:
    return {*selector.get("matchLabels", {}), *(each["key"] for each in selector.get("matchExpressions", ()))}


def _healthy(name: str) -> Object:
    """The rest of the status of a node that is ready from the start."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    good = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now, "reason": "Played"}
    return {
        "conditions": [{"type": kind, "status": status, **times} for kind, status in good.items()],
        "addresses": [{"type": "Hostname", "address": name}],
        "nodeInfo": {"operatingSystem": "linux", "architecture": "amd64", "kubeletVersion": "kwok"},
        "phase": "Running",
    }
