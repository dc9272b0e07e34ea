"""Policies by name: the built-in ones, weighted sums of them, policy files, and a user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import metadata, resources
from pathlib import Path
from tempfile import TemporaryDirectory

from steersman.errors import UsageError
from steersman.extensions import attribute_errors, import_object
from steersman.policies import forecast
from steersman.policies.base import Policy
from steersman.policies.heuristics import LOCAL, heuristic, weighted_sum
from steersman.policies.kube_default_policy import KubeDefaultPolicy
from steersman.policies.policy_file import SUFFIX, open_policy, write_policy
from steersman.policies.portfolio_policy import PortfolioPolicy
from steersman.policies.random_policy import RandomPolicy
from steersman.policies.telemetry_policy import OBJECTIVES, TelemetryPolicy
from steersman.policies.user_policy import PolicyProtocol, UserPolicy, user_policy

ENTRY_POINTS = "steersman.policies"

SHIPPED = "steersman"


def _open_file(spec: str) -> Policy:
    with policy_path(spec) as file:
        return open_policy(file, policy_label(spec))


BUILT_IN: dict[str, Callable[[], Policy]] = {
    "random": RandomPolicy,
    **{name: partial(heuristic, name) for name in LOCAL},
    forecast.NAME: forecast.forecast_policy,
    "kube-default": KubeDefaultPolicy,
    SHIPPED: partial(_open_file, SHIPPED),
}
"""Policies by what makes them."""
OF_TELEMETRY: dict[str, Callable[[], Policy]] = {
    name: partial(TelemetryPolicy, name, rule) for name, rule in OBJECTIVES.items()
}
"""The same of those that decide by what is measured."""


def names() -> tuple[str, ...]:
    """Return every registered name: the built-in policies, those of telemetry, then those of installed packages."""
    installed = sorted(point.name for point in metadata.entry_points(group=ENTRY_POINTS))
    return (*BUILT_IN, *OF_TELEMETRY, *installed)


def resolve(spec: str) -> Policy:
    """Return the policy that `spec` names: a name, a sum such as `fgd=500,gpu-packing=500`, a file, or `module:Class`.

    Raises:
        UsageError: there is no such policy; the message lists those there are.
    """
    if "=" in spec:
        return weighted_sum(spec)
    if make := BUILT_IN.get(spec) or OF_TELEMETRY.get(spec):
        return make()
    if spec.endswith(SUFFIX):
        return _open_file(spec)
    for point in metadata.entry_points(group=ENTRY_POINTS):
        if point.name == spec:
            with attribute_errors(f"policy {spec!r}"):
                factory = point.load()
            return user_policy(spec, factory)
    if ":" in spec:
        return user_policy(spec, import_object("policy", spec))
    raise UsageError(
        f"unknown policy {spec!r}; known are {', '.join(names())}, a mix (fgd=500,best-fit=500), "
        f"a policy file (run/policy{SUFFIX}), module:Class"
    )


def as_policy(policy: str | Policy | PolicyProtocol) -> Policy:
    """Return the policy of a name, or of a user's own object; one that is a policy already stays as it is."""
    if isinstance(policy, str):
        return resolve(policy)
    return policy if isinstance(policy, Policy) else UserPolicy(policy.name, policy)


def shipped_portfolio() -> PortfolioPolicy:
    """Return the policy that the package ships, from whose members searches go on."""
    policy = resolve(SHIPPED)
    assert isinstance(policy, PortfolioPolicy)
    return policy


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
            write_policy(file, forecast.forecast_card(), forecast.forecast_policy().tensors())
            yield file
    else:
        yield Path(spec)
