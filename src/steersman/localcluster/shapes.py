"""What a node holds, in a few words: `64cpu,256Gi,110pods,8gpu:A100`.

`8gpu` are GPUs that pods share, `8nvidia.com/gpu` those of a device plugin.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from steersman.cluster.gpu_resources import GPU_MODEL_KEY, PLUGIN_GPUS, SHARED_GPUS
from steersman.cluster.model import Node
from steersman.errors import UsageError
from steersman.quantities import (
    MAX_CPU_MILLI,
    MAX_MEMORY_BYTES,
    MAX_NODE_GPUS,
    bytes_,
    cpu_milli,
    plausible,
)

EXAMPLE = "64cpu,256Gi,110pods,8gpu:A100"
MAX_PODS = 1_000_000
MAX_COUNTED_GPUS = 10_000
MIN_MEMORY_BYTES = 1 << 20

_GPUS = "|".join(map(re.escape, sorted(PLUGIN_GPUS, key=len, reverse=True)))
_PART = re.compile(
    rf"(?P<amount>[0-9.]+[A-Za-z]*?)(?P<what>cpu|pods|gpu|{_GPUS})(?::(?P<model>.*))?|(?P<memory>[0-9].*)"
)
_LABEL = re.compile("[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Shape:
    """What each of some equal nodes holds: milli-CPU, bytes of memory, pods, GPUs, their name and their model."""

    cpu_milli: int
    memory_bytes: int
    pods: int = 110
    gpu_count: int = 0
    gpu_model: str = ""
    gpu_resource: str = SHARED_GPUS

    def node(self, name: str) -> Node:
        """A node of this shape. More GPUs than are looked at one by one are counted."""
        node = Node(name, self.cpu_milli, self.memory_bytes, self.pods)
        if self.gpu_count > MAX_NODE_GPUS:
            labels = {GPU_MODEL_KEY: self.gpu_model} if self.gpu_model else {}
            return replace(node, extended=((self.gpu_resource, self.gpu_count),), labels=labels)
        names = (self.gpu_resource,) if self.gpu_count else ()
        return replace(node, gpu_count=self.gpu_count, gpu_model=self.gpu_model, gpu_resources=names)


def parse_shape(text: str) -> Shape:
    """The shape that `64cpu,256Gi,110pods,8gpu:A100` names; the parts may stand in any order, pods and gpu be left out.

    `8nvidia.com/gpu:A100` are GPUs of that device plugin.

    Raises:
        UsageError: something is no part of a shape, is there twice or missing, or no machine has as much.
    """
    found: dict[str, int | str] = {}

    def take(name: str, value: int | str) -> None:
        if name in found:
            raise _wrong(text, f"{name.partition('_')[0]} is there twice")
        found[name] = value

    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None or (match["model"] is not None and match["what"] in ("cpu", "pods")):
            raise _wrong(text, f"{part.strip()!r} is no part of a shape")
        if match["memory"]:
            take("memory_bytes", _memory(text, match["memory"]))
        elif match["what"] == "cpu":
            take("cpu_milli", _amount(text, cpu_milli, match["amount"], MAX_CPU_MILLI))
        elif match["what"] == "pods":
            take("pods", _count(text, match["amount"], MAX_PODS))
        else:
            is_shared = match["what"] == "gpu"
            take("gpu_count", _count(text, match["amount"], MAX_NODE_GPUS if is_shared else MAX_COUNTED_GPUS))
            if not is_shared:
                take("gpu_resource", match["what"])
            if match["model"] is not None:
                take("gpu_model", _model(text, match["model"]))
    for name, example in (("cpu_milli", "64cpu"), ("memory_bytes", "256Gi")):
        if name not in found:
            raise _wrong(text, f"{name.partition('_')[0]} is missing ({example})")
    return Shape(**found)  # type: ignore[arg-type]


def is_label(text: str) -> bool:
    """Whether Kubernetes takes a text for the value of a label that is not empty."""
    return _LABEL.fullmatch(text) is not None


def _amount(text: str, parse: Callable[[str], int], quantity: str, most: int) -> int:
    try:
        amount = plausible(parse(quantity), most, quantity)
    except ValueError as error:
        raise _wrong(text, str(error)) from None
    if not amount:
        raise _wrong(text, f"{quantity!r} is nothing")
    return amount


def _memory(text: str, quantity: str) -> int:
    amount = _amount(text, bytes_, quantity, MAX_MEMORY_BYTES)
    if amount < MIN_MEMORY_BYTES:
        raise _wrong(text, f"{quantity!r} would be {amount} bytes of memory; is the unit missing?")
    return amount


def _count(text: str, digits: str, most: int) -> int:
    if not digits.isdigit() or not 0 < int(digits[:10]) <= most:
        raise _wrong(text, f"{digits!r} is no number from 1 to {most}")
    return int(digits)


def _model(text: str, model: str) -> str:
    if not is_label(model):
        raise _wrong(text, f"{model!r} is no GPU model that a label can hold (letters, digits and - . _ inside)")
    return model


def _wrong(text: str, problem: str) -> UsageError:
    return UsageError(f"--node-shape {text}: {problem}; {EXAMPLE} is a shape")
