"""Why a request over HTTP got no answer, in one line: one mapping for all servers that steersman asks."""

from __future__ import annotations

import os
import ssl

import aiohttp

LONGEST_TEXT = 200
OF_ANOTHER_HOST = (62, 64)  # OpenSSL's codes of certificates that are valid, but of another host or address


def reason_of(error: BaseException, *, seconds: float | None = None, authority: str = "") -> str:
    """Return the reason of a failure.

    Args:
        seconds: the time that an answer may take, if it is limited.
        authority: the option that names a private certificate authority, for a hint.
    """
    cause = _tls_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        helps = authority and cause.verify_code not in OF_ANOTHER_HOST
        hint = f"; {authority} names a private authority" if helps else ""
        return f"the server's certificate is not valid: {cause.verify_message}{hint}"
    if cause is not None:
        text = (getattr(cause, "reason", "") or cause.strerror or str(cause)).replace("_", " ").lower()
        # OpenSSL says "wrong version number" when a server answers in plain HTTP.
        hint = "the server there does not speak it" if "wrong version" in text else "a certificate may have expired"
        return f"TLS failed: {text}; {hint}"
    match error:
        case TimeoutError():
            return "no answer in time" if seconds is None else f"no answer within {seconds:g} s"
        case aiohttp.ClientConnectorError():
            number = error.os_error.errno or 0  # asyncio's own text leaves out what the system said
            return f"cannot be reached: {os.strerror(number) if number > 0 else error.os_error.strerror or error}"
        case aiohttp.ServerDisconnectedError():
            return "the server closed the connection without an answer"
        case aiohttp.ClientPayloadError():
            return "the answer is not complete"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answers with HTTP {error.status} ({one_line(error.message)})"
        case aiohttp.ClientResponseError():
            return f"the server does not speak HTTP: {one_line(error.message)}"
    return f"cannot be reached: {one_line(getattr(error, 'strerror', None) or str(error)) or type(error).__name__}"


def one_line(text: str) -> str:
    """Return foreign text as one line without control characters, at most 200 characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:LONGEST_TEXT]


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    """Return the TLS error that is the cause of an error; aiohttp's own is one, too, but without its message."""
    cause: BaseException | None = error
    while cause is not None and (not isinstance(cause, ssl.SSLError) or isinstance(cause, aiohttp.ClientError)):
        cause = cause.__cause__ or getattr(cause, "certificate_error", None) or getattr(cause, "os_error", None)
    return cause
