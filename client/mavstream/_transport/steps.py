"""Steps: the I/O that a conversation with the server needs, as values.

A conversation is a generator that yields steps and is sent their outcomes. So it is written once, and both
the blocking and the asyncio client can perform it. Errors are thrown into it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar
from urllib import parse

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    repeatable: bool = True
    """Whether it is idempotent: sending it twice does the same as sending it once."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to an HTTP request."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Sleep."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Open:
    """Open the websocket; one that is open is closed first."""

    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    buffered: bool = False
    """Buffer all that the server sends, without back-pressure; for small messages only."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message on the open websocket."""

    message: str | bytes


@dataclass(frozen=True, slots=True)
class Receive:
    """Receive a message; the outcome is None if there is none within the timeout, which may be 0."""

    timeout: float | None


@dataclass(frozen=True, slots=True)
class Close:
    """Close the websocket, if it is open."""


Step: TypeAlias = Request | Pause | Open | Send | Receive | Close
Outcome: TypeAlias = Reply | str | bytes | None
Talk: TypeAlias = Generator[Step, Outcome, Result]
"""A conversation that returns a result."""


def ask(request: Request) -> Talk[Reply]:
    """Send a request, without retries."""
    reply = yield request
    assert isinstance(reply, Reply)
    return reply


def receive(timeout: float | None) -> Talk[str | bytes | None]:
    """Receive a message, or None after the timeout."""
    message = yield Receive(timeout)
    assert not isinstance(message, Reply)
    return message


def quote(name: str) -> str:
    """Return a name percent-encoded, as one segment of a path."""
    return parse.quote(name, safe="")
