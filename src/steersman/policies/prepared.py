"""Prepared policies: the mix, and all that follows from it, baked into the policy file, so that users only read it.

A policy knows which pods are typical (`workloads.mix`), and the view `gpu` also sees what that says about leftovers
(`policies.outlook`), which takes a second to work out. As tensors in the file both are the same wherever it is used.
GPU models are numbered as the file's card lists them; the last column or row is "no model known". Names of GPUs are
kept by typical pod: which types of a cluster's devices these may have is worked out where the file is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import WHOLE
from steersman.cluster.model import ANY_GPU, GpuType
from steersman.errors import InputError
from steersman.features import View
from steersman.policies.learned import VIEW
from steersman.policies.outlook import GROUPS, SEQUENCES, TABLES, OutlookArrays, demand_by_type, outlook_arrays
from steersman.workloads.mix import MixArrays, TypicalPod, accepted_types, mix_arrays, typical_pods
from steersman.workloads.workload import Workload

VERSION = 2
MIX, OUTLOOK = "mix.", "outlook."
"""How the names of the tensors begin; then follows the field of `MixArrays` or `OutlookArrays`."""

Arrays = dict[str, npt.NDArray[Any]]


class MixCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a model card says of the mix in the file.

    Attributes:
        version: of these tensors.
        workload: whose pods it was derived from.
        typical_pods: how many kinds of pods it has.
        models: the GPU models that it knows, in the order of its tensors.
        resources: by typical pod, the name of the GPUs that it asks for, "" for any; empty where all take any.
    """

    version: int
    workload: str
    typical_pods: int
    models: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Prepared:
    """A mix, and what follows from it.

    Attributes:
        card: what it is.
        mix: by the models of the card.
        outlook: the same, None for a view that does not look at it.
        digest: the same for two that hold the same.
    """

    card: MixCard
    mix: MixArrays
    outlook: OutlookArrays | None
    digest: str

    @cached_property
    def pods(self) -> tuple[TypicalPod, ...]:
        """The typical pods."""
        return tuple(self._pod(t) for t in range(len(self.mix.cpu)))

    def _pod(self, t: int) -> TypicalPod:
        mix, count = self.mix, int(self.mix.gpu_count[t])
        accepted = mix.accepts[t]
        return TypicalPod(
            cpu_milli=int(mix.cpu[t]),
            gpu_milli=int(mix.milli[mix.value[t]]) if count else 0,
            gpu_count=count,
            gpu_models=() if accepted[-1] else tuple(np.array(self.card.models)[accepted[:-1]].tolist()),
            share=float(mix.share[t]),
            gpu_resource=self.card.resources[t] if self.card.resources else "",
        )

    def mix_for(self, types: Sequence[GpuType]) -> MixArrays:
        """Return the mix for a cluster that numbers GPU types like this; a model that is not known is as none."""
        if self.card.resources:
            return self.mix._replace(accepts=accepted_types(self.pods, types))
        # Contiguous, as all arrays that kernels get: they would be compiled anew for another layout.
        return self.mix._replace(accepts=np.ascontiguousarray(self.mix.accepts[:, self._columns(types)]))

    def outlook_for(self, types: Sequence[GpuType]) -> OutlookArrays:
        """The outlook, which must be there, for a cluster that numbers GPU types like this."""
        assert self.outlook is not None
        if self.card.resources:
            return self.outlook._replace(model=demand_by_type(self.pods, self.mix_for(types)))
        return self.outlook._replace(model=np.ascontiguousarray(self.outlook.model[self._columns(types)]))

    def warnings(self, policy: str, types: Sequence[GpuType]) -> tuple[str, ...]:
        """Say in a line, if so, that the mix does not know some of a cluster's GPU models."""
        unknown = sorted({each.model for each in types} - {"", *self.card.models})
        if not unknown:
            return ()
        return (
            f"policy {policy!r} was prepared for {', '.join(self.card.models) or 'no GPU models'}; to it, nodes with "
            f"{', '.join(unknown)} are of no known model: prepare it for these nodes",
        )

    def _columns(self, types: Sequence[GpuType]) -> list[int]:
        number = {model: i for i, model in enumerate(self.card.models)}
        return [number.get(each.model, len(number)) for each in (*types, ANY_GPU)]


def bake(workload: Workload, view: str) -> tuple[MixCard, Arrays]:
    """The mix of a workload, and what the view sees in it, as tensors."""
    pods = typical_pods(workload.pods[i] for i in workload.demand())
    named = {node.gpu_model for node in workload.nodes} | {model for pod in pods for model in pod.gpu_models}
    models = tuple(sorted(named - {""}))
    mix = mix_arrays(pods, [GpuType(model, ()) for model in models])
    named_gpus = tuple(pod.gpu_resource for pod in pods)
    arrays: Arrays = {f"{MIX}{name}": array for name, array in mix._asdict().items()}
    arrays[f"{MIX}accepts"] = mix.accepts.astype(np.uint8)
    if view == VIEW:
        arrays |= {f"{OUTLOOK}{name}": array for name, array in outlook_arrays(pods, mix)._asdict().items()}
    return MixCard(VERSION, workload.name, len(pods), models, named_gpus if any(named_gpus) else ()), arrays


