"""Prepared policies: the profile, and the leftover tables computed from it, embedded in the policy file.

A policy knows which pods are typical (`workloads.profile`), and the view `gpu` also reads the leftover tables
(`policies.leftovers`), which take a second to compute. As tensors in the file both are equal wherever it is
used. GPU models are numbered as the file's card lists them; the last column or row is "no known model". Resource names
of GPUs are kept by typical pod: which types of a cluster's devices these may use is computed where the file is used.
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

from steersman.cluster.model import ANY_GPU, GPU_MILLI, GpuType
from steersman.core.errors import InputError
from steersman.policies.features import View
from steersman.policies.learned_weights import GPU_VIEW
from steersman.policies.leftovers import SEQUENCES, LeftoverArrays, leftover_arrays
from steersman.workloads.profile import ProfileArrays, TypicalPod, accepted_types, profile_arrays, typical_pods
from steersman.workloads.workload import Workload

VERSION = 3
PROFILE, LEFTOVERS = "mix.", "outlook."
"""Prefixes of the names of tensors, from before these were called profile and leftovers; the name of a field of
`ProfileArrays` or `LeftoverArrays` follows."""

Arrays = dict[str, npt.NDArray[Any]]


class ProfileCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The model card's description of the profile in the file."""

    version: int  # of these tensors
    workload: str  # the workload that it was derived from
    typical_pods: int  # number of kinds of pods
    models: tuple[str, ...] = ()  # the GPU models that it knows, in the order of its tensors
    # By typical pod, the resource name of the GPUs that it requests, "" for any; empty if all take any
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class EmbeddedProfile:
    """A profile, and its leftover tables."""

    card: ProfileCard  # its description
    profile: ProfileArrays  # by the models of the card
    leftovers: LeftoverArrays | None  # likewise, None for a view that does not read them
    digest: str  # equal for equal contents

    @cached_property
    def pods(self) -> tuple[TypicalPod, ...]:
        return tuple(self._pod(t) for t in range(len(self.profile.cpu)))

    def _pod(self, t: int) -> TypicalPod:
        profile, count = self.profile, int(self.profile.gpu_count[t])
        accepted = profile.accepts[t]
        return TypicalPod(
            cpu_milli=int(profile.cpu[t]),
            gpu_milli=int(profile.milli[profile.value[t]]) if count else 0,
            gpu_count=count,
            # The last column is "no known model": a pod that accepts it names no models.
            gpu_models=() if accepted[-1] else tuple(np.array(self.card.models)[accepted[:-1]].tolist()),
            share=float(profile.share[t]),
            gpu_resource=self.card.resources[t] if self.card.resources else "",
        )

    def profile_for(self, types: Sequence[GpuType]) -> ProfileArrays:
        """Return the profile for a cluster that numbers GPU types like this; an unknown model is as none."""
        if self.card.resources:
            return self.profile._replace(accepts=accepted_types(self.pods, types))
        return self.profile._replace(accepts=np.ascontiguousarray(self.profile.accepts[:, self._columns(types)]))

    def warnings(self, policy: str, types: Sequence[GpuType]) -> tuple[str, ...]:
        """Return a warning if the profile does not know some of a cluster's GPU models."""
        unknown = sorted({each.model for each in types} - {"", *self.card.models})
        if not unknown:
            return ()
        return (
            f"policy {policy!r} was prepared for {', '.join(self.card.models) or 'no GPU models'}; to it, nodes with "
            f"{', '.join(unknown)} are of no known model: prepare it for these nodes",
        )

    def _columns(self, types: Sequence[GpuType]) -> list[int]:
        number = {model: i for i, model in enumerate(self.card.models)}
        # Models that the file does not know get its last column.
        return [number.get(each.model, len(number)) for each in (*types, ANY_GPU)]


def embed_profile(workload: Workload, view: str) -> tuple[ProfileCard, Arrays]:
    """Return the profile of a workload, and the leftover tables of the view, as tensors."""
    pods = typical_pods(workload.pods[i] for i in workload.demand())
    named = {node.gpu_model for node in workload.nodes} | {model for pod in pods for model in pod.gpu_models}
    models = tuple(sorted(named - {""}))
    profile = profile_arrays(pods, [GpuType(model, ()) for model in models])
    named_gpus = tuple(pod.gpu_resource for pod in pods)
    arrays: Arrays = {f"{PROFILE}{name}": array for name, array in profile._asdict().items()}
    arrays[f"{PROFILE}accepts"] = profile.accepts.astype(np.uint8)
    if view == GPU_VIEW:
        arrays |= {f"{LEFTOVERS}{name}": array for name, array in leftover_arrays(pods)._asdict().items()}
    return ProfileCard(VERSION, workload.name, len(pods), models, named_gpus if any(named_gpus) else ()), arrays


def is_profile_tensor(name: str) -> bool:
    """Return whether a tensor's name is one of `embed_profile` rather than of a weight."""
    return name.startswith((PROFILE, LEFTOVERS))


