"""The comparison of kube-scheduler's decisions with steersman's, and what it found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.support.differential.clusters import Cluster
from tests.support.differential.configurations import CONFIGURATION
from tests.support.differential.devices import requests_devices
from tests.support.differential.explainer import Answer, Decision, Explainer
from tests.support.differential.nodes import Object
from tests.support.differential.sides import Decided, FileCluster, LiveCluster
from tests.support.kubernetes import minor

from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.cluster.objects.fields import field_use
from steersman.policies.kube_scheduler.configuration import profiles_of

IN_TREE = frozenset({"awsElasticBlockStore", "gcePersistentDisk"})
"""Volumes that a pod may have without a claim, and that count towards limits of CSI drivers."""


CLAIMS = frozenset(("spec.volumes[].persistentVolumeClaim", "spec.volumes[].ephemeral"))
"""Fields that files model where they have the claims and volumes."""


@dataclass
class Findings:
    """What was compared.

    Attributes:
        clusters, pods: how many.
        bound: pods that some node can take.
        refused: plugin of kube-scheduler -> refused nodes; all of them where it refuses the pod everywhere.
        scored: plugin -> pods for which its scores told nodes apart.
        unmodelled: what steersman says that it does not model -> pods; live alone, then from files.
    """

    clusters: int = 0
    pods: int = 0
    bound: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    scored: Counter[str] = field(default_factory=Counter)
    unmodelled: Counter[str] = field(default_factory=Counter)

    def count(self, decision: Decision, nodes: int) -> None:
        """Count what kube-scheduler decided about a pod of a cluster of so many nodes."""
        self.pods += 1
        self.bound += bool(decision.node)
        self.refused.update(each.plugin for each in decision.refused.values())
        if decision.everywhere is not None:
            self.refused[decision.everywhere.plugin] += nodes
        for plugin, scores in (decision.scores or {}).items():
            self.scored[plugin] += len(set(scores.values())) > 1


def differences(
    explainer: Explainer, cluster: Cluster, findings: Findings, configuration: Object | None = None
) -> list[str]:
    """Return how steersman decides otherwise than kube-scheduler in a cluster, one line for each difference.

    `configuration`: kube-scheduler's, of which the default profile decides; None: it has none.
    """
    profile = profiles_of(configuration or CONFIGURATION, minor())[DEFAULT_SCHEDULER]
    objects = [with_tolerations(each) if each["kind"] == "Pod" else each for each in cluster.objects]
    more = {} if configuration is None else {"configuration": configuration}
    answer = explainer.ask(objects, [with_tolerations(each) for each in cluster.pods], admitted=True, **more)
    assert answer.pods is not None, answer.error
    stored = _stored(answer)
    nodes = [each["metadata"]["name"] for each in cluster.of_kind("Node")]
    live, files = LiveCluster(stored, profile), FileCluster(cluster, profile)
    keeping_away = _nominated_keep_others_away(cluster)
    findings.clusters += 1
    found = []
    for written, obj, decision in zip(cluster.pods, stored.pods, answer.pods, strict=True):
        findings.count(decision, len(nodes))
        decided = live.decide(obj)
        findings.unmodelled.update(f"live: {each}" for each in decided.unmodelled)
        gated = decision.gated is not None and decision.gated.plugin == "SchedulingGates"
        if decided.gated != gated:
            found.append(f"live, {obj['metadata']['name']}: gates: ours {decided.gated}, kube-scheduler's {gated}")
        elif keeping_away and decided.feasible < set(decision.feasible):
            findings.unmodelled["live: anti-affinity of nominated pods"] += 1
        elif not decided.unmodelled and not decided.gated:
            found += _compare("live", obj, decision, decided, nodes)
        if missing := _missing_from_files(written, cluster, files):
            findings.unmodelled[f"files: {missing}"] += 1
            if CLAIMS.issuperset(missing.split(", ")) and not (gated or files.is_gated(written)):
                # Limits of drivers and what other pods claim are not read, so that files refuse fewer nodes.
                alone = sorted(set(decision.feasible) - files.decide(written).feasible)
                found += [f"files, {obj['metadata']['name']}: volumes refuse {alone}"] if alone else []
        elif gated or files.is_gated(written):
            if not (gated and files.is_gated(written)):
                found.append(f"files, {obj['metadata']['name']}: gates: ours {not gated}, kube-scheduler's {gated}")
        else:
            found += _compare("files", obj, decision, files.decide(written), nodes)
    return found


def _nominated_keep_others_away(cluster: Cluster) -> bool:
    """Return whether a nominated pod has anti-affinity.

    kube-scheduler heeds it only for pods that inter-pod affinity says something of otherwise
    (docs/explanation/limits.md).
    """
    return any(
        "nominatedNodeName" in each.get("status", {}) and "podAntiAffinity" in each["spec"].get("affinity", {})
        for each in cluster.of_kind("Pod")
    )


def with_tolerations(pod: Object) -> Object:
    """Return a pod with what the admission plugin DefaultTolerationSeconds adds, as by default on every API server."""
    stated = pod["spec"].get("tolerations", [])
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if not any(each.get("key", "") in (key, "") and each.get("effect", "") in ("NoExecute", "") for each in stated)
    ]
    return {**pod, "spec": {**pod["spec"], "tolerations": [*stated, *added]}}


def _stored(answer: Answer) -> Cluster:
    assert answer.objects is not None
    assert answer.pods is not None
    return Cluster(answer.objects, [each.pod for each in answer.pods if each.pod is not None])


def _missing_from_files(pod: Object, cluster: Cluster, files: FileCluster) -> str:
    """Return the fields of a pod that a workload of files does not model, "" for none; it must say so.

    Nominated nodes are those of a scheduler at work, which a simulation is not told of. Limits of volumes are those of
    CSINodes, which it ignores.
    """
    if any("nominatedNodeName" in each.get("status", {}) for each in cluster.of_kind("Pod")):
        return "status.nominatedNodeName of others"
    if cluster.of_kind("CSINode") and any(IN_TREE & volume.keys() for volume in pod["spec"].get("volumes", ())):
        assert any("CSINode" in each for each in files.warnings), "nothing is said of CSINodes"
        return "limits of in-tree volumes"
    use = field_use(pod, "Pod")
    paths = (*use.unmodelled, *use.watched)
    for path in (each for each in paths if each not in CLAIMS):
        assert any(f"{path} is not modelled" in each for each in files.warnings), f"nothing is said of {path}"
    return ", ".join(paths)


def _compare(side: str, pod: Object, decision: Decision, decided: Decided, nodes: list[str]) -> list[str]:
    """Return the differences about one pod."""
    found = []
    if decided.feasible != set(decision.feasible):
        ours, theirs = (
            sorted(decided.feasible - set(decision.feasible)),
            sorted(set(decision.feasible) - decided.feasible),
        )
        found.append(f"feasible nodes: ours alone {ours}, kube-scheduler's alone {theirs}, who says {_said(decision)}")
    else:
        if not requests_devices(pod):  # kube-scheduler asks last whether a node has them, and says less
            found += _compare_reasons(decision, decided, nodes)
        if not pod["spec"].get("resources"):  # POD_LEVEL
            found += _compare_scores(decision, decided)
    return [f"{side}, {pod['metadata']['name']}: {each}" for each in found]


def _said(decision: Decision) -> str:
    if decision.everywhere is not None:
        return f"{decision.everywhere.plugin} everywhere: {decision.everywhere.reasons}"
    return str({name: (each.plugin, each.reasons) for name, each in decision.refused.items()})


def _compare_reasons(decision: Decision, decided: Decided, nodes: list[str]) -> list[str]:
    found: list[str] = []
    if decided.reasons is None:
        return found
    for name in nodes:
        verdict = decision.everywhere or decision.refused.get(name)
        theirs = sorted(verdict.reasons) if verdict is not None else []
        ours = sorted(decided.reasons.get(name, ()))
        if ours != theirs:
            found.append(f"reasons on {name}: ours {ours}, kube-scheduler's {theirs}")
    if not decided.feasible and decided.message != decision.message:
        found.append(f"message: ours {decided.message!r}, kube-scheduler's {decision.message!r}")
    return found


def _compare_scores(decision: Decision, decided: Decided) -> list[str]:
    found = []
    if len(decision.feasible) > 1:
        zero = dict.fromkeys(decision.feasible, 0)
        ours, theirs = decided.scores, decision.scores or {}
        found += [
            f"scores of {plugin}: ours {ours.get(plugin, zero)}, kube-scheduler's {theirs.get(plugin, zero)}"
            for plugin in sorted({*theirs, *ours})
            if ours.get(plugin, zero) != theirs.get(plugin, zero)
        ]
        if decided.total != (decision.total or {}):
            found.append(f"total scores: ours {decided.total}, kube-scheduler's {decision.total}")
    if decision.node and decision.node not in decided.top:
        found.append(f"choice: {decision.node} is not among our best, {sorted(decided.top)}")
    return found
