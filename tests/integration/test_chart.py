"""The chart of `deploy/helm`: what it renders of values, which values it refuses, and that programs take the result."""

from __future__ import annotations

import asyncio
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from release.images import older_minors, scheduler_image
from tests.e2e.scheduler.test_manifests import RIGHTS
from tests.e2e.service.test_manifests import RIGHTS as READER_RIGHTS
from tests.support.chart.helm import ALL, CHART, TLS, find, helm, options, rights, template
from tests.support.pages import calls_of
from tests.unit.docs.test_features import parse

import steersman
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeCluster, KubeConfig, KubeUser
from steersman.kubernetes.watch import Reflector
from steersman.live import doctor
from steersman.live.dashboard.live.cluster import ClusterWatch
from steersman.live.runtime.http_server import ListenAddress, Probes, WebServer
from steersman.live.scheduler.metrics import MetricSources, SchedulerMetrics
from steersman.live.scheduler.process import LiveScheduler, SchedulerSettings
from steersman.live.service.config import ServiceConfig, Tls, read_config
from steersman.live.service.process import Service
from steersman.prometheus.configuration import read_configuration

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("go") is None, reason="Helm is built by Go"),
]

Objects = list[dict[str, Any]]
SPECIAL = {
    "affinity": {"nodeAffinity": {}},
    "nodeSelector": {"pool": "a"},
    "podAnnotations": {"note": "x"},
    "podLabels": {"team": "a"},
    "priorityClassName": "system-cluster-critical",
    "tolerations": [{"key": "k", "operator": "Exists"}],
}
"""Values that every component takes, and that its pods must have."""
WRONG = {
    "scheduler.replicas=3": "/scheduler",
    "schedulr.enabled=true": "",
    "scheduler.replicaCount=two": "/scheduler/replicaCount",
    "scheduler.replicaCount=-1": "/scheduler/replicaCount",
    "scheduler.enabled=maybe": "/scheduler/enabled",
    "scheduler.schedulerName=": "/scheduler/schedulerName",
    "scheduler.schedulerName=My_Name": "/scheduler/schedulerName",
    "scheduler.policy=fgd": "/scheduler/policy",
    "scheduler.policy.file.key=policy.pt": "/scheduler/policy/file/key",
    "scheduler.resources.limit.memory=1Gi": "/scheduler/resources",
    "scheduler.tolerations[0].effect=noSchedule": "/scheduler/tolerations/0/effect",
    "scheduler.networkPolicy.peers[0].cidr=10.0.0.0/8": "/scheduler/networkPolicy/peers/0",
    "image.digest=abc": "/image/digest",
    "image.pullPolicy=Sometimes": "/image/pullPolicy",
    "service.configuration.deadline=50": "/service/configuration",
    "service.configuration.deadlineMilliseconds=0": "/service/configuration/deadlineMilliseconds",
    "service.configuration.canary.share=0.1": "/service/configuration",
    "service.clusterIP=name": "/service/clusterIP",
    "plugin.mode=fast": "/plugin/mode",
    "plugin.timeout=50": "/plugin/timeout",
    "plugin.order=easy": "/plugin/order",
    "plugin.order=shortest@oracle": "/plugin/order",
    "plugin.order=shortest@ageing:2": "/plugin/order",
    "plugin.scoreService.endpoint=host:5000": "/plugin/scoreService/endpoint",
    "scheduler.policy=null": "/scheduler",
    "latencyProbe.targets[0]=users": "/latencyProbe/targets/0",
    "latencyProbe.serviceAccount.create=true": "/latencyProbe",
    "dashboard.replicaCount=2": "/dashboard",
    "admission.policies=true": "/admission",
    "scheduler.resources.limits.memory=4GB": "/scheduler/resources/limits/memory",
    "scheduler.extraEnv[0].nme=x,scheduler.extraEnv[0].name=y": "/scheduler/extraEnv/0",
    "scheduler.extraEnv[0].name=OMP_NUM_THREADS,scheduler.extraEnv[0].value=1": "/scheduler/extraEnv/0/value",
    "scheduler.extraVolumes[0].emptyDir.medium=Memory": "/scheduler/extraVolumes/0",
    "scheduler.extraVolumeMounts[0].name=x": "/scheduler/extraVolumeMounts/0",
    "scheduler.podLabels.a=x y": "/scheduler/podLabels/a",
    "scheduler.podLabels.a b=x": "/scheduler/podLabels",
    "scheduler.nodeSelector.pool=x y": "/scheduler/nodeSelector/pool",
    "scheduler.podDisruptionBudget.minAvailable=200%": "/scheduler/podDisruptionBudget/minAvailable",
    "scheduler.networkPolicy.peers[0].ipBlock.cidr=10.0.0.1": "/scheduler/networkPolicy/peers/0/ipBlock/cidr",
    "scheduler.networkPolicy.peers[0].podSelector.matchLabel.a=b": "/scheduler/networkPolicy/peers/0/podSelector",
    "image.repository=example.com/steersman:1.0": "/image/repository",
    "image.repository=example.com/Steersman": "/image/repository",
    "service.clusterIP=1.2.3": "/service/clusterIP",
    "plugin.timeout=0s": "/plugin/timeout",
    "plugin.timeout=1m": "/plugin/timeout",
    "plugin.gpuWeight=1500000": "/plugin/gpuWeight",
}
"""A value, and the place that its error names."""
CONTRADICTORY = {
    ("plugin.enabled=true",): "plugin.policy: mode native needs file.configMap, file.secret or name",
    ("plugin.enabled=true", "plugin.mode=service"): "plugin.scoreService.endpoint: is missing",
    ("plugin.enabled=true", "plugin.policy.name=best-fit", "plugin.schedulerName=steersman"): "plugin.schedulerName",
    ("scheduler.policy.file.configMap=a", "scheduler.policy.file.secret=b"): "scheduler.policy.file: give configMap or",
    ("telemetry.existingConfigMap=a", "telemetry.configuration.refreshSeconds=5"): "telemetry: give existingConfigMap",
    ("scheduler.serviceAccount.create=false",): "scheduler.serviceAccount.name: is missing; give the account's name",
    ("scheduler.podLabels.app\\.kubernetes\\.io/name=x",): "scheduler.podLabels: leave out app.kubernetes.io/name",
    ("plugin.enabled=true", "plugin.policy.name=fgd"): "plugin.policy: fgd needs file.configMap or file.secret",
    (*ALL, "plugin.scoreService.tokenSecret=a"): "plugin.scoreService: tokenSecret and caSecret need endpoint",
}


