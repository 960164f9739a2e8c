"""Where a server is, and how it is spoken to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from mavstream_protocol import InvalidObject, ProblemItem

LARGEST_MESSAGE = 256 << 20
"""Bytes of a message from the server at most."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server's base address and the token for it, which is never shown."""

    url: str
    token: str | None
    timeout: float

    @classmethod
    def parse(cls, url: str, token: str | None, timeout: float) -> Address:
        """Return the address; raises InvalidObject for one that is not HTTP."""
        scheme, separator, rest = url.partition("://")
        if not separator or scheme.lower() not in ("http", "https") or not rest:
            detail = f"the address of a server is http://HOST:PORT or https://HOST, and {url!r} came"
            raise InvalidObject([ProblemItem(pointer="url", code="invalid_url", detail=detail)])
        return cls(url.rstrip("/"), token, timeout)

    def __repr__(self) -> str:
        return f"Address({self.url!r})"

    @property
    def headers(self) -> dict[str, str]:
        """What goes with every request."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def websocket(self, path: str, params: Mapping[str, str]) -> str:
        """Return the address of a websocket."""
        query = f"?{urlencode(params)}" if params else ""
        return f"ws{self.url[4:]}{path}{query}"

    def websocket_options(self, buffered: bool) -> dict[str, Any]:
        """Return what both kinds of websocket clients are opened with."""
        options: dict[str, Any] = {
            "additional_headers": self.headers,
            # Compression costs more than it gains for batches of numbers on a fast network.
            "compression": None,
            "open_timeout": self.timeout,
            "close_timeout": min(self.timeout, 5.0),
            "max_size": LARGEST_MESSAGE,
        }
        return {**options, "max_queue": None} if buffered else options
