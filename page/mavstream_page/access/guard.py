"""Middleware: own hosts and origins only, security headers, and the cookie of the session.

Scripts are run only with a nonce that is new for every page, or from this origin, and text is never evaluated
as code: elements have render functions, no templates. The toolkit sets styles on elements.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mavstream_page.access.sessions import COOKIE, Sessions
from mavstream_protocol.hosts import AllowedHosts

_SESSION = re.compile(r"[A-Za-z0-9_-]{43}")
_SCRIPT = re.compile(rb"<script(?=[\s>])")
_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; object-src 'none'"
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_READS = frozenset({"GET", "HEAD"})


class Guard:
    """Rejects requests for other hosts and from other origins, and hardens what is answered."""

    def __init__(self, app: ASGIApp, host: str, allow_host: Sequence[str], secure: bool) -> None:
        """`secure` says whether the page is served over TLS."""
        self.app = app
        self._hosts = AllowedHosts(host, allow_host)
        self._secure = secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests of this page's own address."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        refused = self._refusal(HTTPConnection(scope))
        if refused is not None:
            await PlainTextResponse(refused, 403)(scope, receive, send)
            return
        session = _session(Headers(scope=scope))
        scope.setdefault("state", {})["session"] = session or Sessions.new_id()
        if scope["type"] == "websocket":
            await self.app(scope, receive, send)
            return
        hardened = _Hardened(send, None if session else scope["state"]["session"], self._secure)
        await self.app(scope, receive, hardened)

    def _refusal(self, connection: HTTPConnection) -> str | None:
        host, origin = connection.headers.get("host", ""), connection.headers.get("origin")
        if not self._hosts.allows(host):
            return (
                f"'{host[:80]}' is not a name of this page: use its address, or start it with "
                "--allow-host NAME (MAVSTREAM_ALLOW_HOST)"
            )
        # Reading a page from another site is harmless, since it cannot see the answer; websockets are not.
        reads = connection.scope.get("method") in _READS
        if origin is not None and not reads and origin.partition("://")[2].lower() != host.lower():
            return f"a page of '{origin[:80]}' may not use this one"
        return None


class _Hardened:
    """Sends a response with security headers; gives scripts of a page a nonce."""

    def __init__(self, send: Send, session: str | None, secure: bool) -> None:
        self._send = send
        self._session = session
        self._secure = secure
        self._nonce = secrets.token_urlsafe(16)
        self._start: Message | None = None
        self._parts: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        """Send a message of the response; a page is held back until it is complete."""
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers["content-security-policy"] = _POLICY.format(nonce=self._nonce)
            if headers.get("content-type", "").startswith("text/html"):
                self._start = message
                if self._session is not None:
                    secure = "; Secure" if self._secure else ""
                    headers["set-cookie"] = (
                        f"{COOKIE}={self._session}; Path=/; HttpOnly; SameSite=Strict{secure}"
                    )
                return
        elif message["type"] == "http.response.body" and self._start is not None:
            self._parts.append(message.get("body", b""))
            if message.get("more_body"):
                return
            start, self._start = self._start, None
            body = _SCRIPT.sub(b'<script nonce="%b"' % self._nonce.encode(), b"".join(self._parts))
            MutableHeaders(scope=start)["content-length"] = str(len(body))
            await self._send(start)
            message = {"type": "http.response.body", "body": body}
        await self._send(message)


def _session(headers: Headers) -> str | None:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return cookie.value if cookie is not None and _SESSION.fullmatch(cookie.value) else None
