"""KubeSchedulerConfigurations that are written: a profile as a change of a configuration, also for AKS and EKS."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.core.atomic_files import replacing
from steersman.policies.kube_scheduler.arguments import API_VERSION
from steersman.policies.kube_scheduler.configuration import AKS_GROUP, AKS_KIND, EKS_FIELD, KIND, profiles_of
from steersman.policies.kube_scheduler.minors import MINORS
from steersman.policies.kube_scheduler.policy import KubeSchedulerPolicy
from steersman.policies.kube_scheduler.profile import (
    DEFAULT_PROFILE,
    PLUGINS,
    REQUESTED_TO_CAPACITY,
    STRATEGIES,
    KubeProfile,
    ScoringStrategy,
)
from steersman.workloads.formats.yaml_documents import write_documents

EVERY = "*"


def configuration_of(
    profile: KubeProfile, scheduler_name: str = DEFAULT_SCHEDULER, base: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a KubeSchedulerConfiguration with the weights, strategy and resources of a profile.

    Args:
        base: a parsed configuration with a profile of that name, of which all else is kept; None: kube-scheduler's own.

    Raises:
        ValueError: the profile has settings that `base` does not have, and that are not written.
    """
    minor = next(name for name, rules in MINORS.items() if rules == profile.minor)
    result: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND} if base is None else deepcopy(dict(base))
    if not result.get("profiles"):
        result["profiles"] = [{"schedulerName": scheduler_name}]
    result["profiles"] = [each or {} for each in result["profiles"]]
    stated = next(each for each in result["profiles"] if each.get("schedulerName", DEFAULT_SCHEDULER) == scheduler_name)
    before = profiles_of(result, minor)[scheduler_name]
    if profile.percentage != before.percentage:
        stated["percentageOfNodesToScore"] = profile.percentage
    for name, weight, old in zip(PLUGINS, profile.weights, before.weights, strict=True):
        if weight != old:
            _set_weight(stated, name, weight)
    if profile.fit != before.fit:
        _arguments(stated, "NodeResourcesFit")["scoringStrategy"] = strategy_of(profile.fit)
    if profile.balanced != before.balanced:
        resources = [{"name": name, "weight": 1} for name in profile.balanced]
        _arguments(stated, "NodeResourcesBalancedAllocation")["resources"] = resources
    if profiles_of(result, minor)[scheduler_name] != profile:
        raise ValueError("only weights, the scoring strategy and resources can be written")
    return result


def _set_weight(stated: dict[str, Any], name: str, weight: int) -> None:
    plugins = stated["plugins"] = stated.get("plugins") or {}
    score = plugins["score"] = plugins.get("score") or {}
    enabled, disabled = (
        [entry for entry in score.pop(field, None) or [] if entry.get("name") != name]
        for field in ("enabled", "disabled")
    )
    if weight:
        enabled.append({"name": name, "weight": weight})
    elif not any(entry.get("name") == EVERY for entry in disabled):
        disabled.append({"name": name})
    score |= {"enabled": enabled} if enabled else {}
    score |= {"disabled": disabled} if disabled else {}


def _arguments(stated: dict[str, Any], plugin: str) -> dict[str, Any]:
    entries = stated["pluginConfig"] = stated.get("pluginConfig") or []
    for entry in entries:
        if entry.get("name") == plugin:
            break
    else:
        entry = {"name": plugin}
        entries.append(entry)
    arguments: dict[str, Any] = entry.get("args") or {}
    entry["args"] = arguments
    return arguments


def strategy_of(fit: ScoringStrategy) -> dict[str, Any]:
    """Return `scoringStrategy` of NodeResourcesFit; EKS takes the same."""
    resources = [{"name": name, "weight": weight} for name, weight in fit.resources]
    strategy: dict[str, Any] = {"type": STRATEGIES[fit.kind], "resources": resources}
    if fit.kind == REQUESTED_TO_CAPACITY:
        shape = [{"utilization": utilization, "score": score // 10} for utilization, score in fit.shape]
        strategy["requestedToCapacityRatio"] = {"shape": shape}
    return strategy


def managed_configurations(profile: KubeProfile, configuration: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the objects of AKS, and of EKS where it takes the profile, for a profile; by provider.

    `configuration`: that of `configuration_of`.
    """
    aks = {
        "apiVersion": f"{AKS_GROUP}/v1alpha1",
        "kind": AKS_KIND,
        "metadata": {"name": "upstream"},
        "spec": {"rawConfig": yaml.safe_dump(configuration, sort_keys=False)},
    }
    result = {"aks": aks}
    simplest = replace(DEFAULT_PROFILE, fit=profile.fit).of_minor(profile.minor)
    if profile == simplest and profile.fit.kind != REQUESTED_TO_CAPACITY:
        result["eks"] = {EKS_FIELD: {"scoringStrategy": strategy_of(profile.fit)}}
    return result


def configuration_files(output: Path) -> list[Path]:
    """Return the files of `write_configurations`: for a control plane of one's own, for AKS and for EKS."""
    return [output, output.with_suffix(".aks.yaml"), output.with_suffix(".eks.json")]


def write_configurations(output: Path, policy: KubeSchedulerPolicy) -> list[Path]:
    """Write the configuration of a policy, all files or none, and return them; without EKS's if it cannot say it."""
    configuration = configuration_of(policy.profile, policy.scheduler_name, policy.configuration)
    managed = managed_configurations(policy.profile, configuration)
    files = configuration_files(output)[: 3 if "eks" in managed else 2]
    # Each of them replaces its file when the last one has been written.
    with ExitStack() as stack:
        staged = [stack.enter_context(replacing(file)) for file in files]
        write_documents(staged[0], [configuration])
        write_documents(staged[1], [managed["aks"]])
        if "eks" in managed:
            staged[2].write_text(json.dumps(managed["eks"], indent=2) + "\n", encoding="utf-8")
    return files
