"""Extended resources that nodes offer by Dynamic Resource Allocation: devices of ResourceSlices, by DeviceClass.

A pod requests such devices like those of a device plugin, as `spec.extendedResourceName` of a DeviceClass or as
`deviceclass.resource.kubernetes.io/NAME`; only the former may be a plugin's. A node whose allocatable has none of the
resource offers as many as its slices have devices that the class selects. Devices that share counters, may be allocated
several times or wait for conditions, and selectors beyond `device_selectors`, are not modelled: the resource is left to
kube-scheduler then.

Source: Kubernetes 1.36.3, k8s.io/dynamic-resource-allocation (structured, deviceclass/extendedresourcecache) and
pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from steersman.cluster.model import GPU_MILLI, PLUGIN_GPUS, Node, Pod, Requests, gpu_model
from steersman.cluster.objects import device_selectors
from steersman.cluster.objects.api.claims import (
    IMPLICIT,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
    SliceDevice,
    SliceSpec,
)
from steersman.core.errors import SteersmanError
from steersman.core.quantities import MAX_NODE_GPUS, MAX_POD_GPUS

_SHARED = {
    "consumes_counters": "share counters",
    "allow_multiple_allocations": "may be allocated several times",
    "binding_conditions": "wait for conditions",
    "node_allocatable_resource_mappings": "take resources of their node",
}
"""Fields of devices that are not modelled, and what such devices do."""


class DeviceId(NamedTuple):
    """A device: what a claim's allocation names."""

    driver: str
    pool: str
    device: str


class DeviceClassError(SteersmanError):
    """Devices of a class are not modelled."""