def is_baked(name: str) -> bool:
    """Return True for the name of a tensor that `bake` makes, and no weight."""
    return name.startswith((MIX, OUTLOOK))


def split(arrays: Arrays) -> tuple[Arrays, Arrays]:
    """The weights of a policy file, and what `bake` put beside them."""
    baked = {name: array for name, array in arrays.items() if is_baked(name)}
    return {name: array for name, array in arrays.items() if name not in baked}, baked


def open_prepared(file: str, card: MixCard | None, view: View, baked: Arrays) -> Prepared | None:
    """What was baked into a policy file; None if nothing was.

    Raises:
        InputError: it is of another version, or a tensor is missing, of another shape, or out of range.
    """
    if card is None:
        for name in sorted(baked):
            raise InputError(file, "tensor", name, "belongs to a mix, but the card has none")
        return None
    if card.version != VERSION:
        problem = f"is {card.version}, but this version of steersman reads {VERSION}: prepare the policy again"
        raise InputError(file, "card", "mix.version", problem)
    if card.typical_pods < 0:
        raise InputError(file, "card", "mix.typical_pods", f"is {card.typical_pods}; 0 or more is right")
    if card.resources and len(card.resources) != card.typical_pods:
        problem = f"has {len(card.resources)} names for {card.typical_pods} typical pods; one each is right, or none"
        raise InputError(file, "card", "mix.resources", problem)
    reader = _Reader(file, card, baked)
    mix = reader.mix()
    outlook = reader.outlook(len(mix.milli)) if view.name == VIEW else None
    for name in sorted(baked.keys() - reader.read):
        raise InputError(file, "tensor", name, f"is not one that the view {view.name!r} sees")
    digest = hashlib.sha256(repr(card).encode())
    for name in sorted(baked):
        digest.update(name.encode() + baked[name].tobytes())
    return Prepared(card, mix, outlook, digest.hexdigest())


class _Reader:
    """Reads tensors and checks that kernels cannot be led astray by them."""

    def __init__(self, file: str, card: MixCard, baked: Arrays) -> None:
        self.file, self.card, self.baked = file, card, baked
        self.read: set[str] = set()

    def mix(self) -> MixArrays:
        pods, models = self.card.typical_pods, len(self.card.models)
        milli = self._whole("mix.milli", (-1,), 1, WHOLE)
        if not (np.diff(milli) > 0).all():
            raise InputError(self.file, "tensor", "mix.milli", "is not in increasing order")
        accepts = self._whole("mix.accepts", (pods, models + 1), 0, 1)
        count = self._whole("mix.gpu_count", (pods,), 0, 64)
        if count.any() and not len(milli):
            raise InputError(self.file, "tensor", "mix.milli", "is empty, but typical pods ask for GPUs")
        return MixArrays(
            cpu=self._whole("mix.cpu", (pods,), 0, 1 << 40),
            gpu_count=count,
            milli=milli,
            value=self._whole("mix.value", (pods,), 0, max(0, len(milli) - 1)),
            accepts=accepts.astype(np.bool_),
            share=self._real("mix.share", (pods,)),
        )

    def outlook(self, milli: int) -> OutlookArrays:
        pods, models, amounts = self.card.typical_pods, len(self.card.models), WHOLE + 1
        return OutlookArrays(
            tables=self._real("outlook.tables", (len(TABLES), amounts)),
            counts=self._whole("outlook.counts", (milli, amounts), 0, WHOLE),
            group=self._whole("outlook.group", (pods,), 0, len(GROUPS) - 1),
            pods_per_cpu=self._real("outlook.pods_per_cpu", (pods,)),
            sequences=self._whole("outlook.sequences", (SEQUENCES, -1 if pods else 0), 0, max(0, pods - 1)),
            model=self._real("outlook.model", (models + 1, 2)),
            ratios=self._real("outlook.ratios", (2,)),
            smallest=self._whole("outlook.smallest", (1,), 0, WHOLE),
        )

    def _whole(self, name: str, shape: tuple[int, ...], low: int, high: int) -> npt.NDArray[np.int64]:
        array = self._tensor(name, shape, np.integer)
        if array.size and not (low <= array.min() and array.max() <= high):
            raise InputError(self.file, "tensor", name, f"has a value outside {low} to {high}")
        return np.ascontiguousarray(array, dtype=np.int64)

    def _real(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        return np.ascontiguousarray(self._tensor(name, shape, np.floating), dtype=np.float64)

    def _tensor(self, name: str, shape: tuple[int, ...], kind: type[Any]) -> npt.NDArray[Any]:
        """A tensor; -1 in `shape` stands for any length."""
        array = self.baked.get(name)
        if array is None:
            raise InputError(self.file, "tensor", name, "is missing; prepare the policy again")
        fits = array.ndim == len(shape) and all(b in (-1, a) for a, b in zip(array.shape, shape, strict=True))
        if not fits or not np.issubdtype(array.dtype, kind):
            found = f"{array.dtype} of shape {list(array.shape)}"
            right = f"{'whole' if kind is np.integer else 'real'} numbers of shape {list(shape)}"
            raise InputError(self.file, "tensor", name, f"is {found}; {right} are right")
        self.read.add(name)
        return array
