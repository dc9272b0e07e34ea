"""Compare decisions by many configurations: `python -m tests.support.differential.decisions`.

Pods arrive one after the other, each in the cluster that the ones before it left, as in a simulation. Compared are the
chosen node (`parallelism: 1`), the feasible nodes and the scores of each plugin. Exit status 1: something differs.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import structlog
from tests.support.differential.clusters import Cluster
from tests.support.differential.comparison import with_tolerations
from tests.support.differential.configurations import NAMED, configuration_of, ends_kube_scheduler
from tests.support.differential.draws import RandomDraws
from tests.support.differential.explainer import Decision, Explainer, explainer
from tests.support.differential.nodes import Object
from tests.support.differential.sequences import sequence
from tests.support.differential.sides import ALL_NODES, FileCluster
from tests.support.kube_decisions import KubeDecisions
from tests.support.kubernetes import VARIABLE, minor

from steersman.cluster.constraints.node import Mask, restricted_names
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.cluster.state import RunningPod
from steersman.policies.kube_scheduler.configuration import profiles_of
from steersman.policies.kube_scheduler.profile import KubeProfile

RANDOM = "random"
"""Name of the configurations that are drawn, one for each cluster."""
PODS_OF_A_CLUSTER = 120
COLUMNS = ("decisions", "bound", "tied", "sampled", "scored", "differ")


@dataclass
class Compared:
    """What was compared under one configuration.

    Attributes:
        counts: by `COLUMNS`: decisions; pods that some node took; of these those with several best nodes; decisions for
            which kube-scheduler did not look at all nodes; scores of plugins on nodes that were compared; decisions
            that differ.
        plugins: plugin -> decisions for which its scores told nodes apart.
        first: the first differences, one line each.
    """

    counts: Counter[str] = field(default_factory=Counter)
    plugins: Counter[str] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)


class Simulated:
    """A cluster of files, in which pods are placed where kube-scheduler puts them.

    Args:
        cluster: nodes, running pods and pods that arrive.
        profile: of kube-scheduler.
    """

    def __init__(self, cluster: Cluster, profile: KubeProfile) -> None:
        files = FileCluster(cluster, profile)
        self.state, services = files.state, files.workload.services
        self.numbers = {
            (pod.namespace, pod.name): (self.state.class_id(pod.pod_class), self.state.labels_id(pod))
            for pod in files.workload.pods
        }
        self.next = KubeDecisions(self.state, services, profile)
        self.whole = KubeDecisions(self.state, services, replace(profile, percentage=ALL_NODES, scores=True))

    def compare(self, pod: Object, decision: Decision, compared: Compared) -> list[str]:
        """Return the differences about a pod, and place it where kube-scheduler did."""
        ids = self.numbers[pod["metadata"]["namespace"], pod["metadata"]["name"]]
        mask, counts = self.state.mask(*ids), compared.counts
        names = {node.name: slot for slot, node in enumerate(self.state.nodes) if node is not None and mask[slot]}
        found_nodes = int((self.next.scores(*ids, mask) >= 0).sum())
        slot = self.next.choose(*ids, mask)
        node = self.state.nodes[slot].name if slot >= 0 else ""  # type: ignore[union-attr]
        found = []
        if node != decision.node and not self._by_chance(ids, mask, decision):
            found.append(f"node: ours {node!r}, kube-scheduler's {decision.node!r}")
        if names.keys() != set(decision.feasible):
            found.append(f"feasible: ours alone {sorted(names.keys() - set(decision.feasible))}, ")
            found[-1] += f"kube-scheduler's alone {sorted(set(decision.feasible) - names.keys())}"
        elif len(names) > 1:
            found += self._scores(ids, names, decision, compared)
        counts["decisions"] += 1
        counts["bound"] += bool(decision.node)
        counts["sampled"] += found_nodes < len(names)
        counts["differ"] += bool(found)
        if decision.node:
            key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            self.state.place_running([RunningPod(key, ids[0], self.state.slots[decision.node], 0, ids[1])])
        return found

    def _by_chance(self, ids: tuple[int, int], mask: Mask, decision: Decision) -> bool:
        """Return whether kube-scheduler drew among the best: nodes that a pod names come in the order of a Go map."""
        names = restricted_names(self.state.classes[ids[0]].constraints)
        best = self.next.top_scorers(*ids, mask)
        return bool(names) and decision.node in {self.state.nodes[slot].name for slot in best}  # type: ignore[union-attr]

    def _scores(
        self, ids: tuple[int, int], names: dict[str, int], decision: Decision, compared: Compared
    ) -> Iterator[str]:
        ours = self.whole.breakdown(*ids)
        theirs, slots, zeros = decision.scores or {}, list(names.values()), dict.fromkeys(names, 0)
        for plugin in sorted({*ours, *theirs}):
            mine = dict(zip(names, ours[plugin][slots].tolist(), strict=True)) if plugin in ours else zeros
            expected = theirs.get(plugin, zeros)
            compared.plugins[plugin] += len(set(expected.values())) > 1
            compared.counts["scored"] += len(names)
            if mine != expected:
                odd = {name: (mine[name], expected[name]) for name in names if mine[name] != expected[name]}
                yield f"scores of {plugin}, ours and kube-scheduler's: {odd}"
        total = np.array(list((decision.total or zeros).values()))
        compared.counts["tied"] += bool((total == total.max()).sum() > 1)


def compare_cluster(scheduler: Explainer, name: str, seed: int, compared: Compared) -> None:
    """Compare on the cluster of a seed, by a named or drawn configuration."""
    draws = RandomDraws(seed)
    cluster = sequence(draws, PODS_OF_A_CLUSTER)
    configuration = NAMED[name] if name != RANDOM else configuration_of(draws)
    while ends_kube_scheduler(configuration, cluster.objects):
        configuration = configuration_of(draws)
    profiles = profiles_of(configuration, minor())
    chosen = draws.choice(tuple(profiles)) if len(profiles) > 1 else DEFAULT_SCHEDULER
    pods = [{**each, "spec": {**each["spec"], "schedulerName": chosen}} for each in cluster.pods]
    objects = [with_tolerations(each) if each["kind"] == "Pod" else each for each in cluster.objects]
    answer = scheduler.ask(objects, list(map(with_tolerations, pods)), assume=True, configuration=configuration)
    assert answer.pods is not None, f"seed {seed}: {answer.error}"
    simulated = Simulated(Cluster(cluster.objects, pods), profiles[chosen])
    for pod, decision in zip(pods, answer.pods, strict=True):
        found = simulated.compare(pod, decision, compared)
        if found and len(compared.first) < 10:
            compared.first.append(f"seed {seed}, {pod['metadata']['name']}: {'; '.join(found)}")


def table(results: dict[str, Compared]) -> str:
    """Return the counts by configuration, and their sums."""
    width = max(map(len, (*results, "configuration")))
    lines = [f"{'configuration':{width}} " + " ".join(f"{each:>10}" for each in COLUMNS)]
    total = sum((each.counts for each in results.values()), Counter[str]())
    for name, counts in (*((name, each.counts) for name, each in results.items()), ("all", total)):
        lines.append(f"{name:{width}} " + " ".join(f"{counts[column]:>10}" for column in COLUMNS))
    return "\n".join(lines)


def main() -> int:
    """Compare until enough decisions are, and print what was found; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=100_000, help="how many are compared")
    parser.add_argument("--kubernetes", help="minor, such as 1.36; the newest by default")
    parser.add_argument("--seed", type=int, default=1, help="the first one; clusters and configurations follow from it")
    parser.add_argument("--configuration", choices=(*NAMED, RANDOM), action="append", help="these alone")
    parser.add_argument("--output", type=Path, help="file for counts and differences as JSON, written as it goes")
    options = parser.parse_args()
    if options.kubernetes:
        os.environ[VARIABLE] = options.kubernetes
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    chosen = options.configuration or [*NAMED, *[RANDOM] * 4]
    results, began, done, turn = {name: Compared() for name in chosen}, time.monotonic(), 0, 0
    with explainer() as scheduler:
        while done < options.decisions:
            name = chosen[turn % len(chosen)]
            # Of two parts, so that each configuration has clusters of its own.
            series = zlib.crc32(f"{name} {turn % len(chosen)}".encode()) % 1000
            seed = (options.seed + turn // len(chosen)) * 1000 + series
            compare_cluster(scheduler, name, seed, results[name])
            turn, done = turn + 1, done + PODS_OF_A_CLUSTER
            if options.output is not None:
                record = {name: {**vars(each)} for name, each in results.items()}
                options.output.write_text(json.dumps({"kubernetes": minor(), "done": done, **record}, indent=2) + "\n")
    print(f"Kubernetes {minor()}, {time.monotonic() - began:.0f} s\n{table(results)}")
    plugins = sum((each.plugins for each in results.values()), Counter[str]())
    print("decisions in which a plugin told nodes apart: " + ", ".join(f"{k} {v}" for k, v in sorted(plugins.items())))
    for name, each in results.items():
        for line in each.first:
            print(f"{name}: {line}")
    return int(any(each.counts["differ"] for each in results.values()))


if __name__ == "__main__":
    sys.exit(main())
