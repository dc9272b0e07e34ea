"""Registry of policies: built-in names, weighted sums, policy files, installed packages and user classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from steersman.core.errors import UsageError, unknown_name
from steersman.core.extensions import Registry, attribute_errors, import_object
from steersman.objectives.registry import LIMIT, limit_of
from steersman.orders.order import AGE
from steersman.orders.registry import find_order
from steersman.policies import greedy_forecast, most_even, portfolios
from steersman.policies.base import Need, Policy, with_order
from steersman.policies.formula import FORMULA_SUFFIX, is_formula, open_formula
from steersman.policies.heuristics import HEURISTIC_IDS, RandomPolicy, heuristic, weighted_sum
from steersman.policies.kube_scheduler.configuration import configured_policy, is_configuration, split_minor
from steersman.policies.kube_scheduler.minors import rules_of
from steersman.policies.kube_scheduler.policy import KUBE_DEFAULT, STOCK_TUNED, KubeSchedulerPolicy, StockTunedPolicy
from steersman.policies.kube_scheduler.profile import DEFAULT_PROFILE
from steersman.policies.linear import LinearPolicy
from steersman.policies.policy_file import SUFFIX, open_policy, open_portfolio, rule_card, write_policy
from steersman.policies.portfolio_policy import KindLimit, PortfolioPolicy
from steersman.policies.schemes import SCHEMES, open_url
from steersman.policies.telemetry import RULE_OF_POLICY, TelemetryPolicy
from steersman.policies.user_policy import PolicyProtocol, UserPolicy, user_policy

PACKAGED_POLICY = portfolios.STEERSMAN
PORTFOLIO_NAMES = (PACKAGED_POLICY, portfolios.RULES)  # built-in policies of which short simulations choose a member
FILE_NAMES = (*PORTFOLIO_NAMES, greedy_forecast.NAME)  # built-in policies that can be prepared as a policy file


def _open_file(spec: str) -> Policy:
    with policy_path(spec) as file:
        return open_policy(file, policy_label(spec))


def _portfolio(name: str) -> Policy:
    return open_portfolio(name, name, portfolios.portfolio_card(name), portfolios.portfolio_tensors(name))


BUILT_IN: dict[str, Callable[[], Policy]] = {
    "random": RandomPolicy,
    **{name: partial(heuristic, name) for name in HEURISTIC_IDS},
    greedy_forecast.NAME: greedy_forecast.forecast_policy,
    most_even.NAME: most_even.MostEvenPolicy,
    KUBE_DEFAULT: KubeSchedulerPolicy,
    STOCK_TUNED: StockTunedPolicy,
    **{name: partial(_portfolio, name) for name in reversed(PORTFOLIO_NAMES)},
}
"""Factories of the built-in policies by name."""
TELEMETRY_POLICIES: dict[str, Callable[[], Policy]] = {
    name: partial(TelemetryPolicy, name, rule) for name, rule in RULE_OF_POLICY.items()
}
"""Factories of the policies that score measured metrics, by name."""


REGISTRY: Registry[object] = Registry("policy", "steersman.policies", object)
"""Users' own: classes or objects with the methods of `PolicyProtocol`."""


def register(name: str, implementation: object) -> None:
    """Register a user's policy for this process, as an entry point registers it for every process.

    Args:
        implementation: a class or an object with the methods of `PolicyProtocol`.

    Raises:
        UsageError: the name is one of a built-in policy, or is not a plain name.
    """
    if name in BUILT_IN or name in TELEMETRY_POLICIES or not name or set(name) & set("=:/,"):
        raise UsageError(f"policy {name!r}: expected a name that no built-in policy has, without '=', ':', '/' and ','")
    REGISTRY.register(implementation, name)


def names() -> tuple[str, ...]:
    """Return every registered name: built-in policies, telemetry policies, then users' own."""
    return (*BUILT_IN, *TELEMETRY_POLICIES, *REGISTRY.names())


def split_order(spec: str) -> tuple[str, str]:
    """Return the policy and the order of `POLICY+ORDER`; of any other text the order is ""."""
    name, plus, order = spec.rpartition("+")
    return (name, order) if plus and not Path(spec).exists() else (spec, "")


