"""Credentials of requests: a token, a rotated token file, or the output of an exec plugin."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import msgspec
import structlog

from steersman.core.errors import InputError, SteersmanError
from steersman.kubernetes.config import ExecConfig, KubeConfig, KubeUser, decoded

TOKEN_FILE_SECONDS = 60.0  # lifetime of a token file's content, as in client-go
EXPIRY_MARGIN_SECONDS = 30.0
EXEC_SECONDS = 60.0  # timeout of an exec plugin, for which all requests wait
FILES_SECONDS = 10.0  # interval between checks of certificate files

log = structlog.get_logger("credentials")


class ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of an ExecCredential."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class ExecCredential(msgspec.Struct, frozen=True):
    """Output of an exec plugin (client.authentication.k8s.io)."""

    status: ExecStatus = ExecStatus()


class Credentials:
    """Headers and TLS context for one cluster."""

    def __init__(self, config: KubeConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.config, self._clock = config, clock
        self._stamp, self._looked = _stamp(config), clock()
        # TLS context of new connections; replaced when a certificate file was. Files that cannot be used change
        # nothing, and are logged once.
        self.context = _tls(config)
        self._issued: tuple[str, str] | None = None
        self._headers: dict[str, str] = {}
        self._until = 0.0
        self._renewing = asyncio.Lock()

    async def headers(self, *, renew: bool = False) -> Mapping[str, str]:
        """Return the headers of a request; `renew` after the server refused the previous ones."""
        self._follow_files()
        if time.time() < self._until and not renew:
            return self._headers
        known = self._headers
        # One plugin or file read at a time; whoever waited finds the result of another.
        async with self._renewing:
            # Wall-clock time, as plugins state when a token expires.
            if time.time() >= self._until or (renew and self._headers is known):
                self._headers, self._until = await self._fresh()
        return self._headers

    def _follow_files(self) -> None:
        """Rebuild the TLS context if a certificate file changed; files are checked at intervals."""
        if self._clock() - self._looked < FILES_SECONDS:
            return
        self._looked = self._clock()
        if (stamp := _stamp(self.config)) == self._stamp:
            return
        self._stamp = stamp
        try:
            context = _tls(self.config)
        except InputError as error:
            log.error("certificates cannot be used; the previous ones stay in use", error=str(error))
            return
        if self._issued is not None:
            # A new context lacks the certificate that the plugin issued.
            _present(context, *self._issued)
        self.context = context
        log.info("certificates read again", source=str(self.config.source))

    async def _fresh(self) -> tuple[dict[str, str], float]:
        user = self.config.user
        if user.exec is not None:
            status = await _run(user.exec, self.config)
            if status.client_certificate_data:
                self._issued = status.client_certificate_data, status.client_key_data
                _present(self.context, *self._issued)
            expires = status.expiration_timestamp
            until = expires.timestamp() - EXPIRY_MARGIN_SECONDS if expires else float("inf")
            return _bearer(status.token), until
        if user.token_file:
            try:
                return _bearer(Path(user.token_file).read_text().strip()), time.time() + TOKEN_FILE_SECONDS
            except OSError as error:
                raise InputError(user.token_file, "", "", f"token cannot be read: {error.strerror}") from None
        if user.token:
            return _bearer(user.token), float("inf")
        if user.username:
            pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}, float("inf")
        return {}, float("inf")


def impersonation_headers(user: KubeUser) -> list[tuple[str, str]]:
    """Return the headers by which requests are those of another user, as `as` of a kubeconfig says; none without it."""
    single = (("Impersonate-User", user.impersonated), ("Impersonate-Uid", user.as_uid))
    return [
        *((name, value) for name, value in single if value),
        *(("Impersonate-Group", group) for group in user.as_groups or ()),
        # A name of a header cannot have every character.
        *(
            (f"Impersonate-Extra-{quote(key, safe='')}", value)
            for key, values in (user.as_user_extra or {}).items()
            for value in values
        ),
    ]


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


async def _run(plugin: ExecConfig, config: KubeConfig) -> ExecStatus:
    hint = f"; {plugin.install_hint.strip().splitlines()[0]}" if plugin.install_hint.strip() else ""
    environment = dict(os.environ)
    environment.update({each.name: each.value for each in plugin.env or ()})
    environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(_exec_info(plugin, config)).decode()
    try:
        process = await _start(plugin, environment)
    except OSError as error:
        raise SteersmanError(f"{config.source}: exec plugin {plugin.command}: {error.strerror}{hint}") from None
    try:
        async with asyncio.timeout(EXEC_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        reason = f"did not answer within {EXEC_SECONDS:g} seconds"
        raise SteersmanError(f"{config.source}: exec plugin {plugin.command} {reason}{hint}") from None
    finally:
        await _end(process)
    if process.returncode:
        # Plugins print their error last, after warnings.
        reason = (errors.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        raise SteersmanError(f"{config.source}: exec plugin {plugin.command} failed: {reason}{hint}")
    try:
        return msgspec.json.decode(output, type=ExecCredential).status
    except msgspec.MsgspecError:
        raise SteersmanError(f"{config.source}: exec plugin {plugin.command} printed no ExecCredential") from None


async def _start(plugin: ExecConfig, environment: dict[str, str]) -> asyncio.subprocess.Process:
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            plugin.command,
            *(plugin.args or ()),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # asyncio would kill the plugin without its children, and wait forever for the pipes that they hold.
        with suppress(OSError):  # it does not start
            await _end(await starting)
        raise


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a running plugin and everything it started."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _exec_info(plugin: ExecConfig, config: KubeConfig) -> dict[str, object]:
    spec: dict[str, object] = {"interactive": False}
    if plugin.provide_cluster_info:
        cluster = config.cluster
        spec["cluster"] = {
            "server": cluster.server,
            "certificate-authority-data": cluster.certificate_authority_data or _content(cluster.certificate_authority),
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            "proxy-url": cluster.proxy_url,
            "tls-server-name": cluster.tls_server_name,
        }
    return {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}


def _content(file: str) -> str:
    """Return a file in base64, as plugins are given it; "" for no file, or one that cannot be read."""
    try:
        return base64.b64encode(Path(file).read_bytes()).decode() if file else ""
    except OSError:  # the connection to the API server fails with the reason
        return ""


def _tls(config: KubeConfig) -> ssl.SSLContext:
    """Return the TLS context of a cluster: its authority, and our certificate if the user has one."""
    cluster, user, source = config.cluster, config.user, config.source
    authority = decoded(cluster.certificate_authority_data, source, "certificate-authority-data")
    try:
        context = ssl.create_default_context(
            cafile=cluster.certificate_authority or None, cadata=authority.decode("ascii", "replace") or None
        )
    except (OSError, ssl.SSLError):
        wrong = cluster.certificate_authority or "certificate-authority-data"
        raise InputError(source, "", wrong, "is no certificate of an authority") from None
    if cluster.insecure_skip_tls_verify:
        # In this order: Python refuses CERT_NONE while host names are checked.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    certificate = decoded(user.client_certificate_data, source, "client-certificate-data")
    key = decoded(user.client_key_data, source, "client-key-data")
    if certificate or user.client_certificate:
        with _files(certificate, key) as (certificate_file, key_file):
            try:
                context.load_cert_chain(user.client_certificate or certificate_file, user.client_key or key_file)
            except (OSError, ssl.SSLError):
                raise InputError(source, "", "client-certificate", "does not fit the client-key") from None
    return context


def _present(context: ssl.SSLContext, certificate: str, key: str) -> None:
    with _files(certificate.encode(), key.encode()) as (certificate_file, key_file):
        context.load_cert_chain(certificate_file, key_file)


def _stamp(config: KubeConfig) -> tuple[tuple[int, int, int] | None, ...]:
    """Return a value that changes when a certificate file is replaced."""
    files = config.cluster.certificate_authority, config.user.client_certificate, config.user.client_key
    return tuple(file_stamp(Path(file)) for file in files if file)


def file_stamp(file: Path) -> tuple[int, int, int] | None:
    """Return a value that changes with a file; None: it does not exist."""
    try:
        stat = file.stat()
    except OSError:
        return None
    # The inode, too: a new file may have the size and, on a coarse clock, the time of the previous one.
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


@contextmanager
def _files(*contents: bytes) -> Iterator[list[Path]]:
    """Yield files with these contents for as long as OpenSSL needs them, which reads certificates from files alone."""
    with tempfile.TemporaryDirectory() as folder:  # readable for its owner alone
        files = [Path(folder, str(i)) for i in range(len(contents))]
        for file, content in zip(files, contents, strict=True):
            file.write_bytes(content)
        yield files
