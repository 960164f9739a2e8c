"""Error responses as `application/problem+json`: every error has a status, a code and a detail message."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from mavstream_protocol.errors import InvalidPlan, MavstreamError, Problem, ProblemItem
from mavstream_protocol.model_errors import causes, quoted, sentence
from mavstream_protocol.plans.plan import Plan
from mavstream_server.core.errors import problem_of

_LOG = logging.getLogger("mavstream.api")
MEDIA_TYPE = "application/problem+json"
INVALID_REQUEST = "The request is not valid"

_DESCRIPTIONS = {
    400: "The request cannot be read",
    401: "No token, or one that is not known",
    403: "The token does not allow this, or the request is from a page of another site",
    404: "There is no object of that name",
    406: "None of the types in `Accept` is offered",
    408: "The body did not arrive in time",
    409: "The request conflicts with the current state",
    412: "The object has changed: `If-Match` names another version",
    413: "The body is larger than the server accepts",
    415: "The route does not accept the type of the body, or a POST has none",
    421: "The `Host` header names another server",
    422: "The request is well-formed but invalid; `errors` points at each error",
    426: "This is a websocket: request the upgrade",
    429: "A limit of the server is reached",
    503: "Not available now: the engine is starting, or the limit of connections is reached",
    507: "The disk is full, or its limit is reached",
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the problem responses of a route, for its `responses=` argument."""
    return {
        status: {
            "description": _DESCRIPTIONS[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted({400, 401, 403, 422, 503, *statuses})
    }


class ProblemResponse(Response):
    """An HTTP response with problem details."""

    media_type = MEDIA_TYPE

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        # Details quote client input, which may not be encodable as UTF-8: escape everything to ASCII.
        text = json.dumps(problem.model_dump(exclude_defaults=True) | {"status": problem.status})
        super().__init__(text, problem.status, headers)

    @classmethod
    def of(cls, error: MavstreamError) -> ProblemResponse:
        """Return the response for an error that was raised deliberately."""
        problem = problem_of(error)
        return cls(problem, {**_HEADERS.get(problem.status, {}), **getattr(error, "headers", {})})


def raw_response(error: MavstreamError) -> bytes:
    """Return a whole HTTP response, after which the connection is closed; for use below the application."""
    response = ProblemResponse.of(error)
    phrase = HTTPStatus(response.status_code).phrase
    lines = [f"HTTP/1.1 {response.status_code} {phrase}".encode(), b"connection: close"]
    lines += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])