def split(arrays: Arrays) -> tuple[Arrays, Arrays]:
    """Return the weights of a policy file, and the tensors that `embed_profile` added."""
    profile_tensors = {name: array for name, array in arrays.items() if is_profile_tensor(name)}
    return {name: array for name, array in arrays.items() if name not in profile_tensors}, profile_tensors


def open_prepared(file: str, card: ProfileCard | None, view: View, profile_tensors: Arrays) -> EmbeddedProfile | None:
    """Return the profile embedded in a policy file, or None.

    Raises:
        InputError: it is of another version, or a tensor is missing, of another shape, or out of range.
    """
    if card is None:
        for name in sorted(profile_tensors):
            raise InputError(file, "tensor", name, "belongs to a workload profile (`mix`), but the card has none")
        return None
    if card.version != VERSION:
        problem = f"is {card.version}, but this version of steersman reads {VERSION}: prepare the policy again"
        raise InputError(file, "card", "mix.version", problem)
    if card.typical_pods < 0:
        raise InputError(file, "card", "mix.typical_pods", f"is {card.typical_pods}; expected 0 or more")
    if card.resources and len(card.resources) != card.typical_pods:
        problem = f"has {len(card.resources)} names for {card.typical_pods} typical pods; expected one each, or none"
        raise InputError(file, "card", "mix.resources", problem)
    reader = _Reader(file, card, profile_tensors)
    profile = reader.profile()
    leftovers = reader.leftovers() if view.name == GPU_VIEW else None
    for name in sorted(profile_tensors.keys() - reader.read):
        raise InputError(file, "tensor", name, f"is not one that the view {view.name!r} sees")
    digest = hashlib.sha256(repr(card).encode())
    for name in sorted(profile_tensors):
        digest.update(name.encode() + profile_tensors[name].tobytes())
    return EmbeddedProfile(card, profile, leftovers, digest.hexdigest())


class _Reader:
    """Read tensors and check that kernels stay within their bounds."""

    def __init__(self, file: str, card: ProfileCard, profile_tensors: Arrays) -> None:
        self.file, self.card, self.profile_tensors = file, card, profile_tensors
        self.read: set[str] = set()

    def profile(self) -> ProfileArrays:
        pods, models = self.card.typical_pods, len(self.card.models)
        milli = self._whole("mix.milli", (-1,), 1, GPU_MILLI)
        # `leftover_tables` searches it by bisection.
        if not (np.diff(milli) > 0).all():
            raise InputError(self.file, "tensor", "mix.milli", "is not in increasing order")
        accepts = self._whole("mix.accepts", (pods, models + 1), 0, 1)
        count = self._whole("mix.gpu_count", (pods,), 0, 64)
        if count.any() and not len(milli):
            raise InputError(self.file, "tensor", "mix.milli", "is empty, but typical pods ask for GPUs")
        return ProfileArrays(
            cpu=self._whole("mix.cpu", (pods,), 0, 1 << 40),
            gpu_count=count,
            milli=milli,
            value=self._whole("mix.value", (pods,), 0, max(0, len(milli) - 1)),
            accepts=accepts.astype(np.bool_),
            share=self._real("mix.share", (pods,)),
        )

    def leftovers(self) -> LeftoverArrays:
        pods = self.card.typical_pods
        return LeftoverArrays(
            planned=self._real("outlook.planned", (GPU_MILLI + 1,)),
            sequences=self._whole("outlook.sequences", (SEQUENCES, -1 if pods else 0), 0, max(0, pods - 1)),
            ratios=self._real("outlook.ratios", (2,)),
            smallest=self._whole("outlook.smallest", (1,), 0, GPU_MILLI),
        )

    def _whole(self, name: str, shape: tuple[int, ...], low: int, high: int) -> npt.NDArray[np.int64]:
        array = self._tensor(name, shape, np.integer)
        if array.size and not (low <= array.min() and array.max() <= high):
            raise InputError(self.file, "tensor", name, f"has a value outside {low} to {high}")
        return np.ascontiguousarray(array, dtype=np.int64)

    def _real(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        return np.ascontiguousarray(self._tensor(name, shape, np.floating), dtype=np.float64)

    def _tensor(self, name: str, shape: tuple[int, ...], kind: type[Any]) -> npt.NDArray[Any]:
        array = self.profile_tensors.get(name)
        if array is None:
            raise InputError(self.file, "tensor", name, "is missing; prepare the policy again")
        fits = array.ndim == len(shape) and all(b in (-1, a) for a, b in zip(array.shape, shape, strict=True))
        if not fits or not np.issubdtype(array.dtype, kind):
            found = f"{array.dtype} of shape {list(array.shape)}"
            right = f"{'whole' if kind is np.integer else 'real'} numbers of shape {list(shape)}"
            raise InputError(self.file, "tensor", name, f"is {found}; expected {right}")
        self.read.add(name)
        return array
