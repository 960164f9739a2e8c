"""Micro-batches: which rows one reads, and which windows it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from mavstream_protocol.typed_plan import TypedPlan
from mavstream_spark.runs.frontiers import (
    BEGIN_OF_TIME,
    END_OF_TIME,
    Frontiers,
    gaps_of,
    needed_times,
)
from mavstream_spark.runs.state import RunState, Skipped, StreamEnd


class RowRange(NamedTuple):
    """The rows of a stream that a micro-batch reads, by position."""

    low: int
    """The first row, of those that were read before."""
    start: int
    """The first new row."""
    stop: int
    """Behind the last row."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one micro-batch does."""

    ranges: Mapping[str, RowRange]
    """By stream."""
    before: Frontiers
    after: Frontiers
    needed: Mapping[str, int | None]
    """By node: the time from which its rows must be complete; None for new rows alone."""
    gaps: Mapping[str, int]
    """By node: the time up to which rows of its inputs were not seen."""
    skipped: Mapping[str, tuple[Skipped, ...]]
    """By stream: rows in its range that are not read."""
    answers: bool
    """Whether there can be answers; otherwise no row is read, and nothing need be published."""
    state: RunState
    """From where the run goes on behind it."""
    needs: Mapping[str, int]
    """By stream: the lowest position that later batches read."""
    ends: bool
    """Whether no batch follows, because all streams are complete."""


def next_batch(
    plan: TypedPlan, state: RunState, ends: Mapping[str, StreamEnd], most_rows: int | None = None
) -> MicroBatch:
    """Return the batch that takes a run up to the ends of its streams.

    `most_rows` limits the new rows of each stream, of plans whose answers depend on one row alone.
    """
    if most_rows is not None and not any(node.stateful for node in plan.nodes.values()):
        ends = {name: _limited(end, state.positions[name] + most_rows) for name, end in ends.items()}
    before = Frontiers.at(plan, state.watermarks)
    after = Frontiers.at(plan, {name: end.watermark for name, end in ends.items()})
    needed = needed_times(plan, before)
    low = _lowest(plan, state, needed)
    ranges = {
        name: RowRange(low.get(name, end.position), state.positions[name], end.position)
        for name, end in ends.items()
    }
    behind = replace(
        state.noting(ends),
        positions={name: end.position for name, end in ends.items()},
        watermarks={name: end.watermark for name, end in ends.items() if end.watermark != BEGIN_OF_TIME},
    )
    needs = _lowest(plan, behind, needed_times(plan, after))
    return MicroBatch(
        ranges,
        before,
        after,
        needed,
        gaps_of(plan, state.gaps),
        state.skipped,
        _answers(plan, ranges, before, after),
        behind.reading_from(needs),
        needs,
        all(end.complete for end in ends.values()),
    )


def _limited(end: StreamEnd, stop: int) -> StreamEnd:
    """Return an earlier end, at which the stream is not complete."""
    return end if end.position <= stop else StreamEnd(stop, BEGIN_OF_TIME, end.latest, False)


def _lowest(plan: TypedPlan, state: RunState, needed: Mapping[str, int | None]) -> dict[str, int]:
    """Return the lowest position of each stream that is needed."""
    found: dict[str, int] = {}
    for node in plan.sources:
        at = state.position_of(node.stream, needed.get(node.name))
        found[node.stream] = min(found.get(node.stream, END_OF_TIME), at)
    return found


def _answers(plan: TypedPlan, ranges: Mapping[str, RowRange], before: Frontiers, after: Frontiers) -> bool:
    """Return whether new rows or closed windows can lead to answers at the root."""
    emits = {node.name: ranges[node.stream].stop > ranges[node.stream].start for node in plan.sources}
    for node in plan.nodes.values():
        if node.name in emits:
            continue
        if node.windowed:
            emits[node.name] = after.closes(node, before)
        else:
            emits[node.name] = any(emits[one.node] for one in node.inputs)
    return emits[plan.root.node]
