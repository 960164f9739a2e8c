"""Concatenate the rows of many small frames into a few large arrays, as sources do for operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME
from mavstream_server.columns.column import Column, Ints, Mask, concatenate, null_column
from mavstream_server.log.cursor import Span
from mavstream_server.log.format.frame import Frame
from mavstream_server.log.format.layout import FLAGS, FRAME_BYTES, ITEMS, ColumnLayout
from mavstream_server.log.watermarks import row_watermarks

_NO_ROWS: Ints = np.empty(0, dtype=np.int64)


def gather(spans: Sequence[Span], names: Sequence[str]) -> dict[str, Column]:
    """Return the named columns of all rows, concatenated; at least one span must have rows.

    Strings of one segment share its dictionary; those of several segments are recoded into a new one.
    """
    rows = spans if len(spans) == 1 else [span for span in spans if span[2] > span[1]]
    if len(rows) == 1:
        frame, start, stop = rows[0]
        columns = frame.columns(names)
        if stop - start == frame.rows:
            return columns
        return {name: column.slice(start, stop) for name, column in columns.items()}
    if rows[0][0].segment is rows[-1][0].segment:
        parts = [_blocks(rows)]
    else:
        parts = [_blocks(list(group)) for _, group in groupby(rows, key=_segment_key)]
    return {name: concatenate([_column(part, name) for part in parts]) for name in names}


def gather_arrivals(spans: Sequence[Span]) -> Ints:
    """Return the arrival time of each row, in ns."""
    if len(spans) == 1:
        return _arrivals(*spans[0])
    if True in [frame.stamped for frame, _, _ in spans]:
        return np.concatenate([_arrivals(*span) for span in spans])
    arrivals: Ints = np.array([frame.arrival for frame, _, _ in spans], dtype=np.int64)
    return arrivals.repeat([stop - start for _, start, stop in spans])


def gather_times(spans: Sequence[Span]) -> tuple[Ints | None, Ints | None]:
    """Return the time of each result and the watermark ahead of it, as their provenance has them (us).

    The watermarks are None if no row can be late, and the times themselves if all rows are in order.
    """
    parts = [
        (frame.provenance, start, stop)
        for frame, start, stop in spans
        if stop > start and frame.provenance is not None
    ]
    times = [one.time[start:stop] for one, start, stop in parts if one.time is not None]
    if not times or len(times) < len(parts):
        return None, None
    time = times[0] if len(times) == 1 else np.concatenate(times)
    ordered = all(one.row_watermark is one.time for one, _, _ in parts)
    if ordered and not np.count_nonzero(time[1:] < time[:-1]):
        return time, time
    if all(one.row_watermark is None for one, _, _ in parts):
        return time, None
    ahead = [
        _same(stop - start, BEGIN_OF_TIME) if one.row_watermark is None else one.row_watermark[start:stop]
        for one, start, stop in parts
    ]
    return time, ahead[0] if len(ahead) == 1 else np.concatenate(ahead)


def _arrivals(frame: Frame, start: int, stop: int) -> Ints:
    stamps = frame.stamps
    return _same(stop - start, frame.arrival) if stamps is None else stamps[start:stop]


def _same(size: int, value: int) -> Ints:
    """Return an array of one value; for small ones in half of the time that `np.full` takes."""
    array: Ints = np.empty(size, dtype=np.int64)
    array.fill(value)
    return array


def gather_positions(spans: Sequence[Span]) -> Ints:
    """Return the position of each row; the spans must be of one cursor, without a gap between them."""
    if not spans:
        return _NO_ROWS
    (first, start, _), (last, _, stop) = spans[0], spans[-1]
    return np.arange(first.first_position + start, last.first_position + stop, dtype=np.int64)


def gather_watermarks(spans: Sequence[Span], times: Ints) -> Ints:
    """Return the watermark directly before each row of a log with event time, or an equivalent one.

    Equivalent means that the same rows are late. `times` are the event times (us) of the same rows, which
    the caller has gathered already.
    """
    # Mostly all frames are of one producer without marks in between, which is found faster than runs are.
    if len(spans) == 1 or len({frame.producer if frame.rows else None for frame, _, _ in spans}) == 1:
        return _watermarks(spans, times)
    parts: list[Ints] = []
    row = 0
    for run in _runs(spans):
        size = sum([stop - start for _, start, stop in run])
        parts.append(_watermarks(run, times if size == len(times) else times[row : row + size]))
        row += size
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else _NO_ROWS


def _watermarks(run: Sequence[Span], times: Ints) -> Ints:
    """Return the watermarks of consecutive rows of one producer, or equivalent ones."""
    first, start, _ = run[0]
    if first.before == run[-1][0].after:
        return _same(len(times), first.before)
    return _run_watermarks(run) if start else _watermarks_from(first, times)


def _watermarks_from(first: Frame, times: Ints) -> Ints:
    """Return the watermarks of rows that begin at the start of a frame.

    If the rows of a single producer are in order, none is late, and the time of a row itself is as good as
    that of the row before it: without lateness the times can be returned as they are.
    """
    lateness = first.segment.layout.lateness
    alone = first.others == END_OF_TIME and times[0] >= first.before
    if alone and not np.count_nonzero(times[1:] < times[:-1]):
        # Times close to BEGIN_OF_TIME must not overflow.
        return np.maximum(times, BEGIN_OF_TIME + lateness) - lateness if lateness else times
    return row_watermarks(times, first.before, first.others, first.own, lateness)


def _segment_key(span: Span) -> int:
    return span[0].segment.key


def _runs(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Yield runs of consecutive rows of one producer; for watermarks they are equivalent to one frame."""
    run: list[Span] = []
    for span in spans:
        frame, start, stop = span
        if stop == start:
            # A mark can change which producers are live, an empty frame cannot; both end the run.
            if run:
                yield run
            run = []
        elif run and run[0][0].producer == frame.producer and run[-1][0].stop == frame.first_position:
            run.append(span)
        else:
            if run:
                yield run
            run = [span]
    if run:
        yield run


