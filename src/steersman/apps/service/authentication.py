"""Authenticate clients by bearer token and certificates, reloaded when their files change."""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections.abc import Iterator
from pathlib import Path

import structlog
from aiohttp import web

from steersman.apps.service.config import ServiceConfig, Tls, read_token
from steersman.core.errors import InputError
from steersman.kubernetes.credentials import file_stamp

CHECK_SECONDS = 10.0
"""Interval between checks of the files."""

log = structlog.get_logger("service")


class Authenticator:
    """Bearer token and TLS configuration of the service.

    A replaced certificate or token is used from the next handshake or request on. A certificate authority that is added
    to `tls.clientCa` is, too; one that is removed is trusted until the service restarts.

    Args:
        config: configuration of the service.

    Attributes:
        tls: context for HTTPS; None: plain HTTP.
        problem: why replaced files cannot be used; "" if they can.

    Raises:
        InputError: a file cannot be used.
    """

    def __init__(self, config: ServiceConfig) -> None:
        self._config, self.problem = config, ""
        self._stamp = self._now()
        self._token = read_token(config.token_file) if config.token_file else None
        self.tls = None if config.tls is None else ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._load(self.tls)

    @property
    def has_token(self) -> bool:
        """Return whether clients need a token."""
        return self._token is not None

    def is_unauthorized(self, request: web.Request) -> bool:
        """Return True if the bearer token is missing or wrong."""
        if self._token is None:
            return False
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        given_token = given.strip().encode("utf-8", "surrogateescape")
        return kind.lower() != "bearer" or not hmac.compare_digest(given_token, self._token)

    async def keep(self) -> None:
        """Reload the files when they change, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.renew()

    def renew(self) -> None:
        """Reload the files if they changed. Files that cannot be used change nothing and are logged once."""
        stamp = self._now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            token = read_token(self._config.token_file) if self._config.token_file else None
            # First into a context that is thrown away: a file that cannot be used must not half change the one in use.
            self._load(None if self.tls is None else ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
            self._load(self.tls)
        except InputError as error:
            self.problem = str(error)
            log.error("token or certificates cannot be used; the previous ones stay in use", error=self.problem)
            return
        self._token, self.problem = token, ""
        log.info("token and certificates read again")

    def _load(self, context: ssl.SSLContext | None) -> None:
        if context is not None and self._config.tls is not None:
            _load(context, self._config.tls)

    def _now(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(file_stamp(Path(file)) for file in self._files())

    def _files(self) -> Iterator[str]:
        tls = self._config.tls
        files = (self._config.token_file, *((tls.certificate, tls.key, tls.client_ca) if tls else ()))
        return (file for file in files if file)


def _load(context: ssl.SSLContext, files: Tls) -> None:
    for file in (files.certificate, files.key, files.client_ca):
        if file:
            _readable(file)
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ValueError) as error:
        raise InputError(
            files.certificate, "", "", f"with {files.key} is no usable certificate: {_said(error)}"
        ) from None
    if files.client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(files.client_ca)
        except (OSError, ValueError) as error:
            raise InputError(files.client_ca, "", "", f"holds no usable certificate: {_said(error)}") from None


def _readable(file: str) -> None:
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        raise InputError(file, "", "", f"cannot be read: {error.strerror}") from None


def _no_password() -> str:
    """Refuse encrypted keys, for which OpenSSL would prompt on the terminal."""
    raise ValueError("the key is encrypted; expected one without a password")


def _said(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return " ".join(str(error).split())
