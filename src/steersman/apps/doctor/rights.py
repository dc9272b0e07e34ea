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
class AccessRule:
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
_CONFIGURATION = "the configuration of the cluster's scheduler"
_DRA = "Dynamic Resource Allocation"
_VOLUMES = "pods with claims"
_WATCHES = (
    AccessRule("", ("namespaces",), _LOOK, "affinity that selects namespaces by labels"),
    AccessRule("", ("services", "replicationcontrollers"), _LOOK, _SPREADING),
    AccessRule("apps", ("replicasets", "statefulsets"), _LOOK, _SPREADING),
)
RIGHTS: Mapping[str, tuple[AccessRule, ...]] = {
    "evaluate": (
        AccessRule("", ("nodes", "pods"), ("list",)),
        AccessRule("", ("namespaces", "services", "replicationcontrollers"), ("list",), _SPREADING),
        AccessRule("apps", ("replicasets", "statefulsets"), ("list",), _SPREADING),
        AccessRule("apps", ("deployments",), ("list",), _CONFIGURATION),
        AccessRule("", ("configmaps",), ("get",), _CONFIGURATION),
        AccessRule("resource.k8s.io", ("deviceclasses", "resourceslices", "resourceclaims"), ("list",), _DRA),
    ),
    "serve": (
        AccessRule("", ("nodes", "pods"), _LOOK),
        AccessRule("resource.k8s.io", ("deviceclasses", "resourceslices", "resourceclaims"), _LOOK, _DRA),
        *_WATCHES,
    ),
    "schedule": (
        AccessRule("", ("nodes",), _LOOK),
        AccessRule("", ("pods",), ("get", *_LOOK)),
        AccessRule("", ("pods/binding",), ("create",)),
        AccessRule("", ("pods/status",), ("patch",)),
        AccessRule("events.k8s.io", ("events",), ("create", "patch")),
        AccessRule("", ("persistentvolumeclaims", "persistentvolumes"), (*_LOOK, "patch"), _VOLUMES),
        AccessRule(
            "storage.k8s.io", ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities"), _LOOK, _VOLUMES
        ),
        AccessRule("resource.k8s.io", ("deviceclasses", "resourceslices"), _LOOK, _DRA),
        AccessRule("resource.k8s.io", ("resourceclaims",), ("get", *_LOOK, "create"), _DRA),
        AccessRule("resource.k8s.io", ("resourceclaims/status", "resourceclaims/binding"), ("update",), _DRA),
        *_WATCHES,
    ),
}
"""Access rules by command; those of `serve` and `schedule` are the ClusterRoles that are deployed."""


async def rights_findings(client: Client, command: str) -> list[Finding]:
    """Ask the API server what the caller may do, and return what that lets a command do.

    Raises:
        SteersmanError: the API server does not answer, or refuses the question.
    """
    asked = [(each, resource, verb) for each in RIGHTS[command] for resource in each.resources for verb in each.verbs]
    limit = asyncio.Semaphore(AT_ONCE)

    async def allowed(rights: AccessRule, resource: str, verb: str) -> bool:
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
    return list(_findings_of(subject, refused))


def _findings_of(subject: str, refused: Mapping[str, Mapping[str, Sequence[str]]]) -> Iterator[Finding]:
    for purpose, verbs in refused.items():
        what = "; ".join(f"{resource} ({', '.join(each)})" for resource, each in verbs.items())
        if not purpose:
            yield problem(subject, f"not allowed: {what}", "use the service account of the Helm chart, or grant it")
        elif "" not in refused:
            yield warning(subject, f"not allowed, for {purpose} alone: {what}", "grant it if the cluster uses it")
    if not refused:
        yield ok(subject, "all granted")
