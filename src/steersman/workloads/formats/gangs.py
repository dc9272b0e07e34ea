"""Jobs that are larger than a node: their pods, which start together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from steersman.cluster.model import Pod, PodClass
from steersman.core.quantities import ceil_div


def shares(amount: int, largest: int) -> tuple[int, ...]:
    """Return the amounts of the fewest pods that fit into nodes with `largest` each.

    They are equal if `amount` divides evenly; else all but the last fill a node. A `largest` of 0 divides nothing.
    """
    if not 0 < largest < amount:
        return (amount,)
    count = ceil_div(amount, largest)
    if amount % count == 0:
        return (amount // count,) * count
    return (*(largest,) * (count - 1), amount - largest * (count - 1))


def pods_of_job(job: Pod, amount: int, largest: int, class_of: Callable[[int], PodClass]) -> Iterator[Pod]:
    """Yield the pods of a job: itself, or a gang with its name if it is larger than the largest node.

    Args:
        job: the job as one pod.
        amount: what it requests in all: processors or GPUs.
        largest: what the largest node has, 0 without nodes.
        class_of: returns the class of a pod by its amount.
    """
    amounts = shares(amount, largest)
    if len(amounts) == 1:
        yield job
        return
    for i, share in enumerate(amounts):
        yield replace(job, name=f"{job.name}-{i}", pod_class=class_of(share), gang=job.name)
