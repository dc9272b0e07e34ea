"""Policies by the scheme of a URL: registered by higher layers and packages, since policies speak no protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steersman.core.errors import SteersmanError, UsageError
from steersman.core.extensions import load_extensions, register_extension

if TYPE_CHECKING:
    from steersman.policies.base import Policy

ENTRY_POINTS = "steersman.policy_schemes"


@dataclass(frozen=True, slots=True)
class PolicyScheme:
    """A kind of policies that are named by a URL.

    Attributes:
        name: scheme of the URLs, such as `http`.
        open: returns the policy of a URL, which worker processes can unpickle; raises UsageError where there is none.
    """

    name: str
    open: Callable[[str], Policy]


def register_scheme(scheme: PolicyScheme) -> None:
    """Register a scheme for this process. Raises UsageError: it is not a `PolicyScheme`."""
    register_extension("policy scheme", ENTRY_POINTS, scheme, PolicyScheme)


def known_schemes() -> tuple[str, ...]:
    """Return the names of all schemes."""
    return tuple(load_extensions("policy scheme", ENTRY_POINTS, PolicyScheme))


def open_url(url: str) -> Policy:
    """Return the policy of a URL. Raises SteersmanError: its scheme is unknown, or there is no such policy."""
    name = url.partition("://")[0]
    scheme: PolicyScheme | SteersmanError | None = load_extensions("policy scheme", ENTRY_POINTS, PolicyScheme).get(
        name
    )
    if isinstance(scheme, SteersmanError):
        raise scheme
    if scheme is None:
        known = " and ".join(f"{each}://" for each in known_schemes()) or "none"
        raise UsageError(f"policy {url!r}: {name!r} is no known scheme of URLs; known: {known}")
    return scheme.open(url)
