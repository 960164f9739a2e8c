"""What operators have told of time: up to where each input is complete, and which times a start may touch.

All of it is worked out from what operators hold at a still point; nothing is kept for it while rows flow.
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
"""By node: the mark that its operator has handed on last."""


def marks(plan: TypedPlan, operators: Mapping[str, Operator]) -> dict[str, Mark]:
    """Return what has been told above each node of a plan, for the operators of its nodes."""
    found: dict[str, Mark] = {}
    for node in plan.operating:
        found[node.name] = mark_above(node, operators[node.name], found)
    return found


def mark_above(node: TypedNode, operator: Operator, below: Marks) -> Mark:
    """Return what an operator has told, where it is known what its inputs have."""
    progress = operator.progress
    if isinstance(operator, Source):
        return operator.told
    if isinstance(operator, WindowedOperator):
        return operator.told
    if isinstance(operator, Union | OrderedUnion | IntervalJoin):
        return Mark(progress.watermark, end=all(progress.ended), since=progress.since)
    return below[node.inputs[0].node]  # marks pass it as they are


def begin_at(node: TypedNode, operator: Operator, below: Marks) -> None:
    """Tell a new operator what those below it have told before it came."""
    told = [below[reference.node] for reference in node.inputs]
    operator.progress.load(
        {
            "ports": [mark.watermark for mark in told],
            "ended": [int(mark.end) for mark in told],
            "since": min(mark.since for mark in told),
        }
    )


def touched(plan: TypedPlan, sources: Mapping[str, Source]) -> dict[str, int]:
    """Return, by node, the latest time of an answer that rows read so far may have part in (us).

    A row is in windows that begin no later than it does, and finds partners no further away than a join
    reaches; each node adds to what comes from below as gap marks do.
    """
    found: dict[str, int] = {}
    for node in plan.operating:
        if node.name in sources:
            source = sources[node.name]
            told = source.told.watermark
            found[node.name] = max(source.cursor.max_time, BEGIN_OF_TIME if told == END_OF_TIME else told)
        else:
            latest = max(found[reference.node] for reference in node.inputs)
            found[node.name] = latest if latest == BEGIN_OF_TIME else node.latest_answer(latest)
    return found
