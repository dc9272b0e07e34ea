"""Options that `steersman train` and `steersman tune` share."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from steersman.agents.registry import EVOLUTION
from steersman.cli.completing import algorithms, devices, networks, objectives, policies, views, workloads
from steersman.cli.options.algorithms import list_algorithms, list_networks
from steersman.cli.options.common import NODES_HELP, OBJECTIVES_HELP, AnyProtocol, FromNow, Pinned, path
from steersman.cli.options.generated import GeneratedCluster
from steersman.cli.options.inputs import ClusterContext, ClusterKubeconfig, FromCluster

WORKLOAD_HELP = (
    "the name of a packaged openb workload (default, gpushare40, ..., or default-small: 64 nodes of default), or with "
    "--nodes a file of pods"
)


class Normalisation(enum.StrEnum):
    """Normalisation of a network's layers."""

    NONE = "none"
    LAYER = "layer"
    BATCH = "batch"


_scene = partial(typer.Option, rich_help_panel="Environment")
_network = partial(typer.Option, rich_help_panel="Network")
_learning = partial(typer.Option, rich_help_panel="Learning in environments (all but evolution on workloads)")


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """Algorithm and objective."""

    algorithm: Annotated[
        str | None,
        typer.Option(metavar="NAME", autocompletion=algorithms, help=f"{list_algorithms()}. [default: {EVOLUTION}]"),
    ] = None
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=networks,
            help=f"Network that computes scores: {list_networks()}. [default: linear for evolution, else mlp]",
        ),
    ] = None
    protocol: Annotated[
        AnyProtocol | None,
        typer.Option(
            metavar="NAME",
            help="inflation: pods drawn from the trace until they request RATIO times the GPUs. arrivals: the "
            "pods in order, once; none leaves. timed: pods arrive, leave, and wait. deployments: random "
            "Deployments fill an empty cluster. latency: Deployments arrive and leave on a cluster with "
            "telemetry, whose users have latency limits. [default: inflation]",
        ),
    ] = None
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="OBJECTIVE",
            autocompletion=objectives,
            help=f"Rewarded objective: {OBJECTIVES_HELP}, or a weighted sum such as "
            f"allocation=1,fragmentation=0.5. [default: allocation for inflation and arrivals, waiting-time for "
            f"timed, balance for deployments, "
            "latency-aware for latency]",
        ),
    ] = None
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORKLOAD",
            autocompletion=workloads,
            help=f"inflation, arrivals, timed: workloads to train on, one or several: {WORKLOAD_HELP}.",
        ),
    ] = None
    validation: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORKLOAD",
            autocompletion=workloads,
            help="Workloads to choose the best policy by. [default: the training workloads, with other arrivals]",
        ),
    ] = None
    test: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            autocompletion=workloads,
            help="Workloads kept for a later test; recorded in the model card, never read.",
        ),
    ] = None
    nodes: Annotated[Path | None, typer.Option(parser=path, metavar="FILE", help=NODES_HELP)] = None
    cluster: FromCluster = False
    kubeconfig: ClusterKubeconfig = None
    context: ClusterContext = None
    pinned: Pinned = False
    from_now: FromNow = False
    options: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="Options by name as JSON, such as best.json of steersman tune; the command line overrides them.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Scenario(GeneratedCluster):
    """Protocol and environment. `None`: not given."""

    ratio: Annotated[float | None, _scene(help="inflation: requested GPUs as a share of all GPUs. [default: 1.3]")] = (
        None
    )
    load: Annotated[
        float | None,
        _scene(
            help="timed: requested share of the cluster, by pods that arrive at random [default: the times in the "
            "trace]; latency: requested share of the CPU [default: 0.6]"
        ),
    ] = None
    view: Annotated[
        str | None,
        _scene(
            metavar="VIEW",
            autocompletion=views,
            help="inflation, arrivals, timed: view that the policy observes: cluster (loads of any cluster; for "
            "every objective) or gpu (what is left of GPUs, and for which pods). [default: gpu for evolution, "
            "else cluster]",
        ),
    ] = None
    servers_per_rack: Annotated[
        int | None,
        _scene(
            min=0,
            help="Nodes per rack, in their order, if they have no label rack; 0: no racks. "
            "[default: 4 for deployments, else 0]",
        ),
    ] = None
    penalty: Annotated[float | None, _scene(help="Cost of an illegal action. [default: 1]")] = None
    cluster_resets: Annotated[
        int | None, _scene(min=1, help="deployments: number of fillings in an episode. [default: 1]")
    ] = None


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """The network. `None`: not given."""

    hidden: Annotated[
        str | None,
        _network(
            metavar="LIST",
            help="Widths of the hidden layers, such as 128,64. [default: 16 for evolution on workloads, else 64,64]",
        ),
    ] = None
    dropout: Annotated[
        float | None, _network(help="Share of hidden activations that training zeroes. [default: 0]")
    ] = None
    normalisation: Annotated[
        Normalisation | None, _network(help="Of the hidden layers: none, layer or batch. [default: none]")
    ] = None
    start: Annotated[
        Path | None,
        _network(
            parser=path,
            metavar="FILE",
            autocompletion=policies,
            help="Start with the weights of this policy file of the same view and network. Evolution on workloads "
            "also takes steersman, the packaged policy.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class LearningOptions:
    """Learning in environments. `None`: not given."""

    environments: Annotated[
        int | None, _learning(min=1, help="Environments that are stepped together. [default: 8]")
    ] = None
    device: Annotated[
        str | None,
        _learning(
            metavar="DEVICE",
            autocompletion=devices,
            help="cpu, cuda, cuda:1, mps, or auto: the best available. [default: cpu]",
        ),
    ] = None
    teacher: Annotated[
        str | None,
        _learning(
            metavar="RULE",
            autocompletion=policies,
            help="imitation, dqn: the rule to learn from, such as fgd or least-allocated. [default: the reference]",
        ),
    ] = None
    recording: Annotated[
        Path | None,
        _learning(
            parser=path,
            metavar="FILE",
            help="imitation, dqn: recorded transitions to learn from, or to fill the replay buffer with: .npz of "
            "workload record, or a sched_*.csv of AAML's scheduler.",
        ),
    ] = None
    reference: Annotated[
        str | None,
        _learning(
            metavar="RULE",
            autocompletion=policies,
            help="Rule that validation compares with. [default: the one that suits the objective]",
        ),
    ] = None
    validation_episodes: Annotated[
        int | None,
        _learning(min=1, help="Episodes of a validation, on each workload. [default: 3; 10 without workloads]"),
    ] = None