def split_limit(spec: str) -> tuple[str, str]:
    """Return the portfolio and the percentage of `PORTFOLIO@max-kind-loss:PERCENT`; of any other text that is ""."""
    name, at, percent = spec.rpartition(f"@{LIMIT}:")
    return (name, percent) if at else (spec, "")


def _limited(name: str, percent: str) -> Policy:
    """Return a portfolio whose choice is held to what any kind of pod may lose against kube-scheduler's default.

    The latter is one of its members: where no other keeps the limit and is better, it decides.
    """
    spec, portfolio = f"policy {name}@{LIMIT}:{percent}", resolve(name)
    if (limit := limit_of(percent)) is None:
        raise UsageError(f"{spec}: expected a percentage of at least 0, such as {PACKAGED_POLICY}@{LIMIT}:2")
    if not isinstance(portfolio, PortfolioPolicy) or portfolio.limit is not None:
        raise UsageError(f"{spec}: {name} is not chosen among several; expected {' or '.join(PORTFOLIO_NAMES)}")
    return replace(portfolio, name=f"{portfolio.name}@{LIMIT}:{percent}", limit=KindLimit(limit, KubeSchedulerPolicy()))


def _of_minor(name: str, minor: str) -> Policy:
    rules = rules_of(minor)
    if is_configuration(name):
        policy = configured_policy(name, minor)
        return replace(policy, name=f"{policy.name}@{minor}")
    default = KubeSchedulerPolicy(f"{KUBE_DEFAULT}@{minor}", DEFAULT_PROFILE.of_minor(rules))
    if name == KUBE_DEFAULT:
        return default
    if name == STOCK_TUNED:
        return StockTunedPolicy(f"{STOCK_TUNED}@{minor}", default)
    raise UsageError(f"policy {name}@{minor}: expected {KUBE_DEFAULT}, {STOCK_TUNED} or a file of kube-scheduler")


def is_kube_scheduler(spec: str) -> bool:
    """Return whether a policy is named like one of kube-scheduler, of which each minor of Kubernetes has another."""
    name, _ = split_order(spec)
    return name in (KUBE_DEFAULT, STOCK_TUNED) or is_configuration(name)


def of_minor(spec: str, minor: str | None) -> str:
    """Return the name of a policy of kube-scheduler with a minor of Kubernetes, unless it has one; others as they are.

    None: the newest minor, without a name of its own.
    """
    name, order = split_order(spec)
    if minor is None or not is_kube_scheduler(name) or split_minor(name)[1]:
        return spec
    return f"{name}@{minor}" + (f"+{order}" if order else "")


def resolve(spec: str) -> Policy:
    """Return the policy of a name, a weighted sum (`fgd=500,gpu-packing=500`), a file, a URL or a `module:Class`.

    A file is one of weights, a formula's text, or a kube-scheduler's configuration (`FILE` or `FILE:PROFILE`).
    `POLICY@MINOR`, such as `kube-default@1.36`, is a kube-scheduler of another minor of Kubernetes than the newest.
    `POLICY+ORDER`, such as `fgd+shortest`, is the policy with an order of waiting pods,
    `PORTFOLIO@max-kind-loss:PERCENT` a portfolio whose choice is held to what any kind of pod may lose against
    `kube-default`.

    Raises:
        UsageError: there is no such policy; the message lists the known ones.
    """
    name, order = split_order(spec)
    if name != spec:
        if not order:
            raise UsageError(f"policy {spec!r}: expected an order after '+'")
        if other := split_order(name)[1]:
            raise UsageError(f"policy {spec!r}: expected one order, found {other!r} and {order!r}")
        return with_order(resolve(name), find_order(order))
    if "://" in spec:
        return open_url(spec)
    name, percent = split_limit(spec)
    if name != spec:
        return _limited(name, percent)
    name, minor = split_minor(spec)
    if minor:
        return _of_minor(name, minor)
    if "=" in spec:
        return weighted_sum(spec)
    # Before files and users' names, so that nothing can replace a built-in policy.
    if factory := BUILT_IN.get(spec) or TELEMETRY_POLICIES.get(spec):
        return factory()
    if spec.endswith(SUFFIX):
        return _open_file(spec)
    if is_formula(spec):
        return open_formula(spec)
    if is_configuration(spec):
        return configured_policy(spec)
    implementation = REGISTRY.get(spec)
    if implementation is None and ":" in spec:
        implementation = import_object("policy", spec)
    if implementation is not None:
        return user_policy(spec, implementation)
    others = (
        "a weighted sum (fgd=500,best-fit=500)",
        f"a policy file (run/policy{SUFFIX})",
        f"a formula (my-rule{FORMULA_SUFFIX})",
        "a KubeSchedulerConfiguration (scheduler.yaml)",
        *(f"{name}://host:port/path" for name in SCHEMES.names()),
        "module:Class",
    )
    raise unknown_name("policy", spec, names(), *others)


