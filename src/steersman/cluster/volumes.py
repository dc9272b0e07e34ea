"""Rules of kube-scheduler 1.37.2 for a pod's volumes: the nodes that its claims allow, and what they would get there.

In-tree volumes are those of the CSI drivers that have taken over. VolumeAttachments without a pod do not count towards
limits.

Sources: pkg/scheduler/framework/plugins/{volumerestrictions,nodevolumelimits,volumebinding,volumezone};
k8s.io/csi-translation-lib 0.36.3, and isCSIMigrationOn of NodeVolumeLimits, which leaves out azureFile and
vsphereVolume.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from steersman.cluster.constraints.node import Mask, NodeTable, holds, nodes_matching_term
from steersman.cluster.objects.api.claims import (
    CsiDriver,
    CsiNode,
    StorageCapacity,
    StorageClass,
    TopologyTerm,
    Volume,
    VolumeClaim,
)
from steersman.cluster.objects.api.metadata import LabelSelector
from steersman.cluster.objects.api.pods import InTreeSources, PodObject
from steersman.cluster.objects.selectors import label_selector, node_term
from steersman.core.quantities import bytes_

Attachment = tuple[str, str]  # CSI driver and handle of a volume

PROVISIONERS: Mapping[str, str] = MappingProxyType(
    {
        "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
        "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
        "kubernetes.io/azure-disk": "disk.csi.azure.com",
        "kubernetes.io/cinder": "cinder.csi.openstack.org",
        "kubernetes.io/portworx-volume": "pxd.portworx.com",
    }
)
"""CSI drivers by the in-tree provisioner that each has taken over."""
NOT_COUNTED = ("kubernetes.io/azure-file", "kubernetes.io/vsphere-volume")
"""In-tree provisioners whose volumes kube-scheduler does not count."""
_ZONE_LABELS = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_UNKNOWN = "UNSPECIFIED"
_EBS = re.compile("vol-[^/]*")


def volume_attachment(volume: Volume) -> Attachment | None:
    """Return CSI driver and handle, also of an in-tree volume that a driver has taken over; None: it has no driver."""
    csi = volume.spec.csi
    if csi is not None:
        return (csi.driver, csi.volume_handle) if csi.driver and csi.volume_handle else None
    return attachment(volume.spec, volume.metadata.labels or {})


def attachment(sources: InTreeSources, labels: Mapping[str, str] = MappingProxyType({})) -> Attachment | None:
    """Return driver and handle of an in-tree volume; None: it is something else, or cannot be translated."""
    if (ebs := sources.aws_elastic_block_store) is not None:
        return _attached("kubernetes.io/aws-ebs", _ebs(ebs.volume_id or ""))
    if (gce := sources.gce_persistent_disk) is not None:
        return _attached("kubernetes.io/gce-pd", _gce(gce.pd_name or "", labels))
    if (azure := sources.azure_disk) is not None:
        is_managed = (azure.kind or "Managed").lower() == "managed"
        return _attached("kubernetes.io/azure-disk", azure.disk_uri if is_managed else "")
    if sources.cinder is not None:
        return _attached("kubernetes.io/cinder", sources.cinder.volume_id)
    if sources.portworx_volume is not None:
        return _attached("kubernetes.io/portworx-volume", sources.portworx_volume.volume_id)
    return None


def _attached(provisioner: str, handle: str | None) -> Attachment | None:
    return (PROVISIONERS[provisioner], handle) if handle else None


def _ebs(stated: str) -> str:
    """Return `vol-1` of `vol-1` and of `aws://ZONE/vol-1`."""
    if not stated.startswith("aws://"):
        return stated
    path = re.split("[?#]", stated.removeprefix("aws://"))[0].partition("/")[2]
    volume = path.strip("/")
    return volume if _EBS.fullmatch(volume) else ""


def _gce(disk: str, labels: Mapping[str, str]) -> str:
    zones = next((labels[key] for key in _ZONE_LABELS if labels.get(key)), _UNKNOWN).split("__")
    # Several zones are those of a regional disk, which must be of one region.
    if len(zones) == 1:
        return f"projects/{_UNKNOWN}/zones/{zones[0]}/disks/{disk}"
    regions = {zone.rpartition("-")[0] for zone in zones}
    return f"projects/{_UNKNOWN}/regions/{regions.pop()}/disks/{disk}" if len(regions) == 1 else ""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim that a pod uses, or a volume of an in-tree plugin inside the pod."""

    key: str  # namespace and name of the claim; of a volume inside the pod its driver and handle
    made_for: str = ""  # the pod for which a controller creates an ephemeral claim, else ""
    attachment: Attachment | None = None  # driver and handle of a volume inside the pod; None: it is a claim

    @property
    def is_ephemeral(self) -> bool:
        return bool(self.made_for)

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]


