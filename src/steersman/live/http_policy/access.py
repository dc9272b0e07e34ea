"""How a score server is asked: headers from a file, such as its token, and the authority that signs its certificate.

Both are files, named by the environment, so that worker processes have them and no secret is in arguments, in the
environment or in a policy's name.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path

from steersman.core.errors import InputError

HEADER_FILE, CA_FILE = "STEERSMAN_POLICY_HEADER_FILE", "STEERSMAN_POLICY_CA"
OURS = ("content-length", "content-type", "host", "transfer-encoding")  # headers that belong to the protocol
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class ServerAccess:
    """Headers and TLS of requests to a score server, from the files that the environment names.

    The file of headers is read again when it changes, as a mounted Secret does.
    """

    def __init__(self) -> None:
        self._file, authority = os.environ.get(HEADER_FILE, ""), os.environ.get(CA_FILE, "")
        self._stamp: tuple[int, int, int] | None = None
        self._headers: Mapping[str, str] = {}
        self.tls: ssl.SSLContext | bool = read_authority(Path(authority)) if authority else True

    def headers(self) -> Mapping[str, str]:
        """Return the headers of the next request. Raises InputError: the file cannot be read or used."""
        if self._file:
            try:
                status = os.stat(self._file)
            except OSError as error:
                raise InputError(self._file, "", "", f"cannot be read: {error.strerror}") from None
            stamp = status.st_mtime_ns, status.st_size, status.st_ino
            if stamp != self._stamp:
                self._headers, self._stamp = read_headers(Path(self._file)), stamp
        return self._headers


def read_headers(file: Path) -> Mapping[str, str]:
    """Return the headers in a file: a line `Name: value` each; lines that are empty or begin with `#` are skipped."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InputError(file, "", "", f"cannot be read: {reason}") from None
    headers: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not (colon and _NAME.fullmatch(name) and value and value.isascii() and value.isprintable()):
            raise InputError(file, f"line {number}", "", "expected 'Name: value' in ASCII")
        if name.lower() in OURS:
            raise InputError(file, f"line {number}", name, "is set by steersman; remove the line")
        headers[name] = value
    if not headers:
        raise InputError(file, "", "", "has no header; expected lines 'Name: value'")
    return headers


def read_authority(file: Path) -> ssl.SSLContext:
    """Return the TLS context that trusts the certificates in a file alone. Raises InputError: there are none."""
    try:
        return ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as error:
        reason = "cannot be read" if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else ""
        detail = f"{reason}: {error.strerror}" if reason else "has no certificate of an authority (PEM)"
        raise InputError(file, "", "", detail) from None
