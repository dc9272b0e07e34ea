"""Policies by name: the built-in ones, weighted mixes of them, and a user's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import metadata, resources
from pathlib import Path
from tempfile import TemporaryDirectory

from steersman.errors import UsageError
from steersman.extensions import attribute_errors, import_object
from steersman.policies import forecast
from steersman.policies.heuristics import LOCAL, heuristic
from steersman.policies.policy import KubeDefaultPolicy, LocalPolicy, Policy, RandomPolicy
from steersman.policies.policy_file import SUFFIX, LearnedPolicy, open_policy, write_policy
from steersman.policies.telemetry_policy import OBJECTIVES, TelemetryPolicy

ENTRY_POINTS = "steersman.policies"

SHIPPED = "steersman"
BUILT_IN = ("random", *LOCAL, forecast.NAME, "kube-default", SHIPPED)
MAX_WEIGHT = 1 << 31

AnyPolicy = LearnedPolicy | LocalPolicy | RandomPolicy | KubeDefaultPolicy | TelemetryPolicy | Policy


def names() -> tuple[str, ...]:
    """Every registered name: the built-in policies, those of telemetry, then those of installed packages."""
    installed = sorted(point.name for point in metadata.entry_points(group=ENTRY_POINTS))
    return (*BUILT_IN, *OBJECTIVES, *installed)


def resolve(spec: str) -> AnyPolicy:
    """The policy that `spec` names: a name, a mix such as `fgd=500,gpu-packing=500`, or `module:Class`.

    Raises:
        UsageError: there is no such policy; the message lists those there are.
    """
    if "=" in spec:
        return _mix(spec)
    if spec in LOCAL:
        return heuristic(spec)
    if spec in OBJECTIVES:
        return TelemetryPolicy(spec, OBJECTIVES[spec])
    if spec == forecast.NAME:
        return forecast.forecast_policy()
    if spec == "random":
        return RandomPolicy()
    if spec == SHIPPED or spec.endswith(SUFFIX):
        with policy_path(spec) as file:
            return open_policy(file, policy_label(spec))
    if spec == "kube-default":
        return KubeDefaultPolicy()
    for point in metadata.entry_points(group=ENTRY_POINTS):
        if point.name == spec:
            with attribute_errors(f"policy {spec!r}"):
                factory = point.load()
            return _instance(spec, factory)
    if ":" in spec:
        return _instance(spec, import_object("policy", spec))
    raise UsageError(
        f"unknown policy {spec!r}; known are {', '.join(names())}, a mix (fgd=500,best-fit=500), "
        f"a policy file (run/policy{SUFFIX}), module:Class"
    )


def check_known(specs: Iterable[str]) -> None:
    """Raise SteersmanError if there is no policy of such a name, or it cannot be made, before anything else is done."""
    for spec in specs:
        with attribute_errors(f"policy {spec!r}"):
            resolve(spec)


def policy_label(spec: str) -> str:
    """What results call a policy file: its name, or for `run/policy.safetensors` that of its folder."""
    path = Path(spec)
    folder = path.parent.name
    return folder if path.stem == "policy" and folder else path.stem


@contextmanager
def policy_path(spec: str) -> Iterator[Path]:
    """The policy file that `spec` names: a path, or a built-in policy that is linear in what it sees."""
    if spec == SHIPPED:
        with resources.as_file(resources.files("steersman.data") / f"{SHIPPED}{SUFFIX}") as file:
            yield file
    elif spec == forecast.NAME:
        with TemporaryDirectory(prefix="steersman-") as folder:
            file = Path(folder) / f"{spec}{SUFFIX}"
            write_policy(file, forecast.forecast_card(), forecast.forecast_policy().arrays())
            yield file
    else:
        yield Path(spec)


def _mix(spec: str) -> LocalPolicy:
    kinds, weights = [], []
    for part in spec.split(","):
        name, _, weight = part.partition("=")
        if name not in LOCAL:
            raise UsageError(f"policy {spec!r}: {name!r} cannot be part of a mix; these can: {', '.join(LOCAL)}")
        if LOCAL[name] in kinds:
            raise UsageError(f"policy {spec!r}: {name!r} is there twice")
        if not re.fullmatch(r"[1-9][0-9]*", weight) or int(weight) >= MAX_WEIGHT:
            raise UsageError(
                f"policy {spec!r}: the weight of {name!r} must be a whole number of 1 or more, not {weight!r}"
            )
        kinds.append(LOCAL[name])
        weights.append(float(weight))
    return LocalPolicy(spec, tuple(kinds), tuple(weights), fgd_devices=LOCAL["fgd"] in kinds)


def _instance(spec: str, factory: object) -> Policy:
    with attribute_errors(f"policy {spec!r}"):
        policy = factory() if callable(factory) else factory
    for method in ("prepare", "scores"):
        if not callable(getattr(policy, method, None)):
            raise UsageError(f"policy {spec!r} has no method {method!r}; see steersman.policies.policy.Policy")
    name = getattr(policy, "name", None)
    if not (isinstance(name, str) and name.strip() and name.isprintable()) or not isinstance(policy, Policy):
        raise UsageError(f"policy {spec!r}: its attribute 'name' must be a text of one line, not {name!r}")
    return policy
