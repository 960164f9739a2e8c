"""The audit log: who did what to which object, from where, with which result. One JSON object per line."""

from __future__ import annotations

import logging
import os
import re
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mavstream_protocol.wire.feed import CloseCode
from mavstream_server.api.auth import found_principal
from mavstream_server.core.principal import Principal

_FILE_BYTES = 16 << 20
_FILES = 5
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
REFUSED = frozenset({401, 403, 421, 429})
"""Statuses that are recorded of reads, too."""
_ROWS = re.compile(r"/v1/streams/[^/]+/(tuples|batches|stages/[^/]+)|/v1/queries/[^/]+/(results|run)")
"""Paths at which rows are sent and read, and at which runners report."""
_LONGEST_PATH = 500
OBJECT = "mavstream.object"
"""Key of a request's scope: the path of its object by id, where the request may name it otherwise."""


class AuditLog:
    """A file that is appended to and rotated; readable by its owner only. Never holds a secret."""

    def __init__(self, path: Path | None) -> None:
        """Without a path nothing is recorded."""
        self._handler: RotatingFileHandler | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
            self._handler = RotatingFileHandler(
                path, maxBytes=_FILE_BYTES, backupCount=_FILES - 1, encoding="utf-8"
            )

    def record(self, action: str, principal: Principal | None, address: str | None, **fields: Any) -> None:
        """Append an event; `principal` is None if the token was missing or wrong."""
        if self._handler is None:
            return
        event = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "action": action,
            "token": None if principal is None else principal.name,
            "role": None if principal is None else principal.role,
            "address": address,
            **{key: value for key, value in fields.items() if value is not None},
        }
        line = orjson.dumps(event, default=str).decode()
        self._handler.emit(logging.makeLogRecord({"msg": "%s", "args": (line,)}))

    def close(self) -> None:
        """Close the file."""
        if self._handler is not None:
            self._handler.close()


class Audit:
    """Middleware that records changes, and requests that were refused; not reads, not accepted rows."""

    def __init__(self, app: ASGIApp, log: AuditLog) -> None:
        self.app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on the request and record its result."""
        if scope["type"] == "http":
            await self._request(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, headers, body = 500, {}, b""

        async def noting(message: Message) -> None:
            nonlocal status, headers, body
            if message["type"] == "http.response.start":
                status, headers = message["status"], dict(message.get("headers", ()))
            elif status >= 400:
                body += message.get("body", b"")
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            appended = status < 400 and _ROWS.fullmatch(scope["path"]) is not None
            if status in REFUSED or (scope["method"] not in _READS and not appended):
                made = headers.get(b"location", b"").decode(errors="replace") or None
                self._record(scope["method"], scope, made=made, status=status, code=_code(body))

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def noting(message: Message) -> None:
            kind, code = message["type"], message.get("code", 1000)
            if kind == "websocket.close" and code >= CloseCode.NOT_UNDERSTOOD:
                self._record("close", scope, status=int(code), reason=message.get("reason"))
            elif kind == "websocket.http.response.start":
                self._record("refuse", scope, status=message["status"])
            elif kind == "websocket.accept":
                self._record("open", scope)
            await send(message)

        await self.app(scope, receive, noting)

    def _record(self, action: str, scope: Scope, **fields: Any) -> None:
        connection = HTTPConnection(scope)
        address = None if connection.client is None else connection.client.host
        # Without its parameters, which may hold a token.
        path = scope["path"][:_LONGEST_PATH]
        by_id = scope.get(OBJECT)
        if by_id is not None and not path.startswith(by_id):
            fields["by_id"] = by_id
        self._log.record(action, found_principal(connection), address, object=path, **fields)


def _code(body: bytes) -> str | None:
    """Return the code of a problem."""
    try:
        code = orjson.loads(body).get("code")
    except (orjson.JSONDecodeError, AttributeError):
        return None
    return code if isinstance(code, str) else None
