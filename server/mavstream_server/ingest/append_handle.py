"""Tickets: what was offered to a stream, and what became of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from mavstream_protocol.errors import MavstreamError
from mavstream_server.log import FrameKind, NewFrame

_LOG = logging.getLogger("mavstream.streams")


class Accepted(NamedTuple):
    """Rows, or a mark, are in the log."""

    sequence: int
    position: int
    """Of the first row."""
    rows: int


class Repeated(NamedTuple):
    """The frame was in the log already and is ignored."""

    sequence: int
    last: int
    """The last sequence of the producer that is in the log."""


Outcome = Accepted | Repeated


class AppendHandle:
    """Something offered to a stream. Exactly one of `outcome` and `error` is set once it is `settled`.

    Frames of a producer that follow each other may have one ticket, from the `first` up to `sequence`.
    """

    __slots__ = ("_done", "error", "first", "outcome", "producer", "sequence", "stream")

    def __init__(
        self, producer: str | None, stream: str, sequence: int, done: Callable[[AppendHandle], object] | None
    ) -> None:
        self.producer = producer
        self.stream = stream
        self.first = self.sequence = sequence
        self.outcome: Outcome | None = None
        self.error: MavstreamError | None = None
        self._done = done

    def tells(self, done: Callable[[AppendHandle], object] | None) -> bool:
        """Whether this is who hears of it."""
        return self._done == done

    @property
    def settled(self) -> bool:
        """Whether it is known what became of it."""
        return self.outcome is not None or self.error is not None

    def result(self) -> Outcome:
        """Return the outcome of a settled ticket, or raise its error."""
        if self.error is not None:
            raise self.error
        assert self.outcome is not None, "not settled yet"
        return self.outcome

    def settle(self, what: Outcome | MavstreamError) -> None:
        """Say what became of it, once."""
        if self.settled:
            return
        if isinstance(what, MavstreamError):
            self.error = what
        else:
            self.outcome = what
        if self._done is not None:
            try:
                self._done(self)
            except Exception:
                # One listener's fault must not keep the others from their acks.
                _LOG.exception("telling the outcome of an offer failed", extra={"stream": self.stream})


@dataclass(slots=True)
class PendingAppend:
    """A ticket in the queue of a stream: a frame, a mark, or (neither) the repetition of a frame in it."""

    ticket: AppendHandle
    producer: int
    frame: NewFrame | None = None
    mark: FrameKind | None = None
    nbytes: int = 0
    """Of the message, as its producer counts credit."""
    cost: int = 0
    """Bytes that it takes in the log, at most."""
    parks: bool = False
    """Whether it waits for space; otherwise it is refused where there is none."""
