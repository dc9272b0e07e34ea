"""simon's pair of files: `simon/v1alpha1 Config` (a cluster and an experiment) and a scheduler configuration.

`steersman simulate --cluster-config F --scheduler-config F` runs what `simon apply -f F -s F --extended-resources
gpu` ran.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from steersman.cluster.model import Pod
from steersman.cluster.objects.fields import (
    FieldError,
    Object,
    boolean,
    integer,
    items,
    join,
    mapping,
    required_text,
    text,
)
from steersman.compat.simon.scheduler_config import SchedulerConfig, read_scheduler_config
from steersman.core.errors import InputError
from steersman.workloads.experiments import ExperimentCluster, ExperimentFormat
from steersman.workloads.formats.yaml_documents import Document, read_documents
from steersman.workloads.loading import open_source
from steersman.workloads.workload import SpreadSelectors, Workload, workload_name

API_VERSION = "simon/v1alpha1"
KIND = "Config"
POPULARITY_PERCENT = 60  # simon's default
_NO_EFFECT = ("exportConfig", "newWorkloadConfig")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig(ExperimentCluster):
    """A cluster and what to do with its workload."""

    name: str
    folder: Path
    apps: tuple[Path, ...]

    def load(self) -> Workload:
        """Return the workload of the folder, which may hold nodes alone, and the apps. Raises InputError.

        Unless pods are shuffled they arrive in simon's order: by creation time if there is one, then by name.
        """
        cluster, *apps = [open_source(path) for path in (self.folder, *self.apps)]
        nodes = cluster.nodes()
        pods: list[Pod] = []
        warnings: list[str] = []
        for source in (cluster, *apps):
            if source is not cluster:
                source.refer_to(cluster)
            elif apps and not cluster.has_pods():
                warnings += cluster.warnings()
                continue
            found, expanded = source.expanded(nodes)
            pods += found
            warnings += source.warnings(expanded)
        names = [(pod.namespace, pod.name) for pod in pods]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(
                self.file, "", "spec.appList", f"pod {'/'.join(twice)} is there twice over cluster and apps"
            )
        if not self.shuffle_pods:
            pods.sort(key=lambda pod: (math.inf if pod.creation_time is None else pod.creation_time, pod.name))
        services = SpreadSelectors.union(source.services() for source in (cluster, *apps))
        return Workload(workload_name(self.folder), nodes, tuple(pods), services, tuple(warnings))


def read_pair(
    cluster_config: str | Path, scheduler_config: str | Path | None
) -> tuple[ClusterConfig, SchedulerConfig | None]:
    scheduler = None if scheduler_config is None else read_scheduler_config(scheduler_config)
    return read_cluster_config(cluster_config), scheduler


def read_cluster_config(path: str | Path) -> ClusterConfig:
    """Read a `simon/v1alpha1 Config`.

    Paths in it are resolved beside the file first, then in the current folder, as simon does.
    """
    path = Path(path)
    document = _document(path)
    try:
        return _decode(document, path.parent)
    except FieldError as error:
        raise document.error(error.field, error.problem) from None


def _document(path: Path) -> Document:
    for document in read_documents(path):
        content = document.content
        if isinstance(content, dict) and content.get("kind") == KIND and content.get("apiVersion") == API_VERSION:
            return document
    raise InputError(path, "", "apiVersion", f"holds no {KIND} of {API_VERSION}")


def _decode(document: Document, beside: Path) -> ClusterConfig:
    spec = mapping(document.content, "spec", "")
    cluster = mapping(spec, "cluster", "spec")
    if text(cluster, "kubeConfig", "spec.cluster"):
        problem = "a live cluster is not read here; write it to files first and give their folder as customConfig"
        raise FieldError("spec.cluster.kubeConfig", problem)
    folder = required_text(cluster, "customConfig", "spec.cluster")
    custom, path = mapping(spec, "customConfig", "spec"), "spec.customConfig"
    tuning, tuning_path = mapping(custom, "workloadTuningConfig", path), join(path, "workloadTuningConfig")
    typical, typical_path = mapping(custom, "typicalPodsConfig", path), join(path, "typicalPodsConfig")
    return ClusterConfig(
        file=document.file,
        name=text(mapping(document.content, "metadata", ""), "name", "metadata"),
        folder=_resolve(folder, beside, "spec.cluster.customConfig"),
        apps=tuple(_apps(spec, beside)),
        shuffle_pods=boolean(custom, "shufflePod", path),
        ratio=max(_number(tuning, "ratio", tuning_path), 0.0),  # simon: below 0 is none
        seed=integer(tuning, "seed", tuning_path, 0, (1 << 63) - 1, 0),
        cpu_pods_typical=boolean(typical, "isInvolvedCpuPods", typical_path),
        popularity_percent=integer(typical, "podPopularityThreshold", typical_path, 0, 100, 0) or POPULARITY_PERCENT,
        warnings=tuple(f"{document.file}: {line}" for line in _without_effect(custom, path)),
    )


def _apps(spec: Object, beside: Path) -> list[Path]:
    path = []
    for app, where in items(spec, "appList", "spec"):
        if boolean(app, "chart", where):
            problem = "Helm charts are not rendered here; run helm template and give its output as path"
            raise FieldError(join(where, "chart"), problem)
        path.append(_resolve(required_text(app, "path", where), beside, join(where, "path")))
    return path


def _resolve(stated: str, beside: Path, field: str) -> Path:
    candidates = list(dict.fromkeys((beside / stated, Path(stated))))
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise FieldError(field, f"{stated!r} is not there; looked for {' and '.join(map(str, candidates))}")


def _number(parent: Object, key: str, path: str) -> float:
    value = parent.get(key)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1000 <= value <= 1000:
        raise FieldError(join(path, key), f"{value!r} is not a ratio; expected a number such as 1.3")
    return float(value)


def _without_effect(custom: Object, path: str) -> list[str]:
    """Return settings of what simon does after the workload has been scheduled; they do not change the main run."""
    result = [key for key in _NO_EFFECT if _states(custom.get(key))]
    if text(mapping(custom, "descheduleConfig", path), "policy", join(path, "descheduleConfig")):
        result.append("descheduleConfig")
    inflation = join(path, "workloadInflationConfig")
    if _number(mapping(custom, "workloadInflationConfig", path), "ratio", inflation) > 1:
        result.append("workloadInflationConfig")
    return [f"{path}.{key} has no effect here" for key in result]


def _states(setting: object) -> bool:
    """Return whether a setting has a value: templates leave empty ones in."""
    return any(setting.values()) if isinstance(setting, dict) else bool(setting)


SIMON = ExperimentFormat("simon", read_pair)
