"""The OpenAPI document of the service, made from its messages."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

import steersman
from steersman.service.examples import EXAMPLES
from steersman.service.messages import Problem

Json = dict[str, Any]

PROBLEMS = {
    400: "The body is malformed, or makes no sense; the message says where.",
    401: "There is no bearer token, or a wrong one.",
    403: "The question brings a cluster, which this service does not allow.",
    404: "The version of a list of nodes is not known; send the list.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    500: "The service failed at this; its log says why.",
    503: "Too many requests, or nothing is known of the cluster yet.",
}
TEMPLATE = "#/components/schemas/{name}"


@dataclass(frozen=True, slots=True)
class Route:
    """A path, the types of what is asked and answered, and what it is for."""

    path: str
    asked: Any
    answered: Any
    summary: str


def openapi(routes: Sequence[Route], *, secured: bool) -> Json:
    """The document, OpenAPI 3.1."""
    types = [each for route in routes for each in (route.asked, route.answered)]
    schemas, components = msgspec.json.schema_components([*types, Problem], ref_template=TEMPLATE)
    problem, pairs = schemas[-1], zip(schemas[:-1:2], schemas[1:-1:2], strict=True)
    paths: Json = {}
    for route, (asked, answered) in zip(routes, pairs, strict=True):
        answers = {"200": _content("The answer.", answered)}
        answers |= {
            str(status): _content(said, problem) for status, said in PROBLEMS.items() if secured or status != 401
        }
        example = {"example": EXAMPLES[route.path]}
        body = {"required": True, "content": {"application/json": {"schema": asked, **example}}}
        paths[route.path] = {
            "post": {
                "summary": route.summary,
                "description": _doc(route.answered),
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
            "version": steersman.__version__,
            "description": "A scheduling policy's opinion about pods and nodes.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if secured:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _content(said: str, schema: Json) -> Json:
    return {"description": said, "content": {"application/json": {"schema": schema}}}


def _doc(answered: Any) -> str:
    """The docstring of what is answered."""
    kind = get_args(answered)[0] if get_args(answered) else answered
    return inspect.getdoc(kind) or ""