def _run_watermarks(run: Sequence[Span]) -> Ints:
    """Return the watermarks of rows that begin inside a frame, taking its first rows into account."""
    first, start, _ = run[0]
    layout = first.segment.layout
    assert layout.event_time is not None
    times = gather([(frame, 0, frame.rows) for frame, _, _ in run], [layout.event_time])[layout.event_time]
    last, _, stop = run[-1]
    marks = row_watermarks(times.values, first.before, first.others, first.own, layout.lateness)
    return marks[start : len(marks) - (last.rows - stop)]


class _Block(NamedTuple):
    """Adjacent frames with the same layout, or some rows of one frame."""

    frame: Frame
    frames: int
    start: int
    stop: int
    layouts: Mapping[str, ColumnLayout]
    """Where the columns are in each of the frames."""


def _blocks(spans: Sequence[Span]) -> list[_Block]:
    """Join spans of one segment into blocks, so that small frames cost little more than large ones do."""
    blocks: list[_Block] = []
    first, count, begin, end = spans[0][0], 0, spans[0][1], spans[0][2]
    rows, nulls, step, expected = first.rows, first.nulls, first.nbytes, first.byte_offset
    layouts = first.segment.layout.column_layouts
    whole = True
    for frame, start, stop in spans:
        same = (
            frame.byte_offset == expected
            and frame.nbytes == step
            and frame.rows == rows
            and frame.nulls == nulls
        )
        complete = stop - start == frame.rows
        if not (same and ((whole and complete) or not count)):
            blocks.append(_Block(first, count, begin, end, layouts(rows, nulls)))
            first, count, begin, end = frame, 0, start, stop
            rows, nulls, step = frame.rows, frame.nulls, frame.nbytes
        whole = complete
        count += 1
        expected = frame.byte_offset + step
    blocks.append(_Block(first, count, begin, end, layouts(rows, nulls)))
    return blocks


def _column(blocks: Sequence[_Block], name: str) -> Column:
    """Concatenate a column of one segment's frames from the map, without a Column object per frame."""
    segment = blocks[0].frame.segment
    array, shift, first, _, field = blocks[0].layouts[name]
    if first < 0:
        return null_column(ITEMS[array], sum(one.frames * (one.stop - one.start) for one in blocks))
    items = segment.arrays[array]
    values: list[npt.NDArray[Any]] = []
    nulls = False
    for block in blocks:
        frame, count, begin, end, layouts = block
        _, _, start, valid_start, _ = layouts[name]
        nulls = nulls or valid_start >= 0
        if count == 1:
            start += frame.byte_offset + FRAME_BYTES >> shift
            values.append(items[start + begin : start + end])
        else:
            values.append(_items(block, array, start << shift))
    joined = values[0] if len(values) == 1 else np.concatenate(values)
    valid = np.concatenate([_valid(block, name) for block in blocks]) if nulls else None
    return Column(joined, valid, segment.dictionaries[field])


def _valid(block: _Block, name: str) -> Mask:
    _, _, _, start, _ = block.layouts[name]
    if start < 0:
        return np.ones(block.frames * (block.stop - block.start), dtype=bool)
    return _items(block, FLAGS, start)


def _items(block: _Block, array: int, offset: int) -> npt.NDArray[Any]:
    """Return the items of a block's frames that start `offset` bytes into each body."""
    frame, count, start, stop, _ = block
    dtype = ITEMS[array]
    offset += frame.byte_offset + FRAME_BYTES + start * dtype.itemsize
    items: npt.NDArray[Any] = np.ndarray(
        (count, stop - start), dtype, frame.segment.view, offset, (frame.nbytes, dtype.itemsize)
    )
    return items.reshape(-1)
