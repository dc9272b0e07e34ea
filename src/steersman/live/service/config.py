"""Configuration of the service: a YAML file in Kubernetes' style, overridden by command-line options."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

import msgspec

from steersman.core.config.file import check_ranges, convert, read_document
from steersman.core.errors import InputError

KIND = "ScoreServiceConfiguration"
LARGEST_BODY = 1 << 30


class Tls(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """Files for HTTPS: certificate and key; with `client_ca` clients need a certificate that it signed."""

    certificate: str
    key: str
    client_ca: str = ""


class ServiceConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """Configuration of the service.

    Attributes:
        policy: name or file; a file is reloaded when it changes.
        unchecked: whether a learned policy decides without having been compared with rules on the cluster.
        address, port: where the service listens; port 0 is any free port.
        shadow: answer neutral scores, and log the scores that would have been answered.
        deadline_milliseconds: time from reading a request after which its answer is neutral.
        max_body_bytes: larger requests are refused.
        max_requests: requests at a time; more are answered neutrally, or with status 503.
        stale_seconds: scores are neutral when a watch is down and the API server was last heard longer ago.
        token_file: file of the bearer token that requests must carry (except probes and metrics).
        tls: files for HTTPS.
        allow_sent_clusters: whether requests may bring a cluster although one is watched. They are scored beside it and
            change nothing in it, but decoding one delays all other requests.
        telemetry: configuration file of Prometheus queries; "": no telemetry.
    """

    policy: str = "steersman"
    unchecked: bool = False
    address: str = "127.0.0.1"
    port: int = 5000
    shadow: bool = False
    deadline_milliseconds: float = 50.0
    max_body_bytes: int = 32 << 20
    max_requests: int = 64
    stale_seconds: float = 60.0
    token_file: str = ""
    tls: Tls | None = None
    allow_sent_clusters: bool = False
    telemetry: str = ""


def read_config(path: Path) -> ServiceConfig:
    config = convert(read_document(path, KIND), ServiceConfig, path)
    check(config, path)
    return config


def check(config: ServiceConfig, source: Path | str) -> None:
    """Raise InputError: a number is out of range; `source` is the file that it is from."""
    ranges = (
        ("port", config.port, 0, 65535),
        ("deadlineMilliseconds", config.deadline_milliseconds, 0.1, 60_000),
        ("maxBodyBytes", config.max_body_bytes, 1 << 10, LARGEST_BODY),
        ("maxRequests", config.max_requests, 1, 100_000),
        ("staleSeconds", config.stale_seconds, 0.1, 86_400),
    )
    check_ranges(ranges, source)


def exposure(config: ServiceConfig) -> str:
    """Return what others on the network can do that a user may not want; "" on a loopback address."""
    if _is_loopback(config.address):
        return ""
    if not config.token_file and not (config.tls and config.tls.client_ca):
        return (
            "whoever reaches this address can ask for scores and learn of nodes and pods; give tokenFile or "
            "tls.clientCa in --config, or --address 127.0.0.1"
        )
    return "" if config.tls else "the token is sent unencrypted; give tls in --config"


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def read_token(path: str) -> bytes:
    """Return the bearer token in a file. Raises InputError: it cannot be read, is empty or not a token."""
    try:
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise InputError(path, "", "", f"cannot be read: {error.strerror}") from None
    if not re.fullmatch(rb"[\x21-\x7e]+", token):
        raise InputError(path, "", "", "is empty or not a token; expected one line of letters, digits and signs")
    return token
