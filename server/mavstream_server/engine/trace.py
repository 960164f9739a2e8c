"""Traces: who ran when, for how many tuples and how long, while someone wants to know."""

from __future__ import annotations

from typing import NamedTuple

from mavstream_server.scheduling.view import Report, Slice


class TracedSlice(NamedTuple):
    """A slice as it was run. Times are nanoseconds."""

    start: int
    """UTC."""
    core: int
    query: str
    class_name: str
    operators: tuple[str, ...]
    """The operators by what they do, in the order in which they ran."""
    consumed: int
    produced: int
    elapsed: int


class RecordedSlices(NamedTuple):
    """What a trace has recorded."""

    slices: list[TracedSlice]
    left_out: int
    """Slices that were run when there was no room any more."""


class Trace:
    """The slices of a while, up to a number: a trace that grows without end would slow what it watches."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._slices: list[TracedSlice] = []
        self._left_out = 0

    def add(self, start: int, core: int, slice_: Slice, report: Report) -> None:
        """Record a slice."""
        if len(self._slices) >= self._most:
            self._left_out += 1
            return
        query = slice_.operators[0].query
        operators = tuple(operator.operator for operator in slice_.operators)
        self._slices.append(TracedSlice(start, core, query.id, query.class_name, operators, *report[:3]))

    def recorded(self) -> RecordedSlices:
        """Return what there is."""
        return RecordedSlices(self._slices, self._left_out)
