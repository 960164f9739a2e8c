"""Request bodies: content types, and decoding of rows in every encoding that a stream accepts."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
import pyarrow as pa
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection

from mavstream_protocol.plans.budget import check_bytes
from mavstream_protocol.schema import Schema
from mavstream_protocol.tuples import decode_columns, decode_lines, decode_rows, decode_stream
from mavstream_protocol.tuples.json_text import parse_json
from mavstream_server.core.errors import Refused, ServiceError
from mavstream_server.queries.planning.json_body import JsonBody

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"

_LARGE = 16 << 10
_NOT_JSON = re.compile(r"/v1/streams/[^/]+/(tuples|stages/[^/]+)|/v1/tables/[^/]+|/v1/queries/[^/]+/results")
_ROW: dict[str, Any] = {"type": "object"}
TUPLE_TYPES: dict[str, Any] = {
    JSON: {
        "schema": {
            "description": "A list of rows or an object of columns; or one of them under `rows` or `columns`",
            "anyOf": [
                {"type": "array", "items": _ROW},
                {"type": "object", "additionalProperties": {"type": "array"}},
                {"type": "object", "properties": {"rows": {"type": "array", "items": _ROW}}},
                {"type": "object", "properties": {"columns": {"type": "object"}}},
            ],
        },
        "examples": {
            "rows": {"value": [{"at": "2026-01-01T00:00:00Z", "home": "h1", "temperature": 21.5}]},
            "columns": {"value": {"at": [1767225600000000], "home": ["h1"], "temperature": [21.5]}},
        },
    },
    NDJSON: {"schema": {"type": "string", "description": "One JSON object per line"}},
    ARROW: {"schema": {"type": "string", "format": "binary", "description": "An Arrow IPC stream"}},
}


class UnsupportedType(ServiceError):
    """Raised for a content type that the route does not accept."""

    status = 415
    code = "unsupported_media_type"
    title = "The type of the body is not accepted"


class _QueryRequest(Request):
    """A request whose body is a query; a large one is not parsed on the event loop."""

    async def json(self) -> Any:
        body = await self.body()
        return JsonBody(body) if self.is_large(body) else await super().json()

    def is_large(self, body: bytes) -> bool:
        return self.method == "POST" and len(body) > _LARGE


class QueryRoute(APIRoute):
    """A route that reads queries, limited in size before they are parsed."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that handles a request."""
        handle = super().get_route_handler()

        async def handle_query(request: Request) -> Response:
            request = _QueryRequest(request.scope, request.receive)
            check_bytes(len(await request.body()), "body")
            return await handle(request)

        return handle_query


async def check_body(request: HTTPConnection) -> None:
    """Reject bodies that are not strict JSON, on routes that read JSON.

    Python's parser, which the framework uses, accepts NaN and lone surrogates.
    """
    if not isinstance(request, Request) or _NOT_JSON.fullmatch(request.url.path):
        return
    body = await request.body() if request.method in ("POST", "PUT", "PATCH") else b""
    if not body:
        return
    kind = media_type(request.headers.get("content-type", ""))
    if kind != JSON and not (kind.startswith("application/") and kind.endswith("+json")):
        shown = f"got '{kind[:60]}'" if kind else "got none"
        raise UnsupportedType(f"the body must be of type {JSON}, {shown}: set the header Content-Type")
    if isinstance(request, _QueryRequest) and request.is_large(body):
        return  # it is parsed and checked in another process
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refused(f"the body is not JSON: {error}", code="invalid_json") from None


def decode_body(schema: Schema, content_type: str, body: bytes) -> pa.RecordBatch:
    """Decode the rows of a body into the canonical batch; raises InvalidTuples, UnsupportedType."""
    kind = media_type(content_type)
    if kind == JSON:
        return _decode_json(schema, parse_json(body))
    if kind == NDJSON:
        return decode_lines(schema, body)
    if kind == ARROW:
        return decode_stream(schema, body)
    shown = f"got '{kind[:60]}'" if kind else "got none"
    raise UnsupportedType(f"tuples are of type {JSON}, {NDJSON} or {ARROW}, {shown}")


def media_type(content_type: str) -> str:
    """Return a content type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def _decode_json(schema: Schema, parsed: Any) -> pa.RecordBatch:
    if isinstance(parsed, dict):
        keys = set(parsed)
        # A stream may have a field named `rows`; then the object holds columns.
        if keys == {"rows"} and "rows" not in schema:
            return decode_rows(schema, parsed["rows"])
        if keys == {"columns"} and "columns" not in schema:
            return decode_columns(schema, parsed["columns"])
        return decode_columns(schema, parsed)
    return decode_rows(schema, parsed)
