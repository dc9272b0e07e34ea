"""Options that `steersman train` and `steersman tune` share."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

from steersman.agents.registry import EVOLUTION
from steersman.cli.completing import algorithms, devices, networks, objectives, orders, policies, views, workloads
from steersman.cli.options.algorithms import list_algorithms, list_networks
from steersman.cli.options.arrivals import LOAD_RANGE, ON_WORKLOADS, RATIO_RANGE, WITH_WORKLOADS, AnyProtocol
from steersman.cli.options.cluster import KubeconfigOptions
from steersman.cli.options.common import NODES_HELP, OBJECTIVES_HELP, ORDERS_HELP, advanced_path, path, path_option
from steersman.cli.options.declaring import AssumedValue, Excludes, RequiresProtocol, advanced, option
from steersman.cli.options.generated import OF_DEPLOYMENTS, GeneratedCluster
from steersman.cli.options.inputs import FromCluster, FromNow, Pinned
from steersman.core.config.fields import BELOW_1

WORKLOAD_HELP = (
    "the name of a packaged openb workload (default, gpushare40, ..., or default-small: 64 nodes of default), or with "
    "--nodes a file of pods"
)


class Normalisation(enum.StrEnum):
    """Normalisation of a network's layers."""

    NONE = "none"
    LAYER = "layer"
    BATCH = "batch"


_scene = partial(option, rich_help_panel="Environment")
_network = partial(option, rich_help_panel="Network")
_learning = partial(option, rich_help_panel="Learning in environments (all but evolution on workloads)")


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """Algorithm and objective."""

    algorithm: Annotated[
        str | None, option(f"{list_algorithms()}. [default: {EVOLUTION}]", metavar="NAME", autocompletion=algorithms)
    ] = None
    network: Annotated[
        str | None,
        option(
            f"Network that computes scores: {list_networks()}. [default: linear for evolution, else mlp]",
            metavar="NAME",
            autocompletion=networks,
        ),
    ] = None
    protocol: Annotated[
        AnyProtocol | None,
        option(
            "inflation, arrivals, timed, deployments or latency. inflation: pods drawn from the trace until they "
            "request RATIO times the GPUs. arrivals: the pods in order, once; none leaves. timed: pods arrive, leave, "
            "and wait. deployments: random Deployments fill an empty cluster. latency: Deployments arrive and leave on "
            "a cluster with telemetry, whose users have latency limits. [default: inflation]",
            metavar="NAME",
        ),
        AssumedValue(AnyProtocol.INFLATION),
    ] = None
    objective: Annotated[
        str | None,
        option(
            f"Rewarded objective. {OBJECTIVES_HELP}, or a weighted sum such as "
            f"allocation=1,fragmentation=0.5. With evolution allocation,max-kind-loss=2 bounds what any kind of pod "
            f"may lose against kube-default. [default: allocation for inflation and arrivals, waiting-time for "
            f"timed, balance for deployments, "
            "latency-aware for latency]",
            metavar="OBJECTIVE",
            autocompletion=objectives,
        ),
    ] = None
    workload: Annotated[
        list[str] | None,
        option(
            f"inflation, arrivals, timed: workloads to train on, one or several: {WORKLOAD_HELP}.",
            metavar="WORKLOAD",
            autocompletion=workloads,
        ),
        ON_WORKLOADS,
        Excludes("cluster"),
    ] = None
    validation: Annotated[
        list[str] | None,
        advanced(
            "Workloads to choose the best policy by. [default: the training workloads, with other arrivals]",
            metavar="WORKLOAD",
            autocompletion=workloads,
        ),
        ON_WORKLOADS,
    ] = None
    test: Annotated[
        list[str] | None,
        advanced(
            "Workloads kept for a later test; recorded in the model card, never read.",
            metavar="NAME",
            autocompletion=workloads,
        ),
    ] = None
    nodes: Annotated[Path | None, path_option(NODES_HELP), ON_WORKLOADS, Excludes("cluster")] = None
    cluster: FromCluster = False
    live: KubeconfigOptions = field(default_factory=KubeconfigOptions)
    pinned: Pinned = False
    from_now: FromNow = False
    options: Annotated[
        Path | None,
        advanced_path("Options by name as JSON, such as best.json of steersman tune; the command line overrides them."),
    ] = None