def pod_claims(obj: PodObject) -> tuple[PodClaim, ...]:
    """Return the claims of a pod, and its in-tree volumes, each once."""
    return tuple(dict.fromkeys(_claims(obj))) if obj.spec.volumes else ()


def _claims(obj: PodObject) -> Iterator[PodClaim]:
    namespace = f"{obj.metadata.namespace or 'default'}/"
    pod = f"{namespace}{obj.metadata.name}"
    for volume in obj.spec.volumes or ():
        if (source := volume.persistent_volume_claim) is not None:
            yield PodClaim(f"{namespace}{source.claim_name or ''}")
        elif volume.ephemeral:
            yield PodClaim(f"{pod}-{volume.name or ''}", made_for=pod)
        elif found := attachment(volume):
            yield PodClaim(f"{found[0]}:{found[1]}", attachment=found)


IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
LIMIT = "node(s) exceed max volume count"
NO_DRIVER = "{} CSI driver is not installed on the node"
NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
ZONE_CONFLICT = "node(s) had no available volume zone"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"

NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAIT_FOR_CONSUMER = "WaitForFirstConsumer"
ONCE_POD = "ReadWriteOncePod"
_BETA = "failure-domain.beta.kubernetes.io/"
_STABLE = "topology.kubernetes.io/"
ZONE_KEYS = tuple(f"{prefix}{what}" for prefix in (_BETA, _STABLE) for what in ("zone", "region"))


@dataclass(slots=True)
class VolumeObjects:
    """Objects of the API about volumes, and decisions that they do not show yet."""

    # By namespace and name; the others by name, capacities by namespace and name
    claims: dict[str, VolumeClaim] = field(default_factory=dict)
    volumes: dict[str, Volume] = field(default_factory=dict)
    classes: dict[str, StorageClass] = field(default_factory=dict)
    nodes: dict[str, CsiNode] = field(default_factory=dict)
    drivers: dict[str, CsiDriver] = field(default_factory=dict)
    capacities: dict[str, StorageCapacity] = field(default_factory=dict)
    assumed_volumes: dict[str, str] = field(default_factory=dict)  # volume -> key of the claim that it was assigned to
    # Key of a claim -> node that it will be provisioned for
    assumed_nodes: dict[str, str] = field(default_factory=dict)

    def is_for(self, volume: Volume, claim: VolumeClaim) -> bool:
        """Return whether a volume is bound, pre-bound or assumed for a claim."""
        if volume.metadata.name in self.assumed_volumes:
            return self.assumed_volumes[volume.metadata.name] == claim.key
        ref = volume.spec.claim_ref
        # A reference without a uid was written by a user in advance, for whichever claim has the name.
        return ref is not None and f"{ref.namespace}/{ref.name}" == claim.key and ref.uid in ("", claim.metadata.uid)

    def is_taken(self, volume: Volume) -> bool:
        return volume.spec.claim_ref is not None or volume.metadata.name in self.assumed_volumes


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """Volumes to bind to claims, and claims to provision, for a pod on its node."""

    bindings: tuple[tuple[str, str], ...] = ()
    provisions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.bindings or self.provisions)


