"""How the service runs: a YAML file in Kubernetes' manner, which options on the command line override."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from steersman.config_file import check_ranges, convert, read_document
from steersman.errors import InputError

KIND = "ScoreServiceConfiguration"
LARGEST_BODY = 1 << 30


class Canary(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Which pods the policy scores; others get neutral scores. A pod must match everything that is said.

    Attributes:
        share: of pods, told apart by a hash of namespace and name, so that a pod is always treated alike.
        namespaces: of pods; none: any.
        labels: that pods must have.
    """

    share: float = 1.0
    namespaces: tuple[str, ...] = ()
    labels: dict[str, str] = {}


class Tls(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """Files for HTTPS: certificate and key; with `client_ca` clients need a certificate that it signed."""

    certificate: str
    key: str
    client_ca: str = ""


class Config(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """Everything that can be configured.

    Attributes:
        policy: a name or file; a file is read anew when it changes.
        unchecked: whether a learned policy decides without having been compared with rules on the cluster.
        address, port: where it listens; port 0 is any that is free.
        shadow: answer neutral scores, and log what would have been answered.
        canary: which pods are scored.
        deadline_milliseconds: from when a request is read; past it scores are neutral.
        max_body_bytes: larger requests are refused.
        max_requests: at a time; more are answered with neutral scores, or with status 503.
        stale_seconds: scores are neutral when the watches have been down for longer.
        token_file: holds a bearer token that requests must carry (except probes and metrics).
        tls: files for HTTPS.
        allow_sent_clusters: whether questions may bring a cluster of their own although one is watched. They are scored
            beside it and change nothing in it, but decoding one holds up everybody else.
        telemetry: a file that says what to ask which Prometheus; "": nothing is measured.
    """

    policy: str = "steersman"
    unchecked: bool = False
    address: str = "127.0.0.1"
    port: int = 5000
    shadow: bool = False
    canary: Canary = Canary()
    deadline_milliseconds: float = 50.0
    max_body_bytes: int = 32 << 20
    max_requests: int = 64
    stale_seconds: float = 60.0
    token_file: str = ""
    tls: Tls | None = None
    allow_sent_clusters: bool = False
    telemetry: str = ""


def read_config(path: Path) -> Config:
    """Read a configuration file.

    Raises:
        InputError: it cannot be read, is no YAML, or holds something unknown or out of range.
    """
    config = convert(read_document(path, KIND), Config, path)
    check(config, path)
    return config


def check(config: Config, source: Path | str) -> None:
    """Raise InputError: a number is out of range. `source`: where the configuration is from."""
    ranges = (
        ("port", config.port, 0, 65535),
        ("canary.share", config.canary.share, 0, 1),
        ("deadlineMilliseconds", config.deadline_milliseconds, 0.1, 60_000),
        ("maxBodyBytes", config.max_body_bytes, 1 << 10, LARGEST_BODY),
        ("maxRequests", config.max_requests, 1, 100_000),
        ("staleSeconds", config.stale_seconds, 0.1, 86_400),
    )
    check_ranges(ranges, source)


def read_token(path: str) -> bytes:
    """The bearer token in a file. Raises InputError: it cannot be read, or is empty or no token."""
    try:
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise InputError(path, "", "", f"cannot be read: {error.strerror}") from None
    if not re.fullmatch(rb"[\x21-\x7e]+", token):
        raise InputError(path, "", "", "is empty or no token; one line of letters, digits and signs is right")
    return token
