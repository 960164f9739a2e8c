"""One stream of a feed: which frames are under way, which wait, and what numbers they have."""

from __future__ import annotations

from collections import deque

from mavstream._convert.tuples import Portion
from mavstream._errors import Conflict, ConnectionLost
from mavstream_protocol import Problem, Schema

HEADER_ROOM = 256
"""Bytes of a message that are not its record batch: the name and number in its header."""


class Lane:
    """The frames of a stream that have no ack, in order; the first has the number `acked + 1`.

    The first `sent` of them are under way on this connection, the others wait for credit. A frame's number
    is its place, so a rejected one leaves no hole.
    """

    def __init__(self, stream: str, schema: Schema) -> None:
        self.stream = stream
        self.schema = schema
        self.acked = 0
        self.frames: deque[Portion] = deque()
        self.sent = 0
        self.ending = False
        """The end was asked for and is not confirmed."""
        self._credit = 0
        self._under_way = 0
        self._end_sent = False
        self._known = False

    @property
    def waiting(self) -> bool:
        """Whether frames wait for credit."""
        return self.sent < len(self.frames)

    @property
    def busy(self) -> bool:
        """Whether anything is not acked."""
        return bool(self.frames) or self.ending

    def welcome(self, producer: str, last: int, credit: int) -> None:
        """Begin a connection, on which the server has all frames up to `last`."""
        if self._known and last > self.acked + len(self.frames):
            raise _taken(producer, self.stream)
        if last < self.acked or not self._known:
            # A server that lost its data counts anew; what it has no more cannot be sent again.
            self.acked = last
        self._forget(last)
        self._known, self._credit, self._end_sent = True, credit, False
        self.sent = self._under_way = 0

    def due(self) -> tuple[int, bytes] | None:
        """Return number and payload of the next frame if the credit allows it, and count it as sent."""
        if not self.waiting or self._credit <= 0:
            return None
        frame = self.frames[self.sent]
        # A frame larger than the credit goes alone; it could never go otherwise.
        if self._under_way and self._under_way + _size(frame) > self._credit:
            return None
        self.sent += 1
        self._under_way += _size(frame)
        return self.acked + self.sent, frame.payload

    def end_due(self) -> bool:
        """Return whether the end is to be sent now, and count it as sent."""
        if not self.ending or self.frames or self._end_sent:
            return False
        self._end_sent = True
        return True

    def ack(self, sequence: int, credit: int) -> None:
        """Forget the frames up to a number."""
        self._credit = credit
        self._forget(sequence)

    def reject(self, sequence: int, expected: int, keep: bool) -> Portion | None:
        """Take back a frame that was not taken, and those behind it, to be sent again; drop it unless kept.

        None for a frame that came behind such a one and was refused only for its number.
        """
        if sequence > expected:
            return None
        place = sequence - self.acked - 1
        if not 0 <= place < self.sent:
            raise ConnectionLost(
                f"frame {sequence} of stream '{self.stream}' was rejected and is not under way"
            )
        frame = self.frames[place]
        if not keep:
            del self.frames[place]
        self.sent = place
        self._under_way = sum(_size(self.frames[index]) for index in range(place))
        return frame

    def give_up(self) -> int:
        """Drop everything and return how many rows that was."""
        rows = sum(frame.rows for frame in self.frames)
        self.frames.clear()
        self.sent = self._under_way = 0
        self.ending = False
        return rows

    def _forget(self, sequence: int) -> None:
        while self.frames and self.acked < sequence:
            frame = self.frames.popleft()
            self.acked += 1
            if self.sent:
                self.sent -= 1
                self._under_way -= _size(frame)


def _size(frame: Portion) -> int:
    return len(frame.payload) + HEADER_ROOM


def _taken(producer: str, stream: str) -> Conflict:
    detail = (
        f"stream '{stream}' has rows of producer '{producer}' that came from elsewhere: "
        "give each process a producer name of its own"
    )
    return Conflict(Problem(title="The producer is taken", status=409, code="taken", detail=detail))
