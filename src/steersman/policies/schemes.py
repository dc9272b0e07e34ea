"""Policies by the scheme of a URL: registered by higher layers and packages, since policies speak no protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steersman.core.errors import UsageError
from steersman.core.extensions import Registry

if TYPE_CHECKING:
    from steersman.policies.base import Policy


@dataclass(frozen=True, slots=True)
class PolicyScheme:
    """A kind of policies that are named by a URL."""

    name: str  # scheme of the URLs, such as `http`
    # Returns the policy of a URL, which worker processes can unpickle; raises UsageError where there is none
    open: Callable[[str], Policy]


SCHEMES: Registry[PolicyScheme] = Registry("policy scheme", "steersman.policy_schemes", PolicyScheme)


def open_url(url: str) -> Policy:
    """Return the policy of a URL. Raises SteersmanError: its scheme is unknown, or there is no such policy."""
    name = url.partition("://")[0]
    scheme = SCHEMES.get(name)
    if scheme is None:
        known = " and ".join(f"{each}://" for each in SCHEMES.names()) or "none"
        raise UsageError(f"policy {url!r}: {name!r} is no known scheme of URLs; known: {known}")
    return scheme.open(url)