@dataclass(frozen=True, slots=True)
class Scenario(GeneratedCluster):
    """Protocol and environment. `None`: not given."""

    ratio: Annotated[
        float | None,
        _scene("inflation: requested GPUs as a share of all GPUs. [default: 1.3]"),
        RequiresProtocol("inflation"),
        RATIO_RANGE,
    ] = None
    load: Annotated[
        float | None,
        _scene(
            "timed: requested share of the cluster, by pods that arrive at random [default: the times in the "
            "trace]; latency: requested share of the CPU [default: 0.6]"
        ),
        RequiresProtocol("timed", "latency"),
        LOAD_RANGE,
    ] = None
    order: Annotated[
        str | None,
        _scene(
            f"timed: who goes next among pods that wait: {ORDERS_HELP} [default: age]",
            metavar="ORDER",
            autocompletion=orders,
        ),
        RequiresProtocol("timed"),
    ] = None
    view: Annotated[
        str | None,
        _scene(
            "inflation, arrivals, timed: view that the policy observes: cluster (loads of any cluster; for "
            "every objective) or gpu (what is left of GPUs, and for which pods). [default: gpu for evolution, "
            "else cluster]",
            metavar="VIEW",
            autocompletion=views,
        ),
        ON_WORKLOADS,
    ] = None
    servers_per_rack: Annotated[
        int | None,
        _scene(
            "Nodes per rack, in their order, if they have no label rack; 0: no racks. "
            "[default: 4 for deployments, else 0]",
            min=0,
        ),
        RequiresProtocol(*WITH_WORKLOADS, "deployments"),
    ] = None
    penalty: Annotated[float | None, _scene("Cost of an illegal action. [default: 1]")] = None
    cluster_resets: Annotated[
        int | None, _scene("deployments: number of fillings in an episode. [default: 1]", min=1), OF_DEPLOYMENTS
    ] = None


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """The network. `None`: not given."""

    hidden: Annotated[
        str | None,
        _network(
            "Widths of the hidden layers, such as 128,64. [default: 16 for evolution on workloads, else 64,64]",
            metavar="LIST",
        ),
    ] = None
    dropout: Annotated[
        float | None, _network("Share of hidden activations that training zeroes. [default: 0]"), BELOW_1
    ] = None
    normalisation: Annotated[
        Normalisation | None, _network("Of the hidden layers: none, layer or batch. [default: none]")
    ] = None
    start: Annotated[
        Path | None,
        _network(
            "Start with the weights of this policy file of the same view and network. Evolution on workloads "
            "also takes steersman, and starts with its first member, greedy-forecast.",
            parser=path,
            metavar="FILE",
            autocompletion=policies,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class LearningOptions:
    """Learning in environments. `None`: not given."""

    environments: Annotated[int | None, _learning("Environments that are stepped together. [default: 8]", min=1)] = None
    device: Annotated[
        str | None,
        _learning(
            "cpu, cuda, cuda:1, mps, or auto: the best available. [default: cpu]",
            metavar="DEVICE",
            autocompletion=devices,
        ),
    ] = None
    teacher: Annotated[
        str | None,
        _learning(
            "imitation, dqn: the rule to learn from, such as fgd or least-allocated. [default: the reference]",
            metavar="RULE",
            autocompletion=policies,
        ),
    ] = None
    recording: Annotated[
        Path | None,
        _learning(
            "imitation, dqn: recorded transitions to learn from, or to fill the replay buffer with: .npz of "
            "workload record, or a sched_*.csv of AAML's scheduler.",
            parser=path,
            metavar="FILE",
        ),
    ] = None
    reference: Annotated[
        str | None,
        _learning(
            "Rule that validation compares with. [default: the one that suits the objective]",
            metavar="RULE",
            autocompletion=policies,
        ),
    ] = None
    validation_episodes: Annotated[
        int | None, _learning("Episodes of a validation, on each workload. [default: 3; 10 without workloads]", min=1)
    ] = None
