"""Choice of the encoding of a response by the request's `Accept` header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request

from mavstream_server.api.problems import documented
from mavstream_server.core.errors import ServiceError

NOT_ACCEPTABLE: dict[str, Any] = {
    **documented()[422],
    "description": "None of the types in `Accept` is offered",
}
"""The documentation of the response if a client accepts none of the encodings."""


class NotAcceptable(ServiceError):
    """Raised if the client accepts none of the offered encodings."""

    status = 406
    code = "not_acceptable"
    title = "There is no such encoding"


def preferred(request: Request, offered: Sequence[str]) -> str | None:
    """Return the first offered type that the client names, unless it names JSON or anything before."""
    for part in request.headers.get("accept", "*/*").split(","):
        kind, _, rest = part.strip().lower().partition(";")
        if rest.replace(" ", "") in ("q=0", "q=0.0"):
            continue
        if kind.strip() in offered:
            return kind.strip()
        if kind.strip() in ("application/json", "*/*"):
            return None
    return None


def prefers(request: Request, special: str, usual: str) -> bool:
    """Return whether the client prefers a special encoding to the usual one; raises NotAcceptable."""
    accept = request.headers.get("accept", "*/*")
    for part in accept.split(","):
        kind, _, rest = part.strip().lower().partition(";")
        if rest.replace(" ", "") in ("q=0", "q=0.0"):
            continue
        if kind.strip() == special:
            return True
        if kind.strip() in (usual, "*/*", f"{usual.partition('/')[0]}/*", ""):
            return False
    raise NotAcceptable(f"'Accept: {accept[:100]}' was asked for, and there are {usual} and {special}")
