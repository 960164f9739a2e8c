"""Retention: which segments of a log may go, and their going."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from mavstream_server.log.writer import LogWriter


class Removed(NamedTuple):
    """What retention took away: whole segments, with the rows from `start` up to `stop`."""

    segments: int
    nbytes: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of a log is kept; a limit that is None keeps everything.

    A segment may go when its last frame is older than `max_age_ns`, or when without it the log still has
    `max_bytes`. The segment being written never goes.
    """

    max_age_ns: int | None = None
    max_bytes: int | None = None

    def apply(
        self, writer: LogWriter, needed_position: int | None, now_ns: int, *, force: bool = False
    ) -> Removed:
        """Remove, oldest first, the segments that may go and that no cursor needs.

        `needed_position` is the least position of all cursors, None if there are none. With `force` need
        does not count: cursors that wanted the rows get a gap.
        """
        segments = writer.segments
        first = segments[0]
        kept, nbytes = first, writer.nbytes
        for segment, following in pairwise(segments):
            size = following.offset - segment.offset
            # A cursor that stands exactly at its end may still want the marks there.
            needed = needed_position is not None and needed_position <= following.position
            if needed and not force:
                break
            # The arrival in a segment's header is that of the last frame ahead of it.
            old = self.max_age_ns is not None and now_ns - following.arrival > self.max_age_ns
            if not old and (self.max_bytes is None or nbytes - size < self.max_bytes):
                break
            kept, nbytes = following, nbytes - size
        count = segments.index(kept)
        writer.remove_before(kept.serial)
        return Removed(count, kept.offset - first.offset, first.position, kept.position)
