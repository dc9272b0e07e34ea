"""The configured policy of a live cluster, reloaded when its file changes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import structlog

from steersman.core.errors import SteersmanError
from steersman.kubernetes.credentials import file_stamp
from steersman.policies.base import Policy
from steersman.policies.files.policy_file import SUFFIX, Card, ComparedOn, read_policy
from steersman.policies.registry import PORTFOLIO_NAMES, check_telemetry, policy_path, resolve, split_limit

COMPARED_OBJECTIVE = "allocation"
"""Objective by which a comparison with rules ranks policies."""

log = structlog.get_logger("policy")


class PolicyReloader:
    """A policy by name or file, with change detection for files.

    Args:
        spec: name or file of the policy.
        has_telemetry: whether nodes' metrics are queried, without which a policy trained on them cannot decide.
        policy: a policy that has neither; `spec` is then its name.

    Attributes:
        policy: the loaded policy.
        version: digest of the policy's file; "" for a policy without a file.
        problem: why the file's present content is unusable; "" if it is usable.
        reads: number of reads by result, "loaded" or "refused".
    """

    def __init__(self, spec: str, *, has_telemetry: bool = False, policy: Policy | None = None) -> None:
        self.spec, self._given, self.problem = spec, policy, ""
        self._has_telemetry = has_telemetry
        self.reads = {"loaded": 1, "refused": 0}
        # Before the file is read: a change in between is then noticed at the next check.
        self._stamp = self._file_stamp()
        self._read()

    @property
    def has_file(self) -> bool:
        """Whether the policy comes from a policy file; rules and user code have none."""
        return self._card is not None

    @property
    def other_objective(self) -> str:
        """Objective that the policy was trained for if it is not GPU allocation, else ""."""
        objective = self._card.objective if self._card is not None else COMPARED_OBJECTIVE
        return "" if objective == COMPARED_OBJECTIVE else objective

    @property
    def compared_on(self) -> ComparedOn | None:
        """Cluster on which the policy was compared with rules when its file was written; None if it was not."""
        return None if self._card is None else self._card.compared_on

    def renewed(self) -> bool:
        """Reload the file if it changed, and return True if it was reloaded.

        A file that cannot be used is logged once and leaves the present policy in place.
        """
        stamp = self._file_stamp()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._read()
        except SteersmanError as error:
            self.problem = str(error)
            self.reads["refused"] += 1
            log.error("policy file cannot be used; the previous policy stays active", error=self.problem)
            return False
        self.problem = ""
        self.reads["loaded"] += 1
        log.info("policy file reloaded", policy=self.policy.name)
        return True

    def _read(self) -> None:
        source = self.spec
        policy = resolve(source) if self._given is None else self._given
        check_telemetry(policy, source, has_telemetry=self._has_telemetry)
        card: Card | None = None
        version = ""
        if self._given is None and ((name := split_limit(source)[0]) in PORTFOLIO_NAMES or name.endswith(SUFFIX)):
            with policy_path(source) as path:
                card = read_policy(path)[0]
                version = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        self.policy, self._card, self.version = policy, card, version

    def _file_stamp(self) -> tuple[str, int, int, int] | None:
        """Return a value that changes with the file, or None without a file."""
        stamp = file_stamp(Path(self.spec)) if self.spec.endswith(SUFFIX) else None
        return None if stamp is None else (self.spec, *stamp)
