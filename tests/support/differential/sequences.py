"""Random sequences of pods, each of which is placed before the next one is scheduled, on clusters of many sizes.

Left out is what a simulation says that it does not model: claims of volumes and devices, nominated nodes. Pod-level
resources: `tests.support.parity.replay.POD_LEVEL`.
"""

from __future__ import annotations

import copy

from tests.support.differential.clusters import Cluster, namespaces, owned, selecting_object
from tests.support.differential.draws import Draws
from tests.support.differential.nodes import HOSTNAME, Object, node
from tests.support.differential.pods import pod

NODES = (2, 5, 12, 30, 60, 110, 160)
"""kube-scheduler samples nodes from 100 on."""
RICH = (0, 5, 25, 50)
UNMODELLED = ("resourceClaims", "resources")


def sequence(draws: Draws, decisions: int) -> Cluster:
    """Return a cluster and so many pods that arrive there. Nodes and pods have few templates, so that scores tie."""
    names = [f"n{i}" for i in range(draws.choice(NODES))]
    of_nodes = [node(draws, "template") for _ in range(draws.number(1, 6))]
    objects = [_named_node(draws.choice(of_nodes), name) for name in names]
    objects += namespaces(draws)
    selecting = [selecting_object(draws, i) for i in range(draws.number(0, 4))]
    objects += selecting
    rich = draws.choice(RICH)
    of_pods = [owned(draws, _pod(draws, names, rich), selecting) for _ in range(draws.number(2, 16))]
    for i in range(draws.choice((0, len(names), 3 * len(names)))):
        running = _named(draws.choice(of_pods), f"r{i}")
        running["spec"]["nodeName"] = draws.choice(names)
        running["status"] = {"phase": "Running"}
        objects.append(running)
    return Cluster(objects, [_named(draws.choice(of_pods), f"p{i}") for i in range(decisions)])


def _named_node(template: Object, name: str) -> Object:
    made = _named(template, name)
    if HOSTNAME in made["metadata"]["labels"]:
        made["metadata"]["labels"][HOSTNAME] = name
    return made


def _named(template: Object, name: str) -> Object:
    made = copy.deepcopy(template)
    made["metadata"]["name"] = name
    return made


def _pod(draws: Draws, names: list[str], rich: int) -> Object:
    made = pod(draws, "template", names, rich=rich)
    for field in UNMODELLED:
        made["spec"].pop(field, None)
    return made