@dataclass(slots=True)
class VolumeFit:
    """Nodes that a pod's claims allow."""

    problem: str = ""  # why they allow none, whatever the nodes are; "" if they allow some
    # Groups of filters in their order; in each, reasons and the nodes that each applies to, [N]
    refusals: list[list[tuple[str, Mask]]] = field(default_factory=list)
    # Claim -> [N] index into `candidates` of the volume that it gets on a node, -1 to provision
    matched: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = field(default_factory=dict)
    candidates: dict[str, list[Volume]] = field(default_factory=dict)  # claim -> volumes
    requested: dict[str, int] = field(default_factory=dict)  # claim -> bytes that it requests
    storage_class: dict[str, str] = field(default_factory=dict)  # claim -> its storage class
    # Claim -> [N] bytes of its storage class that a node has left, where its driver reports them; else -1
    free: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = field(default_factory=dict)

    def allowed(self, table: NodeTable) -> Mask:
        """Return the allowed nodes, [N]."""
        allowed = table.occupied & (not self.problem)
        for group in self.refusals:
            for _, refused in group:
                allowed &= ~refused
        return allowed

    def plan(self, slot: int) -> VolumePlan:
        """Return what the claims need on an allowed node."""
        chosen = {key: int(matched[slot]) for key, matched in self.matched.items()}
        bindings = tuple((self.candidates[key][i].metadata.name, key) for key, i in chosen.items() if i >= 0)
        return VolumePlan(bindings, tuple(key for key, i in chosen.items() if i < 0))


def fit(
    objects: VolumeObjects,
    claims: Sequence[PodClaim],
    pod_uid: str,
    table: NodeTable,
    in_use: Mapping[str, Iterable[str]],
) -> VolumeFit:
    """Return the nodes that a pod's claims allow; its uid owns its ephemeral ones.

    `in_use`: node -> keys of the claims of the pods there.
    """
    inline = {claim.attachment for claim in claims if claim.attachment is not None}
    claims = [claim for claim in claims if claim.attachment is None]
    # Volumes inside the pod have no claim that could be missing or unbound.
    if problem := _problem(objects, claims, pod_uid):
        return VolumeFit(problem)
    pod_claims = [objects.claims[claim.key] for claim in claims]
    attached = inline | {found for claim in pod_claims if (found := _attachment(objects, claim)) is not None}
    volume_fit = VolumeFit()
    volume_fit.refusals = [
        [(IN_USE, _in_use_elsewhere(pod_claims, table, in_use))],
        _limits(objects, attached, table, in_use),
        _bind(objects, pod_claims, table, volume_fit),
        [(ZONE_CONFLICT, _in_other_zones(objects, pod_claims, table))],
    ]
    return volume_fit


