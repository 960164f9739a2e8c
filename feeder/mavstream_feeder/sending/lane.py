"""A lane: the frames of one stream between being made and being acked. No I/O.

Frames are numbered 1, 2, 3, ... and kept until an ack covers them. After a reconnect the server says how far
it has come; frames up to there are done, the later ones are sent again under their old numbers, so that
nothing is lost and nothing counts twice. A frame that is refused for good goes, and those behind it move up.
"""

from __future__ import annotations

from collections import deque
from functools import partial

import pyarrow as pa

from mavstream_feeder.errors import FeedLost
from mavstream_feeder.sending.frames import Frame, alone, renumbered

# The same as calling it, in half of the time.
_frame = partial(tuple.__new__, Frame)


class Lane:
    """Numbers, credit and unacked frames of a stream."""

    def __init__(self, stream: str, most_frames: int) -> None:
        self.stream = stream
        self._most_frames = most_frames
        self.rows_sent = 0
        self.rows_acked = 0
        self.rows_rejected = 0
        self.credit = 0
        """Bytes that may be under way."""
        self.under_way = 0
        """Bytes sent on this connection and not acked."""
        self.ended = False
        """Whether the server has confirmed the end of the stream's rows."""
        self._begun = False
        self._made = 0
        self._acked = 0
        # Frames in order of their numbers: first the ones under way, then the ones to send (again).
        self._sent: deque[Frame] = deque()
        self._waiting: deque[Frame] = deque()
        # Frames that were under way behind one that was dropped: each will be refused for its old number.
        self._stale = 0

    @property
    def next_sequence(self) -> int:
        """The number of the next frame that is made."""
        return self._made + 1

    @property
    def open(self) -> bool:
        """Whether a new frame may be made: none waits, credit is left, and not too many are under way.

        When a server is slow to ack, rows that fall due meanwhile travel in one larger frame.
        """
        return not self._waiting and self.under_way < self.credit and len(self._sent) < self._most_frames

    @property
    def starved(self) -> bool:
        """Whether it may not send for want of credit: the server has to make room first."""
        return bool(self._waiting) or self.under_way >= self.credit

    @property
    def waiting(self) -> bool:
        """Whether frames that were made are yet to be sent."""
        return bool(self._waiting)

    @property
    def settled(self) -> bool:
        """Whether every frame is acked."""
        return not self._sent and not self._waiting

    @property
    def first_place(self) -> int | None:
        """Rows of the source ahead of the first frame that is not settled; None if all are."""
        first = self._sent[0] if self._sent else self._waiting[0] if self._waiting else None
        return None if first is None else first.place

    def welcomed(self, last_sequence: int, credit: int) -> None:
        """Start a connection: the server has frames up to `last_sequence`. Raises FeedLost."""
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        self._stale = 0
        self.under_way = 0
        self.credit = credit
        if not self._begun:
            self._begun = True
            self._made = self._acked = last_sequence
            return
        if last_sequence < self._acked:
            raise FeedLost(
                f"stream '{self.stream}': the server acked frame {self._acked} and now has only "
                f"{last_sequence}: its data directory was changed, start the feed anew under another name"
            )
        if last_sequence > self._made:
            raise FeedLost(
                f"stream '{self.stream}': the server has frame {last_sequence} of this producer, which made "
                f"only {self._made}: another feeder uses the same name, give --producer"
            )
        while self._waiting and self._waiting[0].sequence <= last_sequence:
            self._done(self._waiting.popleft())

    def made(self, frame: Frame) -> None:
        """Queue a new frame."""
        assert frame.sequence == self.next_sequence
        self._made = frame.sequence
        self._waiting.append(frame)
        self.rows_sent += frame.rows

    def next_frame(self) -> Frame | None:
        """Return the frame to send now and count it as under way; None without frame or credit."""
        if not self._waiting:
            return None
        # What goes again does so alone: its bundle's other frames may have arrived.
        frame = self._waiting[0] = alone(self._waiting[0])
        if not self.fits(frame.size):
            return None
        self._waiting.popleft()
        self._sent.append(frame)
        self.under_way += frame.size
        return frame

    def fits(self, size: int) -> bool:
        """Whether credit is left for a frame; one that is larger than all credit may travel alone."""
        return self.under_way + size <= self.credit or (self.under_way == 0 and self.credit > 0)

    def left(self, size: int, batch: pa.RecordBatch, begin: int, rows: int, place: int) -> None:
        """Count a new frame that fits and goes at once, in a bundle: some rows of a batch."""
        self._made += 1
        self._sent.append(_frame((self.stream, self._made, rows, None, size, batch, place, begin)))
        self.rows_sent += rows
        self.under_way += size

    def acked(self, sequence: int, credit: int) -> None:
        """Note that frames up to `sequence` are in the log."""
        self.credit = credit
        # Written out, since it is done for every frame.
        sent = self._sent
        rows = size = 0
        while sent and sent[0].sequence <= sequence:
            frame = sent.popleft()
            rows += frame.rows
            size += frame.size
            self._acked = frame.sequence
        self.under_way -= size
        self.rows_acked += rows

    def again_from(self, sequence: int) -> None:
        """Send frames from this number on again, after `try_again`: they were refused for now."""
        self.credit = 0
        self._take_back(sequence)

    def is_stale(self) -> bool:
        """Whether a refusal is of a frame that has moved up since; such a one says nothing new."""
        if not self._stale:
            return False
        self._stale -= 1
        return True

    def sent_frame(self, sequence: int) -> Frame | None:
        """Return the frame under way that has a number."""
        return next((frame for frame in self._sent if frame.sequence == sequence), None)

    def refused(self, frame: Frame, rest: Frame | None) -> None:
        """Give up rows of a frame under way: send the rest in its place, and what is behind it again."""
        behind = self._take_back(frame.sequence)
        self._stale += behind - 1
        self._waiting.popleft()
        self.rows_rejected += frame.rows - (0 if rest is None else rest.rows)
        if rest is not None:
            self._waiting.appendleft(rest)
            return
        self._waiting = deque(renumbered(each, each.sequence - 1) for each in self._waiting)
        self._made -= 1

    def try_again(self) -> bool:
        """Let one frame go where the server gave no credit, to see whether it takes it now."""
        if self.credit > 0:
            return False
        self.credit = 1
        return True

    def _take_back(self, sequence: int) -> int:
        """Let frames under way wait again from a number on; return how many."""
        count = 0
        while self._sent and self._sent[-1].sequence >= sequence:
            frame = self._sent.pop()
            self.under_way -= frame.size
            self._waiting.appendleft(frame)
            count += 1
        return count

    def _done(self, frame: Frame) -> None:
        self._acked = frame.sequence
        self.rows_acked += frame.rows
