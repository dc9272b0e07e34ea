"""Shapes of nodes in a few words: `64cpu,256Gi,110pods,8gpu:A100`.

`8gpu` are GPUs that pods may share, `8nvidia.com/gpu` those of a device plugin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from steersman.cluster.model import GPU_MODEL_KEY, PLUGIN_GPUS, SHARED_GPUS, Node
from steersman.core.errors import UsageError
from steersman.core.quantities import MAX_CPU_MILLI, MAX_MEMORY_BYTES, MAX_NODE_GPUS, bytes_, cpu_milli, plausible

EXAMPLE = "64cpu,256Gi,110pods,8gpu:A100"
DEFAULT_PREFIX = "node"
"""Of the names of nodes: node-0000 and on."""
MAX_PODS = 1_000_000
MAX_COUNTED_GPUS = 10_000
MIN_MEMORY_BYTES = 1 << 20

# The longest first: `nvidia.com/gpu` is the beginning of `nvidia.com/gpu.shared`.
_GPUS = "|".join(map(re.escape, sorted(PLUGIN_GPUS, key=len, reverse=True)))
_PART = re.compile(
    rf"(?P<amount>[0-9.]+[A-Za-z]*?)(?P<what>cpu|pods|gpu|{_GPUS})(?::(?P<model>.*))?|(?P<memory>[0-9].*)"
)
_GROUP = re.compile(r"(?:(?P<name>[^=]*)=)?(?P<shape>.*?)(?::(?P<count>[0-9]+))?", re.DOTALL)
_NODE_PREFIX = re.compile("[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_LABEL = re.compile("[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class NodeShape:
    """Capacity of each of some equal nodes: milli-CPU, bytes of memory, pods, GPUs, their resource name and model."""

    cpu_milli: int
    memory_bytes: int
    pods: int = 110
    gpu_count: int = 0
    gpu_model: str = ""
    gpu_resource: str = SHARED_GPUS

    def node(self, name: str) -> Node:
        """Return a node of this shape; GPUs beyond what a bit mask holds become an extended resource."""
        node = Node(name, self.cpu_milli, self.memory_bytes, self.pods)
        if self.gpu_count > MAX_NODE_GPUS:
            labels = {GPU_MODEL_KEY: self.gpu_model} if self.gpu_model else {}
            return replace(node, extended=((self.gpu_resource, self.gpu_count),), labels=labels)
        names = (self.gpu_resource,) if self.gpu_count else ()
        return replace(node, gpu_count=self.gpu_count, gpu_model=self.gpu_model, gpu_resources=names)


def parse_shape(text: str) -> NodeShape:
    """Return the shape of a text such as `64cpu,256Gi,110pods,8gpu:A100`; pods and GPUs are optional.

    `8nvidia.com/gpu:A100` are GPUs of that device plugin.

    Raises:
        UsageError: a part is unknown, repeated or missing, or no machine has as much.
    """
    result: dict[str, int | str] = {}

    def take(name: str, value: int | str) -> None:
        if name in result:
            raise _wrong(text, f"{name.partition('_')[0]} is there twice")
        result[name] = value

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
        if name not in result:
            raise _wrong(text, f"{name.partition('_')[0]} is missing ({example})")
    return NodeShape(**result)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one shape: the prefix of their names, the shape, and how many; None: as many as are asked for."""

    name: str
    shape: NodeShape
    count: int | None = None


def parse_groups(texts: Sequence[str]) -> list[NodeGroup]:
    """Return the groups of texts such as `64cpu,256Gi`, `a=8cpu,32Gi` or `b=96cpu,768Gi,8gpu:A100:20` (20 of them).

    Raises:
        UsageError: a text is no shape, its name is none of a node, or two groups have the same name.
    """
    groups: list[NodeGroup] = []
    for text in texts:
        match = _GROUP.fullmatch(text)
        assert match is not None
        name = DEFAULT_PREFIX if match["name"] is None else match["name"].strip()
        if not _NODE_PREFIX.fullmatch(name):
            raise UsageError(
                f"--node-shape {text}: {name!r} is not a name of nodes; expected a-z, 0-9 and - inside, at most 40"
            )
        if any(name == group.name for group in groups):
            raise UsageError(
                f"--node-shape {text}: there is a shape {name!r} already; give each a name, as b={EXAMPLE}"
            )
        # Ten digits are more than any limit, and spare a conversion of thousands.
        count = None if match["count"] is None else int(match["count"][:10])
        groups.append(NodeGroup(name, parse_shape(match["shape"]), count))
    return groups


def is_label(text: str) -> bool:
    """Return whether Kubernetes accepts a text as the value of a label that is not empty."""
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
        raise _wrong(text, f"{digits!r} is not a number from 1 to {most}")
    return int(digits)


def _model(text: str, model: str) -> str:
    if not is_label(model):
        raise _wrong(text, f"{model!r} is no GPU model that a label can hold (letters, digits and - . _ inside)")
    return model


def _wrong(text: str, problem: str) -> UsageError:
    return UsageError(f"--node-shape {text}: {problem}; {EXAMPLE} is a shape")
