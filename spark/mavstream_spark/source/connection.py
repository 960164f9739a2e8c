"""HTTP requests of Spark's drivers and tasks, repeated while the server is away.

With the standard library: tasks run in processes that are started for them, where each import counts.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from mavstream_spark.errors import DataError
from mavstream_spark.source.options import ServerOptions

_AWAY = frozenset({429, 502, 503, 504})
"""Statuses that say that the server, or room on it, may be there later."""
_ANSWER_S = 60.0
"""How long an answer may take, in seconds."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class RequestFailed(DataError):
    """The server refused a request, or could not be reached."""

    code = "request_failed"

    def __init__(self, detail: str, code: str = "unreachable") -> None:
        super().__init__(detail)
        self.problem = code
        """The code of the server's answer, `unreachable` without one."""

    def __reduce__(self) -> tuple[type[RequestFailed], tuple[str, str]]:
        return type(self), (str(self), self.problem)


class Answer(NamedTuple):
    """The answer to a request."""

    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes


@dataclass(slots=True)
class Connection:
    """A connection that is opened when it is needed. All requests through it must be repeatable."""

    server: ServerOptions
    _open: HTTPConnection | None = field(default=None, repr=False)

    def __getstate__(self) -> ServerOptions:
        return self.server

    def __setstate__(self, server: ServerOptions) -> None:
        self.server, self._open = server, None

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, object] | None = None,
        body: bytes | None = None,
        kind: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        """Send a request and return its answer; raises RequestFailed."""
        headers = {"Accept": accept, "Content-Type": kind}
        if self.server.token is not None:
            headers["Authorization"] = f"Bearer {self.server.token}"
        target = f"{urlsplit(self.server.url).path}{path}{'?' + urlencode(params) if params else ''}"
        until, pause = time.monotonic() + self.server.timeout, _FIRST_PAUSE
        while True:
            idle = self._open is not None
            failure = self._attempt(method, target, body, headers)
            if isinstance(failure, Answer):
                return failure
            if idle and self._open is None:
                continue  # servers close connections that were not used for some seconds
            if time.monotonic() + pause > until:
                raise failure
            time.sleep(pause * (1 + random.random()) / 2)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _attempt(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str]
    ) -> Answer | RequestFailed:
        """Return the answer, or an error that may be over soon; raises others."""
        try:
            if self._open is None:
                self._open = self._opened()
            self._open.request(method, target, body, headers)
            reply = self._open.getresponse()
            content = reply.read()
        except (OSError, HTTPException) as error:
            self.close()
            reason = str(error) or type(error).__name__
            return RequestFailed(
                f"{self.server.url} cannot be reached ({reason}): is the server running there?"
            )
        if reply.status < 400:
            return Answer({name.lower(): value for name, value in reply.getheaders()}, content)
        failure = _refusal(reply.status, content, self.server.url)
        if reply.status not in _AWAY:
            raise failure
        return failure

    def _opened(self) -> HTTPConnection:
        parts = urlsplit(self.server.url)
        made = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        return made(parts.hostname or "", parts.port, timeout=_ANSWER_S)

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        if self._open is not None:
            self._open.close()
            self._open = None


def segment(name: str) -> str:
    """Return a name percent-encoded, as one segment of a path."""
    return quote(name, safe="")


def _refusal(status: int, content: bytes, url: str) -> RequestFailed:
    try:
        problem = json.loads(content)
        details = "; ".join([problem["detail"], *(item["detail"] for item in problem.get("errors", ()))])
        return RequestFailed(details, problem["code"])
    except (ValueError, KeyError, TypeError):
        return RequestFailed(
            f"{url} answered {status} without saying why: is it a MavStream server?", "unreadable"
        )
