"""Which queries are large: too much work for the event loop."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from pydantic import BaseModel

from mavstream_server.queries.planning.json_body import JsonBody

SMALL = 2048
"""The most characters of a query that is planned on the event loop, which takes at most some 10 ms."""


def is_large(value: object) -> bool:
    """Return whether a JSON value or a model has more than `SMALL` characters; looks at no more of it."""
    if isinstance(value, JsonBody):
        return len(value.text) > SMALL
    size, waiting = 0, [value]
    while waiting and size <= SMALL:
        one = waiting.pop()
        size += 1
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, Mapping):
            size += len(one)
            waiting += islice(one.values(), SMALL)
        elif isinstance(one, (list, tuple)):
            waiting += one[:SMALL]
        elif isinstance(one, BaseModel):
            waiting += vars(one).values()
    return size > SMALL