@dataclass(slots=True)
class DeviceOffers:
    """Extended resources by Dynamic Resource Allocation."""

    # Resource name -> its DeviceClass; both names of a class that has two
    classes: dict[str, str] = field(default_factory=dict)
    # Name of a DeviceClass -> the resource name under which its devices count
    names: dict[str, str] = field(default_factory=dict)
    # Node -> resource name -> devices that are not allocated, in order
    devices: dict[str, dict[str, list[DeviceId]]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # resource name -> why its devices are not modelled

    def __bool__(self) -> bool:
        return bool(self.names)

    def node(self, node: Node) -> Node:
        """Return a node with what it offers by DRA, where it offers none of the resource otherwise."""
        for resource, devices in sorted(self.devices.get(node.name, {}).items()):
            if devices and resource not in (*node.gpu_resources, *dict(node.extended)):
                node = _offering(node, resource, len(devices))
                node = replace(node, features=(*node.features, f"{IMPLICIT}{self.classes[resource]}"))
        return node

    def pod(self, pod: Pod) -> Pod:
        """Return a pod that requests the devices of a class under the name by which nodes offer them."""
        renamed = self.renamed(pod.requests)
        if renamed is pod.requests:
            return pod
        by_class = sorted(
            name for name in {*dict(pod.requests.extended)} - {*dict(renamed.extended)} if name in self.classes
        )
        features = tuple(dict.fromkeys((*pod.constraints.node_features, *by_class)))
        constraints = replace(pod.constraints, node_features=features)
        return replace(pod, pod_class=replace(pod.pod_class, requests=renamed, constraints=constraints))

    def unmodelled(self, pod: Pod) -> tuple[str, ...]:
        """Return the resources that a pod of `pod` requests and that are not modelled, with the reason."""
        names = (pod.requests.gpu_resource, *dict(pod.requests.extended))
        return tuple(
            f"{name} of DeviceClass {self.classes[name]}, since {self.problems[name]}"
            for name in names
            if name in self.problems
        )

    def renamed(self, requests: Requests) -> Requests:
        """Return requests for the devices of classes under the names by which nodes offer them."""
        for name, amount in requests.extended:
            known = self.names.get(name.removeprefix(IMPLICIT), name) if name.startswith(IMPLICIT) else name
            if known == name:
                continue
            others = Counter({other: count for other, count in requests.extended if other != name})
            if known not in PLUGIN_GPUS:
                others[known] += amount
            elif requests.gpu_resource in ("", known) and requests.gpu_count + amount <= MAX_POD_GPUS:
                count = requests.gpu_count + amount
                requests = replace(requests, gpu_count=count, gpu_milli=GPU_MILLI, gpu_resource=known)
            else:
                continue  # GPUs of two kinds: no node offers the name
            requests = replace(requests, extended=tuple(sorted(others.items())))
        return requests


def _offering(node: Node, resource: str, count: int) -> Node:
    """Return a node that also offers so many of a resource: as devices with bits in the mask where it can have them."""
    if resource in PLUGIN_GPUS and not node.gpu_count and count <= MAX_NODE_GPUS:
        model = gpu_model(node.labels, (resource,))
        return replace(node, gpu_count=count, gpu_model=model, gpu_resources=(resource,))
    return replace(node, extended=tuple(sorted((*node.extended, (resource, count)))))


def device_offers(
    classes: Iterable[DeviceClass],
    slices: Iterable[ResourceSlice],
    claims: Iterable[ResourceClaim],
    nodes: Collection[str] | None = None,
    counted: Collection[str] = (),
) -> DeviceOffers:
    """Return what nodes of these names (None: any) offer by DRA.

    Devices that claims have allocated are not offered, except for those of `counted` resources, and of claims for
    requests: they count as those of pods.
    """
    offers = DeviceOffers()
    # Of several classes with one resource name the newest counts, then the first by name.
    known = sorted(classes, key=lambda each: each.metadata.name)
    known.sort(key=lambda each: each.metadata.creation_timestamp or "", reverse=True)
    for each in known:
        name, explicit = each.metadata.name, each.spec.extended_resource_name
        resource = explicit if explicit and explicit not in offers.classes else f"{IMPLICIT}{name}"
        offers.names[name] = resource
        offers.classes |= {resource: name, f"{IMPLICIT}{name}": name}
    if not offers:
        return offers
    held = (device for claim in claims if not claim.is_for_requests for device in claim.devices)
    allocated = frozenset(DeviceId(each.driver, each.pool, each.device) for each in held)
    pools = _pools(slices)
    for each in known:
        resource = offers.names[each.metadata.name]
        try:
            for node, device in _devices(each, pools, nodes):
                offered = offers.devices.setdefault(node, {}).setdefault(resource, [])
                if device not in allocated or resource in counted:
                    offered.append(device)
        except (DeviceClassError, device_selectors.SelectorError, device_selectors.EvaluationError) as error:
            offers.problems[resource] = str(error)
            for offered_here in offers.devices.values():
                offered_here.pop(resource, None)
    return offers


def _devices(
    device_class: DeviceClass, pools: Mapping[tuple[str, str], list[SliceSpec]], nodes: Collection[str] | None
) -> Iterator[tuple[str, DeviceId]]:
    """Yield the devices of a class with their nodes. Raises DeviceClassError, SelectorError or EvaluationError."""
    selectors = _selectors(device_class)
    for (driver, pool), specs in sorted(pools.items()):
        for spec in specs:
            for device in spec.devices or ():
                variables = device_selectors.device_variables(driver, device.attributes or {}, device.capacity or {})
                is_tainted = any(taint.effect in ("NoSchedule", "NoExecute") for taint in device.taints or ())
                if is_tainted or not all(evaluate(variables) is True for evaluate in selectors):
                    continue
                node = _node_of(spec, device)
                if nodes is None or node in nodes:
                    yield node, DeviceId(driver, pool, device.name)


def _selectors(device_class: DeviceClass) -> list[device_selectors.Evaluate]:
    result = []
    for each in device_class.spec.selectors or ():
        if each.cel is None:
            raise DeviceClassError("it selects by other means than CEL")
        result.append(device_selectors.compile_selector(each.cel.expression))
    return result


def _node_of(spec: SliceSpec, device: SliceDevice) -> str:
    """Return the node that can use a device. Raises DeviceClassError: such devices are not modelled."""
    for name, what in _SHARED.items():
        if getattr(device, name):
            raise DeviceClassError(f"its devices {what}")
    node = device.node_name if spec.per_device_node_selection else spec.node_name
    if not node:
        raise DeviceClassError("its devices serve several nodes")
    return node


def _pools(slices: Iterable[ResourceSlice]) -> dict[tuple[str, str], list[SliceSpec]]:
    """Return the slices of the newest generation of each pool by driver and name, where all of them are there."""
    pools: dict[tuple[str, str], list[SliceSpec]] = {}
    for each in slices:
        pools.setdefault((each.spec.driver, each.spec.pool.name), []).append(each.spec)
    result = {}
    for key, specs in pools.items():
        newest = max(spec.pool.generation for spec in specs)
        specs = [spec for spec in specs if spec.pool.generation == newest]
        names = [device.name for spec in specs for device in spec.devices or ()]
        if len(specs) == specs[0].pool.resource_slice_count and len(names) == len(set(names)):
            result[key] = specs
    return result
