"""What each way of running steersman asks of the API server, and whether the caller may do it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from steersman.apps.doctor.findings import Finding, ok, problem, warning
from steersman.kubernetes.client import ApiError, Client

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Rights:
    """Verbs on resources of one group.

    Attributes:
        group: API group, "" for core.
        resources: resources, with their subresource if there is one.
        verbs: verbs.
        purpose: what the rights are for where most clusters never ask for them, "" if they are always needed.
    """

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    purpose: str = ""


_LOOK = ("list", "watch")
_SPREADING = "the policy kube-default"
_DRA = "Dynamic Resource Allocation"
_VOLUMES = "pods with claims"
_WATCHES = (
    Rights("", ("namespaces",), _LOOK, "affinity that selects namespaces by labels"),
    Rights("", ("services", "replicationcontrollers"), _LOOK, _SPREADING),
    Rights("apps", ("replicasets", "statefulsets"), _LOOK, _SPREADING),
)
RIGHTS: Mapping[str, tuple[Rights, ...]] = {
    "evaluate": (
        Rights("", ("nodes", "pods"), ("list",)),
        Rights("", ("namespaces", "services", "replicationcontrollers"), ("list",), _SPREADING),
        Rights("apps", ("replicasets", "statefulsets"), ("list",), _SPREADING),
        Rights("resource.k8s.io", ("deviceclasses", "resourceslices", "resourceclaims"), ("list",), _DRA),
    ),
    "serve": (
        Rights("", ("nodes", "pods"), _LOOK),
        Rights("resource.k8s.io", ("deviceclasses", "resourceslices", "resourceclaims"), _LOOK, _DRA),
        *_WATCHES,
    ),
    "schedule": (
        Rights("", ("nodes",), _LOOK),
        Rights("", ("pods",), ("get", *_LOOK)),
        Rights("", ("pods/binding",), ("create",)),
        Rights("", ("pods/status",), ("patch",)),
        Rights("events.k8s.io", ("events",), ("create", "patch")),
        Rights("", ("persistentvolumeclaims", "persistentvolumes"), (*_LOOK, "patch"), _VOLUMES),
        Rights("storage.k8s.io", ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities"), _LOOK, _VOLUMES),
        Rights("resource.k8s.io", ("deviceclasses", "resourceslices"), _LOOK, _DRA),
        Rights("resource.k8s.io", ("resourceclaims",), ("get", *_LOOK, "create"), _DRA),
        Rights("resource.k8s.io", ("resourceclaims/status", "resourceclaims/binding"), ("update",), _DRA),
        *_WATCHES,
    ),
}
"""Rights by command; those of `serve` and `schedule` are the ClusterRoles that are deployed."""


async def rights_findings(client: Client, command: str) -> list[Finding]:
    """Ask the API server what the caller may do, and return what that lets a command do.

    Raises:
        SteersmanError: the API server does not answer, or refuses the question.
    """
    asked = [(rights, resource, verb) for rights, resource, verb in _pairs(RIGHTS[command])]
    limit = asyncio.Semaphore(AT_ONCE)

    async def allowed(rights: Rights, resource: str, verb: str) -> bool:
        name, _, subresource = resource.partition("/")
        attributes = {"group": rights.group, "resource": name, "subresource": subresource, "verb": verb}
        async with limit:
            result = await client.create(REVIEWS, {"spec": {"resourceAttributes": attributes}})
        return bool((result.get("status") or {}).get("allowed"))

    subject = f"rights for {command}"
    try:
        answers = await asyncio.gather(*(allowed(*each) for each in asked))
    except ApiError as error:
        return [warning(subject, f"the API server does not tell: {error}", "ask 'kubectl auth can-i --list'")]
    refused: dict[str, dict[str, list[str]]] = {}
    for (rights, resource, verb), is_allowed in zip(asked, answers, strict=True):
        if not is_allowed:
            refused.setdefault(rights.purpose, {}).setdefault(resource, []).append(verb)
    return list(_told(subject, refused))


def _pairs(rights: Sequence[Rights]) -> Iterator[tuple[Rights, str, str]]:
    return ((each, resource, verb) for each in rights for resource in each.resources for verb in each.verbs)


def _told(subject: str, refused: Mapping[str, Mapping[str, Sequence[str]]]) -> Iterator[Finding]:
    """Return a problem if a right that is always needed is refused, else what else is refused."""
    for purpose, verbs in refused.items():
        what = "; ".join(f"{resource} ({', '.join(each)})" for resource, each in verbs.items())
        if not purpose:
            yield problem(subject, f"not allowed: {what}", "use the service account of the Helm chart, or grant it")
        elif "" not in refused:
            yield warning(subject, f"not allowed, for {purpose} alone: {what}", "grant it if the cluster uses it")
    if not refused:
        yield ok(subject, "all granted")
