"""Warm-up: prepares the operators of a new plan with rows from before the seam.

Its windows and joins need some of these rows. A warm-up is the new plan, run as a query of its own that
nobody sees, from so far back that no earlier row matters: every window that such a row could be in is closed,
and every pair was found, when the old plan ends. Its answers are discarded, since the old plan has answered
for these rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mavstream_protocol.typed_plan import TypedNode, TypedPlan
from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME, mark_only
from mavstream_server.engine.migration.quiescence import is_quiescent
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.sources.source_task import SourceTask
from mavstream_server.log.reader import LogReader
from mavstream_server.operators.source import Source
from mavstream_server.operators.windows.windowed import WindowedOperator

_FAR = 1 << 62
"""Microseconds: further back than any row."""


class WarmUp(RunningQuery):
    """A new plan that processes rows before the seam; `hand_over` takes its operators then."""

    replaced: RunningQuery
    """The query whose plan it is going to be."""

    @property
    def known_as(self) -> str | None:
        """The id of the query for which it runs."""
        return self.replaced.id

    @property
    def _runs_for(self) -> Iterable[str]:
        return (self.replaced.id,)

    def _windows_above(self, source: SourceTask) -> list[WindowedOperator]:
        """Return none: its sources never rest until a window closes, since the query waits for them."""
        return []

    def stop_before(self, positions: Mapping[str, int]) -> int:
        """Read up to these positions, by source; return the number of rows up to there."""
        rows = 0
        for name, position in positions.items():
            source = self.sources[name].work
            source.until = position
            rows += source.waiting_rows
        return rows

    @property
    def idle(self) -> bool:
        """Whether it has processed all rows that it is to read for now."""
        return is_quiescent(self) and not any(
            task.work.waiting_rows and not task.work.ended for task in self.sources.values()
        )

    def follow(self, name: str, other: Source) -> bool:
        """Have a source reach the mark that another one on the same stream has read; return if it had not."""
        source = self.sources[name].work
        mark = other.frontier
        if source.frontier == mark and source.ended == other.ended:
            return False
        source.frontier, source.ended = mark, other.ended
        for queue in source.all_outputs:
            queue.append(mark_only(mark))
        return True


class Lacking(NamedTuple):
    """Rows of a stream that would be needed and are not retained any more."""

    first: int
    """The position of the first row that is retained."""
    until: int
    """The latest time (us) of the rows before it; BEGIN_OF_TIME if they had none."""


class WarmUpStart(NamedTuple):
    """Where a warm-up begins to read."""

    positions: dict[str, int]
    """The position by stream."""
    lacking: dict[str, Lacking]
    """The streams of which earlier rows would be needed and are not retained."""


def fresh_nodes(plan: TypedPlan, kept: frozenset[str]) -> frozenset[str]:
    """Return the new stateful nodes that begin at the seam, since no number of earlier rows is enough.

    These are windows by rows, which begin where the query does, sessions, which have no longest length, and
    the stateful nodes above them.
    """
    fresh: set[str] = set()
    above: set[str] = set()
    for node in plan.operating:
        follows = any(reference.node in above for reference in node.inputs)
        if node.name not in kept and node.stateful and (follows or node.counts_rows or node.endless):
            fresh.add(node.name)
            follows = True
        if follows:
            above.add(node.name)
    return frozenset(fresh)


def warmed_nodes(plan: TypedPlan, kept: frozenset[str], fresh: frozenset[str]) -> list[TypedNode]:
    """Return the new stateful nodes that need rows from before the seam."""
    return [node for node in plan.operating if node.stateful and node.name not in kept | fresh]


def sources_below(plan: TypedPlan, nodes: Iterable[TypedNode]) -> frozenset[str]:
    """Return the names of the sources whose rows reach any of some nodes."""
    names = {source.name for source in plan.sources}
    waiting, seen = [node.name for node in nodes], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += [reference.node for reference in plan.nodes[name].inputs]
    return frozenset(names & seen)


def beginning(
    plan: TypedPlan, nodes: Sequence[TypedNode], readers: Mapping[str, LogReader], watermark: int
) -> WarmUpStart:
    """Return from where on rows are needed, so that these nodes are complete at a watermark (us).

    `readers` are the logs of the streams that are read.
    """
    time = _latest_unneeded(plan, nodes, watermark)
    positions: dict[str, int] = {}
    lacking: dict[str, Lacking] = {}
    for stream, reader in readers.items():
        begin = positions[stream] = _first_behind(reader, time)
        until = reader.cursor(begin).max_time
        if until > time:
            lacking[stream] = Lacking(begin, until)
    return WarmUpStart(positions, lacking)


def _latest_unneeded(plan: TypedPlan, nodes: Sequence[TypedNode], watermark: int) -> int:
    """Return the latest time up to which rows matter to none of some nodes any more."""
    if watermark in (BEGIN_OF_TIME, END_OF_TIME):
        return watermark
    reached = _reached(plan, watermark)
    low, high = watermark - _FAR, watermark
    while high - low > 1:
        middle = (low + high) // 2
        if _unneeded(plan, nodes, middle, reached):
            low = middle
        else:
            high = middle
    return low


def _reached(plan: TypedPlan, watermark: int) -> dict[str, int]:
    """Return the lowest watermark that each node can have reached when the sources have reached one."""
    found: dict[str, int] = {}
    for node in plan.operating:
        below = min((found[reference.node] for reference in node.inputs), default=watermark)
        # An operator may hold its watermark back as far as the rows that it holds.
        found[node.name] = below - (node.latest_answer(below) - below if node.stateful else 0)
    return found


def _unneeded(plan: TypedPlan, nodes: Sequence[TypedNode], time: int, reached: Mapping[str, int]) -> bool:
    latest: dict[str, int] = {}
    for node in plan.operating:
        below = max((latest[reference.node] for reference in node.inputs), default=time)
        latest[node.name] = node.latest_answer(below) if node.inputs else time
    return all(
        latest[node.name] < min(reached[reference.node] for reference in node.inputs) for node in nodes
    )


def _first_behind(reader: LogReader, time: int) -> int:
    """Return the last position before which all rows have a time (us) of at most `time`.

    The first retained one if there is none.
    """
    low, high = reader.begin_of_columns, reader.end
    if reader.cursor(low).max_time > time:
        return low
    while high > low:
        middle = (low + high + 1) // 2
        if reader.cursor(middle).max_time <= time:
            low = middle
        else:
            high = middle - 1
    return low
