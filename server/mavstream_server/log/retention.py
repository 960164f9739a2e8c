"""Retention: removes the oldest segments of a log by age and size."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from mavstream_server.log.writer import LogWriter


class Removed(NamedTuple):
    """What retention removed: whole segments, with the rows from `start` to `stop` (exclusive)."""

    segments: int
    nbytes: int
    start: int
    stop: int
    held: bool
    """Whether a cursor needs a segment that exceeds a limit."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of a log is retained; a limit that is None does not apply.

    A segment may be removed when its last frame is older than `max_age_ns`, or when the log has at least
    `max_bytes` without it. The segment being written is never removed.
    """

    max_age_ns: int | None = None
    max_bytes: int | None = None

    def apply(
        self, writer: LogWriter, needed_position: int | None, now_ns: int, *, force: bool = False
    ) -> Removed:
        """Remove, oldest first, the segments that exceed a limit and that no cursor needs.

        `needed_position` is the lowest position of all cursors, None if there are none. With `force` it is
        ignored: cursors that have not read the rows get a gap.
        """
        segments = writer.segments
        first = segments[0]
        oldest, nbytes, held = first, writer.nbytes, False
        for segment, following in pairwise(segments):
            size = following.offset - segment.offset
            # The arrival time in a segment's header is that of the last frame before it.
            old = self.max_age_ns is not None and now_ns - following.arrival > self.max_age_ns
            if not old and (self.max_bytes is None or nbytes - size < self.max_bytes):
                break
            # A cursor exactly at the segment's end may still have to read the marks there.
            held = needed_position is not None and needed_position <= following.position and not force
            if held:
                break
            oldest, nbytes = following, nbytes - size
        count = segments.index(oldest)
        writer.remove_before(oldest.serial)
        return Removed(count, oldest.offset - first.offset, first.position, oldest.position, held)
