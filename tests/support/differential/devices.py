"""Random DeviceClasses and ResourceSlices, and requests for their devices as extended resources.

Running pods request none: kube-scheduler knows theirs by ResourceClaims, which nothing makes here.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.differential.draws import Draws
from tests.support.differential.nodes import GPU, Object

GPUS, NICS = "gpu.example.com", "nic.example.com"
PREFIX = "deviceclass.resource.kubernetes.io/"
NAMES = (GPU, f"{PREFIX}{GPUS}", f"{PREFIX}{NICS}")
"""Resources that devices may be requested by."""
LARGE = f" && device.attributes['{GPUS}'].type == 'large'"


def devices(draws: Draws, nodes: Sequence[str]) -> list[Object]:
    """Return classes, and slices of some nodes."""
    gpus = f"device.driver == '{GPUS}'" + (LARGE if draws.chance(30) else "")
    objects = [
        _class(GPUS, gpus, **({"extendedResourceName": GPU} if draws.chance(70) else {})),
        _class(NICS, f"device.driver == '{NICS}'"),
    ]
    objects += [_slice(draws, node, driver) for node in nodes for driver in (GPUS, NICS) if draws.chance(60)]
    return objects


def requestable(objects: Sequence[Object]) -> tuple[str, ...]:
    """Return the names by which pods may request devices.

    Where a node offers `GPU` both by a device plugin and by DRA, its devices by the class's own name are not modelled
    (docs/explanation/limits.md).
    """
    plugged = {
        each["metadata"]["name"] for each in objects if each["kind"] == "Node" and GPU in each["status"]["allocatable"]
    }
    offering = {
        each["spec"]["nodeName"]
        for each in objects
        if each["kind"] == "ResourceSlice" and each["spec"]["driver"] == GPUS
    }
    return tuple(name for name in NAMES if name != f"{PREFIX}{GPUS}" or not plugged & offering)


def use_devices(draws: Draws, pod: Object, names: Sequence[str]) -> None:
    """Let a pod request devices by one of the names."""
    resources = pod["spec"]["containers"][0].setdefault("resources", {})
    name, amount = draws.choice(names), str(draws.number(1, 2))
    for key in ("requests", "limits"):
        resources[key] = {**resources.get(key, {}), name: amount}


def without_gpus(pod: Object) -> None:
    """Let a pod request no GPU."""
    for key in ("containers", "initContainers"):
        for container in pod["spec"].get(key, ()):
            for amounts in container.get("resources", {}).values():
                if isinstance(amounts, dict):
                    amounts.pop(GPU, None)


def requests_devices(pod: Object) -> bool:
    """Return whether a pod requests a resource that may be devices."""
    containers = (each for key in ("containers", "initContainers") for each in pod["spec"].get(key, ()))
    return any(name in NAMES for each in containers for name in each.get("resources", {}).get("limits", ()))


def _class(name: str, expression: str, **spec: object) -> Object:
    selectors = [{"cel": {"expression": expression}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }


def _slice(draws: Draws, node: str, driver: str) -> Object:
    """Return a slice of a node; some pools lack one of two."""
    made = [
        {"name": f"device-{i}", "attributes": {"type": {"string": draws.choice(("large", "small"))}}}
        for i in range(draws.number(0, 3))
    ]
    for device in made:
        if draws.chance(6):
            device["taints"] = [{"key": "example.com/broken", "effect": "NoSchedule"}]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2 if draws.chance(6) else 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}"},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": made},
    }
