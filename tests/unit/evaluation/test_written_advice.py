"""An advice in words, and its folder, for each kind of way that a comparison may end in."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.errors import UsageError
from steersman.evaluation.advice import Setting
from steersman.evaluation.advising import EMPTY, NOW, ORDERED, WAITS, Ways
from steersman.evaluation.evaluation import evaluate_experiments
from steersman.evaluation.experiment import Experiment
from steersman.evaluation.results import ADVICE_FILES, EVALUATION_FILES, check_output, is_result
from steersman.evaluation.written_advice import advice_of, write_advice
from steersman.orders.order import AGE
from steersman.orders.registry import find_order
from steersman.policies.base import renamed
from steersman.policies.kinds import kube_scheduler
from steersman.policies.kube_scheduler.policy import STOCK_TUNED, KubeSchedulerPolicy
from steersman.policies.kube_scheduler.profile import (
    DEFAULT_PROFILE,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY,
    ScoringStrategy,
)
from steersman.policies.registry import resolve
from steersman.simulation.selection.choice import MemberChoice
from steersman.workloads.workload import Workload

SIMPLE = replace(DEFAULT_PROFILE, fit=ScoringStrategy(MOST_ALLOCATED, (("nvidia.com/gpu", 5),)))
SHAPED = replace(DEFAULT_PROFILE, fit=ScoringStrategy(REQUESTED_TO_CAPACITY, (("cpu", 1),), ((0, 0), (100, 100))))
SCHEDULERS = {"scheduler.yaml", "scheduler.aks.yaml"}
ALWAYS = {"README.md", "advice.json", "report.html"}
MARKED = {"README.md", "advice.json", "scheduler.yaml", "scheduler.aks.yaml", "kube-scheduler+json.yaml"}
MADE = datetime(2026, 11, 29, 12, tzinfo=UTC)
COMMAND = "steersman advise --nodes n.json --pods p.json"
NOISE = np.array([-0.2, 0.2] * 5)


@pytest.fixture(scope="module")
def workload() -> Workload:
    classes = [PodClass(Requests(1000, 1 << 30, gpu_count=count, gpu_milli=1000)) for count in (1, 4)]
    pods = [Pod(f"p{i}", classes[i % 2]) for i in range(6)]
    nodes = [Node(f"n{i}", 64_000, 1 << 38, gpu_count=4) for i in range(3)]
    return Workload("lab", (*nodes, Node("c", 64_000, 1 << 38, gpu_count=4, unschedulable=True)), tuple(pods))


def ways_of(workload: Workload, *, profile: object = SIMPLE, order: str = "", **gains: float) -> Ways:
    """A comparison in which ways gain so much more than kube-default, or waits are so much shorter."""
    members = {
        STOCK_TUNED: KubeSchedulerPolicy(STOCK_TUNED, profile),  # type: ignore[arg-type]
        "rules": resolve("fgd"),
        "steersman": resolve("greedy-forecast"),
    }
    policies = (KubeSchedulerPolicy(), *(renamed(each, name) for name, each in members.items()))  # type: ignore[type-var]
    experiment = Experiment((replace(workload, name="lab, empty"),), policies, (1, 2))
    comparisons = evaluate_experiments([experiment], baseline=policies[0]).comparisons
    names = ("kube-default", *members, ORDERED)
    allocated = {
        each: 70.0 + gains.get(each.replace("-", "_"), 0.0) + NOISE * (each != "kube-default") for each in names
    }
    allocated[ORDERED] = allocated[STOCK_TUNED if gains.get("stock_tuned", 0) > 0.5 else "kube-default"]
    settings = [Setting(EMPTY, "points of GPUs allocated", allocated)]
    if order:
        shorter = {each: NOISE + (gains["waits"] if each in (ORDERED, "rules", "steersman") else 0.0) for each in names}
        settings.append(Setting(WAITS, "% shorter waits", shorter))
    choices = {name: MemberChoice(policy, f"{name} because") for name, policy in members.items()}
    found = find_order(order) if order else AGE
    return Ways(workload, KubeSchedulerPolicy(), choices, comparisons, tuple(settings), found, ("nothing runs",))


def written(folder: Path, ways: Ways) -> tuple[str, set[str]]:
    advice = advice_of(ways, folder)
    names = write_advice(folder, ways, advice, COMMAND, MADE)
    assert names == sorted(each.name for each in folder.iterdir())
    assert all(is_result(folder / name) for name in names)
    return advice.text(100), set(names)


@pytest.mark.parametrize(
    ("profile", "files", "words"),
    [
        (SIMPLE, {"scheduler.eks.json"}, "kubeadm, AKS, EKS, OpenShift as a second scheduler; not GKE"),
        (SHAPED, set(), "kubeadm, AKS, OpenShift as a second scheduler; not EKS, GKE"),
    ],
)
def test_file_is_written_in_the_form_of_each_cluster_that_takes_it(
    tmp_path: Path, workload: Workload, profile: object, files: set[str], words: str
) -> None:
    text, names = written(tmp_path / "out", ways_of(workload, profile=profile, stock_tuned=3.0, rules=3.2))
    assert names == ALWAYS | SCHEDULERS | {"kube-scheduler+json.yaml"} | files
    assert text.splitlines()[0] == f"Change one file: kube-scheduler's configuration in {tmp_path}/out/scheduler.yaml"
    gain = "+3.0 points of GPUs allocated (2.8 to 3.2) on the empty cluster, as much as any way here"
    assert gain in " ".join(text.split())
    assert words in " ".join(text.split())
    assert "3 of 4 nodes counted with 12 of 16 GPUs: c is cordoned; requests, not use" in " ".join(text.split())
    for name in SCHEDULERS:
        policy = kube_scheduler(resolve(str(tmp_path / "out" / name)))
        assert policy is not None
        assert policy.profile == profile
        head = (tmp_path / "out" / name).read_text().partition("apiVersion")[0]
        assert "# found for: lab\n" in head
        assert f"# command: {COMMAND}\n# " in head + "# "
        assert "# date: 2026-11-29T12:00:00+00:00\n" in head
        assert "# gain: +3.0 points" in head
    page = (tmp_path / "out" / "README.md").read_text()
    assert all(f"**{each}**" in page for each in ("kubeadm", "AKS", "EKS", "GKE", "OpenShift"))
    assert ("aws eks update-cluster-config" in page) == bool(files)
    report = (tmp_path / "out" / "report.html").read_text()
    assert report.index("Change one file") < report.index("<table")
    record = json.loads((tmp_path / "out" / "advice.json").read_text())
    assert (record["way"], record["found_for"], record["command"]) == (STOCK_TUNED, "lab", COMMAND)
    assert record["settings"][0]["gains"][STOCK_TUNED]["mean"] == pytest.approx(3.0)


@pytest.mark.parametrize("configuration", [None, {"profiles": [{}]}])
def test_as_many_commands_are_announced_as_there_are(tmp_path: Path, workload: Workload, configuration: Any) -> None:
    ways = replace(ways_of(workload, stock_tuned=3.0), today=KubeSchedulerPolicy(configuration=configuration))
    text, names = written(tmp_path / "out", ways)
    page = (tmp_path / "out" / "README.md").read_text()
    install = page.partition("**kubeadm**")[2].partition("**AKS**")[0]
    assert f"{install.count('    sudo ')} commands, in {tmp_path}/out/README.md" in " ".join(text.split())
    assert f"go back  {1 if configuration is None else 2} command" in text
    assert ("kube-scheduler+json.yaml" in names) == (configuration is None)


def test_policy_is_written_with_the_profile_and_the_order(tmp_path: Path, workload: Workload) -> None:
    ways = ways_of(workload, order="shortest", waits=20.0, stock_tuned=1.0, rules=1.2, steersman=5.0)
    text, names = written(tmp_path / "out", ways)
    assert names == ALWAYS | {"advised.safetensors"}
    assert text.startswith("Run steersman's plugin or its scheduler with the policy in")
    policy = resolve(str(tmp_path / "out" / "advised.safetensors"))
    assert policy.prepared is not None
    assert policy.order.name.startswith("shortest")
    page = (tmp_path / "out" / "README.md").read_text()
    assert "helm upgrade --install" in page
    # `kubeadm init phase` would write the manifest without the cluster's own `extraArgs`.
    assert "kubeadm init" not in page
    assert "`sudo mv /etc/steersman/before.yaml /etc/kubernetes/manifests/kube-scheduler.yaml`" in page


@pytest.mark.parametrize("tuned", [0.0, 3.0])
def test_order_goes_with_the_chosen_configuration(tmp_path: Path, workload: Workload, tuned: float) -> None:
    ways = ways_of(workload, order="shortest", waits=20.0, stock_tuned=tuned, rules=tuned, steersman=tuned)
    text, names = written(tmp_path / "out", ways)
    assert names >= ALWAYS | SCHEDULERS
    assert text.startswith("Change who goes next: kube-scheduler with steersman's plugin, in the order shortest")
    profile = yaml.safe_load((tmp_path / "out" / "scheduler.yaml").read_text())["profiles"][0]
    assert profile["plugins"]["queueSort"]["disabled"] == [{"name": "PrioritySort"}]
    assert {"name": "SteersmanOrder", "args": {"order": "shortest"}} in profile["pluginConfig"]
    assert any(each["name"] == "NodeResourcesFit" for each in profile["pluginConfig"]) == bool(tuned)


def test_who_pays_is_told_of_every_cluster(tmp_path: Path, workload: Workload) -> None:
    """The cluster as it is now takes all of its pods; on the empty one, pods arrive until some are left over."""
    ways = ways_of(workload, stock_tuned=3.0)
    policies, comparisons = ways.comparisons[0].experiment.policies, []
    for title, ratio in ((NOW, 0.5), (EMPTY, 3.0)):
        experiment = Experiment((replace(workload, name=title),), policies, tuple(range(20)), ratio=ratio)
        comparisons += evaluate_experiments([experiment], baseline=policies[0]).comparisons
    settings = (replace(ways.settings[0], title=NOW), *ways.settings)
    ways = replace(ways, comparisons=tuple(comparisons), settings=settings)
    words = " ".join(written(tmp_path / "out", ways)[0].split())
    assert re.search(r"pays pods of one GPU: [\d.]+ -> [\d.]+ of \d+ fail on the empty cluster install", words), words


def test_waits_that_are_not_told_apart_are_said_to_be_so(tmp_path: Path, workload: Workload) -> None:
    ways = ways_of(workload, order="shortest", waits=0.05, stock_tuned=3.0)
    text, names = written(tmp_path / "out", ways)
    assert "kube-scheduler+json.yaml" in names
    words = " ".join(text.split())
    assert "for the pods that have times: not more than 0.5, or not shown pays" in words
    assert "today's configuration is taken to be kube-default" in words


def test_nothing_to_do_has_no_files_and_removes_those_of_an_earlier_advice(tmp_path: Path, workload: Workload) -> None:
    written(tmp_path / "out", ways_of(workload, stock_tuned=3.0))
    # Whatever the length of the advice, they say first by what they were made.
    for name in sorted(MARKED & {each.name for each in (tmp_path / "out").iterdir()}):
        assert b"steersman advise" in (tmp_path / "out" / name).read_bytes()[:64], name
    check_output(tmp_path / "out", ADVICE_FILES)
    text, names = written(tmp_path / "out", ways_of(workload, steersman=0.4))
    assert names == ALWAYS
    assert text.startswith("Change nothing: no way is shown to do better than kube-default")
    assert "install" not in text
    assert "steersman +0.4 points of GPUs allocated" in text


def test_other_commands_leave_an_advice_alone(tmp_path: Path, workload: Workload) -> None:
    written(tmp_path, ways_of(workload))
    with pytest.raises(UsageError, match=r"advice\.json of an earlier steersman advise|README"):
        check_output(tmp_path, EVALUATION_FILES)


def test_file_of_the_user_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "scheduler.yaml").write_text("kind: KubeSchedulerConfiguration\n")
    with pytest.raises(UsageError, match=r"scheduler\.yaml"):
        check_output(tmp_path, ADVICE_FILES)
