"""The address of a server, and the options of its websockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from mavstream_protocol import InvalidObject, ProblemItem

MAX_MESSAGE_BYTES = 256 << 20
"""The longest message that is received from a server."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server's base URL, and the token for it, which is never shown."""

    url: str
    token: str | None
    timeout: float

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
