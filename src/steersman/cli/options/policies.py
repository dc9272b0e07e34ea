"""The values of --policy and --baseline of comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from steersman.core.errors import UsageError


def check_policies(policies: Sequence[str], baseline: str | None) -> str:
    """Check the names of policies, and return the baseline's.

    Args:
        policies: values of --policy.
        baseline: one of them; None: the first.

    Raises:
        UsageError: a policy is unknown, its name is reserved or a duplicate, or the baseline is not one of them.
    """
    from steersman.core.extensions import attribute_errors
    from steersman.evaluation.experiment import RESERVED
    from steersman.policies.registry import resolve

    specs: dict[str, str] = {}
    for spec in policies:
        with attribute_errors(f"policy {spec!r}"):
            label = resolve(spec).name
        if label in RESERVED:
            raise UsageError(
                f"--policy {spec} is called {label}, which is the name of {RESERVED[label]} in results; rename it"
            )
        if label in specs:
            raise UsageError(
                f"--policy {spec} and {specs[label]} are both called {label}; names must be unique in results"
            )
        specs[label] = spec
    if baseline is not None and baseline not in policies:
        raise UsageError(f"--baseline {baseline}: must be one of the policies that run: {', '.join(policies)}")
    return baseline if baseline is not None else policies[0]