@pytest.fixture(scope="module")
def everything() -> Objects:
    return template(*ALL)


def pods(objects: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and pod of each workload, and of the test."""
    for each in objects:
        if each["kind"] == "Pod":
            yield each["metadata"]["name"], each
        elif "template" in each.get("spec", {}):
            yield each["metadata"]["name"], each["spec"]["template"]


def pod(objects: Objects, name: str) -> dict[str, Any]:
    return dict(pods(objects))[name]


def container(objects: Objects, name: str) -> dict[str, Any]:
    (found,) = pod(objects, name)["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize("settings", [(), ALL, TLS], ids=["default", "all", "tls"])
def test_lint_finds_nothing(tmp_path: Path, settings: tuple[str, ...]) -> None:
    done = helm("lint", "--strict", CHART, *options(settings, None, tmp_path), home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search("WARNING|ERROR", done.stdout), done.stdout


def test_default_values_render_the_scheduler_alone() -> None:
    objects = template()
    kinds = sorted(each["kind"] for each in objects)
    assert kinds == sorted(
        (
            *("ClusterRole", "ClusterRoleBinding", "Deployment", "NetworkPolicy", "Pod", "PodDisruptionBudget"),
            *("Role", "RoleBinding", "Service", "ServiceAccount"),
            *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
        )
    )
    assert {each["metadata"]["name"] for each in objects} == {
        "steersman",
        "steersman-test",
        "steersman-leads-steersman",
        "steersman-gpu-annotations",
    }


def test_order_run_times_and_predictions_are_values() -> None:
    given = ("scheduler.order=shortest", "scheduler.runTimes.existingClaim=mine", "scheduler.predictWaits=60")
    objects = template(*given)
    found = container(objects, "steersman")
    assert {"--order=shortest", "--run-times=/var/lib/steersman/run-times.json", "--predict-waits=60"} <= set(
        found["args"]
    )
    assert {"name": "run-times", "mountPath": "/var/lib/steersman"} in found["volumeMounts"]
    volumes = find(objects, "Deployment", "steersman")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "run-times", "persistentVolumeClaim": {"claimName": "mine"}} in volumes
    plain = " ".join(container(template(), "steersman")["args"])
    assert not re.search("--(order|run-times|predict-waits)", plain)


@pytest.mark.parametrize("settings", ["admission.gpuAnnotations=false", "admission.enabled=true"])
def test_policies_for_shared_gpus_are_chosen(settings: str) -> None:
    policies = {each["metadata"]["name"] for each in template(settings) if each["kind"] == "ValidatingAdmissionPolicy"}
    both = {"steersman-gpu-annotations", "steersman-gpu-mixing"}
    assert policies == (both if "enabled" in settings else set())


def test_objects_have_unique_names_and_the_standard_labels(everything: Objects) -> None:
    keys = [(each["kind"], each["metadata"]["name"]) for each in everything]
    assert sorted(keys) == sorted(set(keys))
    for each in everything:
        labels = each["metadata"]["labels"]
        assert labels["helm.sh/chart"] == f"steersman-{steersman.__version__}"
        assert labels["app.kubernetes.io/name"] == labels["app.kubernetes.io/instance"] == "steersman"
        assert labels["app.kubernetes.io/version"] == steersman.__version__
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/component"]


def test_selectors_select_the_pods_of_their_component_alone(everything: Objects) -> None:
    labels = {name: found["metadata"]["labels"] for name, found in pods(everything)}
    for each in everything:
        spec = each.get("spec", {})
        selector = spec.get("podSelector", spec.get("selector"))
        if not isinstance(selector, Mapping):
            continue
        wanted = selector.get("matchLabels", selector)
        assert [name for name, found in labels.items() if wanted.items() <= found.items()] == [each["metadata"]["name"]]


def test_pods_satisfy_restricted_pod_security(everything: Objects) -> None:
    assert len(dict(pods(everything))) == 6
    for name, found in pods(everything):
        security = found["spec"]["securityContext"]
        assert (security["runAsNonRoot"], security["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
        for each in (*found["spec"].get("initContainers", ()), *found["spec"]["containers"]):
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert set(each["resources"]["requests"]) == {"cpu", "memory"}
            assert set(each["resources"]["limits"]) == {"memory"}  # a limit of CPU would throttle decisions
        assert not [each for each in found["spec"].get("volumes", ()) if "hostPath" in each]


@pytest.mark.parametrize("name", ["steersman", "steersman-service", "steersman-plugin"])
def test_replicated_components_survive_disruptions(everything: Objects, name: str) -> None:
    assert find(everything, "Deployment", name)["spec"]["replicas"] == 2
    assert find(everything, "PodDisruptionBudget", name)["spec"]["minAvailable"] == 1
    spec = pod(everything, name)["spec"]
    (spread,) = spec["topologySpreadConstraints"]
    labels = pod(everything, name)["metadata"]["labels"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()
    (found,) = spec["containers"]
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(found)


def test_a_single_replica_has_no_budget() -> None:
    objects = template("scheduler.replicaCount=1")
    assert not [each for each in objects if each["kind"] == "PodDisruptionBudget"]


def test_roles_equal_what_tests_allow(everything: Objects) -> None:
    assert rights(everything, "steersman") == RIGHTS
    readers = {(*rule, ()) for rule in READER_RIGHTS}
    assert rights(everything, "steersman-service") == rights(everything, "steersman-dashboard") == readers
    lease = "coordination.k8s.io", "leases"
    assert rights(everything, "steersman-plugin") == {
        (*lease, ("create",), ()),
        (*lease, ("get", "update"), ("steersman-plugin",)),
    }
    named = template("scheduler.schedulerName=batch")
    assert rights(named, "steersman") ^ RIGHTS == {
        (*lease, ("get", "update"), ("batch",)),
        (*lease, ("get", "update"), ("steersman",)),
    }
    assert "--scheduler-name=batch" in container(named, "steersman")["args"]


@pytest.mark.parametrize(("command", "role"), [("schedule", "steersman"), ("serve", "steersman-service")])
def test_doctor_asks_about_the_rights_of_the_role(everything: Objects, command: str, role: str) -> None:
    leases = {"create leases", "get leases", "update leases"}
    asked = {f"{verb} {each}" for known in doctor.RIGHTS[command] for each in known.resources for verb in known.verbs}
    granted = {f"{verb} {resource}" for _, resource, verbs, _ in rights(everything, role) for verb in verbs}
    assert asked == granted - leases


def test_bindings_name_the_account_of_the_pods(everything: Objects) -> None:
    for each in everything:
        if each["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            (subject,) = each["subjects"]
            assert subject["namespace"] == "steersman"
            assert pod(everything, subject["name"])["spec"]["serviceAccountName"] == subject["name"]
            assert find(everything, "ServiceAccount", subject["name"])["automountServiceAccountToken"] is False


@pytest.mark.parametrize(("setting", "place"), WRONG.items(), ids=list(WRONG))
def test_a_wrong_value_is_refused_in_one_line(tmp_path: Path, setting: str, place: str) -> None:
    done = helm("template", "steersman", CHART, f"--set={setting}", home=tmp_path)
    assert done.returncode != 0
    (line,) = (each for each in done.stderr.splitlines() if each.startswith("- at "))
    assert line.startswith(f"- at '{place}':"), done.stderr


@pytest.mark.parametrize(("settings", "problem"), CONTRADICTORY.items(), ids=range(len(CONTRADICTORY)))
def test_contradictory_values_are_refused(tmp_path: Path, settings: tuple[str, ...], problem: str) -> None:
    done = helm("template", "steersman", CHART, *options(settings, None, tmp_path), home=tmp_path)
    assert done.returncode != 0
    assert problem in done.stderr, done.stderr


UNUSUAL: dict[str, Any] = {
    "image": {"repository": "registry.example:5000/a_b/c__d/e-f"},
    "scheduler": {
        "resources": {"requests": {"cpu": 1.5, "memory": "1e9"}, "limits": {"memory": 2147483648, "x/gpu": "1"}},
        "podLabels": {"example.com/team": "", "a": "B_c.d-1"},
        "podDisruptionBudget": {"minAvailable": "100%"},
        "extraEnv": [
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
            {"name": "B", "value": ""},
        ],
        "networkPolicy": {
            "peers": [
                {"podSelector": {}, "namespaceSelector": {"matchLabels": {"a": "b"}}},
                {"ipBlock": {"cidr": "2001:db8::/32", "except": ["2001:db8:1::/48"]}},
            ]
        },
    },
    "service": {"clusterIP": "2001:db8::7"},
    "plugin": {"timeout": "2.5ms", "weight": 100000},
}


def test_unusual_values_are_accepted() -> None:
    objects = template(*ALL, values=UNUSUAL)
    assert container(objects, "steersman")["image"].startswith("registry.example:5000/a_b/c__d/e-f:")
    for timeout in ("1ms", "50ms", "999ms", "5000ms", "0.5s", "1.25s", "5s"):
        assert plugin_arguments(template(*ALL, f"plugin.timeout={timeout}"))["timeout"] == timeout


def test_every_value_is_described_by_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def compare(described: dict[str, Any], given: Any, path: str) -> None:
        if "$ref" in described:
            described = schema["$defs"][described["$ref"].rpartition("/")[2]]
        if "properties" not in described or not given:
            return
        assert described["additionalProperties"] is False, path
        assert set(given) <= set(described["properties"]), path
        if path != ".service.configuration":
            assert set(described["properties"]) - set(given) <= {"global", "claims"}, path
        for name, value in given.items():
            compare(described["properties"][name], value, f"{path}.{name}")

    compare(schema, values, "")
    fields = schema["properties"]["service"]["properties"]["configuration"]["properties"]
    own = {"policy", "address", "port", "tokenFile", "tls", "telemetry"}  # which the chart gives
    assert set(fields) | own == {each.encode_name for each in msgspec.structs.fields(ServiceConfig)}


@pytest.mark.parametrize("component", ["scheduler", "service", "plugin", "latencyProbe", "dashboard"])
def test_common_values_reach_the_pods(component: str) -> None:
    given: dict[str, Any] = {component: SPECIAL, "imagePullSecrets": [{"name": "mine"}]}
    objects = template(*ALL, values=given)
    suffix = {"scheduler": "", "latencyProbe": "-latency-probe"}.get(component, f"-{component}")
    found = pod(objects, f"steersman{suffix}")
    assert found["metadata"]["labels"]["team"] == "a"
    assert found["metadata"]["annotations"]["note"] == "x"
    for name in ("affinity", "nodeSelector", "priorityClassName", "tolerations"):
        assert found["spec"][name] == SPECIAL[name]
    assert found["spec"]["imagePullSecrets"] == [{"name": "mine"}]


@pytest.mark.parametrize("minor", [*older_minors(), "1.37", "1.38"])
def test_plugin_is_built_for_the_minor_of_the_cluster(minor: str, tmp_path: Path) -> None:
    settings = [f"--set={each}" for each in ALL]
    done = helm("template", "steersman", CHART, *settings, f"--kube-version={minor}.1", home=tmp_path)
    assert done.returncode == 0, done.stderr
    image = container([each for each in yaml.safe_load_all(done.stdout) if each], "steersman-plugin")["image"]
    suffix = scheduler_image(minor).suffix if minor in older_minors() else ""
    assert image == f"steersman-kube-scheduler:{steersman.__version__}{suffix}"


def test_images_are_of_this_version_or_as_told(everything: Objects) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == steersman.__version__
    images = {each["image"] for _, found in pods(everything) for each in found["spec"]["containers"]}
    assert images == {f"{name}:{steersman.__version__}" for name in ("steersman", "steersman-kube-scheduler")}
    digest = f"sha256:{'a' * 64}"
    told = template("image.repository=example/steersman", f"image.digest={digest}")
    assert container(told, "steersman")["image"] == f"example/steersman@{digest}"


def checksum(objects: Objects, name: str) -> str:
    return str(pod(objects, name)["metadata"]["annotations"]["checksum/configuration"])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("steersman", "scheduler.policy.name=fgd"),
        ("steersman", "scheduler.policy.file.configMap=mine"),
        ("steersman", "telemetry.configuration.refreshSeconds=5"),
        ("steersman-service", "service.policy.name=fgd"),
        ("steersman-service", "service.configuration.shadow=true"),
        ("steersman-service", "telemetry.configuration.refreshSeconds=5"),
        ("steersman-plugin", "plugin.mode=service"),
        ("steersman-plugin", "plugin.gpuShare=false"),
        ("steersman-plugin", "plugin.order=shortest"),
        ("steersman-plugin", "plugin.policy.file.configMap=mine"),
    ],
)
def test_pods_are_replaced_when_policy_or_configuration_changes(everything: Objects, name: str, change: str) -> None:
    changed = template(*ALL, change)
    assert checksum(changed, name) != checksum(everything, name)
    kept = template(*ALL, "latencyProbe.targets[0]=a=b:1")
    assert checksum(kept, name) == checksum(everything, name)


@pytest.mark.parametrize("name", ["steersman", "steersman-service", "steersman-latency-probe", "steersman-dashboard"])
def test_arguments_are_those_of_the_program(everything: Objects, name: str) -> None:
    parse(tuple(each.replace("$(POD_IP)", "127.0.0.1") for each in container(everything, name)["args"]))


def test_ports_are_those_of_arguments_probes_and_services(everything: Objects) -> None:
    for name, port in (("steersman", 10269), ("steersman-latency-probe", 8100)):
        found = container(everything, name)
        assert f"--port={port}" in found["args"]
        assert found["ports"] == [{"name": "metrics", "containerPort": port}]
        (served,) = find(everything, "Service", name)["spec"]["ports"]
        assert (served["port"], served["targetPort"]) == (port, "metrics")


@pytest.mark.parametrize("kind", ["configMap", "secret"])
def test_policy_files_are_mounted_where_arguments_say(kind: str) -> None:
    settings = [f"{each}.policy.file.{kind}=mine" for each in ("scheduler", "service")]
    objects = template("service.enabled=true", *settings)
    file = "/etc/steersman-policy/policy.safetensors"
    assert f"--policy={file}" in container(objects, "steersman")["args"]
    text = find(objects, "ConfigMap", "steersman-service")["data"]["service.yaml"]
    assert yaml.safe_load(text)["policy"] == file
    for name in ("steersman", "steersman-service"):
        mounts = {each["name"]: each["mountPath"] for each in container(objects, name)["volumeMounts"]}
        assert mounts["policy"] == "/etc/steersman-policy"  # no subPath, with which a new content would not arrive
        (volume,) = (each for each in pod(objects, name)["spec"]["volumes"] if each["name"] == "policy")
        assert volume[kind]["name" if kind == "configMap" else "secretName"] == "mine"
        assert set(mounts) == {each["name"] for each in pod(objects, name)["spec"]["volumes"]}


def configuration(objects: Objects, folder: Path) -> ServiceConfig:
    file = folder / "service.yaml"
    file.write_text(find(objects, "ConfigMap", "steersman-service")["data"]["service.yaml"])
    return read_config(file)


def test_configurations_of_the_service_parse(everything: Objects, tmp_path: Path) -> None:
    plain = configuration(everything, tmp_path)
    assert plain.token_file == "/etc/steersman-secret/token"  # it is never deployed without one
    assert (plain.policy, plain.port, plain.deadline_milliseconds) == ("steersman", 5000, 50)
    (rule,) = find(everything, "NetworkPolicy", "steersman-service")["spec"]["ingress"]
    assert rule["ports"] == [{"port": "http"}]
    assert {"cidr": "0.0.0.0/0"} not in [each.get("ipBlock") for each in rule["from"]]
    secured = configuration(template(*TLS), tmp_path)
    assert secured.tls == Tls(certificate="/etc/steersman-secret/tls.crt", key="/etc/steersman-secret/tls.key")
    apart = template(*TLS, "service.tls.existingSecret=pair")
    assert configuration(apart, tmp_path).tls == Tls(
        certificate="/etc/steersman-tls/tls.crt", key="/etc/steersman-tls/tls.key"
    )
    probes = container(apart, "steersman-service")
    assert {probes[f"{each}Probe"]["httpGet"]["scheme"] for each in ("startup", "liveness", "readiness")} == {"HTTPS"}
    told = template("service.enabled=true", "service.configuration.maxBodyBytes=33554432")
    assert configuration(told, tmp_path).max_body_bytes == 33554432


def test_telemetry_is_read_by_scheduler_and_service(tmp_path: Path) -> None:
    example = yaml.safe_load((CHART.parents[1] / "prometheus" / "telemetry.yaml").read_text())
    objects = template("service.enabled=true", values={"telemetry": {"configuration": example}})
    file = tmp_path / "telemetry.yaml"
    file.write_text(find(objects, "ConfigMap", "steersman-telemetry")["data"]["telemetry.yaml"])
    read_configuration(file)
    path = "/etc/steersman-telemetry/telemetry.yaml"
    assert f"--telemetry={path}" in container(objects, "steersman")["args"]
    assert configuration(objects, tmp_path).telemetry == path
    existing = template("telemetry.existingConfigMap=mine", "telemetry.key=t.yaml")
    assert "--telemetry=/etc/steersman-telemetry/t.yaml" in container(existing, "steersman")["args"]
    assert not [each for each in existing if each["kind"] == "ConfigMap"]


def plugin_arguments(objects: Objects) -> dict[str, Any]:
    settings = yaml.safe_load(find(objects, "ConfigMap", "steersman-plugin")["data"]["kube-scheduler.yaml"])
    (profile,) = settings["profiles"]
    assert profile["schedulerName"] == settings["leaderElection"]["resourceName"]
    assert settings["leaderElection"]["resourceNamespace"] == "kube-system"
    (each,) = profile["pluginConfig"]
    return dict(each["args"])


def test_plugin_counts_as_in_the_cluster_s_own_kube_scheduler(everything: Objects) -> None:
    second = yaml.safe_load(find(everything, "ConfigMap", "steersman-plugin")["data"]["kube-scheduler.yaml"])
    own = yaml.safe_load((CHART.parents[1] / "kube-scheduler" / "native.yaml").read_text())
    assert second["profiles"][0]["plugins"] == own["profiles"][0]["plugins"]


@pytest.mark.parametrize(
    "order", ["age", "wfp3@stated", "shortest@ageing:1.5h@none", "/etc/orders/order.safetensors@history"]
)
def test_plugin_orders_the_queue_if_told_to(everything: Objects, order: str) -> None:
    profiles = []
    for objects in (everything, template(*ALL, f"plugin.order={order}")):
        settings = yaml.safe_load(find(objects, "ConfigMap", "steersman-plugin")["data"]["kube-scheduler.yaml"])
        profiles += settings["profiles"]
    default, ordered = profiles
    assert ordered["pluginConfig"] == [*default["pluginConfig"], {"name": "SteersmanOrder", "args": {"order": order}}]
    plugins = ordered["plugins"]
    assert plugins.pop("queueSort") == {"disabled": [{"name": "PrioritySort"}]}
    assert plugins["multiPoint"]["enabled"].pop() == {"name": "SteersmanOrder"}
    assert plugins == default["plugins"]


def test_plugin_asks_the_service_of_the_release(everything: Objects) -> None:
    native = plugin_arguments(everything)
    assert (native["mode"], native["policyFile"]) == ("native", "/etc/steersman-policy/policy.safetensors")
    assert "endpoint" not in native
    objects = template(*TLS)
    asking = plugin_arguments(objects)
    assert asking["endpoint"] == "https://steersman-service.steersman.svc:5000"
    mounts = [each["mountPath"] for each in container(objects, "steersman-plugin")["volumeMounts"]]
    for file in (asking["tokenFile"], asking["caFile"]):
        assert str(Path(file).parent) in mounts
    (token,) = (each for each in pod(objects, "steersman-plugin")["spec"]["volumes"] if each["name"] == "token")
    assert token["secret"]["secretName"] == "steersman-service"
    assert [each["key"] for each in token["secret"]["items"]] == ["token"]  # not the certificate's key
    (rule,) = find(objects, "NetworkPolicy", "steersman-service")["spec"]["ingress"]
    (own,) = (each["podSelector"] for each in rule["from"] if "podSelector" in each)
    assert "plugin" in own["matchExpressions"][0]["values"]


def test_no_secret_is_rendered() -> None:
    assert not [each for each in template(*TLS) if each["kind"] == "Secret"]


def test_objects_are_of_the_namespace_that_is_told() -> None:
    objects = template(*ALL, namespace="elsewhere")
    assert {each["metadata"].get("namespace", "") for each in objects} == {"", "kube-system"}
    assert {subject["namespace"] for each in objects for subject in each.get("subjects", ())} == {"elsewhere"}


def test_two_releases_share_no_name() -> None:
    def names(*given: str) -> set[tuple[str, str]]:
        return {(each["kind"], each["metadata"]["name"]) for each in template(*ALL, *given)}

    both = names() & names("fullnameOverride=batch")
    other = ("fullnameOverride=batch", "scheduler.schedulerName=batch", "plugin.schedulerName=batch-plugin")
    assert names().isdisjoint(names(*other))
    # Of two schedulers of one name Helm refuses the second, in whatever namespaces they are.
    leading = {"steersman-leads-steersman", "steersman-leads-steersman-plugin"}
    assert both == {(kind, name) for kind in ("Role", "RoleBinding") for name in leading}


def test_leases_of_all_releases_are_in_one_namespace() -> None:
    for given, namespace in (((), "kube-system"), (("leaseNamespace=mine",), "mine")):
        objects = template(*ALL, *given)
        assert f"--lease-namespace={namespace}" in container(objects, "steersman")["args"]
        roles = [each for each in objects if each["metadata"]["name"].startswith("steersman-leads-")]
        assert len(roles) == 4
        assert {each["metadata"]["namespace"] for each in roles} == {namespace}


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (
            ("scheduler.schedulerName=default-scheduler",),
            "scheduler.schedulerName: the cluster's kube-scheduler places",
        ),
        (("plugin.schedulerName=default-scheduler",), "plugin.schedulerName: the cluster's kube-scheduler places"),
        (("scheduler.extraArgs={--no-leader-elect}",), "scheduler.extraArgs: --no-leader-elect needs replicaCount 1"),
        (
            ("scheduler.extraArgs={--in-flight=8,--no-leader-elect}", "scheduler.replicaCount=3"),
            "scheduler.extraArgs: --no-leader-elect needs replicaCount 1",
        ),
    ],
)
def test_schedulers_that_would_overcommit_nodes_are_refused(
    values: tuple[str, ...], error: str, tmp_path: Path
) -> None:
    done = helm("template", "steersman", CHART, *options((*ALL, *values), None, tmp_path), home=tmp_path)
    assert done.returncode == 1
    assert error in done.stderr


def test_a_single_replica_may_do_without_leader_election() -> None:
    template("scheduler.extraArgs={--no-leader-elect}", "scheduler.replicaCount=1")


@pytest.mark.parametrize("release", ["my.release.v1", f"{'a' * 44}.b", f"{'a' * 40}-----b", "a" * 53, "123"])
def test_names_of_any_release_are_valid(release: str) -> None:
    objects = template(*TLS, release=release)
    for each in objects:
        metadata = each["metadata"]
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", metadata["name"])
        assert len(metadata["name"]) <= 63 or each["kind"].endswith("Binding")
        assert metadata["labels"]["app.kubernetes.io/instance"] == release


def texts(found: object, number: str) -> int:
    """Count values that are the text, and fail if there is one that is the number."""
    if isinstance(found, Mapping):
        return sum(texts(each, number) for each in found.values())
    if isinstance(found, list):
        return sum(texts(each, number) for each in found)
    assert str(found) != number or isinstance(found, str)
    return found == number


NUMBERED = {
    "fullnameOverride": 5,
    "scheduler.priorityClassName": 1,
    "scheduler.serviceAccount.name": 4,
    "dashboard.serviceAccount.name": 3,
    "scheduler.policy.file.configMap": 1,
    "service.policy.file.secret": 1,
    "telemetry.existingConfigMap": 2,
    "service.token.existingSecret": 2,
    "service.token.key": 2,
    "service.tls.existingSecret": 1,
    "plugin.scoreService.caSecret": 1,
    "plugin.scoreService.caKey": 2,
    "monitoring.serviceMonitors.tokenSecret.name": 1,
}
"""Values that may look like numbers, and in how many places they stand at least."""


@pytest.mark.parametrize("value", NUMBERED)
def test_a_name_that_looks_like_a_number_stays_a_text(value: str) -> None:
    given: dict[str, Any] = {"service": {"enabled": True, "tls": {"enabled": True}}, "dashboard": {"enabled": True}}
    given["plugin"] = {"enabled": True, "mode": "service", "scoreService": {"caSecret": "authority"}}
    given["monitoring"] = {"serviceMonitors": {"enabled": True}}
    place = given
    *folders, last = value.split(".")
    for each in folders:
        place = place.setdefault(each, {})
    place[last] = "123"
    objects = template(values=given, versions=["monitoring.coreos.com/v1"], namespace="7")
    assert sum(texts(each, "123") for each in objects) >= NUMBERED[value]
    assert sum(texts(each, "7") for each in objects) >= 4


CLIENT = Client(KubeConfig(Path("none"), "", KubeCluster("http://127.0.0.1:1"), KubeUser(), "default"))


def watched(reflectors: Iterable[Reflector]) -> set[tuple[str, str]]:
    """Return group and resource of what is watched."""
    groups = {each.path: each.path.split("/")[2] for each in reflectors}
    return {("" if groups[each.path] == "v1" else groups[each.path], each.resource) for each in reflectors}


def test_roles_cover_every_watched_resource(everything: Objects) -> None:
    scheduler = LiveScheduler(CLIENT, SchedulerSettings(policy="kube-default")).cache.reflectors
    service = Service(ServiceConfig(policy="kube-default"), CLIENT).watched
    assert service is not None
    dashboard = ClusterWatch(CLIENT).reflectors
    reflectors = {
        "steersman": scheduler,
        "steersman-service": service.cache.reflectors,
        "steersman-dashboard": dashboard,
    }
    for name, found in reflectors.items():
        may_watch = {rule[:2] for rule in rights(everything, name) if {"list", "watch"} <= set(rule[2])}
        assert watched(found) == may_watch, name
    few = LiveScheduler(CLIENT, SchedulerSettings(policy="fgd")).cache.reflectors
    volumes = {"persistentvolumeclaims", "persistentvolumes", "storageclasses"}
    claims = {"resourceclaims", "deviceclasses", "resourceslices"}
    volumes |= {"csinodes", "csidrivers", "csistoragecapacities"}
    assert {reflector.resource for reflector in few} == {"nodes", "pods", "namespaces"} | volumes | claims


def test_roles_have_no_wildcards_and_minimal_writes(everything: Objects) -> None:
    for name in ("steersman", "steersman-service", "steersman-plugin", "steersman-dashboard"):
        named = {each for group, resource, verbs, _ in rights(everything, name) for each in (group, resource, *verbs)}
        forbidden = {"*", "secrets", "configmaps", "delete", "deletecollection", "escalate", "bind", "impersonate"}
        assert not named & forbidden, name


def test_probes_use_served_paths(everything: Objects) -> None:
    found = container(everything, "steersman")
    paths = [found[f"{each}Probe"]["httpGet"]["path"] for each in ("startup", "liveness", "readiness")]

    async def statuses() -> list[int]:
        endpoints = WebServer(SchedulerMetrics(MetricSources()).registry, Probes(), ListenAddress())
        async with endpoints, aiohttp.ClientSession(f"http://127.0.0.1:{endpoints.port}") as session:
            return [(await session.get(path)).status for path in paths]

    assert asyncio.run(statuses()) == [200, 200, 200]


def test_pods_fit_the_image(everything: Objects) -> None:
    text = (CHART.parents[1] / "Containerfile").read_text().replace("\\\n", "")
    spec = pod(everything, "steersman")["spec"]
    security = spec["securityContext"]
    assert f"USER {security['runAsUser']}:{security['runAsGroup']}" in text


class Ready(http.server.BaseHTTPRequestHandler):
    """A server that is ready."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_request(self, *_: Any) -> None:
        """Say nothing."""


def test_program_of_the_test_pod_asks_every_server(everything: Objects) -> None:
    program, option, script, *urls = container(everything, "steersman-test")["command"]
    assert (program, option) == ("python", "-c")
    assert [re.sub(r"^https?://", "", each) for each in urls] == [
        "steersman.steersman.svc:10269/readyz",
        "steersman-service.steersman.svc:5000/readyz",
    ]
    with http.server.HTTPServer(("127.0.0.1", 0), Ready) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/readyz"
        done = subprocess.run([sys.executable, "-c", script, url], capture_output=True, text=True, check=False)
        server.shutdown()
        thread.join()
    assert (done.returncode, done.stdout) == (0, f"{url} 200\n"), done.stderr


def test_values_on_pages_are_accepted(tmp_path: Path) -> None:
    kept = ("--set", "--namespace")
    found = [words for _, words in calls_of("helm") if "deploy/helm/steersman" in words]
    assert len(found) >= 5
    for words in found:
        given = [word for i, word in enumerate(words) if i and (word in kept or words[i - 1] in kept)]
        operator = "--api-versions=monitoring.coreos.com/v1"
        done = helm("template", "steersman", CHART, operator, *given, home=tmp_path)
        assert done.returncode == 0, f"{words}\n{done.stderr}"
