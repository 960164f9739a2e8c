"""The inbox: what the server says about frames, told to the lanes that they are of."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mavstream_feeder.errors import RowsRefused
from mavstream_feeder.sending.feeds import Options
from mavstream_feeder.sending.frames import without_rows
from mavstream_feeder.sending.lane import Lane
from mavstream_feeder.sending.link import Link
from mavstream_protocol import Problem
from mavstream_protocol.wire.feed import Ack, Acks, Ended, Reject

# What is refused with these passes: too many, not ready, storage full. A gap follows from such a refusal.
_PASSING = frozenset({429, 503, 507})
_GAP = "sequence_gap"
_BAD_ROWS = "invalid_tuples"
_ROW = re.compile(r"rows/(\d+)(?:/|$)")


class Inbox:
    """Takes in acks, refusals and confirmed ends."""

    def __init__(self, link: Link, lanes: Mapping[str, Lane], options: Options) -> None:
        self._link = link
        self._lanes = lanes
        self._options = options

    async def take_in(self) -> bool:
        """Take in the next message; whether there may be something to send for it.

        Raises ConnectionClosed and FeedLost, and RowsRefused where that ends the feed.
        """
        message = await self._link.receive()
        match message:
            case Ack():
                return self._acked({message.stream: (message.sequence, message.credit)})
            case Acks():
                return self._acked(message.streams)
            case Reject():
                return self._refused(self._lanes[message.stream], message)
            case Ended():
                self._lanes[message.stream].ended = True
                return True

    def _acked(self, streams: Mapping[str, tuple[int, int]]) -> bool:
        lanes = self._lanes
        waiting = False
        for stream, (sequence, credit) in streams.items():
            lane = lanes[stream]
            lane.acked(sequence, credit)
            waiting |= lane.waiting
        return waiting

    def _refused(self, lane: Lane, refusal: Reject) -> bool:
        if lane.is_stale():
            return False
        problem = refusal.problem
        if problem.status in _PASSING or problem.code == _GAP:
            lane.again_from(refusal.expected)
            return False
        frame = lane.sent_frame(refusal.sequence)
        if frame is None:
            raise RowsRefused(lane.stream, problem)
        rows = _bad_rows(problem)
        rest = without_rows(frame, rows, self._options.format) if rows else None
        lane.refused(frame, rest)
        if not (self._options.skip_rejected and problem.code == _BAD_ROWS):
            raise RowsRefused(lane.stream, problem)
        return True


def _bad_rows(problem: Problem) -> set[int]:
    """Return which rows of a frame a refusal names."""
    found = (_ROW.match(item.pointer) for item in problem.errors)
    return {int(row[1]) for row in found if row is not None}
