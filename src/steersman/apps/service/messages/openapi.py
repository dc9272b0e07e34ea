"""OpenAPI document of the service, generated from its messages."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from steersman.apps.service.messages.examples import EXAMPLES
from steersman.apps.service.messages.types import Problem
from steersman.version import __version__

Json = dict[str, Any]

PROBLEMS = {
    400: "The body is malformed, or makes no sense; the message says where.",
    401: "There is no bearer token, or a wrong one.",
    403: "The request brings a cluster, which this service does not allow.",
    404: "The version of a list of nodes is not known; send the list.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    500: "The service failed at this; its log says why.",
    503: "Too many requests, or nothing is known of the cluster yet.",
}
TEMPLATE = "#/components/schemas/{name}"


@dataclass(frozen=True, slots=True)
class Route:
    """Path with the types of its request and response and a description."""

    path: str
    request_type: Any
    response_type: Any
    summary: str


def openapi(routes: Sequence[Route], *, secured: bool) -> Json:
    """Return the OpenAPI 3.1 document."""
    types = [each for route in routes for each in (route.request_type, route.response_type)]
    schemas, components = msgspec.json.schema_components([*types, Problem], ref_template=TEMPLATE)
    problem, pairs = schemas[-1], zip(schemas[:-1:2], schemas[1:-1:2], strict=True)
    paths: Json = {}
    for route, (request_schema, answered) in zip(routes, pairs, strict=True):
        answers = {"200": _content("The answer.", answered)}
        answers |= {
            str(status): _content(description, problem)
            for status, description in PROBLEMS.items()
            if secured or status != 401
        }
        example = {"example": EXAMPLES[route.path]}
        body = {"required": True, "content": {"application/json": {"schema": request_schema, **example}}}
        paths[route.path] = {
            "post": {
                "summary": route.summary,
                "description": _doc(route.response_type),
                "requestBody": body,
                "responses": answers,
            }
        }
    for path, what in (("/healthz", "Whether the service works."), ("/readyz", "Whether it can answer.")):
        text = {"200": {"description": "Yes."}, "503": {"description": "No; the body says why."}}
        paths[path] = {"get": {"summary": what, "responses": text, "security": []}}
    shown = {"200": {"description": "The metrics."}}
    paths["/metrics"] = {"get": {"summary": "For Prometheus.", "responses": shown, "security": []}}
    document: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": "steersman score service",
            "version": __version__,
            "description": "Scores of nodes for pods by a scheduling policy.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if secured:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _content(description: str, schema: Json) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _doc(answered: Any) -> str:
    kind = get_args(answered)[0] if get_args(answered) else answered
    return inspect.getdoc(kind) or ""
