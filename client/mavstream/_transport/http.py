"""HTTP requests that are retried where that is safe, and answers parsed into models."""

from __future__ import annotations

import random
from itertools import count
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from mavstream._errors import ConnectFailed, TransportError, answer_error, unreadable_answer
from mavstream._transport.retry import Retry
from mavstream._transport.steps import Pause, Reply, Request, Talk, ask
from mavstream_protocol.wire.resources import Page

Model = TypeVar("Model")

_MAX_RETRY_AFTER = 60.0
"""A request is not retried if the server asks for a longer pause than this (seconds)."""


def exchange(request: Request, retry: Retry) -> Talk[Reply]:
    """Send a request, retrying as often as `retry` allows; raises ProblemError for a refusal."""
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
            # The answer to an earlier attempt was lost, and that attempt deleted it.
            if lost and request.method == "DELETE" and reply.status == 404:
                return Reply(204, {}, b"")
            if reply.status < 400:
                return reply
            pause = _retry_after(reply)
            if attempt >= retry.attempts or not _may_retry(request, reply) or pause > _MAX_RETRY_AFTER:
                raise answer_error(reply.status, reply.content)
        yield Pause(max(pause, retry.pause(attempt, random.random())))
    raise AssertionError("unreachable")


def fetch(request: Request, retry: Retry, model: type[Model] | TypeAdapter[Model]) -> Talk[Model]:
    """Send a request and parse its answer."""
    reply = yield from exchange(request, retry)
    return read(reply, model)


def fetch_all(path: str, retry: Retry, item: type[Model], params: dict[str, str]) -> Talk[list[Model]]:
    """Fetch all pages of a list."""
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
    """Parse an answer; raises ServerProblem for one that is not understood."""
    adapter: TypeAdapter[Any] = model if isinstance(model, TypeAdapter) else TypeAdapter(model)
    try:
        result: Model = adapter.validate_json(reply.content)
    except ValidationError as error:
        first = error.errors()[0]
        where = "/".join(map(str, first["loc"])) or "body"
        raise unreadable_answer(f"{where}: {first['msg']}") from None
    return result


def _may_retry(request: Request, reply: Reply) -> bool:
    # A 429 says that nothing was done; a 503 may be from a proxy that does not know.
    return reply.status == 429 or (reply.status == 503 and request.repeatable)


def _retry_after(reply: Reply) -> float:
    text = reply.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 0.0