def volume_nodes(volume: Volume, table: NodeTable) -> Mask:
    """Return the nodes that a volume's node affinity allows, [N]."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return table.occupied
    allowed = np.zeros(len(table), dtype=np.bool_)
    for stated in affinity.required.node_selector_terms or ():
        term = node_term(stated, "spec.nodeAffinity.required.nodeSelectorTerms")
        # kube-scheduler matches volumes against node labels only and ignores matchFields.
        allowed |= nodes_matching_term(table, term, match_fields=False)
    return allowed


def _problem(objects: VolumeObjects, claims: Sequence[PodClaim], pod_uid: str) -> str:
    """Return why a pod fits nowhere until its claims change."""
    for needed in claims:
        if needed.key not in objects.claims and not needed.is_ephemeral:
            return f'persistentvolumeclaim "{needed.name}" not found'
    for needed in claims:
        claim = objects.claims.get(needed.key)
        if claim is None:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{needed.name}"'
        if claim.status.phase == "Lost":
            return (
                f'persistentvolumeclaim "{needed.name}" bound to non-existent persistentvolume '
                f'"{claim.spec.volume_name}"'
            )
        if claim.metadata.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{needed.name}" is being deleted'
        owners = claim.metadata.owner_references or ()
        if needed.is_ephemeral and not any(owner.controller and owner.uid == pod_uid for owner in owners):
            return f"PVC {needed.key} was not created for pod {needed.made_for} (pod is not owner)"
    for needed in claims:
        claim = objects.claims[needed.key]
        if not claim.is_bound and (claim.spec.volume_name or not waits_for_consumer(objects, claim)):
            return UNBOUND
    for needed in claims:
        volume = objects.claims[needed.key].spec.volume_name
        if volume and volume not in objects.volumes and not needed.is_ephemeral:  # the zone of such volumes is not read
            return f'persistentvolume "{volume}" not found'
    return ""


def waits_for_consumer(objects: VolumeObjects, claim: VolumeClaim) -> bool:
    """Return whether a claim gets its volume once a pod that uses it is bound."""
    storage_class = objects.classes.get(claim.class_name)
    return storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_CONSUMER


def _in_use_elsewhere(pod_claims: Sequence[VolumeClaim], table: NodeTable, in_use: Mapping[str, Iterable[str]]) -> Mask:
    """Return all nodes, [N], if another pod has a claim that only one pod may use."""
    single = {claim.key for claim in pod_claims if ONCE_POD in (claim.spec.access_modes or ())}
    used = bool(single) and any(not single.isdisjoint(keys) for keys in in_use.values())
    return table.occupied if used else np.zeros(len(table), dtype=np.bool_)


# Limits


def _limits(
    objects: VolumeObjects, new: Set[Attachment], table: NodeTable, in_use: Mapping[str, Iterable[str]]
) -> list[tuple[str, Mask]]:
    """Return the refusals of NodeVolumeLimits: nodes that lack a driver, and nodes that would exceed a limit."""
    refusals = []
    lacking = ~table.occupied
    for name in sorted({name for name, _ in new}):
        driver = objects.drivers.get(name)
        # The API server of 1.36 and earlier stores no such wish of a driver.
        if driver is not None and driver.spec.prevent_pod_scheduling_if_missing:
            having = (node for node, each in objects.nodes.items() if name in (d.name for d in each.spec.drivers or ()))
            refusals.append((NO_DRIVER.format(name), ~table.names.any_of(list(having)) & ~lacking))
            lacking |= refusals[-1][1]
    refusals.append((LIMIT, _beyond_limits(objects, new, table, in_use) & ~lacking))
    return refusals


def _beyond_limits(
    objects: VolumeObjects, new: Set[Attachment], table: NodeTable, in_use: Mapping[str, Iterable[str]]
) -> Mask:
    """Return the nodes that would exceed a CSI driver's limit of volumes with new ones, [N]."""
    beyond: list[object] = []
    for name, node in objects.nodes.items() if new else ():
        here: set[tuple[str, str]] | None = None
        for driver in node.spec.drivers or ():
            count = None if driver.allocatable is None else driver.allocatable.count
            # A driver without a count has no limit.
            if count is None or not any(driver.name == each for each, _ in new):
                continue
            if here is None:
                here = {found for key in in_use.get(name, ()) if (found := _attachment_of(objects, key)) is not None}
            more = sum(1 for each in new - here if each[0] == driver.name)
            # Volumes that the node has attached already cost nothing, even where it is over the limit.
            if more and more + sum(1 for each in here if each[0] == driver.name) > count:
                beyond.append(name)
    return table.names.any_of(beyond)


def _attachment_of(objects: VolumeObjects, key: str) -> Attachment | None:
    """Return what a pod attaches to its node by the key of a claim, or of a volume inside the pod."""
    driver, colon, handle = key.partition(":")  # which the name of a claim cannot have
    if colon:
        return driver, handle
    claim = objects.claims.get(key)
    return None if claim is None else _attachment(objects, claim)


def _attachment(objects: VolumeObjects, claim: VolumeClaim) -> Attachment | None:
    """Return the CSI driver and handle of a claim's volume, or a placeholder before there is one."""
    volume = objects.volumes.get(claim.spec.volume_name)
    if volume is not None:
        return volume_attachment(volume)
    storage_class = objects.classes.get(claim.class_name)
    if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER, *NOT_COUNTED):
        return None
    return PROVISIONERS.get(storage_class.provisioner, storage_class.provisioner), f"claim {claim.key}"


# Binding


