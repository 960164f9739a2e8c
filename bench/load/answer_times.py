"""When answers were there, from the due time of the row that completes them, and where the time went."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.load.class_run import WARM_UP
from bench.load.receiver import Received
from bench.load.schedule import Schedule
from bench.load.sender import Sent
from bench.workload.class_queries import ClassQuery
from bench.workload.readings import BEGIN
from mavstream_server.log import LogReader, gather_arrivals

STAGES = ("due_to_sent", "sent_to_arrival", "arrival_to_result", "result_to_receipt")


class FedStream(NamedTuple):
    """A stream that was fed by a schedule from a begin on (seconds since the epoch)."""

    schedule: Schedule
    begin: float
    sent: Sent

    def completing_rows(self, query: ClassQuery, received: Received) -> np.ndarray:
        """Return the number of the row that completes each answer."""
        dues = self.schedule.dues
        # A wrong answer may have a time after all rows; it is counted as lost.
        rows: np.ndarray = np.searchsorted(dues, query.due(received.table) - BEGIN).clip(max=len(dues) - 1)
        return rows

    def due_ns(self, rows: np.ndarray) -> np.ndarray:
        """Return when rows were due, in ns since the epoch."""
        due: np.ndarray = self.schedule.dues[rows] * 1000 + int(self.begin * 1e9)
        return due

    def latencies(self, query: ClassQuery, received: Received) -> np.ndarray:
        """Return the milliseconds from due time to receipt of the answers whose rows arrived when warm."""
        rows = self.completing_rows(query, received)
        taken = (received.times - self.due_ns(rows)) / 1e6
        kept: np.ndarray = taken[self.warm(rows)]
        return kept

    def warm(self, rows: np.ndarray) -> np.ndarray:
        """Whether rows were due after the time that is not measured."""
        warm: np.ndarray = self.schedule.dues[rows] >= WARM_UP * 1e6
        return warm

    def stages(self, query: ClassQuery, received: Received, stream: Path, results: Path) -> np.ndarray:
        """Return the milliseconds of each stage (a line) for each answer after the warm-up (a column).

        A row arrives when the server stamps it; an answer is a result when it is in the result log. Answers
        whose result is no longer in the log are left out.
        """
        rows = self.completing_rows(query, received)
        first, result_ns = _log_times(results)
        known = self.warm(rows) & (np.arange(len(rows)) >= first)
        rows = rows[known]
        _, arrival_ns = _log_times(stream)
        moments = np.stack(
            [
                self.due_ns(rows),
                self.sent.times[self.schedule.frame_of_row[rows]],
                arrival_ns[rows],
                result_ns[np.flatnonzero(known) - first],
                received.times[known],
            ]
        )
        stages: np.ndarray = np.diff(moments, axis=0) / 1e6
        return stages


def _log_times(path: Path) -> tuple[int, np.ndarray]:
    """Return the first position of a log, and when each row was stamped, in ns."""
    reader = LogReader(path)
    first = reader.begin
    cursor, times = reader.cursor(first), [np.empty(0, dtype=np.int64)]
    while spans := [span for span in cursor.take(1 << 16) if span[2] > span[1]]:
        times.append(gather_arrivals(spans))
    return first, np.concatenate(times)
