"""Frontiers: the last marks that operators have emitted, and the latest answers that rows so far can affect.

All of it is computed from operator state at a quiescent point; nothing is recorded while rows flow.
"""

from __future__ import annotations

from collections.abc import Mapping

from mavstream_protocol.typed_plan import TypedNode, TypedPlan
from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME, Mark
from mavstream_server.operators.joins.interval_join import IntervalJoin
from mavstream_server.operators.operator import Operator
from mavstream_server.operators.source import Source
from mavstream_server.operators.union import OrderedUnion, Union
from mavstream_server.operators.windows.windowed import WindowedOperator

Marks = Mapping[str, Mark]
"""The last mark that each operator has emitted, by node."""


def marks(plan: TypedPlan, operators: Mapping[str, Operator]) -> dict[str, Mark]:
    """Return the last mark that each operator of a plan has emitted, by node."""
    found: dict[str, Mark] = {}
    for node in plan.operating:
        found[node.name] = mark_above(node, operators[node.name], found)
    return found


def mark_above(node: TypedNode, operator: Operator, below: Marks) -> Mark:
    """Return the last mark that an operator has emitted, given those of the nodes below it."""
    progress = operator.progress
    if isinstance(operator, Source):
        return operator.frontier
    if isinstance(operator, WindowedOperator):
        return operator.frontier
    if isinstance(operator, Union | OrderedUnion | IntervalJoin):
        return Mark(progress.watermark, end=all(progress.ended), since=progress.since)
    return below[node.inputs[0].node]  # it passes marks on unchanged


def begin_at(node: TypedNode, operator: Operator, below: Marks) -> None:
    """Set the progress of a new operator to the marks that the nodes below it have emitted."""
    emitted = [below[reference.node] for reference in node.inputs]
    operator.progress.load(
        {
            "ports": [mark.watermark for mark in emitted],
            "ended": [int(mark.end) for mark in emitted],
            "since": min(mark.since for mark in emitted),
        }
    )


def touched(plan: TypedPlan, sources: Mapping[str, Source]) -> dict[str, int]:
    """Return, by node, the latest time (us) of an answer that the rows read so far can contribute to.

    A row belongs to windows that begin no later than the row, and joins partners within the interval of the
    join; each node extends the time of the nodes below it, as for gap marks.
    """
    found: dict[str, int] = {}
    for node in plan.operating:
        if node.name in sources:
            source = sources[node.name]
            emitted = source.frontier.watermark
            frontier = BEGIN_OF_TIME if emitted == END_OF_TIME else emitted
            found[node.name] = max(source.cursor.max_time, frontier)
        else:
            latest = max(found[reference.node] for reference in node.inputs)
            found[node.name] = latest if latest == BEGIN_OF_TIME else node.latest_answer(latest)
    return found
