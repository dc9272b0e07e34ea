"""Rules that decide by telemetry, and kube-scheduler's default: baselines and teachers, see `core/src/metric_rules.rs`.

`most-allocated`, `least-allocated`, `least-connections` and `latency-aware` are the objectives MA, LA, LC and P0 of
Matranga's thesis (SoniaMatranga/SoniaMatrangaTesi) as rules: each takes the node that is best once the pod runs there.
"""

from __future__ import annotations

from steersman.core.errors import UsageError

KUBE_DEFAULT, MOST_ALLOCATED, LEAST_ALLOCATED, LEAST_CONNECTIONS, LATENCY_AWARE = range(5)
"""Numbers of the rules in the core."""

METRIC_RULES = {
    "kube-default": KUBE_DEFAULT,
    "most-allocated": MOST_ALLOCATED,
    "least-allocated": LEAST_ALLOCATED,
    "least-connections": LEAST_CONNECTIONS,
    "latency-aware": LATENCY_AWARE,
}


def rule_number(name: str) -> int:
    if name not in METRIC_RULES:
        raise UsageError(f"unknown rule {name!r}; known are {', '.join(METRIC_RULES)}")
    return METRIC_RULES[name]
