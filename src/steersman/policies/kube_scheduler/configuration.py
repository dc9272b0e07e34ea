"""Read a kube-scheduler's configuration as a policy: KubeSchedulerConfiguration, and what EKS and AKS have for it.

What would change decisions and cannot be computed is an error that names the plugin or the field. Source: Kubernetes
1.37.2, pkg/scheduler/apis/config (defaults and validation) and pkg/scheduler/framework/runtime (extension points).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from steersman.cluster.constraints.node import NODE_AFFINITY_PREFILTER
from steersman.cluster.model import ProfileRules
from steersman.cluster.objects.api import scheduling as api
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.cluster.objects.fields import FieldError, converted, indexed, kind_of, mapping, text
from steersman.core.errors import InputError, UsageError
from steersman.policies.kube_scheduler import arguments as read
from steersman.policies.kube_scheduler.arguments import API_VERSION
from steersman.policies.kube_scheduler.minors import NEWEST, rules_of
from steersman.policies.kube_scheduler.plugins import MODELLED_FILTERS, enabled_plugins
from steersman.policies.kube_scheduler.policy import KubeSchedulerPolicy
from steersman.policies.kube_scheduler.profile import (
    DEFAULT_CANDIDATES,
    MOST_FREE,
    PLUGINS,
    STORAGE,
    KubeProfile,
    ScoringStrategy,
    is_ignored,
)
from steersman.workloads.formats.yaml_documents import Document, parsed_documents, read_documents

KIND = "KubeSchedulerConfiguration"
AKS_KIND = "SchedulerConfiguration"
AKS_GROUP = "aks.azure.com"
EKS_FIELD, EKS_WRAPPER = "nodeResourcesFit", "kubeSchedulerConfig"
SUFFIXES = (".yaml", ".yml", ".json")
_MINOR = re.compile(r"(.+)@(\d+\.\d+)")


def split_minor(spec: str) -> tuple[str, str]:
    """Return the policy and the minor of Kubernetes of `POLICY@MINOR`; of any other text the minor is ""."""
    found = _MINOR.fullmatch(spec)
    return (found[1], found[2]) if found else (spec, "")


def is_configuration(spec: str) -> bool:
    """Return whether a policy is named like a file of a configuration, `FILE`, `FILE:PROFILE` or one with `@MINOR`."""
    file, _ = _file_and_profile(split_minor(spec)[0])
    return file.endswith(SUFFIXES)


def configured_policy(spec: str, minor: str = NEWEST) -> KubeSchedulerPolicy:
    """Return the policy of a file, `FILE` or `FILE:PROFILE`, as a minor of Kubernetes computes it.

    Raises:
        InputError: the file is no such configuration, or has what cannot be computed.
        UsageError: there is no such minor or profile, or there are several profiles and none is named.
    """
    file, name = _file_and_profile(spec)
    content, profiles = read_content(Path(file), minor)
    if not name and len(profiles) > 1:
        raise UsageError(f"{file} has the profiles {', '.join(profiles)}; choose one: {file}:{next(iter(profiles))}")
    name = name or next(iter(profiles))
    if name not in profiles:
        raise UsageError(f"{file} has no profile {name!r}; there are: {', '.join(profiles)}")
    stem = Path(file).name.removesuffix(Path(file).suffix)
    return KubeSchedulerPolicy(f"{stem}:{name}" if len(profiles) > 1 else stem, profiles[name], name, content)


def read_content(path: Path, minor: str = NEWEST) -> tuple[Mapping[str, Any], dict[str, KubeProfile]]:
    """Return the configuration of a file, alone or in an object of EKS or AKS or a ConfigMap, and its profiles.

    The profiles are those of `profiles_of`.

    Raises:
        InputError: the file has none, or has what cannot be computed.
    """
    for document in read_documents(path):
        found = _configuration_in(document)
        if found is not None:
            content, prefix = found
            try:
                return content, profiles_of(content, minor)
            except FieldError as error:
                raise document.error(f"{prefix}{error.field}", error.problem) from None
    raise InputError(path, "", "kind", f"holds no {KIND} ({API_VERSION})")


def profiles_of(content: Mapping[str, Any], minor: str = NEWEST) -> dict[str, KubeProfile]:
    """Return the profiles of a parsed KubeSchedulerConfiguration, by `schedulerName`.

    Raises:
        FieldError: it is invalid, or has what cannot be computed.
        UsageError: there is no such minor of Kubernetes.
    """
    rules = rules_of(minor)
    if content.get("apiVersion") != API_VERSION:
        raise FieldError("apiVersion", f"{content.get('apiVersion')!r} cannot be read; expected {API_VERSION}")
    configuration = converted(_with_whole_numbers(content), api.SchedulerConfiguration)
    if configuration.extenders:
        raise FieldError("extenders", "are other programs, whose decisions cannot be computed")
    profiles = configuration.profiles or [api.Profile()]
    result: dict[str, KubeProfile] = {}
    for stated, path in indexed(profiles, "profiles"):
        profile = stated or api.Profile()
        if profile.scheduler_name == "":
            raise FieldError(f"{path}.schedulerName", "is empty; leave it out or name the scheduler")
        if profile.scheduler_name is None and len(profiles) > 1:
            raise FieldError(f"{path}.schedulerName", "is missing; each of several profiles needs a name")
        name = profile.scheduler_name or DEFAULT_SCHEDULER
        if name in result:
            raise FieldError(f"{path}.schedulerName", f"{name!r} is the name of an earlier profile")
        percentage = profile.percentage_of_nodes_to_score
        if percentage is None:
            percentage = configuration.percentage_of_nodes_to_score
        result[name] = replace(_profile(profile, minor, path), percentage=percentage or 0).of_minor(rules)
    return result


def check_is_configuration(path: Path) -> None:
    """Check that a file holds a configuration, whether it can be computed or not. Raises InputError: it holds none."""
    for document in read_documents(path):
        content = document.content
        if isinstance(content, dict) and (content.get("kind") in (KIND, AKS_KIND) or EKS_FIELD in content):
            return
    raise InputError(path, "", "kind", f"holds no {KIND}")


def _with_whole_numbers(value: Any) -> Any:
    """Return parsed content in which 50.0 is 50, as for kube-scheduler."""
    if isinstance(value, dict):
        return {key: _with_whole_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _file_and_profile(spec: str) -> tuple[str, str]:
    file, colon, name = spec.rpartition(":")
    return (file, name) if colon and file.endswith(SUFFIXES) else (spec, "")


def _configuration_in(document: Document) -> tuple[Mapping[str, Any], str] | None:
    """Return the configuration of a document, and the path to its fields; None if there is none. Raises InputError."""
    content = document.content
    if not isinstance(content, dict):
        return None
    if content.get("kind") == KIND:
        return content, ""
    try:
        if content.get("kind") == AKS_KIND and str(content.get("apiVersion", "")).startswith(f"{AKS_GROUP}/"):
            return _parsed(text(mapping(content, "spec", ""), "rawConfig", "spec"), "spec.rawConfig"), "spec.rawConfig."
        if content.get("kind") == "ConfigMap" and isinstance(held := content.get("data"), dict):
            for key, value in held.items():
                if isinstance(value, str) and re.search(rf"^kind: *[\"']?{KIND}\b", value, re.M):
                    return _parsed(value, f"data[{key}]"), f"data[{key}]."
        for wrapper in ("cluster", EKS_WRAPPER):
            content = content[wrapper] if isinstance(content.get(wrapper), dict) else content
        if EKS_FIELD in content:
            fit = converted(content, api.ManagedConfiguration).node_resources_fit
            strategy = content[EKS_FIELD].get("scoringStrategy") if fit is not None else None
            args = {} if strategy is None else {"scoringStrategy": strategy}
            profile = {"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}
            return {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}, ""
    except FieldError as error:
        raise document.error(error.field, error.problem) from None
    return None


def _parsed(raw: str, path: str) -> Mapping[str, Any]:
    try:
        content = next((each.content for each in parsed_documents(path, raw)), None)
    except InputError as error:
        raise FieldError(path, f"{error.problem} ({error.where})") from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise FieldError(path, f"is not a {KIND}, but {kind_of(content)}")
    return content


def _profile(profile: api.Profile, minor: str, path: str) -> KubeProfile:
    plugins = profile.plugins or api.Plugins()
    weights, filters, preempts = enabled_plugins(plugins, minor, f"{path}.plugins")
    arguments = read.Arguments(profile.plugin_config, minor, f"{path}.pluginConfig")
    spread = arguments.of("PodTopologySpread", api.SpreadArgs, read.default_spread)
    affinity = arguments.of("InterPodAffinity", api.InterPodAffinityArgs, lambda args, _: args)
    added = arguments.of("NodeAffinity", api.NodeAffinityArgs, read.added_affinity)
    fit, ignored = arguments.of("NodeResourcesFit", api.FitArgs, arguments.fit) or (ScoringStrategy(), frozenset())
    balanced = arguments.of("NodeResourcesBalancedAllocation", api.BalancedArgs, read.balanced) or ("cpu", "memory")
    shape = arguments.of(STORAGE, api.VolumeBindingArgs, arguments.storage_shape) or MOST_FREE
    candidates = arguments.of("DefaultPreemption", api.DefaultPreemptionArgs, read.candidates) or DEFAULT_CANDIDATES
    arguments.check_others()
    for name in (*balanced, *(name for name, _ in fit.resources)):
        if is_ignored(name, ignored):
            raise FieldError(f"{path}.pluginConfig", f"{name} is ignored by NodeResourcesFit, and cannot be scored")
    hard_weight = 1 if affinity is None else affinity.hard_pod_affinity_weight
    disabled = (MODELLED_FILTERS | {NODE_AFFINITY_PREFILTER}) - filters
    required_nodes, preferred_nodes = added or (None, ())
    return KubeProfile(
        weights=tuple(weights.get(name, 0) for name in PLUGINS),
        scores=bool(weights),
        fit=fit,
        balanced=balanced,
        default_spread=spread,
        ignores_existing=bool(affinity is not None and affinity.ignore_preferred_terms_of_existing_pods),
        # A plugin that does not score has no preferences.
        storage_weight=weights.get(STORAGE, 0),
        storage_shape=shape,
        added_preferences=preferred_nodes if weights.get("NodeAffinity") else (),
        ignored=ignored,
        candidates=candidates if preempts else None,
        rules=ProfileRules(disabled, required_nodes, 1 if hard_weight is None else hard_weight),
    )