def in_order_by_name(policy: str, order: str) -> str:
    """Return the name of a policy with an order; if it is that of age, and the policy has no other, its own name."""
    return policy if order == AGE.name and resolve(policy).order == AGE else f"{policy}+{order}"


def in_order(policy: Policy, spec: str) -> Policy:
    """Return a policy with an order, see `orders.registry.find_order`; "": with its own."""
    return with_order(policy, find_order(spec)) if spec else policy


def portable(policy: str | Policy | PolicyProtocol) -> str | Policy | PolicyProtocol:
    """Return a policy as workers can have it, maybe on other machines: one of a file or a URL as an object."""
    if not isinstance(policy, str):
        return policy
    is_file = SUFFIX in policy or is_formula(split_order(policy)[0]) or is_configuration(policy)
    return resolve(policy) if "://" in policy or is_file else policy


def as_policy(policy: str | Policy | PolicyProtocol) -> Policy:
    """Return the policy of a name or of a user's object; a `Policy` is returned unchanged."""
    if isinstance(policy, str):
        return resolve(policy)
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, PolicyProtocol):
        raise UsageError(
            f"{policy!r} is not a policy; expected a name, a file or an object with the methods of PolicyProtocol"
        )
    return UserPolicy(policy.name, policy)


def packaged_portfolio() -> PortfolioPolicy:
    """Return the portfolio in the package, whose members searches start from."""
    policy = resolve(PACKAGED_POLICY)
    assert isinstance(policy, PortfolioPolicy)
    return policy


def check_policy_names(specs: Iterable[str]) -> None:
    """Resolve all names, to fail before any other work. Raises SteersmanError: a policy is unknown or fails to load."""
    for spec in specs:
        with attribute_errors(f"policy {spec!r}"):
            resolve(spec)


def policy_label(spec: str) -> str:
    """Return a policy file's name for results: the file's stem, for `run/policy.safetensors` the folder's name."""
    path = Path(spec)
    folder = path.parent.name
    # Training always writes `policy.safetensors`, so the folder tells runs apart.
    return folder if path.stem == "policy" and folder else path.stem


@contextmanager
def policy_path(spec: str) -> Iterator[Path]:
    """Provide the file of a policy: a path, or a temporary file of a rule, of one of `FILE_NAMES` or of a formula.

    Raises:
        UsageError: it is another name or a weighted sum, and so has no file.
    """
    spec, _ = split_limit(spec)
    if spec in (*FILE_NAMES, *HEURISTIC_IDS) or is_formula(spec):
        with TemporaryDirectory(prefix="steersman-") as folder:
            file = Path(folder) / f"{Path(spec).stem}{SUFFIX}"
            if spec in PORTFOLIO_NAMES:
                write_policy(file, portfolios.portfolio_card(spec), portfolios.portfolio_tensors(spec))
            elif spec in HEURISTIC_IDS:
                write_policy(file, rule_card(spec), {})
            else:
                policy = cast(LinearPolicy, resolve(spec))
                write_policy(file, greedy_forecast.forecast_card(policy.name), policy.tensors())
            yield file
    elif Path(spec).name == spec and not spec.endswith(SUFFIX) and not Path(spec).exists():
        expected = ", ".join((f"a policy file (run/policy{SUFFIX})", *FILE_NAMES, *HEURISTIC_IDS))
        raise UsageError(f"policy {spec} has no file; expected {expected}")
    else:
        yield Path(spec)


def check_telemetry(policy: Policy, spec: str, *, has_telemetry: bool) -> None:
    """Raise UsageError if a policy was trained on nodes' metrics and none are queried; a rule does without."""
    if Need.TELEMETRY in policy.needs and policy.is_learned and not has_telemetry:
        raise UsageError(f"--policy {spec} was trained on nodes' metrics; give --telemetry FILE with their queries")
