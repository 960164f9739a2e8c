"""Object versions in HTTP: the `ETag` and `If-Match` headers."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Depends, Header

from mavstream_server.core.errors import Refused

_TAG = re.compile(r'\s*(?:W/)?"?([0-9]{1,18})"?\s*')


def etag(version: int) -> str:
    """Return a version as an `ETag` header."""
    return f'"{version}"'


def read_if_match(
    if_match: Annotated[
        str | None, Header(description="The `ETag` that was read; the change is refused if it is outdated")
    ] = None,
) -> int | None:
    """Return the version that a change requires, or None for any."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = _TAG.fullmatch(if_match)
    if found is None:
        raise Refused(
            f"the header If-Match is {if_match[:40]!r}, which is no version: give the ETag that was read",
            code="invalid_etag",
        )
    return int(found[1])


IfMatch = Annotated[int | None, Depends(read_if_match)]
