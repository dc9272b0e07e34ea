"""Find the API server and our user: kubeconfig files as kubectl reads them, or a pod's service account.

This is our own code since the official client adds 126 MB and half a second of imports for this part alone, and smaller
clients read neither several files in KUBECONFIG nor current exec plugins.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from steersman.core.errors import InputError, SteersmanError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
T = TypeVar("T")


class KubeCluster(msgspec.Struct, frozen=True, rename="kebab"):
    """`clusters[].cluster` of a kubeconfig."""

    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class EnvironmentVariable(msgspec.Struct, frozen=True):
    """`env[]` of an exec plugin."""

    name: str
    value: str


class ExecConfig(msgspec.Struct, frozen=True, rename="camel"):
    """`users[].user.exec`: a command that prints an ExecCredential."""

    command: str
    api_version: str = "client.authentication.k8s.io/v1"
    args: Sequence[str] | None = None
    env: Sequence[EnvironmentVariable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False


class KubeUser(msgspec.Struct, frozen=True, rename="kebab"):
    """`users[].user` of a kubeconfig."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec: ExecConfig | None = None
    auth_provider: Mapping[str, Any] | None = None
    impersonated: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: Sequence[str] | None = None
    as_user_extra: Mapping[str, Sequence[str]] | None = None


class KubeContext(msgspec.Struct, frozen=True):
    """`contexts[].context` of a kubeconfig."""

    cluster: str
    user: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class KubeConfig:
    """A cluster and a user of it."""

    source: Path  # file of the context, or folder of the service account
    context: str  # name of the context; "" in a pod
    # `cluster`, `user`: what it names; relative paths are made absolute.
    cluster: KubeCluster
    user: KubeUser
    namespace: str  # default namespace of namespaced commands


def load(kubeconfig: Path | None = None, context: str | None = None) -> KubeConfig:
    """Return the configuration as kubectl finds it: the file, $KUBECONFIG, ~/.kube/config, or the service account."""
    stated = os.environ.get("KUBECONFIG", "")
    files = _files(kubeconfig, stated)
    # As kubectl: in a pod without a kubeconfig the service account counts. Contexts are in files only.
    if not files and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster()
    if not files:
        looked = f"KUBECONFIG={stated}" if stated else "~/.kube/config"
        raise SteersmanError(
            f"no cluster to talk to: no file at {looked}; give --kubeconfig, or start one with 'steersman cluster up'"
        )
    return _select(files, context)


def context_names(kubeconfig: Path | None = None) -> list[str]:
    """Return the names of the contexts of a file, else of those that kubectl reads; files it cannot read have none."""
    names: dict[str, None] = {}
    for file in _files(kubeconfig, os.environ.get("KUBECONFIG", "")):
        with suppress(InputError):
            contexts = _read(file).get("contexts")
            named = [each["name"] for each in contexts or () if isinstance(each, Mapping) and "name" in each]
            names |= dict.fromkeys(map(str, named))
    return list(names)


def _files(kubeconfig: Path | None, stated: str) -> list[Path]:
    if kubeconfig is not None:
        return [kubeconfig.expanduser()]
    listed = [Path(name) for name in stated.split(os.pathsep) if name] or [Path.home() / ".kube" / "config"]
    return [file for file in listed if file.exists()]


def is_configured() -> bool:
    """Return whether $KUBECONFIG, ~/.kube/config or a pod's service account exists for `load` without arguments."""
    default = Path.home() / ".kube" / "config"
    return bool(os.environ.get("KUBECONFIG") or "KUBERNETES_SERVICE_HOST" in os.environ or default.exists())


def in_cluster() -> KubeConfig:
    """Return the configuration of a pod's service account. Raises SteersmanError: there is none."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    token = SERVICE_ACCOUNT / "token"
    if not host or not token.exists():
        raise SteersmanError(f"{SERVICE_ACCOUNT}: no service account token; this does not run in a pod that has one")
    namespace = SERVICE_ACCOUNT / "namespace"
    return KubeConfig(
        source=SERVICE_ACCOUNT,
        context="",
        cluster=KubeCluster(
            # A URL has IPv6 addresses in brackets.
            server=f"https://{f'[{host}]' if ':' in host else host}:{port or 443}",
            certificate_authority=str(SERVICE_ACCOUNT / "ca.crt"),
        ),
        user=KubeUser(token_file=str(token)),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def _select(files: Sequence[Path], context: str | None) -> KubeConfig:
    """Return the chosen context; of equal names the first file's counts, as with kubectl."""
    read = [(file, _read(file)) for file in files]
    chosen = context or next((str(c["current-context"]) for _, c in read if c.get("current-context")), "")
    names = ", ".join(str(file) for file in files)
    if not chosen:
        raise SteersmanError(f"{names}: no current-context; give --context")
    source, raw = _named(read, "contexts", "context", chosen, names)
    convert = _convert(raw, KubeContext, source, f"context {chosen}")
    at, raw = _named(read, "clusters", "cluster", convert.cluster, names)
    cluster = _absolute(_convert(raw, KubeCluster, at, f"cluster {convert.cluster}"), at, ("certificate_authority",))
    user = KubeUser()
    if convert.user:
        at, raw = _named(read, "users", "user", convert.user, names)
        user = _convert(raw, KubeUser, at, f"user {convert.user}")
        user = _absolute(user, at, ("client_certificate", "client_key", "token_file"))
    if user.auth_provider is not None:
        problem = "auth-provider is no longer part of Kubernetes (since 1.26); an exec plugin takes its place"
        raise InputError(at, f"user {convert.user}", "auth-provider", problem)
    return KubeConfig(source, chosen, cluster, user, convert.namespace or "default")


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(file.read_text())
    except OSError as error:
        raise InputError(file, "", "", f"cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise InputError(file, "", "", "is not YAML; expected a kubeconfig file") from None
    if not isinstance(content, Mapping) or not isinstance(content.get("clusters"), list):
        raise InputError(file, "", "clusters", "is missing; expected a kubeconfig file")
    return content


def _named(
    read: Sequence[tuple[Path, Mapping[str, Any]]], group: str, key: str, name: str, files: str
) -> tuple[Path, Any]:
    known = []
    for file, content in read:
        for entry in content.get(group) or ():
            if isinstance(entry, Mapping):
                if entry.get("name") == name:
                    return file, entry.get(key) or {}
                known.append(str(entry.get("name")))
    there = f"there are {', '.join(known)}" if known else "there is none"
    raise SteersmanError(f"{files}: no {key} {name!r}; {there}")


def _convert(raw: Any, kind: type[T], file: Path, where: str) -> T:
    try:
        # `key: null` and `key:` in YAML mean that nothing is stated.
        return msgspec.convert({k: v for k, v in raw.items() if v is not None}, kind)
    except (msgspec.ValidationError, AttributeError) as error:
        raise InputError(file, where, "", str(error)) from None


def _absolute(part: T, file: Path, fields: Sequence[str]) -> T:
    changed = {name: str(file.absolute().parent / getattr(part, name)) for name in fields if getattr(part, name)}
    return msgspec.structs.replace(part, **changed)  # type: ignore[type-var]


def decoded(data: str, file: Path, field: str) -> bytes:
    """Return the bytes of a `*-data` field. Raises InputError: it is not base64."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise InputError(file, "", field, "is not base64") from None
