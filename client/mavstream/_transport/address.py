"""The address of a server, and the options of its websockets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from mavstream_protocol import InvalidObject, ProblemItem

_HERE = "http://127.0.0.1:8000"
MAX_MESSAGE_BYTES = 256 << 20
"""The longest message that is received from a server."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server's base URL, and the token for it, which is never shown."""

    url: str
    token: str | None
    timeout: float

    @classmethod
    def chosen(cls, url: str | None, token: str | None, timeout: float) -> Address:
        """Return the address that was given, or else that of the environment; raises InvalidObject.

        The token of the environment is for its server, and is sent to no other one.
        """
        there = os.environ.get("MAVSTREAM_URL") or _HERE
        if token is None and url in (None, there):
            token = os.environ.get("MAVSTREAM_TOKEN") or None
        return cls.parse(url or there, token, timeout)

    @classmethod
    def parse(cls, url: str, token: str | None, timeout: float) -> Address:
        """Parse a URL; raises InvalidObject for one that is not HTTP."""
        scheme, separator, rest = url.partition("://")
        if not separator or scheme.lower() not in ("http", "https") or not rest:
            detail = f"expected http://HOST:PORT or https://HOST as the address of a server, got {url!r}"
            raise InvalidObject([ProblemItem(pointer="url", code="invalid_url", detail=detail)])
        return cls(url.rstrip("/"), token, timeout)

    def __repr__(self) -> str:
        return f"Address({self.url!r})"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def websocket(self, path: str, params: Mapping[str, str]) -> str:
        """Return the URL of a websocket."""
        query = f"?{urlencode(params)}" if params else ""
        return f"ws{self.url[4:]}{path}{query}"

    def websocket_options(self, buffered: bool) -> dict[str, Any]:
        """Return the options that both kinds of websocket clients are opened with."""
        options: dict[str, Any] = {
            "additional_headers": self.headers,
            # Compressing batches of numbers costs more than it gains on a fast network.
            "compression": None,
            "open_timeout": self.timeout,
            "close_timeout": min(self.timeout, 5.0),
            "max_size": MAX_MESSAGE_BYTES,
        }
        return {**options, "max_queue": None} if buffered else options
