"""`workload run --manifest`: copies come one after the other and go together, and nothing is left, however it ends."""

import asyncio
import csv
import dataclasses
from pathlib import Path

import pytest
import yaml
from tests.support.errors import error_of, raises
from tests.support.kubeconfig import UNREACHABLE
from tests.support.servers.fake_api_server import clock, failing
from tests.support.servers.live_cluster import CONFIG_MAPS, DEPLOYMENTS, PODS, LiveDouble, with_double

from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.kubernetes.client import Client
from steersman.live.load.copies import CopyLoop, CopyOptions, CopyStats, check_names, read_manifest
from steersman.live.load.driver import RowLog
from steersman.live.load.run_state import MANAGED_BY, RUN

NGINX = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: nginx, labels: {app: nginx, team: web}, uid: of-another}
spec:
  replicas: 2
  selector: {matchLabels: {app: nginx}}
  template:
    metadata:
      labels: {app: nginx, tier: front}
      annotations: {latencySoftConstraint: "35"}
    spec:
      schedulerName: mine
      containers:
      - {name: nginx, image: nginx, resources: {requests: {cpu: 250m, memory: 256Mi}, limits: {cpu: 500m}}}
"""
OPTIONS = CopyOptions(copies=3, interval=2.0, patience=5.0, pause=10.0, cycles=2)


def written(tmp_path: Path, text: str = NGINX) -> Path:
    file = tmp_path / "nginx.yaml"
    file.write_text(text)
    return file


def loop(client: Client, tmp_path: Path, options: CopyOptions = OPTIONS) -> CopyLoop:
    return CopyLoop(client, "default", read_manifest(written(tmp_path)), options, RowLog(tmp_path / "run.csv", ()))


def rows(tmp_path: Path) -> list[dict[str, str]]:
    with (tmp_path / "run.csv").open() as file:
        return list(csv.DictReader(file))


@with_double
async def test_all_cycles_run_and_leave_nothing(double: LiveDouble, client: Client, tmp_path):
    assert await loop(client, tmp_path).run() == CopyStats(cycles=2, deployments=6, pods=12)
    for path in (DEPLOYMENTS, PODS, CONFIG_MAPS):
        assert not double.named(path)
    assert clock() == pytest.approx(2 * (2 * 2.0 + 10.0), abs=1.0)
    found = rows(tmp_path)
    names = ["nginx-1", "nginx-2", "nginx-3"]
    assert [row["name"] for row in found] == names * 4
    assert [row["action"] for row in found] == (["add"] * 3 + ["delete"] * 3) * 2
    one = found[0]
    assert (one["pod_count"], one["cpu_request"], one["cpu_limit"]) == ("2", "250m", "500m")
    assert (one["mem_request"], one["mem_limit"]) == ("256Mi", "256Mi")


@with_double
async def test_a_copy_has_its_own_name_and_selects_its_own_pods(double: LiveDouble, client: Client, tmp_path) -> None:
    options = dataclasses.replace(
        OPTIONS, scheduler_name="steersman", annotations={"latencyHardConstraint": "100", "latencySoftConstraint": "20"}
    )
    made = loop(client, tmp_path, options)
    async with made.following():
        await made.create()
        found = double.named(DEPLOYMENTS)["nginx-2"]
        labels = found["spec"]["template"]["metadata"]["labels"]
        assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert (labels["app"], labels["tier"], found["metadata"]["labels"]["team"]) == ("nginx-2", "front", "web")
        assert found["metadata"]["uid"] != "of-another"
        assert labels[RUN] == made.run_id
        assert labels[MANAGED_BY] == "steersman"
        assert found["spec"]["template"]["metadata"]["annotations"] == options.annotations
        assert found["spec"]["template"]["spec"]["schedulerName"] == "steersman"
        assert await made.settle()
        assert made.tracker.bound == 6
        await made.delete()
        assert not double.named(DEPLOYMENTS)


def test_scheduler_defaults_to_the_manifest(tmp_path):
    (deployment,) = read_manifest(written(tmp_path))
    copied = deployment.render(1, "run", "", {})
    assert copied["spec"]["template"]["spec"]["schedulerName"] == "mine"
    assert deployment.content["metadata"]["name"] == "nginx"


@pytest.mark.parametrize(("seconds", "cycles"), [(1.0, 0), (3.0, 0), (8.0, 0), (15.0, 1)])
@with_double
async def test_stopped_cycle_deletes_its_objects_and_is_not_counted(
    double: LiveDouble, client: Client, tmp_path, seconds, cycles
) -> None:
    made = loop(client, tmp_path)
    task = asyncio.create_task(made.run())
    await asyncio.sleep(seconds)
    assert double.named(DEPLOYMENTS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert made.stats.cycles == cycles
    assert not double.named(DEPLOYMENTS)
    assert not double.named(PODS)


@with_double
async def test_waiting_for_unbound_pods_times_out(double: LiveDouble, client: Client, tmp_path) -> None:
    double.bind_after = None
    said: list[str] = []
    made = CopyLoop(client, "default", read_manifest(written(tmp_path)), OPTIONS, RowLog(None, ()), say=said.append)
    assert (await made.run()).timed_out_cycles == 2
    waiting = made.stats.pods // made.stats.cycles
    assert said == [
        f"{waiting} of {waiting} pods have no node after 5 s; does scheduler 'mine' run, and have the nodes room? "
        "The run goes on"
    ]
    assert clock() == pytest.approx(2 * (2 * 2.0 + 5.0 + 10.0), abs=1.0)


@with_double
async def test_foreign_deployment_is_left_alone(double: LiveDouble, client: Client, tmp_path) -> None:
    spec = {"replicas": 0, "template": {}}
    double.put(DEPLOYMENTS, {"metadata": {"name": "nginx-2", "labels": {}}, "spec": spec})
    with raises(SteersmanError, "nginx-2", "not of this run"):
        await loop(client, tmp_path).run()
    assert list(double.named(DEPLOYMENTS)) == ["nginx-2"]


@with_double
async def test_missing_namespace_is_reported(double: LiveDouble, client: Client, tmp_path) -> None:
    made = CopyLoop(client, "nowhere", read_manifest(written(tmp_path)), OPTIONS, RowLog(None, ()))
    double.fault = failing(404, DEPLOYMENTS.replace("default", "nowhere"))
    with raises(SteersmanError, "'nowhere'"):
        await made.run()


def changed(path: str, value: object) -> str:
    document = yaml.safe_load(NGINX)
    *parents, last = path.split(".")
    at = document
    for each in parents:
        at = at[each]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return yaml.safe_dump(document)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("- 1", "kind"),
        (changed("kind", "Service"), "kind"),
        (changed("apiVersion", "v1"), "kind"),
        (changed("metadata.name", None), "metadata.name"),
        (changed("metadata.labels", [1]), "metadata.labels"),
        (changed("spec.replicas", -1), "spec.replicas"),
        (changed("spec.replicas", "2"), "spec.replicas"),
        (changed("spec.selector", "app"), "spec.selector"),
        (changed("spec.template", None), "spec.template"),
        (changed("spec.template.spec", None), "spec.template.spec"),
        (changed("spec.template.metadata.annotations", "x"), "spec.template.metadata.annotations"),
        (changed("spec.template.spec.containers", [{"resources": {"requests": {"cpu": "x"}}}]), "containers"),
        (f"{NGINX}---{NGINX}", "metadata.name"),
        ("# nothing", "Deployment"),
    ],
)
def test_invalid_manifest_error_names_the_field(tmp_path, monkeypatch, text, field):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, text)
    with raises(InputError, "nginx.yaml", field):
        read_manifest(Path("nginx.yaml"))


def test_names_of_copies_are_checked_before_anything_is_created(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, changed("metadata.name", "n" * 62))
    file = Path("nginx.yaml")
    with raises(InputError, "n" * 62):
        check_names(read_manifest(file), 30, file)
    written(tmp_path, changed("metadata.name", "n" * 61))
    check_names(read_manifest(file), 9, file)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--copies", "3"), "--copies belongs to --manifest"),
        (("--pause", "3"), "--pause belongs to --manifest"),
        (("--cycles", "3"), "--cycles belongs to --manifest"),
        (("--manifest", "nginx.yaml", "--resume"), "--manifest and --resume exclude each other"),
        (("--manifest", "nginx.yaml", "--interval", "-1"), "--interval -1"),
        (("--annotation", "latencySoftConstraint"), "expected KEY=VALUE"),
        (("--annotation", "latencySoftConstraint=fast"), "not a number of milliseconds"),
        (("--annotation", "a=1", "--annotation", "a=2"), "given twice"),
        (("--annotation", "a b=1"), "expected KEY=VALUE"),
    ],
)
def test_invalid_options_are_reported_before_the_cluster_is_touched(tmp_path, monkeypatch, capsys, arguments, problem):
    monkeypatch.setenv("STEERSMAN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    (tmp_path / "kubeconfig").write_text(UNREACHABLE)
    error_of(capsys, 2, ["workload", "run", "--kubeconfig", "kubeconfig", "--yes", *arguments], problem)


def test_options_have_ranges():
    for bad in ({"copies": 0}, {"cycles": 0}, {"pause": -1.0}, {"patience": float("nan")}):
        with raises(UsageError):
            CopyOptions(**bad)
