"""The state of a run: from where it goes on, as the server stores it with each batch of results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mavstream_spark.runs.frontiers import BEGIN_OF_TIME

_MOST_MARKS = 256
"""Marks of a stream: with fewer of them, more rows are read again."""


class Mark(NamedTuple):
    """A position of a stream, and the largest time of the rows before it (us)."""

    position: int
    latest: int


class Skipped(NamedTuple):
    """Rows of a stream that are not read, by position."""

    start: int
    stop: int
    """Behind the last one."""


class StreamEnd(NamedTuple):
    """The end of a stream at some moment."""

    position: int
    watermark: int
    """That at the end (us)."""
    latest: int
    """The largest time of all rows (us)."""
    complete: bool


@dataclass(frozen=True, slots=True)
class RunState:
    """Where a run has got to; everything by stream."""

    positions: Mapping[str, int]
    """Behind the last row that was read."""
    watermarks: Mapping[str, int]
    """At these positions; streams that have not begun have none."""
    gaps: Mapping[str, int]
    """The largest time of rows that were not to be read: from before the start, or of the last pause."""
    marks: Mapping[str, tuple[Mark, ...]]
    """Positions from which rows of open windows can be read, in order; the first is never behind them."""
    skipped: Mapping[str, tuple[Skipped, ...]]
    """Rows that arrived in pauses, in the range of the marks; streams that have none are left out."""
    paused: bool = False

    @classmethod
    def parse(cls, state: Mapping[str, Any]) -> RunState:
        """Return the state of a run that goes on, or begins."""
        positions, gaps = dict(state["positions"]), dict(state["gaps"])
        first = {name: [[at, gaps.get(name, BEGIN_OF_TIME)]] for name, at in positions.items()}
        marks = {name: tuple(Mark(*one) for one in each) for name, each in state.get("marks", first).items()}
        left_out = state.get("skipped", {})
        return cls(
            positions,
            dict(state.get("watermarks", {})),
            gaps,
            marks,
            {name: tuple(Skipped(*one) for one in each) for name, each in left_out.items()},
            bool(state.get("paused")),
        )

    def json(self) -> dict[str, Any]:
        """Return it as the server stores it."""
        return {
            "positions": dict(self.positions),
            "watermarks": dict(self.watermarks),
            "gaps": dict(self.gaps),
            "marks": {name: [list(mark) for mark in each] for name, each in self.marks.items()},
            "skipped": {name: [list(one) for one in each] for name, each in self.skipped.items()},
            "paused": self.paused,
        }

    def noting(self, ends: Mapping[str, StreamEnd]) -> RunState:
        """Return the state with marks at the ends of streams, which later batches can read from."""
        marks = dict(self.marks)
        for name, end in ends.items():
            known = marks[name]
            if end.position > known[-1].position:
                marks[name] = thinned((*known, Mark(end.position, end.latest)))
        return replace(self, marks=marks)

    def position_of(self, stream: str, time: int | None) -> int:
        """Return a position from which on all rows of a time and later are; None stands for new rows."""
        position = self.positions[stream]
        if time is None:
            return position
        marks = self.marks[stream]
        at = next((mark.position for mark in reversed(marks) if mark.latest < time), marks[0].position)
        return min(at, position)

    def skipping(self, ends: Mapping[str, StreamEnd]) -> RunState:
        """Return the state of a run that goes on after a pause, whose rows are not read."""
        passed = {name: end for name, end in ends.items() if end.position > self.positions[name]}
        skipped = dict(self.skipped)
        for name, end in passed.items():
            skipped[name] = (*skipped.get(name, ()), Skipped(self.positions[name], end.position))
        return replace(
            self.noting(passed),
            positions={**self.positions, **{name: end.position for name, end in passed.items()}},
            watermarks={**self.watermarks, **{name: end.watermark for name, end in passed.items()}},
            gaps={**self.gaps, **{name: end.latest for name, end in passed.items()}},
            skipped=skipped,
            paused=False,
        )

    def reading_from(self, needs: Mapping[str, int]) -> RunState:
        """Return the state without what is only of use for rows before these positions."""
        skipped = {
            name: kept
            for name, each in self.skipped.items()
            if (kept := tuple(one for one in each if one.stop > needs[name]))
        }
        marks = {name: _from(each, needs[name]) for name, each in self.marks.items()}
        return replace(self, marks=marks, skipped=skipped)


def _from(marks: tuple[Mark, ...], position: int) -> tuple[Mark, ...]:
    """Return the marks that are not before a position, which is one itself or behind all."""
    return tuple(mark for mark in marks if mark.position >= position) or marks[-1:]


def thinned(marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """Leave out every second mark, apart from the first and the last ones, if there are too many."""
    return marks if len(marks) <= _MOST_MARKS else (marks[0], *marks[1:-1:2], marks[-1])
