"""Append handles: the pending result of rows or marks that were submitted to a stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from mavstream_protocol.errors import MavstreamError
from mavstream_server.log import FrameKind, NewFrame

_LOG = logging.getLogger("mavstream.streams")


class Accepted(NamedTuple):
    """The rows, or the mark, are in the log."""

    sequence: int
    position: int
    """Position of the first row."""
    rows: int


class Repeated(NamedTuple):
    """The frame was in the log already; the repetition is ignored."""

    sequence: int
    last: int
    """The producer's last sequence in the log."""


Outcome = Accepted | Repeated


class AppendHandle:
    """The pending result of an append. Exactly one of `outcome` and `error` is set once it is `settled`.

    Consecutive frames of a producer that are joined share one handle, from `first` up to `sequence`.
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

    def notifies(self, done: Callable[[AppendHandle], object] | None) -> bool:
        """Return whether `done` is the callback of this handle."""
        return self._done == done

    @property
    def settled(self) -> bool:
        """Whether the append succeeded or failed already."""
        return self.outcome is not None or self.error is not None

    def result(self) -> Outcome:
        """Return the outcome, or raise the error; the handle must be settled."""
        if self.error is not None:
            raise self.error
        assert self.outcome is not None, "not settled yet"
        return self.outcome

    def settle(self, what: Outcome | MavstreamError) -> None:
        """Set the outcome or the error and call the callback; further calls are ignored."""
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
                # A failing callback must not keep other producers from their acks.
                _LOG.exception("callback of an append failed", extra={"stream": self.stream})


@dataclass(slots=True)
class PendingAppend:
    """An entry in a stream's queue: a frame, a mark, or (neither) the repetition of a frame in the queue."""

    handle: AppendHandle
    producer: int
    frame: NewFrame | None = None
    mark: FrameKind | None = None
    nbytes: int = 0
    """Size of the message, which counts against the producer's credit."""
    cost: int = 0
    """Upper bound of the bytes it takes in the log."""
    parks: bool = False
    """Whether it waits for space; otherwise it is rejected when there is none."""
    skips: bool = False
    """Whether its sequence may be any after the producer's last one, not only the next."""


async def outcome_of(append: Callable[[Callable[[AppendHandle], object]], AppendHandle]) -> Outcome:
    """Start an append, which gets a callback, and wait for its outcome; raises what the handle raises."""
    settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(_: AppendHandle) -> None:
        if not settled.done():
            settled.set_result(None)

    handle = append(done)
    await settled
    return handle.result()
