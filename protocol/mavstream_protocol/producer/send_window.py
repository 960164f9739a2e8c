"""Send window of a stream: sequence numbers, credit, and frames stored until they are acknowledged."""

from __future__ import annotations

import sys
from collections import deque
from enum import Enum

from mavstream_protocol.producer.frames import Frame, single_frame


class Resumed(Enum):
    """How the server's last sequence number compares with the producer's, at the start of a connection."""

    CONTINUED = "continued"
    """The first connection, or one that continues where the last one broke."""
    FRAMES_LOST = "frames lost"
    """The server has fewer frames than it acknowledged: its data was lost or replaced."""
    FRAMES_UNKNOWN = "frames unknown"
    """The server has more frames than were sent: another producer uses the same name."""


class SendWindow:
    """Frames of one stream, from being added until they are acknowledged.

    A frame's sequence number follows from its position: the first one without an acknowledgement has
    `acked + 1`. So a dropped frame leaves no gap. The first `frames_in_flight` frames were sent on this
    connection; the others wait for credit.
    """

    def __init__(self, stream: str, max_in_flight: int = sys.maxsize) -> None:
        self.stream = stream
        self.acked = 0
        """Sequence number of the last acknowledged frame."""
        self.credit = 0
        """Bytes that may be in flight."""
        self.bytes_in_flight = 0
        self.frames_in_flight = 0
        self.frames_sent = 0
        """Frames that were sent, each time they were."""
        self.rows_added = 0
        self.rows_acked = 0
        self.rows_rejected = 0
        self.ending = False
        """Whether the end of the stream was requested and is not confirmed yet."""
        self.ended = False
        """Whether the server has confirmed the end."""
        self._max_in_flight = max_in_flight
        self._frames: deque[Frame] = deque()
        self._end_sent = False
        self._started = False

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next frame that is added."""
        return self.acked + len(self._frames) + 1

    @property
    def waiting(self) -> bool:
        """Whether frames are waiting for credit."""
        return self.frames_in_flight < len(self._frames)

    @property
    def starved(self) -> bool:
        """Whether nothing can be sent because credit is used up."""
        return self.frames_in_flight < len(self._frames) or self.bytes_in_flight >= self.credit

    @property
    def open(self) -> bool:
        """Whether to add a frame: none is waiting, credit is left, and not too many frames are in flight.

        If the server is slow to acknowledge, rows that fall due meanwhile are then sent in one larger frame.
        """
        return (
            self.frames_in_flight == len(self._frames)
            and self.bytes_in_flight < self.credit
            and self.frames_in_flight < self._max_in_flight
        )

    @property
    def settled(self) -> bool:
        """Whether every frame is acknowledged."""
        return not self._frames

    @property
    def busy(self) -> bool:
        """Whether a frame or the end is not acknowledged."""
        return bool(self._frames) or self.ending

    @property
    def first_source_row(self) -> int | None:
        """Rows of the source ahead of the first frame without an acknowledgement; None if there is none."""
        return self._frames[0].source_row if self._frames else None

    def resume(self, last_sequence: int, credit: int) -> Resumed:
        """Start a connection to a server that has all frames up to `last_sequence`.

        Later frames are sent again with their previous numbers. Unless the result is CONTINUED, nothing may
        be sent before `restart`.
        """
        self.frames_in_flight = self.bytes_in_flight = 0
        self._end_sent = False
        if not self._started:
            self._started = True
            self.acked = last_sequence
        elif last_sequence < self.acked:
            return Resumed.FRAMES_LOST
        elif last_sequence >= self.next_sequence:
            return Resumed.FRAMES_UNKNOWN
        self.ack(last_sequence, credit)
        return Resumed.CONTINUED

    def restart(self, last_sequence: int, credit: int) -> None:
        """Number the frames that are left from `last_sequence + 1` on."""
        self.acked, self.credit = last_sequence, credit

    def add(self, frame: Frame) -> None:
        """Queue a frame, which gets the number `next_sequence`."""
        self._frames.append(frame)
        self.rows_added += frame.rows

    def add_in_flight(self, frame: Frame) -> None:
        """Add a frame that is sent at once; none may be waiting, and credit must suffice."""
        assert self.frames_in_flight == len(self._frames)
        self._frames.append(frame)
        self.frames_in_flight += 1
        self.frames_sent += 1
        self.bytes_in_flight += frame.size
        self.rows_added += frame.rows

    def fits(self, size: int) -> bool:
        """Whether credit suffices for a number of bytes; a single larger frame may be in flight alone."""
        return self.bytes_in_flight + size <= self.credit or (self.bytes_in_flight == 0 and self.credit > 0)

    def next_frame(self) -> tuple[int, Frame] | None:
        """Return the number and frame to send now, which is then in flight; None if there is none."""
        index = self.frames_in_flight
        if index == len(self._frames):
            return None
        # A frame is sent again in a message of its own: the other frames of its message may have arrived.
        frame = self._frames[index] = single_frame(self.stream, self._frames[index])
        if not self.fits(frame.size):
            return None
        self.frames_in_flight += 1
        self.frames_sent += 1
        self.bytes_in_flight += frame.size
        return self.acked + self.frames_in_flight, frame

    def ack(self, sequence: int, credit: int) -> None:
        """Drop the frames up to a sequence number, which are in the server's log."""
        self.credit = credit
        frames = self._frames
        count = min(sequence - self.acked, len(frames))
        if count <= 0:
            return
        rows = size = 0
        for _ in range(count):
            frame = frames.popleft()
            rows += frame.rows
            size += frame.size
        self.acked += count
        self.rows_acked += rows
        self.frames_in_flight = max(self.frames_in_flight - count, 0)
        self.bytes_in_flight = self.bytes_in_flight - size if self.frames_in_flight else 0

    def take_back(self, sequence: int, expected: int) -> Frame | None:
        """Take a rejected frame and later ones out of flight, and return it as the next to be sent.

        Returns None for a frame that followed a rejected one and was rejected only for its number. Raises
        ValueError if the frame is not in flight.
        """
        if sequence > expected:
            return None
        index = sequence - self.acked - 1
        if not 0 <= index < self.frames_in_flight:
            raise ValueError(f"frame {sequence} of stream '{self.stream}' was rejected and is not in flight")
        self.frames_in_flight = index
        self.bytes_in_flight = sum(self._frames[number].size for number in range(index))
        return self._frames[index]

    def replace_next(self, frame: Frame | None) -> None:
        """Replace the next frame to be sent by one with fewer rows; None drops it."""
        index = self.frames_in_flight
        self.rows_rejected += self._frames[index].rows - (0 if frame is None else frame.rows)
        if frame is None:
            del self._frames[index]
        else:
            self._frames[index] = frame

    def hold(self) -> None:
        """Send nothing until the server grants credit or `probe` is called."""
        self.credit = 0

    def probe(self) -> bool:
        """Allow one frame without credit, to test whether the server accepts it; False with credit."""
        if self.credit > 0:
            return False
        self.credit = 1
        return True

    def abandon(self) -> int:
        """Drop all frames and the end; return the number of dropped rows."""
        rows = sum(frame.rows for frame in self._frames)
        self._frames.clear()
        self.frames_in_flight = self.bytes_in_flight = 0
        self.rows_rejected += rows
        self.ending = False
        return rows

    def end(self) -> None:
        """Ask for the end: it is sent when every frame is acknowledged."""
        self.ending = not self.ended

    def end_due(self) -> bool:
        """Return whether to send the end now; it then counts as sent on this connection."""
        if not self.ending or self._frames or self._end_sent:
            return False
        self._end_sent = True
        return True

    def end_settled(self, *, confirmed: bool) -> None:
        """Record that the server confirmed or refused the end."""
        self.ending, self.ended = False, confirmed
