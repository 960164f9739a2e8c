"""Traces: a bounded recording of slices, with their operators, tuples and times."""

from __future__ import annotations

from typing import NamedTuple

from mavstream_server.scheduling.view import Report, Slice


class TracedSlice(NamedTuple):
    """A slice that was run. Times are in nanoseconds."""

    start: int
    """When it began (UTC)."""
    core: int
    query: str
    class_name: str
    operators: tuple[str, ...]
    """The kinds of the operators, in the order in which they ran."""
    consumed: int
    produced: int
    elapsed: int


class RecordedSlices(NamedTuple):
    """The slices that a trace has recorded."""

    slices: list[TracedSlice]
    left_out: int
    """The number of slices that were not recorded because the trace was full."""


class Trace:
    """Records slices up to a limit: an unbounded trace would slow down the engine."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._slices: list[TracedSlice] = []
        self._left_out = 0

    def add(self, start: int, core: int, slice_: Slice, report: Report) -> None:
        """Record a slice, unless the trace is full."""
        if len(self._slices) >= self._most:
            self._left_out += 1
            return
        query = slice_.operators[0].query
        operators = tuple(operator.operator for operator in slice_.operators)
        self._slices.append(TracedSlice(start, core, query.id, query.class_name, operators, *report[:3]))

    def recorded(self) -> RecordedSlices:
        """Return the slices so far."""
        return RecordedSlices(self._slices, self._left_out)
