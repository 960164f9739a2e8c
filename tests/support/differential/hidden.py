"""Hidden columns of rows: position, time and the watermark just ahead, computed from the definition.

Deliberately plain and slow: nothing here is shared with the engine.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.support.differential.columns import ARRIVAL_BASE
from tests.support.differential.scripts import Advance, MarkStep, Rows, StreamScript

from mavstream_server.log.format.layout import FrameKind


class Hidden(NamedTuple):
    """Values of a row besides its fields; times in us, `watermark` None where a row cannot be late."""

    position: int
    time: int
    watermark: int | None


def hidden_columns(script: StreamScript) -> list[Hidden]:
    """Return the hidden columns of all rows, in stream order."""
    return _by_arrival(script) if script.event_time is None else _by_event_time(script)


def _by_arrival(script: StreamScript) -> list[Hidden]:
    now = ARRIVAL_BASE * 1000
    out: list[Hidden] = []
    for step in script.steps:
        if isinstance(step, Advance):
            now += step.nanoseconds
        elif isinstance(step, Rows):
            out += [Hidden(len(out) + i, now // 1000, None) for i in range(len(step.rows))]
    return out


def _by_event_time(script: StreamScript) -> list[Hidden]:
    index = [field.name for field in script.fields].index(script.event_time or "")
    state = _EventTime(script.lateness)
    out: list[Hidden] = []
    for step in script.steps:
        if isinstance(step, MarkStep):
            state.mark(step)
        elif isinstance(step, Rows):
            for row in step.rows:
                out.append(Hidden(len(out), row[index], state.watermark))
                state.row(step.producer, row[index])
    return out


class _EventTime:
    """The watermark after each row and mark; None stands for the begin of time."""

    def __init__(self, lateness: int) -> None:
        self.watermark: int | None = None
        self._lateness = lateness
        self._latest: dict[int, int | None] = {}
        self._live: set[int] = set()

    def row(self, producer: int, time: int) -> None:
        known = self._latest.get(producer)
        self._latest[producer] = time if known is None else max(known, time)
        self._live.add(producer)
        self._raise_to(self._least())

    def mark(self, step: MarkStep) -> None:
        if step.kind is FrameKind.WATERMARK:
            self._raise_to(step.watermark)
        elif step.kind is FrameKind.JOIN:
            self._latest.setdefault(step.producer, None)
            self._live.add(step.producer)
        elif step.kind in (FrameKind.IDLE, FrameKind.END) and step.producer in self._latest:
            self._live.discard(step.producer)
            if self._live:
                self._raise_to(self._least())
                return
            times = [time for time in self._latest.values() if time is not None]
            if times:  # no live producer: the largest time; an end mark drops the lateness
                self._raise_to(max(times) + 1 if step.kind is FrameKind.END else max(times) - self._lateness)

    def _least(self) -> int | None:
        times = [self._latest[producer] for producer in self._live]
        if not times or any(time is None for time in times):
            return None
        return min(time for time in times if time is not None) - self._lateness

    def _raise_to(self, time: int | None) -> None:
        if time is not None:
            self.watermark = time if self.watermark is None else max(self.watermark, time)
