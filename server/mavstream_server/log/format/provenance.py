"""Provenance of result rows: their times, the positions read for them, and the mark behind them.

A frame of a result log ends with it, so that another query can read the results as it would read a stream:
windows close at the same watermarks, late rows are the same, latency counts from the first arrival.

    times, arrivals, row watermarks   int64 each, only where the rows of the frame differ
    positions                         int64 per source of the query
    footer                            what all rows have in common, the mark, flags
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME, Batch, Mark
from mavstream_server.columns.column import Ints

# Time (us), arrival (ns) and watermark (us) of all rows; watermark, arrival and gap of the mark; flags;
# number of positions.
_FOOTER = struct.Struct("<qqqqqqII")

_FOOTER_OF_ONE = struct.Struct(f"<q{_FOOTER.format[1:]}")
"""The footer behind the position of a single source."""

_TIMED, _TIMES, _ARRIVALS, _WATERMARKED, _WATERMARKS, _IN_ORDER, _MARKED, _GAP, _END = (
    1 << bit for bit in range(9)
)
_FEW = 256  # rows
_BIT_OF_ARRAY = (_TIMES, _ARRIVALS, _WATERMARKS)


class Provenance(NamedTuple):
    """Where the rows of a result frame come from."""

    time: Ints | None
    """The time (us) of each row, as an operator above the query's output would see it."""
    arrival: Ints
    """The arrival (ns) of the last row or mark of the streams that made each row possible."""
    row_watermark: Ints | None
    """The watermark (us) directly before each row; None if no row can be late."""
    positions: tuple[int, ...]
    """The position behind the last row that was read of each source, in the order of the plan."""
    mark: Mark | None
    """The mark behind the rows."""


def encode_provenance(batch: Batch, positions: Sequence[int]) -> bytes:
    """Return the provenance of a batch of results, with its mark."""
    flags = time = arrival = row_watermark = 0
    parts: list[bytes] = []
    if batch.size:
        times, watermarks = batch.time, batch.row_watermark
        if times is not None:
            flags, time = _TIMED, times.item(0)
            if not _same(times):
                flags |= _TIMES
                parts.append(times.tobytes())
        arrival = batch.arrival.item(0)
        if not _same(batch.arrival):
            flags |= _ARRIVALS
            parts.append(batch.arrival.tobytes())
        if watermarks is not None:
            flags |= _WATERMARKED
            if watermarks is times:
                flags |= _IN_ORDER
            else:
                row_watermark = watermarks.item(0)
                if not _same(watermarks):
                    flags |= _WATERMARKS
                    parts.append(watermarks.tobytes())
    watermark = marked = gap = 0
    if batch.mark is not None:
        watermark, marked, mark_gap, end, _ = batch.mark
        flags |= _MARKED | (_END if end else 0)
        if mark_gap is not None:
            flags, gap = flags | _GAP, mark_gap
    count = len(positions)
    pack = _FOOTER_OF_ONE.pack if count == 1 else struct.Struct(f"<{count}q{_FOOTER.format[1:]}").pack
    footer = pack(*positions, time, arrival, row_watermark, watermark, marked, gap, flags, count)
    return b"".join((*parts, footer)) if parts else footer


def latest_time(rows: Batch | Provenance) -> int:
    """Return the largest time (us) of results and of the gap behind them; BEGIN_OF_TIME without both."""
    latest, time = BEGIN_OF_TIME, rows.time
    if time is not None and len(time):
        # Of rows that are known to be in order the watermarks are the times, the same array.
        latest = time.item(-1) if rows.row_watermark is time else int(time.max())
    if rows.mark is not None and rows.mark.gap is not None:
        latest = max(latest, rows.mark.gap)
    return min(latest, END_OF_TIME - 1)


def decode_provenance(items: Ints, stop: int, rows: int) -> Provenance:
    """Return the provenance of a frame that ends before item `stop` of a segment, seen as 64-bit integers."""
    footer = items[stop - _FOOTER.size // 8 : stop].tobytes()
    time, arrival, row_watermark, watermark, marked, gap, flags, count = _FOOTER.unpack(footer)
    stop -= _FOOTER.size // 8 + count
    positions = tuple(items[stop : stop + count].tolist())
    arrays: list[Ints] = []
    for bit, value in zip(reversed(_BIT_OF_ARRAY), (row_watermark, arrival, time), strict=True):
        if flags & bit:
            stop -= rows
            arrays.append(items[stop : stop + rows])
        else:
            arrays.append(np.full(rows, value, dtype=np.int64))
    watermarks, arrivals, times = arrays
    mark = None
    if flags & _MARKED:
        mark = Mark(watermark, marked, gap if flags & _GAP else None, bool(flags & _END))
    return Provenance(
        times if flags & _TIMED else None,
        arrivals,
        (times if flags & _IN_ORDER else watermarks) if flags & _WATERMARKED else None,
        positions,
        mark,
    )


def _same(values: Ints) -> bool:
    """Whether all values are equal."""
    size = len(values)
    if size == 1:
        return True
    if values.item(0) != values.item(-1):
        return False
    if size <= _FEW:  # bytes are compared in a tenth of the time that a numpy call takes
        return values.tobytes() == values[:1].tobytes() * size
    return bool((values == values.item(0)).all())
