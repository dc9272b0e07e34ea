"""The policy that the user named for a live cluster, read anew when its file changes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import structlog

from steersman.errors import SteersmanError
from steersman.kube.credentials import file_stamp
from steersman.policies.policy_file import SUFFIX, Card, ComparedOn, read_policy
from steersman.policies.registry import SHIPPED, policy_path, resolve

COMPARED_OBJECTIVE = "allocation"
"""What a comparison with rules measures."""

log = structlog.get_logger("policy")


class PolicyFile:
    """The policy that a name stands for, and whether its file has become another.

    Args:
        spec: a name or file.
        fitted: a file that takes its place as soon as it is there.

    Attributes:
        policy: which.
        version: the digest of its file, "" for a policy without one.
        problem: why the file as it is now cannot be used, "" if it can.
        reads: how often it was read, and how often it could not be used.
    """

    def __init__(self, spec: str, fitted: Path | None = None) -> None:
        self.spec, self._fitted, self.problem = spec, fitted, ""
        self.reads = {"read": 1, "refused": 0}
        self._stamp = self._now()
        self._read()

    @property
    def is_learned(self) -> bool:
        """Whether it is a policy file: the rules and the user's own code have none."""
        return self._card is not None

    @property
    def other_objective(self) -> str:
        """What the policy was made for, if that is something else than to allocate GPUs; else ""."""
        objective = self._card.objective if self._card is not None else COMPARED_OBJECTIVE
        return "" if objective == COMPARED_OBJECTIVE else objective

    @property
    def compared_on(self) -> ComparedOn | None:
        """What it was compared with rules on when it was made, if it was."""
        return None if self._card is None else self._card.compared_on

    def renewed(self) -> bool:
        """Whether the file is another and could be read. One that cannot be read changes nothing and is said once."""
        stamp = self._now()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._read()
        except SteersmanError as error:
            self.problem = str(error)
            self.reads["refused"] += 1
            log.error("policy file cannot be used; the former policy goes on", error=self.problem)
            return False
        self.problem = ""
        self.reads["read"] += 1
        log.info("policy file read anew", policy=self.policy.name)
        return True

    def _source(self) -> str:
        return str(self._fitted) if self._fitted is not None and self._fitted.exists() else self.spec

    def _read(self) -> None:
        source = self._source()
        policy = resolve(source)
        card: Card | None = None
        version = ""
        if source == SHIPPED or source.endswith(SUFFIX):
            with policy_path(source) as path:
                card = read_policy(path)[0]
                version = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        self.policy, self._card, self.version = policy, card, version

    def _now(self) -> tuple[str, int, int, int] | None:
        """What changes with the file; None where there is none."""
        source = self._source()
        stamp = file_stamp(Path(source)) if source.endswith(SUFFIX) else None
        return None if stamp is None else (source, *stamp)
