"""The OpenAPI document of the service, made from its messages, and a page that shows it by itself."""

from __future__ import annotations

import html
import inspect
import json
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


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24 }}
h1 {{ font-size: 1.6rem }} h2 {{ font: 600 1.1rem ui-monospace, monospace; margin: 2rem 0 .3rem }}
.method {{ background: #0b6; color: #fff; border-radius: .3rem; padding: .1rem .5rem; margin-right: .6rem }}
pre {{ background: #f4f6f8; padding: .8rem; overflow: auto; border-radius: .3rem; font-size: .85rem }}
summary {{ cursor: pointer; color: #456 }}
</style></head><body>
<h1>{title} {version}</h1><p>{description} The same for programs: <a href="openapi.json">openapi.json</a>.</p>
{body}
</body></html>
"""


def page(document: Json) -> str:
    """The document for people."""
    parts = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(f'<h2><span class="method">{method.upper()}</span>{html.escape(path)}</h2>')
            parts.append(f"<p>{html.escape(operation['summary'])}</p>")
            if operation.get("description"):
                parts.append(f"<pre>{html.escape(operation['description'])}</pre>")
            for title, schema in _schemas(operation):
                shown = html.escape(json.dumps(schema, indent=1))
                parts.append(f"<details><summary>{title}</summary><pre>{shown}</pre></details>")
    named = html.escape(json.dumps(document["components"]["schemas"], indent=1))
    parts.append(f"<h2>Schemas</h2><details><summary>all</summary><pre>{named}</pre></details>")
    info = {name: html.escape(str(value)) for name, value in document["info"].items()}
    return PAGE.format(**info, body="\n".join(parts))


def _schemas(operation: Json) -> list[tuple[str, Json]]:
    found = []
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]
        found += [("example", content["example"]), ("body", content["schema"])]
    answer = operation["responses"]["200"].get("content")
    if answer:
        found.append(("answer", answer["application/json"]["schema"]))
    return found
