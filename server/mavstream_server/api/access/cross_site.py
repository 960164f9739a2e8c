"""Middleware against requests that web pages of other sites make a browser send."""

from __future__ import annotations

from typing import ClassVar

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from mavstream_protocol.errors import MavstreamError
from mavstream_server.api.access.addresses import AllowedAddresses
from mavstream_server.api.bodies import UnsupportedType, media_type
from mavstream_server.api.problems import ProblemResponse
from mavstream_server.core.errors import Refused
from mavstream_server.core.settings import Settings

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_SIMPLE_TYPES = frozenset({"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"})
"""Content types that browsers send to any site without a preflight request; '' is a missing one."""


class UnknownHost(MavstreamError):
    """Raised for a `Host` header that does not name this server."""

    code = "unknown_host"
    title = "The `Host` header does not name this server"
    status = 421
    headers: ClassVar = {"connection": "close"}


class ForeignOrigin(MavstreamError):
    """Raised for a request of a web page that is not allowed to use this server."""

    code = "foreign_origin"
    title = "Web pages of that site may not use this server"
    status = 403


class CrossSiteGuard:
    """Rejects unknown hosts, foreign origins, and POSTs that browsers send without a preflight request."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self._allowed = AllowedAddresses(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests of programs, of this server's own pages, and of allowed pages."""
        if scope["type"] in ("http", "websocket"):
            try:
                self._check(HTTPConnection(scope))
            except MavstreamError as error:
                # Also for websockets: an HTTP response fails the handshake.
                await ProblemResponse.of(error)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _check(self, connection: HTTPConnection) -> None:
        headers, method = connection.headers, connection.scope.get("method", "")
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or len(origins) > 1:
            raise Refused(
                f"expected one header Host and at most one Origin, got {len(hosts)} and {len(origins)}",
                code="invalid_host",
            )
        if not self._allowed.allows_host(hosts[0]):
            raise UnknownHost(
                f"'{hosts[0][:80]}' is not a name of this server: use its address, or start it with "
                "--allow-host NAME (MAVSTREAM_ALLOW_HOST)"
            )
        if method not in _READS and origins and not self._allowed.allows_origin(origins[0], hosts[0]):
            raise ForeignOrigin(
                f"a page of '{origins[0][:80]}' may not use this server: start it with --allow-origin ORIGIN "
                "(MAVSTREAM_ALLOW_ORIGIN) to allow it"
            )
        kind = media_type(headers.get("content-type", ""))
        if method == "POST" and kind in _SIMPLE_TYPES:
            got = f"got '{kind}'" if kind else "got none"
            raise UnsupportedType(
                "a POST needs the header 'Content-Type: application/json' (or another type that the route "
                f"takes), also without a body, {got}, which any web page can make a browser send"
            )
