"""The writer's state of a log besides its rows, and its snapshot at the start of each segment."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mavstream_server.columns.column import Ints
from mavstream_server.log.format.description import LogDescription
from mavstream_server.log.format.encoding import seal_frame
from mavstream_server.log.format.layout import Body, FrameKind, Header
from mavstream_server.log.watermarks import (
    ArrivalWatermarks,
    EventWatermarks,
    ProducerTime,
    Stamp,
    Watermarks,
)

_WORDS = 6  # producer, known time, maximum, live, sequence, last position


class LogEnd(NamedTuple):
    """The end of a log at some moment."""

    position: int
    """The position of the next row."""
    watermark: int
    """The watermark there, in us."""


class LogState:
    """The next position, the last arrival time, watermarks, and the last sequence of each producer.

    Every segment starts with a snapshot of it, so that opening a log reads only the last segment, and the
    retained segments never depend on removed ones.
    """

    def __init__(self, description: LogDescription) -> None:
        self.position = 0
        self.arrival = 0
        self._on_events = description.event_time is not None
        self.watermarks: Watermarks = (
            EventWatermarks(description.lateness_us) if self._on_events else ArrivalWatermarks()
        )
        # producer -> last sequence, last position; 0 stands for rows without a producer and has no sequence.
        self._seen: dict[int, tuple[int, int]] = {}

    def last_sequence(self, producer: int) -> int:
        """Return the last sequence of a producer, 0 if none is known."""
        return self._seen.get(producer, (0, 0))[0]

    def rows(
        self, producer: int, sequence: int, size: int, arrival: int, largest: int, *, traced: bool = False
    ) -> Stamp:
        """Account for a frame of rows; `largest` is its largest event time (us), if there is event time.

        Of a frame of results, which is `traced`, it is the `latest_time`.
        """
        marks = self.watermarks
        if size or traced:
            stamp = marks.rows(producer, largest if self._on_events or traced else arrival // 1000)
        else:
            stamp = Stamp(marks.value, marks.value, marks.value, marks.value, marks.max_time)
        if producer:
            self._seen[producer] = (sequence or self.last_sequence(producer), self.position)
        self.position += size
        self.arrival = arrival
        return stamp

    def mark(self, kind: FrameKind, producer: int, arrival: int, watermark: int) -> Stamp:
        """Account for a mark; `arrival` is in ns, `watermark` in us."""
        time = arrival // 1000 if kind is FrameKind.CLOCK else watermark
        if isinstance(self.watermarks, ArrivalWatermarks):
            time = min(time, arrival // 1000)  # later rows arrive later than now, and none may be late
        stamp = self.watermarks.mark(kind, producer, time)
        if producer:
            self._seen[producer] = (self.last_sequence(producer), self.position)
        self.arrival = arrival
        return stamp

    def skip(self, position: int, lost: Header | None, following: Header | None) -> None:
        """Account for rows that are lost, up to a position.

        `lost` is the header of the lost frame if it is known, `following` that of the next intact frame.
        """
        for header in (lost, following):
            if header is not None:
                self.arrival = max(self.arrival, header.arrival if header is lost else 0)
                after = header.after if header is lost else header.before
                self.watermarks.value = max(self.watermarks.value, after)
                self.watermarks.max_time = max(self.watermarks.max_time, header.max_before)
        if lost is not None and lost.producer:
            sequence = max(lost.sequence, self.last_sequence(lost.producer))
            self._seen[lost.producer] = (sequence, lost.position)
        self.position = position

    def forget(self, first_position: int) -> None:
        """Drop producers that are not live and whose last frame was before the first retained position."""
        live = {item.producer for item in self.watermarks.producers() if item.live}
        gone = [p for p, (_, last) in self._seen.items() if last < first_position and p not in live]
        for producer in gone:
            del self._seen[producer]
        self.watermarks.forget(gone)

    def snapshot(self) -> bytes:
        """Return the frame that starts a segment."""
        rows = {p: [p, 0, 0, 0, *seen] for p, seen in self._seen.items()}
        for producer, maximum, live in self.watermarks.producers():
            rows.setdefault(producer, [producer, 0, 0, 0, 0, 0])[1:4] = [1, maximum, int(live)]
        body = Body(np.array(list(rows.values()), dtype=np.int64).tobytes(), 0, 0)
        marks = self.watermarks
        stamp = Stamp(marks.value, marks.value, marks.value, marks.value, marks.max_time)
        header = seal_frame(body, FrameKind.SNAPSHOT, stamp, position=self.position, arrival=self.arrival)
        return header + body.data

    def restore(self, header: Header, body: Ints) -> None:
        """Return to the state of a snapshot frame."""
        rows = body.reshape(-1, _WORDS).tolist()
        self.position, self.arrival = header.position, header.arrival
        self._seen = {row[0]: (row[4], row[5]) for row in rows if row[0]}
        producers = [ProducerTime(row[0], row[2], bool(row[3])) for row in rows if row[1]]
        self.watermarks.restore(header.after, header.max_before, producers)