def _bind(
    objects: VolumeObjects, pod_claims: Sequence[VolumeClaim], table: NodeTable, volume_fit: VolumeFit
) -> list[tuple[str, Mask]]:
    """Return the refusals of VolumeBinding, and record in `volume_fit` what claims get on each node."""
    conflict, lost = ~table.occupied, np.zeros(len(table), dtype=np.bool_)
    for claim in pod_claims:
        if claim.is_bound:
            volume = objects.volumes.get(claim.spec.volume_name)
            if volume is None:
                lost |= table.occupied
            else:
                conflict |= ~volume_nodes(volume, table)
    unbound = [each for each in pod_claims if not each.is_bound]
    chosen = {each.key: objects.assumed_nodes.get(each.key) or each.selected_node for each in unbound}
    unsatisfied, short = ~table.occupied, np.zeros(len(table), dtype=np.bool_)
    for node in filter(None, chosen.values()):
        # The claim is being provisioned for this node, so the pod can go nowhere else.
        unsatisfied |= ~table.names.any_of((node,))
    taken: dict[str, Mask] = {}
    # As in kube-scheduler: claims whose node is chosen first, then the smallest, so that it does not take a volume that
    # a larger one needs; the first claim that a node cannot serve is its only reason.
    for claim in sorted(unbound, key=lambda each: (not chosen[each.key], 0 if chosen[each.key] else _size(each))):
        if chosen[claim.key]:
            volume_fit.candidates[claim.key], matched = [], np.full(len(table), -1, dtype=np.int64)
        else:
            matched = _match(objects, claim, table, taken, volume_fit)
        volume_fit.matched[claim.key] = matched
        volume_fit.requested[claim.key], volume_fit.storage_class[claim.key] = _size(claim), claim.class_name
        can, enough, volume_fit.free[claim.key] = _provision(objects, claim, table)
        undecided = ~unsatisfied & ~short & (matched < 0)
        unsatisfied |= undecided & ~can
        short |= undecided & can & ~enough
    occupied = table.occupied
    refusals = [(NODE_CONFLICT, conflict & ~lost), (BIND_CONFLICT, unsatisfied), (NO_SPACE, short), (NO_VOLUME, lost)]
    return [(why, refused & occupied) for why, refused in refusals]


