"""A node in plain Python, which tests compare with compiled ones."""

from __future__ import annotations

from steersman.cluster.model import Node, Pod
from steersman.workloads.profile import TypicalPod


class SlowNode:
    """A node with its pods and what is left of it, as a person would write it down."""

    def __init__(self, node: Node) -> None:
        self.node, self.cpu, self.memory = node, node.cpu_milli, node.memory_bytes
        self.gpus = [1000] * node.gpu_count
        self.pods: list[Pod] = []

    def fits(self, pod: Pod) -> bool:
        r, models = pod.requests, pod.constraints.gpu_models
        enough = sum(left >= r.gpu_milli for left in self.gpus) >= r.gpu_count
        may = (not models or self.node.gpu_model in models) and len(self.pods) < self.node.pods
        return r.cpu_milli <= self.cpu and r.memory_bytes <= self.memory and enough and may

    def best_devices(self, pod: Pod) -> list[int]:
        able = [(left, d) for d, left in enumerate(self.gpus) if left >= pod.requests.gpu_milli]
        return [d for _, d in sorted(able)[: pod.requests.gpu_count]]

    def take(self, pod: Pod, devices: list[int], sign: int = 1) -> None:
        self.cpu -= sign * pod.requests.cpu_milli
        self.memory -= sign * pod.requests.memory_bytes
        for d in devices:
            self.gpus[d] -= sign * pod.requests.gpu_milli
        self.pods.append(pod) if sign > 0 else self.pods.remove(pod)

    def fragmentation(self, profile: tuple[TypicalPod, ...]) -> float:
        """Return the idle milli GPUs that the typical pods could not use."""
        idle, total = sum(self.gpus), 0.0
        for typical in profile:
            fit = sum(left >= typical.gpu_milli for left in self.gpus) >= typical.gpu_count
            model_ok = not typical.gpu_models or self.node.gpu_model in typical.gpu_models
            if typical.gpu_count and model_ok and fit and self.cpu >= typical.cpu_milli:
                total += typical.share * sum(left for left in self.gpus if left < typical.gpu_milli)
            else:
                total += typical.share * idle
        return total
