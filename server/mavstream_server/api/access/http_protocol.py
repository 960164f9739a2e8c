"""The HTTP protocol with limits that uvicorn lacks: sizes of headers and URLs, and the time they take."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.quantities import format_size
from mavstream_server.api.access.open_sockets import OpenSockets, StallTimer
from mavstream_server.api.problems import raw_response
from mavstream_server.core.errors import Refused

if TYPE_CHECKING:
    from mavstream_server.core.settings import Settings

_MOST_PIPELINED = 16
"""Requests that a connection may send before the first is answered; each takes some kilobytes."""
_MOST_HEADERS = 256


class HeadersTooLarge(MavstreamError):
    """Raised for headers that exceed their limit."""

    code = "headers_too_large"
    title = "The headers are too large"
    status = 431


class UrlTooLong(MavstreamError):
    """Raised for a URL that exceeds its limit."""

    code = "url_too_long"
    title = "The URL is too long"
    status = 414


class HeadersTooSlow(MavstreamError):
    """Raised for headers that do not arrive in time."""

    code = "headers_too_slow"
    title = "The headers did not arrive in time"
    status = 408


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's HTTP protocol, which answers 408, 414 and 431, and drops peers that do not read."""

    def __init__(self, *args: Any, settings: Settings, sockets: OpenSockets, **options: Any) -> None:
        super().__init__(*args, **options)
        self._max_url, self._max_head = settings.max_url_bytes, settings.max_header_bytes
        self._seconds = settings.header_timeout / 1e6
        self._sockets = sockets
        self._head_timer = StallTimer(self.loop, self._seconds, self._head_expired)
        self._send_timer = StallTimer(self.loop, settings.send_timeout / 1e6, self._abort)
        self._unparsed = 0  # bytes since the last progress: headers complete, some body, end of the message
        self._refusal: MavstreamError | None = None
        self._unanswered: deque[RequestResponseCycle] = deque()

    # Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a request; the connection is dropped if there are too many."""
        super().connection_made(transport)
        if self._sockets.admit(transport, len(self.connections)):
            self._head_timer.start()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._sockets.busy(self.transport)
        self._head_timer.stop()
        self._send_timer.stop()
        self._give_up_answers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, in pieces of at most the header limit."""
        while data:
            room = self._max_head - self._unparsed
            piece, data = data[:room], data[room:]
            self._unparsed += len(piece)
            super().data_received(piece)
            if self.transport.is_closing() or self.transport.get_protocol() is not self:
                return
            if self._unparsed >= self._max_head:
                self._refuse(
                    HeadersTooLarge(
                        f"the headers have more than {format_size(self._max_head)}, which is the limit "
                        "(MAVSTREAM_MAX_HEADER_BYTES): send fewer or shorter ones"
                    )
                )
                return
        if self._waiting:
            self._head_timer.start()

    @property
    def _waiting(self) -> bool:
        """Whether no request is in progress: headers are awaited, or the rest of an answered request."""
        return self.cycle is None or self.cycle.response_complete

    def pause_writing(self) -> None:
        """Start the timeout of a peer that does not read."""
        super().pause_writing()
        self._send_timer.start()

    def resume_writing(self) -> None:
        """Stop the timeout, because the peer reads again."""
        super().resume_writing()
        self._send_timer.stop()

    # Parser callbacks; an error raised in one ends the connection through `send_400_response`

    def on_url(self, url: bytes) -> None:
        """Collect the URL up to its limit."""
        super().on_url(url)
        if len(self.url) > self._max_url:
            self._refusal = UrlTooLong(
                f"the URL has more than {format_size(self._max_url)}, which is the limit "
                "(MAVSTREAM_MAX_URL_BYTES): shorten its parameters"
            )
            raise self._refusal

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header, or a trailer behind the body; their number is limited."""
        super().on_header(name, value)
        if len(self.headers) > _MOST_HEADERS:
            self._refusal = HeadersTooLarge(f"there are more than {_MOST_HEADERS} headers: send fewer")
            raise self._refusal

    def on_headers_complete(self) -> None:
        """Start the request."""
        self._unparsed = 0
        self._head_timer.stop()
        self._sockets.busy(self.transport)
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:  # not for websockets
            self._unanswered.append(self.cycle)
        if len(self.pipeline) > _MOST_PIPELINED:
            self._abort()
            raise Refused(f"more than {_MOST_PIPELINED} requests are in progress on one connection")

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body."""
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Pass on the end of the body."""
        self._unparsed = 0
        self._head_timer.stop()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._unanswered.popleft()
        super().on_response_complete()
        if self._waiting and not self.transport.is_closing():
            self._sockets.idle(self.transport)
            if self.cycle.more_body:  # the rest of the body is skipped, for a limited time
                self._head_timer.start()

    # Refusals

    def send_400_response(self, msg: str) -> None:
        """Answer a request that cannot be parsed, as a problem, and close the connection."""
        self._refuse(self._refusal or Refused(f"this is not HTTP: {msg}", code="invalid_http"))

    def _head_expired(self) -> None:
        if self._unparsed and self._waiting:
            self._refuse(
                HeadersTooSlow(f"got no complete headers within {self._seconds:g} s: send them in one go")
            )
        else:
            self.transport.close()

    def _refuse(self, error: MavstreamError) -> None:
        if self.transport.is_closing():
            return
        if self._waiting:  # otherwise it would be taken for the answer to the request in progress
            self.transport.write(raw_response(error))
        self._give_up_answers()
        self.transport.close()

    def _abort(self) -> None:
        self._give_up_answers()
        self.transport.abort()

    def _give_up_answers(self) -> None:
        """Write no more answers: uvicorn tells only the last of several requests that its peer has gone."""
        for cycle in self._unanswered:
            cycle.disconnected = True
