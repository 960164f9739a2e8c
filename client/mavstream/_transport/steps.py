"""Steps: what a conversation with the server needs done, as values.

A conversation is a generator that yields steps and is sent what came of them, so that it is written once and
carried out by the client that blocks as well as by the one that awaits. What fails is thrown into it.
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
    """Whether sending it twice is the same as sending it once."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What an HTTP request was answered with."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Let time pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Open:
    """Open the conversation's websocket; one that is open is closed before."""

    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    buffered: bool = False
    """Take in whatever the server sends, even while nobody receives; for small messages only."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message on the open websocket."""

    message: str | bytes


@dataclass(frozen=True, slots=True)
class Receive:
    """Receive a message; None if none comes within the timeout, which may be 0."""

    timeout: float | None


@dataclass(frozen=True, slots=True)
class Shut:
    """Close the websocket, if it is open."""


Step: TypeAlias = Request | Pause | Open | Send | Receive | Shut
Outcome: TypeAlias = Reply | str | bytes | None
Talk: TypeAlias = Generator[Step, Outcome, Result]
"""A conversation that ends with a result."""


def ask(request: Request) -> Talk[Reply]:
    """Send a request once."""
    reply = yield request
    assert isinstance(reply, Reply)
    return reply


def receive(timeout: float | None) -> Talk[str | bytes | None]:
    """Receive a message, or None after the timeout."""
    message = yield Receive(timeout)
    assert not isinstance(message, Reply)
    return message


def quote(name: str) -> str:
    """Return a name as one part of a path, whatever is in it."""
    return parse.quote(name, safe="")
