"""The oldest arrivals in result logs: which rows of streams led to the results that are still to be read."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from typing import NamedTuple

from mavstream_server.log import Frame, GapCause, GapError, LogError, LogReader

_FRAMES = 64
"""Frames that are read at once: well below a millisecond."""
_MERGED_ROWS = 4096
_ALL = 1 << 62
_UNREADABLE = 0
"""Lower than every arrival time: any row may still have to be read."""


class _Block(NamedTuple):
    """Results before the offset `stop`, and the lowest arrival time among them."""

    stop: int
    arrival: int


class OldestResults:
    """Finds the lowest arrival time of the rows that led to results that are still to be read.

    Arrival times of results are in no order. Each result is read once, in pieces, and its arrival kept.
    """

    def __init__(self, directory: Path) -> None:
        """`directory` contains the result logs, by the id of the query."""
        self._directory = directory
        self._logs: dict[str, _ScannedLog] = {}
        self._asked: set[str] = set()

    def trim(self) -> None:
        """Close the logs that nobody has asked for since the last call."""
        self._logs = {id_: log for id_, log in self._logs.items() if id_ in self._asked}
        self._asked.clear()

    async def arrival(self, id_: str, offset: int) -> int | None:
        """Return the lowest arrival time (ns) of the results of a query from an offset on, or one before it.

        None if there are no such results, 0 if they cannot be read.
        """
        self._asked.add(id_)
        try:
            log = self._logs.get(id_)
            if log is None or not log.covers(offset):
                log = self._logs[id_] = _ScannedLog(LogReader(self._directory / id_, cache_bytes=0), offset)
            while log.read():
                await asyncio.sleep(0)
            return log.oldest(offset)
        except (LogError, OSError):
            self._logs.pop(id_, None)
            return _UNREADABLE


class _ScannedLog:
    """A result log that was read from an offset on."""

    def __init__(self, reader: LogReader, offset: int) -> None:
        self._start = offset
        self._cursor = reader.cursor(offset)
        self._blocks: deque[_Block] = deque()

    def covers(self, offset: int) -> bool:
        """Whether no result from an offset on was left out."""
        return self._start <= offset <= self._cursor.position

    def read(self) -> bool:
        """Read some frames and return whether there may be more; raises GapError if results were removed."""
        try:
            spans = self._cursor.take(_ALL, _FRAMES)
        except GapError as gap:
            if gap.cause is GapCause.DAMAGE:
                return True  # queries that read the log leave them out, too
            raise
        for frame, start, stop in spans:
            arrival = _oldest(frame, start)
            if arrival is not None:
                self._add(_Block(frame.first_position + stop, arrival))
        return bool(spans)

    def _add(self, block: _Block) -> None:
        if self._blocks and block.stop - self._start <= _MERGED_ROWS * len(self._blocks):
            last = self._blocks.pop()
            block = _Block(block.stop, min(last.arrival, block.arrival))
        self._blocks.append(block)

    def oldest(self, offset: int) -> int | None:
        """Return the lowest arrival time from an offset on, or one a little before it."""
        while self._blocks and self._blocks[0].stop <= offset:
            self._start = self._blocks.popleft().stop
        return min((block.arrival for block in self._blocks), default=None)


def _oldest(frame: Frame, start: int) -> int | None:
    """Return the lowest arrival time of the rows from `start` on and of the mark behind them."""
    traced = frame.provenance
    if traced is None:
        return _UNREADABLE
    found = [int(traced.arrival[start:].min())] if start < frame.rows else []
    if traced.mark is not None and traced.mark.arrival:
        found.append(traced.mark.arrival)
    return min(found, default=None)
