"""The OpenAPI document: what FastAPI finds out, and what it cannot know."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from mavstream_protocol.errors import Problem
from mavstream_protocol.wire.feed import from_producer, to_producer
from mavstream_protocol.wire.results import to_subscriber
from mavstream_server.api.problems import MEDIA_TYPE, documented

DESCRIPTION = """\
A data stream management service: register streams and continuous queries, feed tuples, read answers.

Errors are `application/problem+json` with a stable `code`, a `detail` that says what to do, and `errors` that
point at each fault. Lists come in parts: give `next` of one part as `?after=` of the following. Creation
takes an `Idempotency-Key`; changes take `If-Match` with the `ETag` that was read.

Two websockets stand beside the routes: `/v1/feed` (messages `FromProducer` and `ToProducer`) and
`/v1/queries/{id}/results` (messages `ToSubscriber`).
"""

TAGS = [
    {"name": "streams", "description": "What flows: registered, fed, completed."},
    {"name": "tables", "description": "What rows are looked up in: stored, replaced as a whole."},
    {"name": "queries", "description": "Continuous queries, their plans, results and targets."},
    {"name": "classes", "description": "Groups of queries that matter equally."},
    {"name": "scheduling", "description": "Policies, and the one that decides."},
    {"name": "optimizer", "description": "Who watches targets, and what was done to keep them."},
    {"name": "server", "description": "How the server stands."},
]

_MESSAGES: dict[str, TypeAdapter[Any]] = {
    "FromProducer": from_producer,
    "ToProducer": to_producer,
    "ToSubscriber": to_subscriber,
}
_REF = "#/components/schemas/{model}"


def document(app: FastAPI) -> dict[str, Any]:
    """Return the document, made once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            tags=TAGS,
        )
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        _add(schemas, "Problem", Problem.model_json_schema(ref_template=_REF))
        for name, messages in _MESSAGES.items():
            _add(schemas, name, messages.json_schema(ref_template=_REF))
        made["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        for path, operations in made["paths"].items():
            for operation in operations.values():
                _complete(path, operation)
        made["paths"]["/v1/feed"]["get"]["responses"] |= documented(426)
        app.openapi_schema = _listed(made)
    return app.openapi_schema


def _add(schemas: dict[str, Any], name: str, schema: dict[str, Any]) -> None:
    for inner, definition in schema.pop("$defs", {}).items():
        schemas.setdefault(inner, definition)
    schemas[name] = schema


def _listed(part: Any) -> Any:
    """Write tuples of equal types as lists of a fixed length: many readers know no other form."""
    if isinstance(part, list):
        return [_listed(each) for each in part]
    if not isinstance(part, dict):
        return part
    first, *rest = part.get("prefixItems") or [None]
    if first is not None and all(each == first for each in rest):
        part = {**{key: part[key] for key in part if key != "prefixItems"}, "items": first}
    return {key: _listed(each) for key, each in part.items()}


def _complete(path: str, operation: dict[str, Any]) -> None:
    """Add the problems that any route of its kind can answer with."""
    statuses = {503}
    if path.startswith("/v1") or path == "/metrics":
        statuses |= {401, 403}
        operation["security"] = [{}, {"bearer": []}]
    if operation.get("parameters"):
        statuses |= {422}
    if "requestBody" in operation:
        statuses |= {400, 408, 413, 415, 422}
    if "{" in path:
        statuses |= {404}
    responses = operation["responses"]
    for status, response in documented(*statuses).items():
        known = responses.get(str(status))
        generated = known is not None and "HTTPValidationError" in str(known)
        if status in statuses and (known is None or generated):
            responses[str(status)] = response
        elif known is not None and status >= 400 and "content" not in known:  # type: ignore[operator]
            known["content"] = {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}}}
