"""kube-scheduler's own plugins as a process that answers questions about clusters (controlplane/internal/explain)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from tests.support.kubernetes import control_plane_programs


class Verdict(msgspec.Struct, frozen=True):
    """What the plugin that refuses a pod says."""

    plugin: str
    reasons: list[str]
    code: str


class Tried(msgspec.Struct, frozen=True):
    """The dry run of a preemption on a node; see the Go type of that name."""

    node: str
    victims: list[str]
    violations: int


class PostFilter(msgspec.Struct, frozen=True):
    """What preemption makes of a pod that fits nowhere; see the Go type `Preemption`."""

    node: str
    message: str
    potential: list[str]
    tried: list[Tried] | None = None


class Decision(msgspec.Struct, frozen=True):
    """What kube-scheduler decides about a pod; see the Go type of that name."""

    node: str
    feasible: list[str]
    refused: dict[str, Verdict]
    message: str = ""
    gated: Verdict | None = None
    everywhere: Verdict | None = None
    scores: dict[str, dict[str, int]] | None = None
    total: dict[str, int] | None = None
    preemption: PostFilter | None = None
    pod: dict[str, Any] | None = None


class Answer(msgspec.Struct, frozen=True):
    """Decisions about the pods of a question; `error` says why there are none."""

    pods: list[Decision] | None = None
    error: str = ""
    objects: list[dict[str, Any]] | None = None


_answer = msgspec.json.Decoder(Answer).decode


class Explainer:
    """Answers questions, one after the other."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def ask(self, objects: Sequence[object], pods: Sequence[object], **more: object) -> Answer:
        """Return decisions about pods in a cluster of objects.

        `more`: `configuration`, a KubeSchedulerConfiguration; `assume`, whether each pod counts where it was placed
        when the next one is scheduled; `admitted`, whether the objects are wanted as the API server stores them;
        `preemptFrom`, which of the potential nodes preemption tries first.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {"objects": objects, "pods": pods, **more}
        self._process.stdin.write(msgspec.json.encode(question) + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"kube-scheduler-explain ended with {self._process.wait()}"
        return _answer(line)


@contextmanager
def explainer() -> Iterator[Explainer]:
    """Run kube-scheduler's plugins, built first where they are missing."""
    program = control_plane_programs() / "kube-scheduler-explain"
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Explainer(process)
        finally:
            process.terminate()
