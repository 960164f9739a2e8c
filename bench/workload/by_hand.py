"""The queries of the engine benchmark, hand-written in numpy, over the frames of the same logs.

They are the baseline, so they may use knowledge that a general engine lacks: that times never decrease, that
nothing is null, that there are few locations. Each yields its answers batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.workload.readings import LOCATIONS
from mavstream_server.columns.column import Column, Ints
from mavstream_server.log import Frame, LogReader

Part = tuple[npt.NDArray[Any] | Column, ...]
"""Some answers, a column each, in the order of the query's columns."""

SECOND = 1_000_000
WITHIN = 50_000
_CHUNK = 16  # frames: enough for sorting to cost little per row, few enough to stay in the cache


def frames(reader: LogReader) -> Iterator[Frame]:
    """Yield the frames of a log that have rows."""
    cursor = reader.cursor(reader.begin)
    while (step := cursor.next()) is not None:
        if step[0].rows:
            yield step[0]


def select_and_project(readings: LogReader) -> Iterator[Part]:
    """Q1: compare, take, compute."""
    for frame in frames(readings):
        temperature = frame.column("temperature").values
        rows = np.flatnonzero((temperature > 30) & (frame.column("humidity").values < 30))
        yield (
            frame.column("ts").values.take(rows),
            frame.column("location").take(rows),
            temperature.take(rows) * 1.8 + 32,
        )


def tumbling_aggregate(readings: LogReader) -> Iterator[Part]:
    """Q2: arrays indexed by the location's code, emptied when the window changes."""
    window, groups = None, _Groups()
    for frame in frames(readings):
        ts, codes = frame.column("ts").values, groups.codes(frame.column("location"))
        temperature, humidity = frame.column("temperature").values, frame.column("humidity").values
        start, rows = 0, len(ts)
        while start < rows:
            current = int(ts[start]) // SECOND
            if current != window:
                if window is not None:
                    yield groups.answer(window)
                window = current
            stop = rows
            if int(ts[-1]) // SECOND != current:
                stop = int(np.searchsorted(ts, (current + 1) * SECOND))
            groups.add(codes[start:stop], temperature[start:stop], humidity[start:stop])
            start = stop
    if window is not None:
        yield groups.answer(window)


class _Groups:
    """The open window of Q2."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._moved: Ints = np.empty(0, dtype=np.int64)
        self._source: object = None
        self._clear()

    def _clear(self) -> None:
        self._count: Ints = np.zeros(LOCATIONS, dtype=np.int64)
        self._sum = np.zeros(LOCATIONS)
        self._maximum: Ints = np.full(LOCATIONS, -1, dtype=np.int64)

    def codes(self, location: Column) -> Ints:
        """Return codes that mean the same in every segment of the log."""
        source = location.dictionary
        assert source is not None
        if source is not self._source or len(self._moved) < len(source):
            self._source = source
            self._texts += [text for text in source.values if text not in self._texts]
            self._moved = np.array([self._texts.index(text) for text in source.values])
        return self._moved.take(location.values)

    def add(self, codes: Ints, temperature: Ints, humidity: Ints) -> None:
        """Fold rows in."""
        self._count += np.bincount(codes, minlength=LOCATIONS)
        self._sum += np.bincount(codes, temperature, LOCATIONS)
        np.maximum.at(self._maximum, codes, humidity)

    def answer(self, window: int) -> Part:
        """Return a row per location and start over."""
        present = np.flatnonzero(self._count)
        start = np.full(len(present), window * SECOND)
        texts = np.array(self._texts, dtype=object).take(present)
        count, total, maximum = (a.take(present) for a in (self._count, self._sum, self._maximum))
        self._clear()
        return start, start + SECOND, texts, count, total / count, maximum


_JOINED = ("sensor_id", "ts", "temperature")


def interval_join(left: LogReader, right: LogReader) -> Iterator[Part]:
    """Q3: chunks of left frames against the right rows that are near them, both sorted by key and time."""
    left_frames, right_frames = frames(left), frames(right)
    near, newest = [np.empty(0, dtype=np.int64)] * len(_JOINED), -1
    while chunk := list(islice(left_frames, _CHUNK)):
        asked = _columns(chunk)
        last = int(asked[1][-1])
        coming = []
        while newest <= last + WITHIN and (frame := next(right_frames, None)) is not None:
            coming.append(frame)
            newest = int(frame.column("ts").values[-1])
        if coming:
            near = [np.concatenate(both) for both in zip(near, _columns(coming), strict=True)]
        yield _pairs(asked, near)
        # The next chunk begins no earlier than this one ended.
        first = int(np.searchsorted(near[1], last - WITHIN))
        near = [array[first:] for array in near]


def _columns(chunk: list[Frame]) -> list[Ints]:
    return [np.concatenate([frame.column(name).values for frame in chunk]) for name in _JOINED]


def _pairs(left: list[Ints], right: list[Ints]) -> Part:
    if not len(right[1]):
        return (*left[:1], *left[1:2], *right[1:2], *left[2:], *right[2:])
    base = min(int(left[1][0]), int(right[1][0])) - WITHIN
    left, left_places = _by_key(left, base)
    right, right_places = _by_key(right, base)
    low = np.searchsorted(right_places, left_places - WITHIN)
    counts = np.searchsorted(right_places, left_places + WITHIN, "right") - low
    asked = np.repeat(np.arange(len(counts)), counts)
    found = np.arange(len(asked)) + np.repeat(low - (np.cumsum(counts) - counts), counts)
    return (
        left[0].take(asked),
        left[1].take(asked),
        right[1].take(found),
        left[2].take(asked),
        right[2].take(found),
    )


def _by_key(columns: list[Ints], base: int) -> tuple[list[Ints], Ints]:
    """Sort rows, which are in time order, by key; also return key and time as one number."""
    order = columns[0].astype(np.uint16).argsort(kind="stable")  # small keys: a radix sort
    columns = [column.take(order) for column in columns]
    return columns, (columns[0] << 44) + (columns[1] - base)
