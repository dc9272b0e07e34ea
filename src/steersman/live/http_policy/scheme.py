"""Registration of `http://` and `https://` as policies, without importing what they need."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from steersman.core.errors import UsageError
from steersman.policies.schemes import SCHEMES as POLICY_SCHEMES
from steersman.policies.schemes import PolicyScheme

if TYPE_CHECKING:
    from steersman.policies.base import Policy

SCHEMES = ("http", "https")
EXAMPLE = "http://localhost:5000/score"
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?")


def register_http_policies() -> None:
    for name in SCHEMES:
        POLICY_SCHEMES.register(PolicyScheme(name, _open))


def _open(url: str) -> Policy:
    check_url(url)
    from steersman.live.http_policy.policy import HttpPolicy

    return HttpPolicy(url)


def check_url(url: str) -> None:
    """Raise UsageError: it is not the URL of a score server."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise _wrong(url, str(error)) from None
    if not url.isprintable() or " " in url:
        raise _wrong(url, "it has a character that no URL has")
    if parts.username is not None or parts.password is not None:
        shown = url.replace(parts.netloc, parts.netloc.rpartition("@")[2])
        raise _wrong(shown, "it has a user, which results and logs would show")
    if port == 0 or not (_HOST.fullmatch(host) or _is_address(host)):
        raise _wrong(url, "it names no host" if not host else "its host or port is invalid")
    if parts.path in ("", "/"):
        raise _wrong(url, "it has no path")
    if parts.fragment:
        raise _wrong(url, "a server never sees what follows '#'")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _wrong(url: str, problem: str) -> UsageError:
    return UsageError(f"policy {url!r}: {problem}; expected a URL such as {EXAMPLE}")
