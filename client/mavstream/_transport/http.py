"""Requests that are repeated where that is safe, and answers read into models."""

from __future__ import annotations

import random
from itertools import count
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from mavstream._errors import ConnectFailed, ServerProblem, TransportError, answer_error
from mavstream._transport.retry import Retry
from mavstream._transport.steps import Pause, Reply, Request, Talk, ask
from mavstream_protocol import Problem
from mavstream_protocol.wire.resources import Page

Model = TypeVar("Model")

_LONGEST_WISH = 60.0
"""A server that asks for a longer pause than this (seconds) gets the request no more."""


def exchange(request: Request, retry: Retry) -> Talk[Reply]:
    """Send a request until it is answered, as often as `retry` allows; raises what the server refused."""
    lost = False
    for attempt in count(1):
        try:
            reply = yield from ask(request)
        except TransportError as error:
            if attempt >= retry.attempts or not (request.repeatable or isinstance(error, ConnectFailed)):
                raise
            lost = lost or not isinstance(error, ConnectFailed)
            pause = 0.0
        else:
            # The answer to a deletion got lost, and the deletion was done.
            if lost and request.method == "DELETE" and reply.status == 404:
                return Reply(204, {}, b"")
            if reply.status < 400:
                return reply
            pause = _wish(reply)
            if attempt >= retry.attempts or not _worth_repeating(request, reply) or pause > _LONGEST_WISH:
                raise answer_error(reply.status, reply.content)
        yield Pause(max(pause, retry.pause(attempt, random.random())))
    raise AssertionError("unreachable")


def fetch(request: Request, retry: Retry, model: type[Model] | TypeAdapter[Model]) -> Talk[Model]:
    """Send a request and read its answer."""
    reply = yield from exchange(request, retry)
    return read(reply, model)


def fetch_all(path: str, retry: Retry, item: type[Model], params: dict[str, str]) -> Talk[list[Model]]:
    """Read all pages of a list."""
    page = TypeAdapter(Page[item])  # type: ignore[valid-type]
    items: list[Model] = []
    after: dict[str, str] = {}
    while True:
        part = yield from fetch(Request("GET", path, params={**params, **after}), retry, page)
        items += part.items
        if part.next is None:
            return items
        after = {"after": part.next}


def read(reply: Reply, model: type[Model] | TypeAdapter[Model]) -> Model:
    """Return the model in an answer; one that is not understood is the server's problem."""
    adapter: TypeAdapter[Any] = model if isinstance(model, TypeAdapter) else TypeAdapter(model)
    try:
        result: Model = adapter.validate_json(reply.content)
    except ValidationError as error:
        first = error.errors()[0]
        where = "/".join(map(str, first["loc"])) or "body"
        detail = f"the server's answer is not understood ({where}: {first['msg']}): is it of another version?"
        raise ServerProblem(
            Problem(title="Answer not understood", status=502, code="unreadable_answer", detail=detail)
        ) from None
    return result


def _worth_repeating(request: Request, reply: Reply) -> bool:
    # 429 says that nothing was done; 503 may come from a proxy that does not know.
    return reply.status == 429 or (reply.status == 503 and request.repeatable)


def _wish(reply: Reply) -> float:
    text = reply.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 0.0