async def on_mavstream_error(request: Request, error: Exception) -> Response:
    """Handle an error that was raised deliberately."""
    assert isinstance(error, MavstreamError)
    return ProblemResponse.of(error)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Handle errors of the framework: unknown routes, wrong methods, unreadable bodies."""
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, MavstreamError):
        return await on_mavstream_error(request, error.__cause__)
    status, path = error.status_code, request.url.path
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if status == 404:
        code, detail = "unknown_route", f"there is nothing at {path}: GET /openapi.json lists what there is"
    elif status == 405:
        allowed = ", ".join(await allowed_methods(request))
        headers["allow"] = allowed
        code, detail = "wrong_method", f"{path} does not take {request.method}: it takes {allowed}"
    elif status == 400:
        code, detail = "unreadable_body", f"the body cannot be read: {error.__cause__ or error.detail}"
    else:
        code, detail = HTTPStatus(status).phrase.lower().replace(" ", "_"), str(error.detail)
    return ProblemResponse(_problem(status, code, detail), headers)


async def on_invalid_request(request: Request, error: Exception) -> Response:
    """Handle a request that does not match its models: 400 if unreadable, 415, or 422 with pointers."""
    assert isinstance(error, RequestValidationError)
    found = causes(error.errors())
    in_body = [item for item in found if item["loc"][:1] == ("body",)]
    broken = next((item for item in in_body if item["type"] == "json_invalid"), None)
    if broken is not None:
        return ProblemResponse(_problem(400, "invalid_json", _position(broken, error.body)))
    if in_body and isinstance(error.body, bytes):
        content_type = request.headers.get("content-type")
        shown = f"got {content_type!r}" if content_type else "got none"
        return ProblemResponse(
            _problem(415, "unsupported_media_type", f"the body must be application/json, {shown}")
        )
    items = invalid_items(found, error.body)
    text = "; ".join(f"{item.pointer}: {item.detail}" for item in items)
    return ProblemResponse(
        Problem(title=INVALID_REQUEST, status=422, code="invalid_request", detail=text, errors=items)
    )


async def on_unexpected(request: Request, error: Exception) -> Response:
    """Handle an unexpected error with a 500; the server logs its traceback."""
    _LOG.error("unexpected error", extra={"method": request.method, "path": request.url.path})
    return ProblemResponse(
        _problem(
            500, "internal_error", "the server failed at this request; its log says why, please report it"
        )
    )


async def on_disconnect(request: Request, error: Exception) -> Response:
    """Handle a client that disconnected before its body was complete; nobody reads the response."""
    return ProblemResponse(
        _problem(400, "client_gone", "the connection was closed before the body was complete")
    )


HANDLERS: dict[int | type[Exception], Any] = {
    MavstreamError: on_mavstream_error,
    HTTPException: on_http_error,
    RequestValidationError: on_invalid_request,
    ClientDisconnect: on_disconnect,
    Exception: on_unexpected,
}

_HEADERS: dict[int, dict[str, str]] = {
    401: {"www-authenticate": 'Bearer realm="mavstream"'},
    429: {"retry-after": "1"},
    503: {"retry-after": "1"},
}


def invalid_items(errors: Sequence[Mapping[str, Any]], body: object) -> tuple[ProblemItem, ...]:
    """Convert pydantic's errors to problem items, each with a pointer into the request."""
    items: list[ProblemItem] = []
    in_plan = [error for error in errors if error["loc"][:2] == ("body", "plan") and len(error["loc"]) > 2]
    if in_plan and isinstance(body, Mapping):
        try:
            Plan.parse(body.get("plan"))
        except InvalidPlan as invalid:
            items += (item.model_copy(update={"pointer": f"plan/{item.pointer}"}) for item in invalid.items)
    rest = errors if not items else [error for error in errors if error not in in_plan]
    return (*items, *map(_item, rest[:20]))


async def allowed_methods(request: Request) -> list[str]:
    """Return the methods of all routes that match the path of a request."""
    from starlette.routing import compile_path

    found: set[str] = set()
    # In a thread: it takes some 300 ms to generate the document for the first time.
    document = await asyncio.to_thread(request.app.openapi)
    for template, operations in document["paths"].items():
        if compile_path(template)[0].match(request.url.path):
            found |= {method.upper() for method in operations}
    return sorted(found)


def _problem(status: int, code: str, detail: str, errors: tuple[ProblemItem, ...] = ()) -> Problem:
    return Problem(title=HTTPStatus(status).phrase, status=status, code=code, detail=detail, errors=errors)


def _position(error: Mapping[str, Any], body: object) -> str:
    offset, reason = int(error["loc"][1]), error["ctx"]["error"]
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
    ahead = text[:offset]
    line, column = ahead.count("\n") + 1, offset - (ahead.rfind("\n") + 1) + 1
    return f"the body is not JSON at line {line}, column {column} (offset {offset}): {reason}"


def _item(error: Mapping[str, Any]) -> ProblemItem:
    where, *path = error["loc"]
    pointer = "/".join(map(str, path)) or str(where)
    if where in ("query", "header"):
        pointer = f"{where}/{pointer}"
    code = "unknown_key" if error["type"] == "extra_forbidden" else error["type"]
    subject = quoted(error, "the body") if path else f"the {where}"
    return ProblemItem(pointer=pointer, code=code, detail=sentence(error, subject))