def _match(
    objects: VolumeObjects, claim: VolumeClaim, table: NodeTable, taken: dict[str, Mask], volume_fit: VolumeFit
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the index of the existing volume that a claim gets on each node, [N], -1 for none."""
    candidates = [volume for volume in objects.volumes.values() if _suits(claim, volume)]
    own = [volume for volume in candidates if objects.is_for(volume, claim)]
    if own:
        # As FindMatchingVolume: a volume that is bound in advance precedes all others, whatever their size.
        candidates = own[:1]
    else:
        candidates = [volume for volume in candidates if not objects.is_taken(volume) and _is_available(claim, volume)]
        # The smallest that suffices is taken.
        candidates.sort(key=volume_bytes)
    matched = np.full(len(table), -1, dtype=np.int64)
    for number, volume in enumerate(candidates):
        gone = taken.setdefault(volume.metadata.name, np.zeros(len(table), dtype=np.bool_))
        here = (matched < 0) & ~gone & volume_nodes(volume, table)
        matched[here] = number
        gone |= here
    volume_fit.candidates[claim.key] = candidates
    return matched


def _suits(claim: VolumeClaim, volume: Volume) -> bool:
    """Return whether a volume satisfies a claim, also one that was pre-bound to it."""
    ask, has = claim.spec, volume.spec
    return (
        volume.class_name == claim.class_name
        and volume.metadata.deletion_timestamp is None
        and volume_bytes(volume) >= _size(claim)
        and (ask.volume_mode or "Filesystem") == (has.volume_mode or "Filesystem")
        and (ask.volume_attributes_class_name or "") == (has.volume_attributes_class_name or "")
    )


def _is_available(claim: VolumeClaim, volume: Volume) -> bool:
    """Return whether a volume that is for no claim may be bound to this one."""
    if volume.status.phase != "Available" or not set(claim.spec.access_modes or ()) <= set(
        volume.spec.access_modes or ()
    ):
        return False
    return _selects(claim.spec.selector, volume.metadata.labels or {})


def _provision(
    objects: VolumeObjects, claim: VolumeClaim, table: NodeTable
) -> tuple[Mask, Mask, np.ndarray[Any, np.dtype[np.int64]]]:
    """Return where a volume can be provisioned for a claim, where storage suffices, and how much, see `VolumeFit.free`.

    [N] each.
    """
    nowhere, free = np.zeros(len(table), dtype=np.bool_), np.full(len(table), -1, dtype=np.int64)
    storage_class = objects.classes[claim.class_name]
    if storage_class.provisioner in ("", NO_PROVISIONER):
        return nowhere, nowhere, free
    can = table.occupied
    if storage_class.allowed_topologies:
        can = nowhere.copy()
        for term in storage_class.allowed_topologies:
            can |= _topology(term, table)
    driver = objects.drivers.get(storage_class.provisioner)
    # As hasEnoughCapacity: only drivers that opt in by their CSIDriver are checked, for claims that request storage.
    if driver is None or not driver.spec.storage_capacity or not _size(claim):
        return can, table.occupied, free
    enough = nowhere.copy()
    for capacity in objects.capacities.values():
        if capacity.storage_class_name == storage_class.metadata.name and _holds(capacity, _size(claim)):
            # Of several that hold it, kube-scheduler takes any.
            here = _selected_nodes(capacity.node_topology, table) & ~enough
            free[here] = 0 if capacity.capacity is None else bytes_(capacity.capacity)
            enough |= here
    return can, enough, free


def _topology(term: TopologyTerm, table: NodeTable) -> Mask:
    """Return whether each node has one of the values of each label, [N]; an empty term allows none."""
    expressions = term.match_label_expressions or ()
    matched = table.occupied if expressions else np.zeros(len(table), dtype=np.bool_)
    for expression in expressions:
        matched &= table.label(expression.key).any_of(expression.values)
    return matched


def _holds(capacity: StorageCapacity, size: int) -> bool:
    """Return whether a volume of this size fits; the maximum size of one volume takes precedence over the total."""
    limit = capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity
    return limit is not None and bytes_(limit, round_up=False) >= size


def _selected_nodes(selector: LabelSelector | None, table: NodeTable) -> Mask:
    """Return whether a label selector selects each node, [N]: none without a selector, all with an empty one."""
    if selector is None:
        return np.zeros(len(table), dtype=np.bool_)
    requirements = label_selector(selector, "nodeTopology")
    selected = table.occupied
    for requirement in requirements:
        column = table.label(requirement.key)
        key = requirement.key
        has = column.where(lambda value, r=requirement, key=key: holds(r, {key: str(value)}))  # type: ignore[misc]
        selected &= has | ((column.ids < 0) & holds(requirement, {}))
    return selected


def _selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    return selector is None or all(holds(each, labels) for each in label_selector(selector, "spec.selector"))


def _size(claim: VolumeClaim) -> int:
    return int(bytes_((claim.spec.resources.requests or {}).get("storage", 0)))


def volume_bytes(volume: Volume) -> int:
    return int(bytes_((volume.spec.capacity or {}).get("storage", 0), round_up=False))


# Zones


def _in_other_zones(objects: VolumeObjects, pod_claims: Sequence[VolumeClaim], table: NodeTable) -> Mask:
    """Return the nodes outside the zones and regions of bound volumes' labels, [N]."""
    refused = np.zeros(len(table), dtype=np.bool_)
    for claim in pod_claims:
        volume = objects.volumes.get(claim.spec.volume_name)
        for key, value in (volume.metadata.labels or {}).items() if volume is not None and claim.is_bound else ():
            if key in ZONE_KEYS:
                # As VolumeZone: a node without the beta label is compared by its stable one.
                column, stable = table.label(key), table.label(key.replace(_BETA, _STABLE))
                # Regional volumes list their zones so.
                zones = value.split("__")
                refused |= ~(column.any_of(zones) | ((column.ids < 0) & stable.any_of(zones)))
    if refused.any():  # without such labels the cluster has no zones
        labelled = np.zeros(len(table), dtype=np.bool_)
        for key in ZONE_KEYS:
            labelled |= table.label(key).ids >= 0
        refused &= labelled
    return refused & table.occupied
