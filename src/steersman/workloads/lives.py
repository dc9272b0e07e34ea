"""When pods of Kubernetes objects were created, began to run, and ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steersman.cluster.model import Pod


@dataclass(frozen=True, slots=True)
class Life:
    """Times of a pod in seconds since 1970; None: it has not happened, or is not known.

    Attributes:
        created: when it was submitted.
        started: when its kubelet began with it.
        deleted: when it will be gone, of a pod that is being deleted.
    """

    created: float | None
    started: float | None
    deleted: float | None = None


@dataclass(frozen=True, slots=True)
class EndedPod:
    """A pod that succeeded or failed after it had run.

    Attributes:
        pod: the pod.
        created: when it was submitted, seconds since 1970.
        started: when its kubelet began with it.
        ended: when its last container ended, else its Job, or when it was deleted.
    """

    pod: Pod
    created: float
    started: float
    ended: float


@dataclass(frozen=True, slots=True)
class Lives:
    """Lives of the pods of a source.

    Attributes:
        present: by (namespace, name) those of pods that have not ended, with and without a node.
        ended: the others, in order of their end.
        untimed: number of pods that have ended and do not say when they ran.
        latest: the latest time that an object of the source states as past, None: no time is stated.
    """

    present: Mapping[tuple[str, str], Life] = field(default_factory=dict)
    ended: tuple[EndedPod, ...] = ()
    untimed: int = 0
    latest: float | None = None
