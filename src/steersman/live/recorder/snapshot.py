"""Take a live cluster as a workload: what scheduling reads of its nodes, pods and Services, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from steersman.cluster.constraints.node import holds
from steersman.cluster.model import (
    MODEL_LABELS,
    Constraints,
    DisruptionBudget,
    ExclusiveVolume,
    Node,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSelector,
    Requirement,
)
from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER, LivePod
from steersman.cluster.objects.fields import valid_pod
from steersman.cluster.objects.manifests import Manifest, node_to_object, pod_to_object
from steersman.core.atomic_files import new_folder, replacing
from steersman.core.errors import InputError, SteersmanError
from steersman.kubernetes.client import ApiError, Client
from steersman.kubernetes.selectors import SELECTING
from steersman.kubernetes.watch import REFUSALS
from steersman.live.runtime.listing import ALL_PODS, NODES, decode_objects, documents, example, list_device_offers
from steersman.orders.order import recurring_owner
from steersman.workloads.files import YAML_SUFFIXES
from steersman.workloads.formats.kubernetes.budgets import KIND, budgets_of
from steersman.workloads.formats.kubernetes.claims import offer_warnings
from steersman.workloads.formats.kubernetes.controllers import services_to_objects
from steersman.workloads.formats.kubernetes.objects import Objects, write_workload
from steersman.workloads.formats.yaml_documents import write_documents
from steersman.workloads.recorded import belongs_to_node
from steersman.workloads.warnings import annotation_warnings
from steersman.workloads.workload import SpreadSelectors, Workload

DIGEST_BYTES = 8
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
COMPARING = ("Gt", "Lt")


def anonymised(workload: Workload, secret: str) -> Workload:
    """Return the workload without names: each name and label value becomes a hash, the same one wherever it stands.

    What schedulers read stays: which names and values are equal, resources, GPU models, keys of labels and taints, and
    numbers that pods compare (`Gt`, `Lt`).

    Args:
        workload: nodes, pods, selectors.
        secret: key of the hashes; with the same one, snapshots of one cluster can be compared. Whoever has it can guess
            names.
    """
    mask = _Mask(secret, set(_compared(workload.pods)))
    return Workload(
        workload.name,
        tuple(map(mask.node, workload.nodes)),
        tuple(map(mask.pod, workload.pods)),
        mask.services(workload.services),
        workload.warnings,
    )


def _compared(pods: Iterable[Pod]) -> Iterator[str]:
    for constraints in {pod.pod_class: pod.constraints for pod in pods}.values():
        preferred = (each.term for each in constraints.preferred_nodes)
        for term in (*(constraints.node_affinity or ()), *preferred):
            yield from (each.key for each in term.expressions if each.operator in COMPARING)


class _Mask:
    """Replacement of names and values by hashes, except the values of labels with the keys `compared`."""

    def __init__(self, secret: str, compared: set[str]) -> None:
        self.key = hashlib.blake2b(secret.encode()).digest()
        self.kept = compared | set(MODEL_LABELS)

    def text(self, text: str) -> str:
        """Return the hash of a name or value; the empty value stays."""
        if not text:
            return ""
        return "x" + hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES, key=self.key).hexdigest()

    def owner(self, name: str) -> str:
        """Return the hash of a controller's name. Runs of a CronJob stay runs of one owner, with other numbers."""
        recurring = recurring_owner(name)
        if recurring == name:
            return self.text(name)
        number = int(self.text(name).removeprefix("x"), 16) % 10**12
        return f"{self.text(recurring)}-{number:012}"

    def value(self, key: str, value: str) -> str:
        return value if key in self.kept else self.text(value)

    def pairs(self, labels: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        return tuple((key, self.value(key, value)) for key, value in labels)

    def labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        return dict(self.pairs(labels.items()))

    def image(self, image: str) -> str:
        # With a tag, since `:latest` is added to the name of a pod's image that has none.
        return f"{self.text(image)}:latest"

    def node(self, node: Node) -> Node:
        return replace(
            node,
            name=self.text(node.name),
            labels=self.labels(node.labels),
            taints=tuple(replace(taint, value=self.text(taint.value)) for taint in node.taints),
            images={self.image(name): size for name, size in node.images.items()},
        )

    def pod(self, pod: Pod) -> Pod:
        kind, slash, owner = pod.owner.partition("/")
        known = pod.scheduler_name == DEFAULT_SCHEDULER
        return replace(
            pod,
            name=self.text(pod.name),
            namespace=self.text(pod.namespace),
            labels=self.labels(pod.labels),
            owner=f"{kind}/{self.owner(owner)}" if slash else self.owner(kind),
            scheduler_name=pod.scheduler_name if known else self.text(pod.scheduler_name),
            pod_class=replace(pod.pod_class, constraints=self.constraints(pod.constraints)),
        )

    def services(self, services: SpreadSelectors) -> SpreadSelectors:
        return SpreadSelectors(
            tuple((self.text(space), self.pairs(labels)) for space, labels in services.selectors),
            tuple((self.text(space), self.requirements(requirements)) for space, requirements in services.expressions),
        )

    def constraints(self, result: Constraints) -> Constraints:
        terms, value = self.node_term, self.text

        def preferred(term: PodAffinityTerm) -> PodAffinityTerm:
            return replace(term, selector=self.selector(term.selector))

        return replace(
            result,
            node_name=value(result.node_name),
            tolerations=tuple(replace(each, value=value(each.value)) for each in result.tolerations),
            node_selector=self.pairs(result.node_selector),
            node_affinity=None if result.node_affinity is None else tuple(map(terms, result.node_affinity)),
            preferred_nodes=tuple(replace(each, term=terms(each.term)) for each in result.preferred_nodes),
            affinity=tuple(map(preferred, result.affinity)),
            anti_affinity=tuple(map(preferred, result.anti_affinity)),
            preferred_affinity=tuple(replace(each, term=preferred(each.term)) for each in result.preferred_affinity),
            preferred_anti_affinity=tuple(
                replace(each, term=preferred(each.term)) for each in result.preferred_anti_affinity
            ),
            spread=tuple(replace(each, selector=self.selector(each.selector)) for each in result.spread),
            images=tuple(map(self.image, result.images)),
            image_volumes=tuple(map(self.image, result.image_volumes)),
            exclusive_volumes=tuple(map(self.exclusive_volume, result.exclusive_volumes)),
        )

    def exclusive_volume(self, volume: ExclusiveVolume) -> ExclusiveVolume:
        disk, monitors = (tuple(map(self.text, each)) for each in (volume.disk, volume.monitors))
        return replace(volume, disk=disk, monitors=monitors)

    def node_term(self, term: NodeSelectorTerm) -> NodeSelectorTerm:
        return NodeSelectorTerm(self.requirements(term.expressions), self.requirements(term.fields))

    def selector(self, selector: PodSelector) -> PodSelector:
        spaces, requirements = selector.namespaces, selector.requirements
        return replace(
            selector,
            requirements=None if requirements is None else self.requirements(requirements),
            namespaces=None if spaces is None else frozenset(map(self.text, spaces)),
        )

    def requirements(self, result: Iterable[Requirement]) -> tuple[Requirement, ...]:
        """Return requirements in canonical order."""
        masked = (
            replace(each, values=tuple(sorted(self.value(each.key, value) for value in each.values))) for each in result
        )
        # The original order could tell which value a hash stands for.
        return tuple(sorted(masked, key=lambda each: (each.key, each.operator, each.values)))


async def take_snapshot(client: Client, name: str, *, free: bool = False, budgets: bool = False) -> Workload:
    """Return the cluster as it is: running pods first, in order of creation, then waiting ones.

    With `free` running pods lose their nodes, except those of DaemonSets and static ones. With `budgets` it has the
    PodDisruptionBudgets, too.
    """
    nodes = decode_objects(documents(await client.list(NODES), "Node"))
    listed = await client.list(ALL_PODS)
    there = decode_objects(documents(listed, "Pod"))
    odd = tuple(
        f"{len(found.problems)} {what} make no sense and are left out: {example(found.problems)}"
        for what, found in (("nodes", nodes), ("pods", there))
        if found.problems
    )
    if not nodes.nodes:
        raise SteersmanError("the cluster has no nodes")
    stored = {pod.key: pod for pod in map(valid_pod, listed.items)}
    pods = [_as_pod(pod, stored[f"{pod.namespace}/{pod.name}"], free=free) for pod in there.pods]
    start = min((pod.creation_time or 0.0 for pod in pods), default=0.0)
    pods = [replace(pod, creation_time=(pod.creation_time or start) - start) for pod in pods]
    pods.sort(key=lambda pod: (not stored[f"{pod.namespace}/{pod.name}"].node, pod.creation_time or 0.0))
    if not pods:
        raise SteersmanError("the cluster has no pods that have not finished")
    services, missing = await _services(client, pods)
    offers = await list_device_offers(client, {node.name for node in nodes.nodes})
    devices = offer_warnings(offers, pods)
    pods = [offers.pod(pod) for pod in pods]
    found, unknown = await _budgets(client) if budgets else ((), ())
    warnings = (*odd, *there.warnings, *missing, *unknown, *devices, *annotation_warnings(pods))
    return Workload(name, tuple(map(offers.node, nodes.nodes)), tuple(pods), services, warnings, budgets=found)


async def identity(client: Client) -> str:
    """Return a secret that identifies the cluster for as long as it exists and is not written into snapshots."""
    value = await client.get("/api/v1/namespaces/kube-system")
    return str(value["metadata"]["uid"])


def is_file(output: Path) -> bool:
    """Return whether the name is that of a YAML file, else of a folder. Raises InputError: of neither."""
    if output.name.endswith((".yaml", ".yml")):
        return True
    if output.name.endswith((*YAML_SUFFIXES, ".csv", ".gz")):
        raise InputError(output, "", "", "is not the name of a YAML file or folder; expected one such as cluster.yaml")
    return False


def write_snapshot(workload: Workload, output: Path) -> None:
    """Write a workload: one file if the name ends like YAML, else a new folder of nodes, pods and services."""
    if is_file(output):
        with replacing(output) as part:
            write_documents(part, _objects(workload))
    else:
        with new_folder(output) as folder:
            write_workload(workload, folder)


def _objects(workload: Workload) -> Iterator[Manifest]:
    yield from map(node_to_object, workload.nodes)
    yield from services_to_objects(workload.services)
    yield from map(pod_to_object, workload.pods)


def _as_pod(pod: Pod, stored: LivePod, *, free: bool) -> Pod:
    created = datetime.fromisoformat(stored.metadata.creation_timestamp or "").timestamp()
    pod = replace(pod, creation_time=created, deletion_time=None)
    if not free or belongs_to_node(pod):
        return pod
    return replace(pod.unbound(), gpu_devices=())


async def _budgets(client: Client) -> tuple[tuple[DisruptionBudget, ...], tuple[str, ...]]:
    try:
        listed = documents(await client.list(BUDGETS), KIND, "policy/v1")
    except ApiError as error:
        if error.status not in REFUSALS:
            raise
        return (), (f"no permission to list {KIND}s; whom kube-scheduler preempts may differ by them",)
    return budgets_of(Objects(listed).objects), ()


async def _services(client: Client, pods: Sequence[Pod]) -> tuple[SpreadSelectors, tuple[str, ...]]:
    listed, refused = [], []
    for each in SELECTING:
        try:
            listed += documents(await client.list(each.path), each.kind, each.version)
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            refused.append(f"no permission to list {each.kind}s; default topology spread does not know theirs")
    labels: dict[str, list[Mapping[str, str]]] = {}
    for pod in pods:
        labels.setdefault(pod.namespace, []).append(pod.labels)
    everything = Objects(listed).services()
    by_labels = (
        each
        for each in everything.selectors
        if any(set(each[1]) <= set(there.items()) for there in labels.get(each[0], ()))
    )
    by_requirements = (
        each
        for each in everything.expressions
        if any(all(holds(one, there) for one in each[1]) for there in labels.get(each[0], ()))
    )
    return SpreadSelectors(tuple(by_labels), tuple(by_requirements)), tuple(refused)
