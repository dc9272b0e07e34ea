"""The table of fields and plugins against what the pinned minor of Kubernetes has (`plugin/internal/upstream`)."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from steersman.cluster.objects import pod_features
from steersman.cluster.objects.fields import CLASSES, READ, FieldUse, KubernetesTable, field_use, kubernetes_table
from steersman.live.local_cluster.control_plane.build import kubernetes_minors
from steersman.policies.kube_scheduler.profile import PLUGINS, WEIGHTS

ROOT = Path(__file__).parents[4]
UPSTREAM = json.loads((ROOT / "tests/data/kubernetes.json").read_text())


def differences(table: KubernetesTable, types: dict[str, dict[str, str]]) -> list[str]:
    """What the table lacks, has too much, or sees as another type."""
    found = []
    for kind, rules in table.fields.items():
        of_kind = types.get(kind, {})
        found += [f"{kind}.{name} is not in the table" for name in of_kind.keys() - rules.keys()]
        found += [f"{kind}.{name} is not in Kubernetes" for name in rules.keys() - of_kind.keys()]
        for name in of_kind.keys() & rules.keys():
            rule = rules[name]
            if rule.use == READ and rule.type != of_kind[name]:
                found.append(f"{kind}.{name} is of type {of_kind[name] or 'value'}")
            if rule.type and (rule.use != READ or rule.type not in table.fields):
                found.append(f"{kind}.{name}: fields of {rule.type} are not in the table")
    return sorted(found)


def test_every_field_of_pods_and_nodes_is_in_the_table() -> None:
    assert differences(kubernetes_table(), UPSTREAM["types"]) == []


def test_new_api_field_is_detected() -> None:
    table = kubernetes_table()
    for kind in table.fields:
        types = deepcopy(UPSTREAM["types"])
        types[kind]["somethingNew"] = ""
        assert differences(table, types) == [f"{kind}.somethingNew is not in the table"]


def test_every_default_plugin_of_kube_scheduler_is_in_the_table() -> None:
    plugins = {each["Name"]: each["Weight"] for each in UPSTREAM["plugins"]}
    assert list(kubernetes_table().plugins) == list(plugins)
    assert dict(zip(PLUGINS, WEIGHTS, strict=True)).items() <= plugins.items()
    scored = {name for name, use in kubernetes_table().plugins.items() if "score" in use}
    assert scored == set(PLUGINS)
    assert {name for name, weight in plugins.items() if weight} - scored == {"DynamicResources"}


def test_every_feature_that_nodes_declare_is_known() -> None:
    assert set(pod_features.DECLARED) == set(UPSTREAM["features"])


def test_table_matches_the_pinned_kubernetes_minor() -> None:
    for module in ("controlplane", "plugin"):
        newest, *_, oldest = kubernetes_minors(ROOT / module)
        assert (kubernetes_table().oldest, kubernetes_table().minor) == (oldest, newest)


def test_table_has_known_classes_and_unique_fields() -> None:
    import tomllib
    from importlib import resources

    content = tomllib.loads(resources.files("steersman.data").joinpath("kubernetes.toml").read_text("utf-8"))
    for uses in content["fields"].values():
        assert set(uses) <= set(CLASSES)
        names = [each.partition(":")[0] for fields in uses.values() for each in fields.split()]
        assert len(names) == len(set(names))


POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "managedFields": [{"fieldsV1": {"f:spec": {}}}]},
    "spec": {"containers": [{"name": "c", "env": [{"name": "A", "surprise": 1}], "securityContext": {"surprise": 1}}]},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        ("spec", {"resourceClaims": [{"name": "c"}]}, FieldUse(unmodelled=["spec.resourceClaims"])),
        ("spec", {"resourceClaims": [], "schedulingGroup": None}, FieldUse()),
        ("spec", {"schedulingGroup": {"podGroupName": "g"}}, FieldUse(unmodelled=["spec.schedulingGroup"])),
        (
            "spec",
            {"volumes": [{"azureDisk": {"diskName": "d"}}, {"azureDisk": {"diskName": "e"}}]},
            FieldUse(watched=["spec.volumes[].azureDisk"]),
        ),
        (
            "spec",
            {"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}, {"configMap": {"surprise": 1}}]},
            FieldUse(watched=["spec.volumes[].persistentVolumeClaim"]),
        ),
        ("spec", {"nodeSelecter": {"a": "b"}}, FieldUse(unknown=["spec.nodeSelecter"])),
        ("spec", {"tolerations": [{"key": "a", "until": 5}]}, FieldUse(unknown=["spec.tolerations[].until"])),
        ("metadata", {"zone": "a"}, FieldUse(unknown=["metadata.zone"])),
        ("spec", {"volumes": 5, "affinity": [1], "tolerations": "x"}, FieldUse()),  # refused elsewhere
    ],
)
def test_unmodelled_pod_fields_are_reported(place: str, value: dict[str, Any], expected: FieldUse) -> None:
    assert field_use(POD) == FieldUse()
    assert field_use({**POD, place: {**POD[place], **value}}) == expected


def test_unmodelled_node_fields_are_reported() -> None:
    node = {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "b", "scope": "c"}]}}
    assert field_use(node, "Node") == FieldUse(unknown=["spec.taints[].scope"])
