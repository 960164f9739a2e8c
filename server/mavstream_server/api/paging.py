"""Lists in parts: `?after=` names the last item of the part before, `?limit=` how many to give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple, TypeVar

from fastapi import Depends, Query

from mavstream_protocol.wire.resources import Page

Item = TypeVar("Item")

After = Annotated[
    str | None,
    Query(max_length=128, description="`next` of the part before; without it, the first part"),
]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many items at most")]


class PageRequest(NamedTuple):
    """Which part of a list is asked for."""

    after: str | None
    limit: int


def read_page(after: After = None, limit: Limit = 100) -> PageRequest:
    """Return which part the address asks for."""
    return PageRequest(after, limit)


PageQuery = Annotated[PageRequest, Depends(read_page)]


def page_of(items: Sequence[Item], page: PageRequest, key: Callable[[Item], str]) -> Page[Item]:
    """Return the asked part of a whole list, sorted by `key`."""
    rest = [item for item in items if page.after is None or key(item) > page.after]
    return cut(rest, page, key)


def cut(items: Sequence[Item], page: PageRequest, key: Callable[[Item], str]) -> Page[Item]:
    """Return at most `limit` of the items, which begin behind `after`; more say that there is more."""
    part = list(items[: page.limit])
    return Page[Item](items=part, next=key(part[-1]) if len(items) > page.limit else None)
