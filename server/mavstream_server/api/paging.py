"""Pagination: `?after=` is the key of the last item of the previous page, `?limit=` the size of a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple, TypeVar

from fastapi import Depends, Query

from mavstream_protocol.wire.resources import Page

Item = TypeVar("Item")

After = Annotated[
    str | None,
    Query(max_length=128, description="`next` of the previous page; omit it for the first page"),
]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items")]


class PageRequest(NamedTuple):
    """The requested page of a list."""

    after: str | None
    limit: int


def read_page(after: After = None, limit: Limit = 100) -> PageRequest:
    """Return the page that the URL requests."""
    return PageRequest(after, limit)


PageQuery = Annotated[PageRequest, Depends(read_page)]


def page_of(items: Sequence[Item], page: PageRequest, key: Callable[[Item], str]) -> Page[Item]:
    """Return the requested page of a complete list, sorted by `key`."""
    rest = [item for item in items if page.after is None or key(item) > page.after]
    return cut(rest, page, key)


def cut(items: Sequence[Item], page: PageRequest, key: Callable[[Item], str]) -> Page[Item]:
    """Return a page of at most `limit` items, which start after `after`; further items mean another page."""
    part = list(items[: page.limit])
    return Page[Item](items=part, next=key(part[-1]) if len(items) > page.limit else None)
