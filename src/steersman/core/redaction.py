"""Texts without secrets, for whatever a person or another program may read: logs, errors, metrics, names in results.

A URL keeps its address, its path and the names of its query. Its user and the values of its query are replaced, but for
those that are known to be harmless: a list of secret names would never be complete.
"""

from __future__ import annotations

import re

HIDDEN = "***"
HARMLESS = frozenset(
    (
        "fieldSelector",
        "labelSelector",
        "limit",
        "mode",
        "model",
        "namespace",
        "policy",
        "profile",
        "seed",
        "timeout",
        "version",
        "watch",
    )
)
"""Names in a query whose values are shown."""

# Without the punctuation of the sentence that it stands in.
_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>`]+(?<![:,.;)])")
_USER = re.compile(r"(://)[^/?#@]*(?:@[^/?#@]*)*@(?=[^/?#@]*(?:[/?#]|$))")
_VALUE = re.compile(r"(?<=[?&;#])([^=&;#]*)=([^&;#]*)")
_HEADER = re.compile(r"(?i)\b((?:proxy-)?authorization|cookie|x-[a-z-]*(?:token|key|secret))(['\"]?\s*[:=]\s*)[^\r\n]+")
# Only where a digit or sign follows, so that "bearer token" and "basic authentication" stay readable.
_SCHEME = re.compile(r"(?i)\b(bearer|basic|negotiate)(\s+)(?=[^\s,;]*[0-9+/=._-])[A-Za-z0-9+/=._~-]{8,}")
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?")
_SECRET_NAME = (
    r"(?i)(?<![A-Za-z])((?:[a-z]+[-_])*(?:[a-z]*token|[a-z]*passwor[dt]|passwd|pwd|passphrase|[a-z]*secret|api[-_]?key|"
    r"access[-_]?key|key[-_]data|signature|credentials?))"
)
_QUOTED = re.compile(_SECRET_NAME + r"(\\?[\"']?\s*[:=]\s*)(\\?[\"'])(.*?)\3")
_FOLLOWING = re.compile(_SECRET_NAME + r"(:\s+)(?=\S*\d)[A-Za-z0-9+/=._~-]{8,}")
_NAMED = re.compile(_SECRET_NAME + r"(=)(?![\"'*])[^\s\"'\\,;&]+")


def redact_url(url: str) -> str:
    """Return a URL without its user and the values of its query; another text unchanged."""
    return _redacted_url(url) if "://" in url else url


def redact(text: str) -> str:
    """Return a text without what looks like a secret: in URLs, headers, tokens, and values of such names."""
    # URLs first: the other patterns would take a part of one for a name and its value.
    text = _URL.sub(lambda match: _redacted_url(match[0]), text)
    text = _HEADER.sub(rf"\1\2{HIDDEN}", text)
    text = _SCHEME.sub(rf"\1\2{HIDDEN}", text)
    text = _JWT.sub(HIDDEN, text)
    text = _QUOTED.sub(rf"\1\2\3{HIDDEN}\3", text)
    text = _FOLLOWING.sub(rf"\1\2{HIDDEN}", text)
    return _NAMED.sub(rf"\1\2{HIDDEN}", text)


def _redacted_url(url: str) -> str:
    return _VALUE.sub(_without_value, _USER.sub(rf"\1{HIDDEN}@", url))


def _without_value(match: re.Match[str]) -> str:
    name, value = match.groups()
    return f"{name}={value if name in HARMLESS or not value else HIDDEN}"
